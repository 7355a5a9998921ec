//! `forebay-wan`: a long line on this machine, between a client and a server that know nothing of it.
//!
//! Prints `{"port": ...}` when it is ready and its counts when standard input closes or SIGTERM comes. With `--packets`
//! it makes two networks instead, joined by a line that may lose packets, and prints a process in each and the server's
//! address: `nsenter --net=/proc/PID/ns/net COMMAND` runs a command there.

use clap::{Parser, ValueEnum};
use forebay_core::{Error, Result};
use forebay_testkit::program;
use forebay_testkit::wan::packets::{Cable, CableOptions, Side};
use forebay_testkit::wan::{DelayOn, Relay, StallOn, WanOptions};
use serde_json::{Value, json};
use std::net::{SocketAddr, ToSocketAddrs};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

/// Relays TCP with the delay, rate and faults of a long line, or carries packets between two networks.
#[derive(Parser)]
#[command(name = "forebay-wan")]
struct Args {
    /// Server to relay to, `host:port`.
    #[arg(long, required_unless_present = "packets")]
    target: Option<String>,
    /// Make two networks and carry packets between them, instead of relaying TCP. Needs root.
    #[arg(long, conflicts_with_all = ["target", "listen", "delay_on", "connection_mbit", "jitter_ms", "stall_share", "cut_share"])]
    packets: bool,
    /// Share of packets that are lost on each way.
    #[arg(long, default_value_t = 0.0, requires = "packets")]
    loss: f64,
    /// Where clients connect; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Delay of a round trip.
    #[arg(long, default_value_t = 100.0)]
    rtt_ms: f64,
    /// Where the delay lies.
    #[arg(long, value_enum, default_value = "both")]
    delay_on: Delay,
    /// Rate of the line in each direction, in megabits a second; 0 for no cap.
    #[arg(long, default_value_t = 1000.0)]
    rate_mbit: f64,
    /// Rate of each connection in each direction; 0 for no cap.
    #[arg(long, default_value_t = 0.0)]
    connection_mbit: f64,
    /// Up to so much is added to each delay.
    #[arg(long, default_value_t = 0.0)]
    jitter_ms: f64,
    /// Share of requests, or of pieces of answers, that are held up.
    #[arg(long, default_value_t = 0.0)]
    stall_share: f64,
    /// For how long.
    #[arg(long, default_value_t = 1000.0)]
    stall_ms: f64,
    /// What is held up.
    #[arg(long, value_enum, default_value = "requests")]
    stall_on: Stall,
    /// Share of pieces of answers in whose middle the connection is reset.
    #[arg(long, default_value_t = 0.0)]
    cut_share: f64,
    /// Decides jitter, stalls and cuts.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Print the counts so often; 0 for only at the end.
    #[arg(long, default_value_t = 0)]
    report_ms: u64,
}

#[derive(Clone, Copy, ValueEnum)]
enum Delay {
    Both,
    Answers,
}

#[derive(Clone, Copy, ValueEnum)]
enum Stall {
    Requests,
    Answers,
}

impl Args {
    fn options(&self) -> Result<WanOptions> {
        Ok(WanOptions {
            round_trip: milliseconds("--rtt-ms", self.rtt_ms)?,
            delay_on: match self.delay_on {
                Delay::Both => DelayOn::BothWays,
                Delay::Answers => DelayOn::Answers,
            },
            bytes_per_second: rate("--rate-mbit", self.rate_mbit)?,
            connection_bytes_per_second: rate("--connection-mbit", self.connection_mbit)?,
            jitter: milliseconds("--jitter-ms", self.jitter_ms)?,
            stall_share: share("--stall-share", self.stall_share)?,
            stall: milliseconds("--stall-ms", self.stall_ms)?,
            stall_on: match self.stall_on {
                Stall::Requests => StallOn::Requests,
                Stall::Answers => StallOn::Answers,
            },
            cut_share: share("--cut-share", self.cut_share)?,
            seed: self.seed,
            ..WanOptions::default()
        })
    }
}

fn within(flag: &str, value: f64, most: f64) -> Result<f64> {
    if (0.0..=most).contains(&value) {
        return Ok(value);
    }
    Err(Error::invalid_config(format!("set up the line, `{flag}` is {value}: it must be from 0 to {most}")))
}

fn milliseconds(flag: &str, value: f64) -> Result<Duration> {
    Ok(Duration::from_secs_f64(within(flag, value, 3_600_000.0)? / 1e3))
}

fn rate(flag: &str, megabits: f64) -> Result<u64> {
    Ok((within(flag, megabits, 1e6)? * 125_000.0) as u64)
}

fn share(flag: &str, value: f64) -> Result<f64> {
    within(flag, value, 1.0)
}

fn unix_seconds() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

fn counts(relay: &Relay) -> Value {
    let counts = relay.counts();
    json!({
        "unix_seconds": unix_seconds(),
        "connections": counts.connections,
        "open": counts.open,
        "most_open": counts.most_open,
        "refused": counts.refused,
        "up_bytes": counts.up_bytes,
        "down_bytes": counts.down_bytes,
        "stalls": counts.stalls,
        "cuts": counts.cuts,
    })
}

fn cable_counts(cable: &Cable) -> Value {
    let counts = cable.counts();
    json!({
        "unix_seconds": unix_seconds(),
        "up_bytes": counts.up_bytes,
        "down_bytes": counts.down_bytes,
        "packets": counts.packets,
        "lost": counts.lost,
        "overflowed": counts.overflowed,
    })
}

fn relay(args: &Args, target: &str) -> Result<()> {
    let mut found =
        target.to_socket_addrs().map_err(|source| Error::io(format!("look up `{target}`"), source))?;
    let found =
        found.next().ok_or_else(|| Error::not_found(format!("look up `{target}`: it has no address")))?;
    let relay = Relay::start(args.listen, found, args.options()?)?;
    program::print(&json!({ "port": relay.address().port(), "address": relay.address().to_string() }));
    report(args, || counts(&relay))
}

fn packets(args: &Args) -> Result<()> {
    let cable = Cable::start(&CableOptions {
        round_trip: milliseconds("--rtt-ms", args.rtt_ms)?,
        bytes_per_second: rate("--rate-mbit", args.rate_mbit)?,
        loss: share("--loss", args.loss)?,
        seed: args.seed,
        ..CableOptions::default()
    })?;
    program::print(&json!({
        "client": cable.process(Side::Client),
        "server": cable.process(Side::Server),
        "address": Side::Server.address().to_string(),
    }));
    report(args, || cable_counts(&cable))
}

/// Until the end: the counts now and then, and once more.
fn report(args: &Args, counts: impl Fn() -> Value) -> Result<()> {
    program::wait_for_end(Duration::from_millis(args.report_ms), || program::print(&counts()))?;
    program::print(&counts());
    Ok(())
}

fn run(args: &Args) -> Result<()> {
    match &args.target {
        Some(target) => relay(args, target),
        None => packets(args),
    }
}

fn main() -> ExitCode {
    program::finish(run(&Args::parse()))
}
