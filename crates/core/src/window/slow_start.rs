//! Slow start: how many batches may be ahead of the training loop at the beginning of a run.
//!
//! A loader that asks for its whole depth at once makes the first batch wait behind all the others. With slow start
//! the first step asks for its own batch and the next; every few steps one more may be ahead, until the depth is
//! full.

/// One more batch ahead every `every` steps; 0 turns slow start off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowStart {
    /// Steps between one more batch and the next.
    pub every: u64,
}

impl SlowStart {
    /// Batches that may be ahead of the loop after it has taken `taken` batches, of `depth` at most.
    ///
    /// One is always allowed, so that a run goes on whatever the depth.
    pub fn batches(&self, taken: u64, depth: u64) -> u64 {
        let allowed = taken.checked_div(self.every).map_or(depth, |steps| steps.saturating_add(1));
        allowed.min(depth).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p006_slow_start_widens_by_one_batch_every_four_steps_to_the_full_depth() {
        let (slow, depth) = (SlowStart { every: 4 }, 16);
        // The first step asks for its own batch and, once that is taken, for those then allowed ahead.
        let first_step = 1 + slow.batches(1, depth);
        assert!(first_step <= 2, "the first step asks for {first_step} batches");
        for taken in 0..200 {
            let grown = slow.batches(taken + 4, depth) - slow.batches(taken, depth);
            assert!(grown <= 1, "grew by {grown} batches in 4 steps after {taken}");
            assert!(slow.batches(taken, depth) <= depth);
        }
        assert!(slow.batches(4 * 15 - 1, depth) < depth, "it is not full at once");
        assert_eq!(slow.batches(4 * 16, depth), depth, "full depth by step 64");
    }

    #[test]
    fn slow_start_of_zero_is_off_and_no_depth_stops_a_run() {
        assert_eq!(SlowStart { every: 0 }.batches(0, 16), 16);
        assert_eq!(SlowStart { every: 4 }.batches(0, 0), 1);
        assert_eq!(SlowStart { every: 1 }.batches(u64::MAX, 16), 16);
    }
}
