//! `forebay cache show`: what a cache holds, tier by tier: on disk, in the processes of this host, with a node.

use super::{Context, Done, count, counted, size};
use crate::args::CacheShowArgs;
use crate::report::Report;
use forebay_core::Result;
use forebay_engine::cache::disk::DiskTier;
use forebay_engine::cache::{KeeperView, TierView, seconds_now};
use forebay_net::host::{running_hosts, show_host};
use forebay_net::peer::show_node;
use forebay_net::{Threads, Token};
use serde_json::{Value, json};
use std::path::Path;

/// The variable that loaders take their peers' token from.
const TOKEN: &str = "FOREBAY_PEER_TOKEN";

pub(super) fn run(args: &CacheShowArgs, context: &Context) -> Result<Done> {
    match &args.place {
        None => hosts(context),
        Some(place) if is_address(place) => node(place, args, context),
        Some(place) => directory(Path::new(place), context),
    }
}

/// Whether this names a node. A directory of that name comes first.
fn is_address(place: &str) -> bool {
    let port = place.rsplit_once(':').filter(|(host, _)| !host.is_empty() && !host.contains('/'));
    port.is_some_and(|(_, port)| port.parse::<u16>().is_ok()) && !Path::new(place).exists()
}

fn directory(dir: &Path, context: &Context) -> Result<Done> {
    let view = DiskTier::look(dir)?.detail();
    let report = &context.report;
    let tier = TierView { hits: view.all_hits, ..view.tier };
    report.fact("cache", dir.display());
    report.fact("limit", size(tier.limit));
    report.fact("payloads", format_args!("{}, {}", count(tier.payloads), size(tier.bytes)));
    report.fact("datasets", count(view.groups));
    let dead = if view.dead_bytes > 0 {
        format!(", {} to be compacted", size(view.dead_bytes))
    } else {
        String::new()
    };
    report.fact(
        "files",
        format_args!("{} in {}{dead}", size(view.file_bytes), counted(view.segments, "segment")),
    );
    report.fact("hits", format_args!("{}, by processes that have ended", count(tier.hits)));
    let [oldest, newest] = ages(&tier);
    if let (Some(oldest), Some(newest)) = (oldest, newest) {
        report.fact("kept", format_args!("{} to {} ago", age(newest), age(oldest)));
    }
    if !view.sound_index {
        report.fact("index", "missing or damaged; the next writer makes it again");
    }
    Ok(Done::with(json!({
        "dir": dir,
        "limit": tier.limit,
        "bytes": tier.bytes,
        "payloads": tier.payloads,
        "hits": tier.hits,
        "groups": view.groups,
        "segments": view.segments,
        "file_bytes": view.file_bytes,
        "dead_bytes": view.dead_bytes,
        "oldest_seconds": oldest,
        "newest_seconds": newest,
        "sound_index": view.sound_index,
    })))
}

/// The processes that hold memory for this user's loaders.
fn hosts(context: &Context) -> Result<Done> {
    let threads = Threads::shared()?;
    let mut found = Vec::new();
    for socket in running_hosts()? {
        // One that has left meanwhile is not there any more.
        let Ok(view) = threads.block_on(show_host(&socket, threads.clone())) else { continue };
        context.report.fact("process", socket.display());
        found.push(tiers(&context.report, &view, json!({ "socket": socket.display().to_string() })));
    }
    if found.is_empty() {
        context.report.line("no process of this host holds a shared cache");
    }
    Ok(Done::with(json!({ "processes": found })))
}

fn node(address: &str, args: &CacheShowArgs, context: &Context) -> Result<Done> {
    let mut credentials = args.credentials.resolve()?;
    if let (None, Ok(token)) = (&credentials.token, std::env::var(TOKEN)) {
        credentials.token = Some(Token::new(&token)?);
    }
    let threads = Threads::shared()?;
    let view = threads.clone().block_on(show_node(address, &credentials, threads))?;
    context.report.fact("node", address);
    Ok(Done::with(tiers(&context.report, &view, json!({ "node": address }))))
}

/// Prints the tiers and adds them to an object.
fn tiers(report: &Report, view: &KeeperView, mut object: Value) -> Value {
    for (name, tier) in [("memory", &view.memory), ("disk", &view.disk)] {
        let [oldest, newest] = ages(tier);
        let kept = match (oldest, newest) {
            (Some(oldest), Some(newest)) => format!(", kept {} to {} ago", age(newest), age(oldest)),
            _ => String::new(),
        };
        if tier.limit > 0 {
            report.fact(
                name,
                format_args!(
                    "{} of {} in {}, {}{kept}",
                    size(tier.bytes),
                    size(tier.limit),
                    counted(tier.payloads, "payload"),
                    counted(tier.hits, "hit"),
                ),
            );
        }
        object[name] = json!({
            "limit": tier.limit,
            "bytes": tier.bytes,
            "payloads": tier.payloads,
            "hits": tier.hits,
            "refused": tier.refused,
            "damaged": tier.damaged,
            "oldest_seconds": oldest,
            "newest_seconds": newest,
        });
    }
    object
}

/// Seconds since the oldest and the newest payload were kept.
fn ages(tier: &TierView) -> [Option<u32>; 2] {
    let now = seconds_now();
    [tier.oldest, tier.newest].map(|kept| kept.map(|kept| now.saturating_sub(kept)))
}

/// An age for people. Payloads are stamped with whole seconds.
fn age(seconds: u32) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86400),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn ages_are_told_in_the_unit_that_suits_them() {
        for (seconds, text) in
            [(0, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (200_000, "2 days")]
        {
            assert_eq!(super::age(seconds), text);
        }
    }

    #[test]
    fn a_node_is_told_from_a_directory() {
        for (place, address) in [
            ("node1:7846", true),
            ("10.0.0.1:1", true),
            ("/nvme/forebay", false),
            ("kept", false),
            ("a/b:1", false),
        ] {
            assert_eq!(super::is_address(place), address, "{place}");
        }
    }
}
