//! A store of torch as the channel by which ranks tell each other how they go.
//!
//! Only `set`, `check` and `get` are called: `get` waits for a key that is not there, so it is asked for last. Whatever a
//! store does when it is gone costs the report, never a batch.

use forebay_core::{Error, Result};
use forebay_engine::RankChannel;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Requests a second by which all ranks together tell, and as many by which they listen: one process serves the store.
const MOST_REQUESTS: u64 = 2000;
/// Beats in a second.
const BEATS: u64 = 10;

/// The store. One prefix keeps its keys apart from those of others.
pub(crate) struct RanksStore(pub(crate) Py<PyAny>);

fn key(rank: u64) -> String {
    format!("forebay/rank-{rank}")
}

impl RankChannel for RanksStore {
    fn tell(&self, rank: u64, told: &[u8]) -> Result<()> {
        // No answer means that the interpreter is ending.
        let set = Python::try_attach(|py| {
            self.0.call_method1(py, "set", (key(rank), PyBytes::new(py, told))).map(drop)
        });
        match set {
            Some(Err(problem)) => {
                Err(Error::unavailable(format!("set a key of the store of all ranks: {problem}")))
            }
            _ => Ok(()),
        }
    }

    fn told(&self, rank: u64) -> Option<Vec<u8>> {
        let asked = Python::try_attach(|py| -> PyResult<Option<Vec<u8>>> {
            let is_there: bool = self.0.call_method1(py, "check", (vec![key(rank)],))?.extract(py)?;
            if !is_there {
                return Ok(None);
            }
            self.0.call_method1(py, "get", (key(rank),))?.extract::<Vec<u8>>(py).map(Some)
        });
        asked.and_then(PyResult::ok).flatten()
    }

    fn leave(&self, rank: u64) {
        // Emptied, not deleted: somebody may be about to get it, and would wait.
        let _ = self.tell(rank, b"");
    }

    fn beats(&self, world_size: u64) -> (u64, u64) {
        // Each listens to all others by two requests.
        let listening = 2 * world_size * world_size * BEATS;
        ((world_size * BEATS).div_ceil(MOST_REQUESTS), listening.div_ceil(MOST_REQUESTS))
    }
}
