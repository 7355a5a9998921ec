//! What the process of a host has, for people: feeds, their staging, and the jobs that share them.

use super::{count, counted, size, table};
use forebay_net::service::worker::{FeedView, WorkerView};
use std::time::Duration;

/// The view for people; with an earlier one, also how fast things went since.
pub(super) fn lines(view: &WorkerView, before: Option<(&WorkerView, Duration)>) -> Vec<String> {
    let draining = if view.draining { ", draining" } else { "" };
    let mut lines = vec![format!(
        "{}, {}, {} handed over{}{draining}",
        counted(view.feeds.len() as u64, "feed"),
        // Who asks is connected too.
        counted(view.connections.saturating_sub(1), "client"),
        size(view.bytes_sent),
        before.map_or_else(String::new, |(before, passed)| {
            format!(", {}/s", size(rate(view.bytes_sent, before.bytes_sent, passed) as u64))
        }),
    )];
    for feed in &view.feeds {
        let earlier = before.and_then(|(before, passed)| {
            let same = before.feeds.iter().find(|one| one.feed == feed.feed)?;
            Some((same, passed))
        });
        lines.push(String::new());
        lines.push(feed_line(feed, earlier));
        let head = ["JOB", "CLIENTS", "GIVEN", "BATCHES/S", "SKIPPED", "EPOCH", "POSITION"];
        let rows = feed.jobs.iter().map(|job| {
            let same = earlier.and_then(|(feed, passed)| {
                let same = feed.jobs.iter().find(|one| one.job == job.job)?;
                Some(rate(job.given, same.given, passed))
            });
            let (epoch, position) = job
                .passed
                .map_or(Default::default(), |(epoch, position)| (epoch.to_string(), count(position)));
            vec![
                job.job.clone(),
                count(job.consumers),
                count(job.given),
                same.map_or_else(String::new, |rate| format!("{rate:.1}")),
                count(job.skipped),
                epoch,
                position,
            ]
        });
        lines.extend(table(&head, rows));
    }
    lines
}

fn feed_line(feed: &FeedView, before: Option<(&FeedView, Duration)>) -> String {
    let FeedView { staging, limit_bytes, .. } = feed;
    let rates = before.map_or_else(String::new, |(before, passed)| {
        format!(" ({:.1}/s)", rate(staging.made, before.staging.made, passed))
    });
    format!(
        "feed {}: {}, {} made{rates}, {} of them again, {} given, {} skipped, {} of {} staged",
        feed.feed,
        counted(feed.jobs.len() as u64, "job"),
        count(staging.made),
        count(staging.remade),
        count(staging.given),
        count(staging.skipped),
        size(staging.held_bytes),
        size(*limit_bytes)
    )
}

fn rate(now: u64, before: u64, passed: Duration) -> f64 {
    now.saturating_sub(before) as f64 / passed.as_secs_f64().max(1e-3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::staging::{Accounts, JobView, Late};

    fn view(made: u64, given: u64) -> WorkerView {
        let job = |name: &str, given| JobView {
            job: name.into(),
            consumers: 2,
            given,
            skipped: 0,
            passed: Some((1, given * 32)),
        };
        let staging =
            Accounts { made, remade: 3, given: 2 * given, held_bytes: 96 << 20, ..Accounts::default() };
        let feed = FeedView {
            feed: "000000000000000000000000000000ab".into(),
            label: "v1".into(),
            late: Late::Remake,
            epoch_samples: 1000,
            batch_bytes: 1 << 20,
            limit_bytes: 2 << 30,
            staging,
            jobs: vec![job("lr-0.1", given), job("lr-0.2", given / 2)],
        };
        WorkerView {
            address: "unix:///run/share.sock".into(),
            draining: false,
            connections: 5,
            bytes_sent: given * 1_000_000,
            feeds: vec![feed],
        }
    }

    #[test]
    fn a_hosts_process_shows_its_feeds_their_jobs_and_what_is_staged() {
        let shown = lines(&view(120, 1100), None);
        let expected = [
            "1 feed, 4 clients, 1.1 GB handed over",
            "",
            "feed 000000000000000000000000000000ab: 2 jobs, 120 made, 3 of them again, 2,200 given, 0 skipped, 100.7 MB of 2.1 GB staged",
            "  JOB     CLIENTS  GIVEN  BATCHES/S  SKIPPED  EPOCH  POSITION",
            "  lr-0.1  2        1,100             0        1      35,200",
            "  lr-0.2  2        550               0        1      17,600",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn rates_are_those_since_the_last_look() {
        let (before, now) = (view(100, 1000), view(120, 1100));
        let shown = lines(&now, Some((&before, Duration::from_secs(2)))).join("\n");
        for words in ["50 MB/s", "120 made (10.0/s)", "  lr-0.1  2        1,100  50.0", "  550    25.0"] {
            assert!(shown.contains(words), "{words}: {shown}");
        }
    }
}
