//! What a cache keeps: the names of payloads, who owns which sample, and which samples are resident.
//!
//! Nothing is ever dropped to make room for another payload. Which samples are kept is a function of the dataset, a
//! seed and the capacity ([`Residency`]), so that hits are exact from the second epoch on; on several nodes the owner
//! of a sample is a function of the membership ([`Ownership`]), so that nodes agree without talking. Holding bytes is
//! the engine's business, moving them between nodes that of `forebay-net`.

mod owner;
mod point;
mod residency;

pub use owner::Ownership;
pub use point::{Choice, Forecast, Measured, Point};
pub use residency::{Capacity, Cost, Place, Residency};

use crate::rng::fold;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

/// Names the bytes of one payload: other bytes have another name, wherever they lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PayloadId(pub u128);

/// Names one version of one stored object; payloads inside it get their names from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectVersion(u128);

impl ObjectVersion {
    /// From where the object lies, its size and its stamp. Stores that tell no stamp (0) cannot be asked whether an
    /// object changed: there the version of the manifest stands in.
    pub fn new(url: &str, size: u64, stamp: u64, manifest_version: &str) -> Self {
        let version = if stamp == 0 { manifest_version } else { "" };
        Self(xxh3_128(format!("{url}\0{size}\0{stamp}\0{version}").as_bytes()))
    }

    /// The payload at a place in this object.
    pub fn payload(self, offset: u64, length: u64) -> PayloadId {
        let mut text = [0; 32];
        text[..16].copy_from_slice(&self.0.to_le_bytes());
        text[16..24].copy_from_slice(&offset.to_le_bytes());
        text[24..].copy_from_slice(&length.to_le_bytes());
        PayloadId(xxh3_128(&text))
    }
}

impl std::fmt::Display for PayloadId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// A sample's place in the order in which samples are made resident: lower is sooner. It hangs on where the sample
/// lies, not on its number or its version, so that a dataset that grew or changed keeps most of what is resident.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(pub u64);

impl Rank {
    /// The rank of the sample whose first payload lies at `offset` of the object with this key's hash.
    pub fn new(seed: u64, key_hash: u64, offset: u64) -> Self {
        Self(fold(&[seed, key_hash, offset]))
    }
}

/// The hash of an object's key that [`Rank::new`] takes: computed once for all samples of a shard.
pub fn key_hash(key: &str) -> u64 {
    xxh3_64(key.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_payloads_and_ranks_do_not_change_between_releases() {
        let object = ObjectVersion::new("s3://bucket/a.tar", 1000, 7, "ignored");
        assert_eq!(object.payload(512, 100).to_string(), "ded9bb078343345d8179159e88dc5403");
        assert_eq!(Rank::new(1, key_hash("a.tar"), 512), Rank(87_265_517_791_665_170));
    }

    #[test]
    fn another_place_or_version_has_another_name() {
        let name = |url, size, stamp, version, offset, length| {
            ObjectVersion::new(url, size, stamp, version).payload(offset, length)
        };
        let names = [
            name("a", 10, 1, "v", 0, 5),
            name("b", 10, 1, "v", 0, 5),
            name("a", 11, 1, "v", 0, 5),
            name("a", 10, 2, "v", 0, 5),
            name("a", 10, 0, "v", 0, 5),
            name("a", 10, 0, "w", 0, 5),
            name("a", 10, 1, "v", 1, 5),
            name("a", 10, 1, "v", 0, 6),
        ];
        for (at, one) in names.iter().enumerate() {
            assert!(names[at + 1..].iter().all(|other| other != one));
        }
        assert_eq!(names[0], name("a", 10, 1, "another manifest", 0, 5));
    }
}
