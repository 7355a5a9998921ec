//! What 1, 2, 4 and 8 workers give to one job, in virtual time, as JSON.
//!
//! `cargo run -p forebay-core --example scaling -- PREP_MS BATCH_BYTES LINK_BYTES_PER_SECOND`
//!
//! Costs that are not given are those of 64 images of 224 by 224 pixels as bytes, made by one worker in 64 ms, and a
//! link of 25 Gb/s. `forebay analyze` measures those of a pipeline.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "an example that prints")]

mod simulation;

use simulation::{Costs, run};

fn main() {
    let given: Vec<f64> = std::env::args().skip(1).map(|text| text.parse().unwrap()).collect();
    let cost = |at: usize, usual: f64| given.get(at).copied().unwrap_or(usual);
    let costs = Costs {
        prep_us: (cost(0, 64.0) * 1000.0) as u64,
        batch_bytes: cost(1, 64.0 * 224.0 * 224.0 * 3.0) as u64,
        link_bytes_per_second: cost(2, 3.125e9) as u64,
        ranks: 4,
        batches: 4000,
    };
    let one = run(1, costs).batches_per_second;
    let rows: Vec<_> = [1, 2, 4, 8, 16, 32]
        .map(|workers| {
            let outcome = run(workers, costs);
            serde_json::json!({
                "workers": workers,
                "batches_per_second": outcome.batches_per_second,
                "of_linear": outcome.batches_per_second / one / workers as f64,
                "link_share": outcome.link_share,
                "worker_share": outcome.worker_share,
            })
        })
        .into();
    println!("{}", serde_json::json!({ "costs": format!("{costs:?}"), "rows": rows }));
}
