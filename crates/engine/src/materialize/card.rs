//! The card of a materialized dataset, `materialized.json`: what is in its shards and how many there will be.
//!
//! It is written before the first shard. With it and the names of the shards that are there, anybody can tell what is
//! missing, whether another run means the same samples, and whether the dataset is whole. A checksum guards it.

use forebay_core::materialize::{Chunks, unbroken};
use forebay_core::{Error, Result};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

/// The card's file name.
pub const CARD: &str = "materialized.json";

/// Largest card that is read.
pub const MAX_CARD_BYTES: u64 = 1 << 20;

/// Raised when an older reader could misunderstand a newer card.
const FORMAT: u32 = 1;

/// What is in the shards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Card {
    format: u32,
    /// Version of the dataset that was prepared.
    pub dataset: String,
    /// Fingerprint of the recipe that prepared it.
    pub recipe: String,
    /// Stands for everything that decides which bytes come out: dataset, recipe, order, seed, bad samples.
    pub feed: String,
    /// Seed of order and of random ops.
    pub seed: u64,
    /// The epoch that was prepared.
    pub epoch: u64,
    /// Positions of that epoch.
    pub samples: u64,
    /// Positions of one shard; the last one may have fewer.
    pub chunk_samples: u64,
}

/// A card as it lies there.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    materialized: Card,
    xxh3: String,
}

impl Card {
    /// A card of this release; `numbers` are seed, epoch, samples and samples of a chunk.
    pub(super) fn of(feed: String, dataset: String, recipe: String, numbers: [u64; 4]) -> Self {
        let [seed, epoch, samples, chunk_samples] = numbers;
        Self { format: FORMAT, dataset, recipe, feed, seed, epoch, samples, chunk_samples }
    }

    /// Reads a card that came from outside.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let corrupt = |why: &str| Error::corrupt(format!("read card of a materialized dataset: {why}"));
        if bytes.len() as u64 > MAX_CARD_BYTES {
            return Err(corrupt("it is larger than 1 MiB"));
        }
        let stored: Stored =
            serde_json::from_slice(bytes).map_err(|cause| corrupt("it is none").with_source(cause))?;
        let card = stored.materialized;
        if card.checksum() != stored.xxh3 {
            return Err(corrupt("its checksum does not fit"));
        }
        if card.format != FORMAT {
            let why = format!("read card: its format is {}, this release reads {FORMAT}", card.format);
            return Err(Error::unsupported(why).with_hint("use a newer release of forebay"));
        }
        card.chunks()?;
        Ok(card)
    }

    /// The card as it lies there; equal cards have equal bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let stored = Stored { materialized: self.clone(), xxh3: self.checksum() };
        let mut bytes = serde_json::to_vec_pretty(&stored).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    }

    fn checksum(&self) -> String {
        format!("{:016x}", xxh3_64(&serde_json::to_vec(self).unwrap_or_default()))
    }

    /// How the epoch is cut.
    pub fn chunks(&self) -> Result<Chunks> {
        Chunks::new(self.samples, self.chunk_samples)
    }

    /// An error that says what differs when another run means other samples, or cuts them otherwise.
    pub(super) fn check_same(&self, other: &Self, place: &str) -> Result<()> {
        let differs = [
            ("dataset version", self.dataset == other.dataset),
            ("recipe", self.recipe == other.recipe),
            ("seed", self.seed == other.seed),
            ("epoch", self.epoch == other.epoch),
            ("number of samples", self.samples == other.samples),
            ("chunk_samples", self.chunk_samples == other.chunk_samples),
            ("order or on_error", self.feed == other.feed),
        ];
        let Some((what, _)) = differs.iter().find(|(_, same)| !same) else { return Ok(()) };
        Err(Error::stale(format!("materialize to `{place}`: it holds samples of another {what}"))
            .with_hint("name another place, or remove what is there"))
    }

    /// An error unless all of these chunks' shards are there.
    pub fn check_whole(&self, committed: &[u64], url: &str) -> Result<()> {
        let wanted = self.chunks()?.count();
        let there = committed.iter().filter(|chunk| **chunk < wanted).count() as u64;
        if there == wanted {
            return Ok(());
        }
        let first = unbroken(committed.iter().copied());
        Err(Error::unavailable(format!(
            "open dataset `{url}`: it is not whole, {there} of {wanted} shards are there"
        ))
        .with_hint(format!(
            "run `forebay materialize` again to finish it, or read the first {first} with follow=True"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::ErrorKind;

    fn card() -> Card {
        Card::of("f".into(), "d".into(), "r".into(), [1, 2, 100, 10])
    }

    #[test]
    fn a_card_is_read_back_and_a_changed_one_is_refused() {
        let bytes = card().to_bytes();
        assert_eq!(Card::from_bytes(&bytes).unwrap(), card());
        let text = String::from_utf8(bytes.clone()).unwrap();
        let changed = text.replace("\"samples\": 100", "\"samples\": 101");
        assert_ne!(changed, text);
        assert_eq!(Card::from_bytes(changed.as_bytes()).unwrap_err().kind(), ErrorKind::Corrupt);
        for cut in 0..bytes.len() - 2 {
            assert!(Card::from_bytes(&bytes[..cut]).is_err(), "{cut}");
        }
        let newer = Card { format: 2, ..card() }.to_bytes();
        assert_eq!(Card::from_bytes(&newer).unwrap_err().kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn what_differs_is_named_and_what_is_missing_is_counted() {
        let other = Card { seed: 5, ..card() };
        let error = card().check_same(&other, "out").unwrap_err();
        assert!(error.message().contains("another seed"), "{error}");
        assert!(card().check_same(&card(), "out").is_ok());
        let error = card().check_whole(&[0, 1, 5], "out").unwrap_err();
        assert!(error.message().contains("3 of 10 shards"), "{error}");
        assert!(error.hint().unwrap().contains("first 2"), "{error:?}");
        assert!(card().check_whole(&(0..10).collect::<Vec<_>>(), "out").is_ok());
    }
}
