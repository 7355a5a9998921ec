//! Which samples are resident: the first ones by rank that fit, memory before disk.
//!
//! A sample that does not fit is never admitted and one that was admitted is never put out, so that every epoch from
//! the second on hits exactly what was chosen. Disk first takes what memory does not; room that is left there takes
//! copies of what is in memory, so that a restart finds them.

use super::Rank;

/// Room of the tiers, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// In memory.
    pub memory: u64,
    /// On local disk.
    pub disk: u64,
}

/// What one sample takes in each tier, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cost {
    /// In memory.
    pub memory: u64,
    /// On local disk, where records have heads and begin at whole sectors.
    pub disk: u64,
}

/// Where a sample is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// In memory.
    pub memory: bool,
    /// On local disk.
    pub disk: bool,
}

impl Place {
    /// Whether it is kept at all.
    pub fn is_kept(self) -> bool {
        self.memory || self.disk
    }
}

/// What is resident, as bounds on ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Residency {
    /// Ranks below this are in memory.
    memory: Bound,
    /// Ranks from the memory bound up to this are on disk.
    disk: Bound,
    /// Ranks below this are on disk as well.
    copies: Bound,
}

/// Ranks below a bound; `All` has no bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    Below(u64),
    All,
}

impl Bound {
    fn holds(self, rank: Rank) -> bool {
        match self {
            Self::Below(bound) => rank.0 < bound,
            Self::All => true,
        }
    }
}

impl Residency {
    /// Chooses among samples given by rank and cost. One sort.
    pub fn choose(capacity: Capacity, samples: impl Iterator<Item = (Rank, Cost)>) -> Self {
        let mut sorted: Vec<(Rank, Cost)> = samples.collect();
        sorted.sort_unstable();
        let (in_memory, memory, _) = fill(&sorted, capacity.memory, |cost| cost.memory);
        let (on_disk, disk, used) = fill(&sorted[in_memory..], capacity.disk, |cost| cost.disk);
        let left = if in_memory + on_disk == sorted.len() { capacity.disk - used } else { 0 };
        let (copied, copies, _) = fill(&sorted[..in_memory], left, |cost| cost.disk);
        let copies = if copied == 0 { Bound::Below(0) } else { copies };
        Self { memory, disk, copies }
    }

    /// Everything fits in memory.
    pub fn all() -> Self {
        Self { memory: Bound::All, disk: Bound::All, copies: Bound::Below(0) }
    }

    /// Where the sample with this rank is kept.
    pub fn place(&self, rank: Rank) -> Place {
        let memory = self.memory.holds(rank);
        let disk = (!memory && self.disk.holds(rank)) || self.copies.holds(rank);
        Place { memory, disk }
    }
}

/// How many samples fit from the first on, the bound that says so, and what they take. Samples of one rank stay
/// together.
fn fill(sorted: &[(Rank, Cost)], capacity: u64, cost: fn(&Cost) -> u64) -> (usize, Bound, u64) {
    let mut used = 0u64;
    for (at, (rank, bytes)) in sorted.iter().enumerate() {
        let Some(sum) = used.checked_add(cost(bytes)).filter(|used| *used <= capacity) else {
            let first = sorted[..at].partition_point(|(other, _)| other < rank);
            let used = sorted[..first].iter().map(|(_, bytes)| cost(bytes)).sum();
            return (first, Bound::Below(rank.0), used);
        };
        used = sum;
    }
    (sorted.len(), Bound::All, used)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn chosen(capacity: Capacity, samples: &[(Rank, u64)]) -> (u64, u64, Vec<Place>) {
        let costs = samples.iter().map(|(rank, bytes)| (*rank, Cost { memory: *bytes, disk: *bytes }));
        let residency = Residency::choose(capacity, costs);
        let places: Vec<Place> = samples.iter().map(|(rank, _)| residency.place(*rank)).collect();
        let sum = |keep: fn(&Place) -> bool| {
            places.iter().zip(samples).filter(|(place, _)| keep(place)).map(|(_, (_, bytes))| bytes).sum()
        };
        (sum(|place| place.memory), sum(|place| place.disk), places)
    }

    #[test]
    fn p042_what_is_resident_is_exactly_what_fits() {
        for (share, expected) in [(35, 700), (65, 1300), (100, 2000)] {
            let samples: Vec<(Rank, u64)> = (0..2000).map(|at| (Rank::new(7, 1, at), 1000)).collect();
            let capacity = Capacity { memory: 2000 * 1000 * share / 100 + 999, disk: 0 };
            let (memory, disk, _) = chosen(capacity, &samples);
            assert_eq!((memory, disk), (expected * 1000, 0));
        }
    }

    #[test]
    fn disk_takes_what_memory_does_not_and_then_copies() {
        let samples: Vec<(Rank, u64)> = (0..10).map(|at| (Rank(at), 10)).collect();
        let disk_of = |disk| {
            let (memory, disk, places) = chosen(Capacity { memory: 40, disk }, &samples);
            let first = places.iter().position(|place| place.disk);
            (memory, disk, first)
        };
        assert_eq!(disk_of(30), (40, 30, Some(4)));
        assert_eq!(disk_of(60), (40, 60, Some(4)));
        assert_eq!(disk_of(75), (40, 70, Some(0)));
        assert_eq!(disk_of(1000), (40, 100, Some(0)));
        assert_eq!(disk_of(9), (40, 0, None));
    }

    proptest! {
        #[test]
        fn tiers_never_hold_more_than_their_room_and_never_leave_room_for_the_next(
            samples in proptest::collection::vec((0u64..60, 0u64..50), 0..80),
            memory in 0u64..1500, disk in 0u64..1500,
        ) {
            let samples: Vec<(Rank, u64)> = samples.into_iter().map(|(rank, bytes)| (Rank(rank), bytes)).collect();
            let (in_memory, on_disk, places) = chosen(Capacity { memory, disk }, &samples);
            prop_assert!(in_memory <= memory && on_disk <= disk);
            // Kept in order of rank: nobody is out of memory while one of a higher rank is in.
            for (one, (rank, _)) in places.iter().zip(&samples) {
                for (other, (later, _)) in places.iter().zip(&samples) {
                    prop_assert!(rank >= later || one.memory || !other.memory);
                    prop_assert!(rank >= later || one.is_kept() || !other.is_kept());
                }
            }
            let total: u64 = samples.iter().map(|(_, bytes)| bytes).sum();
            if total <= memory {
                prop_assert!(places.iter().all(|place| place.memory));
            }
        }

        #[test]
        fn more_room_keeps_all_that_less_room_kept(
            samples in proptest::collection::vec((any::<u64>(), 0u64..50), 0..80),
            less in 0u64..1500, more in 0u64..1500,
        ) {
            let samples: Vec<(Rank, u64)> = samples.into_iter().map(|(rank, bytes)| (Rank(rank), bytes)).collect();
            let places = |memory| chosen(Capacity { memory, disk: 0 }, &samples).2;
            for (small, large) in places(less).iter().zip(places(less + more)) {
                prop_assert!(!small.memory || large.memory);
            }
        }
    }
}
