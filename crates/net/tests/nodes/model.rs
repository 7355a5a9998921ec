//! What nodes must have, by the words of the promise and the functions of core: nothing here knows a cache.

use forebay_core::cache::{Capacity, Cost, Ownership, Rank, Residency, key_hash};
use std::collections::HashSet;

/// Where an epoch's payloads came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Came {
    pub(crate) local: u64,
    pub(crate) peer: u64,
    pub(crate) store: u64,
}

/// One node as it should be.
pub(crate) struct Modelled {
    ownership: Ownership,
    residency: Residency,
    pub(crate) held: HashSet<u64>,
}

/// Ranks of all samples, and how much each node has room for.
pub(crate) struct Model {
    ranks: Vec<Rank>,
    bytes: u64,
    room: u64,
}

impl Model {
    pub(crate) fn new(keys: &[String], bytes: u64, room: u64) -> Self {
        let ranks = keys.iter().map(|key| Rank::new(0, key_hash(key), 0)).collect();
        Self { ranks, bytes, room }
    }

    /// A node among these addresses, with what it held before as far as it is to hold it now.
    pub(crate) fn node(&self, addresses: &[String], own: &str, held: HashSet<u64>) -> Modelled {
        let me = addresses.iter().position(|address| address == own);
        let ownership = Ownership::new(0, addresses, me).unwrap();
        let cost = Cost { memory: self.bytes, disk: self.bytes };
        let ranked = self.ranks.iter().map(|rank| (ownership.local_rank(*rank), cost));
        let residency = Residency::choose(Capacity { memory: self.room, disk: 0 }, ranked);
        let mut node = Modelled { ownership, residency, held };
        node.held =
            std::mem::take(&mut node.held).into_iter().filter(|id| node.keeps(self.rank(*id))).collect();
        node
    }

    pub(crate) fn rank(&self, id: u64) -> Rank {
        self.ranks[id as usize]
    }
}

impl Modelled {
    pub(crate) fn keeps(&self, rank: Rank) -> bool {
        self.residency.place(self.ownership.local_rank(rank)).memory
    }

    pub(crate) fn owner(&self, rank: Rank) -> usize {
        self.ownership.owner(rank)
    }
}
