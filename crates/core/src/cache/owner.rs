//! Who owns which sample: rendezvous hashing over the members of a job.
//!
//! Every member computes every sample's owner from names and a seed; nothing is exchanged. A member that leaves gives
//! up only its own samples, one that joins takes only those that it wins: about its even share.

use super::Rank;
use crate::rng::{fold, mix64};
use crate::{Error, Result};
use xxhash_rust::xxh3::xxh3_64;

/// Most members: owning is decided by asking each of them.
const MAX_MEMBERS: usize = 4096;

/// The members of a job and which of them we are, if any: one that left still reads what the others own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ownership {
    members: Vec<u64>,
    me: Option<usize>,
}

impl Ownership {
    /// Members by name, in any order; `me` is our number in it, if we are one of them.
    pub fn new<N: AsRef<str>>(seed: u64, members: &[N], me: impl Into<Option<usize>>) -> Result<Self> {
        let me = me.into();
        let fault = |why: String| Err(Error::invalid_config(format!("share a cache among peers: {why}")));
        if members.is_empty() || members.len() > MAX_MEMBERS {
            return fault(format!("{} members were named, give 1 to {MAX_MEMBERS}", members.len()));
        }
        if let Some(me) = me.filter(|me| *me >= members.len()) {
            return fault(format!("this is member {me} of {}", members.len()));
        }
        let mut names: Vec<&str> = members.iter().map(AsRef::as_ref).collect();
        names.sort_unstable();
        if let Some([twice, ..]) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return fault(format!("`{twice}` is named twice"));
        }
        let hash = |name: &N| fold(&[seed, xxh3_64(name.as_ref().as_bytes())]);
        Ok(Self { members: members.iter().map(hash).collect(), me })
    }

    /// A job of one.
    pub fn alone() -> Self {
        Self { members: vec![0], me: Some(0) }
    }

    /// The number of the member that owns a sample.
    pub fn owner(&self, rank: Rank) -> usize {
        let weight = |member: &u64| mix64(member ^ rank.0);
        let best = self.members.iter().enumerate().max_by_key(|(number, member)| (weight(member), *number));
        best.map_or(0, |(number, _)| number)
    }

    /// Whether a sample is ours.
    pub fn is_mine(&self, rank: Rank) -> bool {
        self.me.is_some_and(|me| self.members.len() == 1 || self.owner(rank) == me)
    }

    /// Our own number, if we are a member.
    pub fn me(&self) -> Option<usize> {
        self.me
    }

    /// Number of members.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Never: a job has at least one member.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The rank by which this member fills its own cache: what it owns comes first, the rest after it, so that spare
    /// room holds copies of what others own.
    pub fn local_rank(&self, rank: Rank) -> Rank {
        Rank(rank.0 >> 1 | if self.is_mine(rank) { 0 } else { 1 << 63 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ranks(count: u64) -> impl Iterator<Item = Rank> {
        (0..count).map(|number| Rank::new(3, 5, number))
    }

    #[test]
    fn p047_a_member_that_joins_or_leaves_moves_only_what_must_move() {
        let names = ["a", "b", "c", "d"];
        let three = Ownership::new(1, &names[..3], 0).unwrap();
        let four = Ownership::new(1, &names, 0).unwrap();
        let count = 20_000;
        let mut moved = 0;
        for rank in ranks(count) {
            if three.owner(rank) != four.owner(rank) {
                moved += 1;
                // Whatever moves, moves to the one who joined; seen the other way, only the leaver's samples move.
                assert_eq!(four.owner(rank), 3);
            }
        }
        let share = f64::from(moved) / count as f64;
        assert!(share <= 0.25 + 0.05 && share > 0.2, "{share}");
    }

    proptest! {
        #[test]
        fn every_sample_has_one_owner_whoever_asks_and_members_own_even_shares(
            seed: u64, members in 1usize..9,
        ) {
            let names: Vec<String> = (0..members).map(|member| format!("node-{member}:9000")).collect();
            let views: Vec<Ownership> =
                (0..members).map(|me| Ownership::new(seed, &names, me).unwrap()).collect();
            let mut owned = vec![0u64; members];
            for rank in ranks(4000) {
                let owner = views[0].owner(rank);
                owned[owner] += 1;
                for (me, view) in views.iter().enumerate() {
                    prop_assert_eq!(view.owner(rank), owner);
                    prop_assert_eq!(view.is_mine(rank), me == owner);
                    prop_assert_eq!(view.local_rank(rank).0 >> 63 == 0, me == owner);
                }
            }
            let even = 4000.0 / members as f64;
            prop_assert!(owned.iter().all(|own| (*own as f64 - even).abs() < 6.0 * even.sqrt()), "{:?}", owned);
        }
    }

    #[test]
    fn wrong_memberships_are_refused() {
        for (members, me) in [(vec![], 0), (vec!["a"], 1), (vec!["a", "b", "a"], 0)] {
            assert!(Ownership::new(0, &members, me).is_err());
        }
        assert!(Ownership::alone().is_mine(Rank(9)));
    }

    #[test]
    fn one_that_left_owns_nothing_and_knows_who_does() {
        let left = Ownership::new(1, &["a", "b"], None).unwrap();
        let member = Ownership::new(1, &["a", "b"], 0).unwrap();
        for rank in ranks(100) {
            assert!(!left.is_mine(rank) && left.owner(rank) == member.owner(rank));
        }
    }
}
