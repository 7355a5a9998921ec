//! Which way sends fewer bytes over the link: payloads to this process, or batches that workers near the data made.
//!
//! Both are measured. A photograph of 2 MB becomes 150 KB of pixels, so it should be decoded where it lies; one of 75 KB
//! becomes twice its size and should not. What is kept near needs no link at all, so the answer may change with time:
//! only the last batches of each side count.

/// Batches of each side that are weighed before anything is decided.
const ENOUGH: u64 = 4;

/// Batches of a side after which older ones count half.
const RECENT: u64 = 64;

/// Workers near the data are preferred when they save at least this share of the bytes, in hundredths. Sending prepared
/// batches ties up the workers of others, so a little less is not worth it.
const WORTH: u64 = 20;

/// Bytes over the link for batches of each side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weighing {
    here: Side,
    away: Side,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Side {
    bytes: u64,
    batches: u64,
}

/// Which side sends fewer bytes over the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lighter {
    /// One of them was not measured yet.
    Unknown,
    /// This process, or there is little in it.
    Here,
    /// Workers near the data.
    Away,
}

impl Weighing {
    /// A batch took so many bytes of the link.
    pub fn add(&mut self, here: bool, bytes: u64) {
        let side = if here { &mut self.here } else { &mut self.away };
        if side.batches == RECENT {
            side.batches /= 2;
            side.bytes /= 2;
        }
        side.batches += 1;
        side.bytes = side.bytes.saturating_add(bytes);
    }

    /// Which way is lighter.
    pub fn lighter(&self) -> Lighter {
        let (here, away) = (self.here, self.away);
        if here.batches < ENOUGH || away.batches < ENOUGH {
            return Lighter::Unknown;
        }
        // Means are compared without dividing.
        let per_here = u128::from(here.bytes) * u128::from(away.batches) * u128::from(100 - WORTH);
        let per_away = u128::from(away.bytes) * u128::from(here.batches) * 100;
        if per_away <= per_here && here.bytes > 0 { Lighter::Away } else { Lighter::Here }
    }

    /// Whether enough batches of this process were weighed.
    pub(super) fn knows_here(&self) -> bool {
        self.here.batches >= ENOUGH
    }

    /// Nobody is near the data any more: what they sent says nothing about who comes next.
    pub(super) fn forget_away(&mut self) {
        self.away = Side::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn weighed(here: u64, away: u64) -> Lighter {
        let mut weighing = Weighing::default();
        for _ in 0..ENOUGH {
            weighing.add(true, here);
            weighing.add(false, away);
        }
        weighing.lighter()
    }

    #[test]
    fn p075_large_photographs_are_decoded_near_the_data_and_small_ones_here() {
        let (pixels, rows) = (224 * 224 * 3, 64);
        assert_eq!(weighed(rows * 2_000_000, rows * pixels), Lighter::Away);
        assert_eq!(weighed(rows * 75_000, rows * pixels), Lighter::Here);
        assert_eq!(weighed(rows * 75_000, 4 * rows * pixels), Lighter::Here, "as floats all the more");
        assert_eq!(weighed(0, 1), Lighter::Here, "what is kept here needs no link");
    }

    #[test]
    fn a_cache_that_fills_changes_the_answer() {
        let mut weighing = Weighing::default();
        for _ in 0..100 {
            weighing.add(true, 1000);
            weighing.add(false, 100);
        }
        assert_eq!(weighing.lighter(), Lighter::Away);
        (0..400).for_each(|_| weighing.add(true, 0));
        assert_eq!(weighing.lighter(), Lighter::Here);
        weighing.forget_away();
        assert_eq!(weighing.lighter(), Lighter::Unknown);
    }

    proptest! {
        #[test]
        fn the_answer_is_that_of_the_means(here in 1u64..1_000_000, away in 1u64..1_000_000) {
            let expected = if away * 100 <= here * 80 { Lighter::Away } else { Lighter::Here };
            prop_assert_eq!(weighed(here, away), expected);
        }
    }
}
