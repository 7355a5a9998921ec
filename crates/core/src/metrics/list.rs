//! The names, in the order in which they are shown. A name that was released is not given another meaning.

use super::Kind::{Counter, Gauge, Histogram};
use super::{Kind, Metric};

const fn metric(
    name: &'static str,
    kind: Kind,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    Metric { name, kind, labels, help }
}

const NONE: &[&str] = &[];

/// All metrics.
pub const METRICS: &[Metric] = &[
    // Delivery.
    metric("forebay_engine_batches_total", Counter, NONE, "Batches handed over"),
    metric("forebay_engine_samples_total", Counter, NONE, "Samples handed over, padding not counted"),
    metric("forebay_engine_padding_total", Counter, NONE, "Repeated samples that only filled a batch"),
    metric("forebay_engine_skipped_samples_total", Counter, NONE, "Bad samples left out"),
    metric("forebay_engine_substituted_samples_total", Counter, NONE, "Bad samples replaced by another one"),
    metric("forebay_engine_filtered_samples_total", Counter, NONE, "Samples that filters left out"),
    metric("forebay_engine_ready_batches", Gauge, NONE, "Batches that were ready when one was last taken"),
    metric("forebay_engine_open_batches", Gauge, NONE, "Batches that may be open at once"),
    // Where the time went.
    metric(
        "forebay_engine_part_seconds",
        Histogram,
        &["part"],
        "Time of each step by part: step, fetch_stall, prep_stall, queue, transfer",
    ),
    metric("forebay_engine_phase_seconds", Histogram, &["phase"], "Time of phases that the user named"),
    metric("forebay_engine_wall_seconds_total", Counter, NONE, "Time of the loop, all parts together"),
    metric(
        "forebay_engine_others_seconds_total",
        Counter,
        NONE,
        "Time inside steps in which other ranks were waited for, as far as it was found out",
    ),
    metric(
        "forebay_engine_late_ranks",
        Gauge,
        &["late_rank", "stage"],
        "1 for the rank that makes the others wait, with its late stage: fetch, prep, queue, transfer, step",
    ),
    // Fetching.
    metric("forebay_engine_requests_total", Counter, NONE, "Requests to the store"),
    metric("forebay_engine_request_seconds", Histogram, NONE, "Time of requests to the store"),
    metric(
        "forebay_engine_retries_total",
        Counter,
        NONE,
        "Requests made again because an earlier one failed",
    ),
    metric("forebay_engine_hedges_total", Counter, NONE, "Second requests sent because the first took long"),
    metric("forebay_engine_throttled_total", Counter, NONE, "Requests refused because there were too many"),
    metric("forebay_engine_payloads_total", Counter, NONE, "Payloads fetched from the store"),
    metric("forebay_engine_payload_bytes_total", Counter, NONE, "Bytes of these payloads"),
    metric(
        "forebay_engine_window_bytes",
        Gauge,
        NONE,
        "Bytes that may be in flight; shown while that is limited",
    ),
    metric("forebay_engine_window_requests", Gauge, NONE, "Requests that may be in flight"),
    metric(
        "forebay_engine_link_bytes_per_second",
        Gauge,
        NONE,
        "What the link to the store delivers, as far as it was seen",
    ),
    metric(
        "forebay_engine_link_delay_seconds",
        Gauge,
        NONE,
        "Time of a request when nothing of ours queues on the link",
    ),
    metric(
        "forebay_engine_store_away_seconds_total",
        Counter,
        NONE,
        "Time in which the store was away: nobody answered, and requests waited for its return",
    ),
    metric(
        "forebay_engine_budget_wait_seconds_total",
        Counter,
        NONE,
        "Time fetching waited for memory: the plane is ahead of the consumer",
    ),
    // The cache.
    metric(
        "forebay_engine_cache_hits_total",
        Counter,
        &["tier"],
        "Payloads that the cache had: memory, disk, peer",
    ),
    metric("forebay_engine_cache_misses_total", Counter, NONE, "Payloads that the cache had not"),
    metric("forebay_engine_cache_hit_bytes_total", Counter, NONE, "Bytes of all hits"),
    metric("forebay_engine_cache_miss_bytes_total", Counter, NONE, "Bytes of all misses"),
    metric("forebay_engine_cache_bytes", Gauge, &["tier"], "Bytes resident: memory, disk"),
    metric(
        "forebay_engine_cache_limit_bytes",
        Gauge,
        &["tier"],
        "Most bytes that may be resident: memory, disk",
    ),
    metric("forebay_engine_cache_damaged_total", Counter, NONE, "Payloads that were found damaged"),
    // Preparing.
    metric("forebay_engine_prep_seconds_total", Counter, NONE, "Time of all threads inside ops"),
    metric("forebay_engine_prep_starved_seconds_total", Counter, NONE, "Time threads waited for payloads"),
    metric(
        "forebay_engine_prep_blocked_seconds_total",
        Counter,
        NONE,
        "Time threads waited because enough batches were ready",
    ),
    metric("forebay_engine_threads", Gauge, NONE, "Preparing threads"),
    // Batches from elsewhere.
    metric("forebay_net_workers", Gauge, NONE, "Workers that batches come from"),
    metric("forebay_net_received_bytes_total", Counter, NONE, "Bytes of batches from other processes"),
    metric("forebay_net_asked_again_total", Counter, NONE, "Batches asked for a second time"),
    metric("forebay_net_skipped_batches_total", Counter, NONE, "Batches left out because nobody kept them"),
    // Workers.
    metric("forebay_net_connections", Gauge, NONE, "Clients that are connected"),
    metric("forebay_net_sent_bytes_total", Counter, NONE, "Bytes of batches sent or handed over"),
    metric("forebay_net_draining", Gauge, NONE, "1 while no more requests are taken, else 0"),
    metric("forebay_net_feeds", Gauge, NONE, "Feeds that are open"),
    metric("forebay_net_feed_jobs", Gauge, NONE, "Jobs that read a feed here"),
    metric("forebay_net_made_batches", Gauge, NONE, "Batches of an open feed that were made"),
    metric("forebay_net_given_batches", Gauge, NONE, "Batches of an open feed that were given to consumers"),
    metric("forebay_net_held_batches", Gauge, NONE, "Batches of an open feed that are held"),
    metric("forebay_net_held_bytes", Gauge, NONE, "Bytes that these take"),
    // The dispatcher.
    metric(
        "forebay_net_dispatcher_workers",
        Gauge,
        &["state"],
        "Workers by state: live, draining, suspected",
    ),
    metric("forebay_net_dispatcher_wanted_workers", Gauge, NONE, "Workers that there should be"),
    metric("forebay_net_dispatcher_jobs", Gauge, NONE, "Jobs that are known"),
    metric("forebay_net_dispatcher_feeds", Gauge, NONE, "Feeds that are known"),
    metric("forebay_net_dispatcher_consumers", Gauge, NONE, "Consumers of all jobs"),
    metric("forebay_net_scale_sets_total", Counter, NONE, "Times that the number of workers was set"),
    metric("forebay_net_scale_failures_total", Counter, NONE, "Times that it could not be read or set"),
    metric(
        "forebay_net_dispatcher_late_ranks",
        Gauge,
        &["job", "late_rank", "stage"],
        "1 for the rank of a job that makes the others wait, with its late stage",
    ),
];
