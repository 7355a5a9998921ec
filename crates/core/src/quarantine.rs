//! Bad samples: who stands in for one, and which are known beforehand so that they are never read.
//!
//! Who stands in depends on seed, epoch and sample alone, so it is the same on any number of ranks, and the same whether
//! a sample was found to be bad just now or was known to be. An entry of a quarantine file belongs to one version of a
//! dataset: a repaired dataset has another one, and begins with nobody in quarantine.

use crate::rng::{Rng, fold};
use crate::{Error, ErrorKind, Result, SampleId};
use serde::{Deserialize, Serialize};

/// Substitutes tried for one row before its batch fails.
pub const MAX_SUBSTITUTES: u32 = 8;

/// Keeps substitution's chance apart from that of ops, whose numbers are small.
const SUBSTITUTE_STREAM: u64 = u64::MAX;

/// Longest line of a quarantine file that is read.
const MAX_LINE_BYTES: usize = 64 << 10;

/// Longest reason that is written: errors of foreign code have no limit of their own.
const MAX_REASON_CHARS: usize = 2000;

/// The sample that stands in for `bad` when `attempt` others did not do: another one, the same on every machine.
pub fn substitute_for(seed: u64, epoch: u64, bad: SampleId, attempt: u32, samples: u64) -> SampleId {
    let key = fold(&[seed, epoch, SUBSTITUTE_STREAM]);
    let step = 1 + Rng::keyed(key, bad.0, u64::from(attempt)).below(samples - 1);
    SampleId((bad.0 + step) % samples)
}

/// Samples that are not read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quarantine {
    ids: Vec<u64>,
}

impl Quarantine {
    /// These samples.
    pub fn new(mut ids: Vec<u64>) -> Self {
        ids.sort_unstable();
        ids.dedup();
        Self { ids }
    }

    /// The samples, ascending.
    pub fn ids(&self) -> &[u64] {
        &self.ids
    }

    /// Whether a sample is in it.
    pub fn holds(&self, sample: SampleId) -> bool {
        self.ids.binary_search(&sample.0).is_ok()
    }

    /// The sample that is read in place of `planned`, and how many substitutes were passed over to find it: what reading
    /// them one after the other would have come to.
    pub fn stand_in(&self, seed: u64, epoch: u64, planned: SampleId, samples: u64) -> (SampleId, u32) {
        let (mut sample, mut attempt) = (planned, 0);
        while samples > 1 && attempt < MAX_SUBSTITUTES && self.holds(sample) {
            sample = substitute_for(seed, epoch, sample, attempt, samples);
            attempt += 1;
        }
        (sample, attempt)
    }
}

/// One line of a quarantine file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuarantineEntry {
    /// Version of the dataset.
    pub dataset: String,
    /// The sample.
    pub sample_id: u64,
    /// Its key.
    #[serde(default)]
    pub key: String,
    /// The stored object that holds it.
    #[serde(default)]
    pub object: Option<String>,
    /// Byte offset inside the object, when it is known.
    #[serde(default)]
    pub offset: Option<u64>,
    /// Kind of the error.
    pub kind: String,
    /// What went wrong.
    #[serde(default)]
    pub reason: String,
}

impl QuarantineEntry {
    /// The entry for what went wrong with a sample; `None` for what is not the sample's fault and may pass.
    pub fn of(dataset: &str, sample: SampleId, error: &Error) -> Option<Self> {
        let kind = error.kind();
        let lasting = [ErrorKind::Corrupt, ErrorKind::Function, ErrorKind::Exhausted, ErrorKind::Unsupported];
        lasting.contains(&kind).then(|| Self {
            dataset: dataset.to_owned(),
            sample_id: sample.0,
            key: error.facts().key.clone().unwrap_or_default(),
            object: error.facts().object.clone(),
            offset: error.facts().offset,
            kind: kind.name().to_owned(),
            reason: error.chain().chars().take(MAX_REASON_CHARS).collect(),
        })
    }

    /// The entry as one line, with its end.
    pub fn to_line(&self) -> String {
        let mut line = serde_json::to_string(self).unwrap_or_default();
        line.push('\n');
        line
    }
}

/// The samples that a quarantine file holds of one version of a dataset with so many samples. The last line may be cut
/// off, by a process that was killed while it wrote; any other that cannot be read is an error with its number.
pub fn read_quarantine(text: &str, dataset: &str, samples: u64) -> Result<Quarantine> {
    let mut ids = Vec::new();
    for (number, line) in text.split_inclusive('\n').enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let fail = |why: &str| Error::corrupt(format!("read quarantine, line {}: {why}", number + 1));
        if line.len() > MAX_LINE_BYTES {
            return Err(fail("it is longer than 64 KiB"));
        }
        match serde_json::from_str::<QuarantineEntry>(line) {
            Ok(entry) if entry.dataset != dataset => {}
            Ok(entry) if entry.sample_id < samples => ids.push(entry.sample_id),
            Ok(_) => return Err(fail("the dataset has no such sample")),
            Err(_) if !line.ends_with('\n') => {}
            Err(cause) => return Err(fail("it is no entry").with_source(cause)),
        }
    }
    Ok(Quarantine::new(ids))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(dataset: &str, sample_id: u64) -> QuarantineEntry {
        let error = Error::corrupt("decode: cut off");
        QuarantineEntry::of(dataset, SampleId(sample_id), &error).unwrap()
    }

    proptest! {
        #[test]
        fn nobody_in_quarantine_stands_in_and_others_stay(
            seed: u64, epoch in 0u64..9, samples in 100u64..1000, bad in prop::collection::vec(0u64..100, 0..5),
        ) {
            let quarantine = Quarantine::new(bad.clone());
            for sample in 0..samples {
                let (read, attempts) = quarantine.stand_in(seed, epoch, SampleId(sample), samples);
                prop_assert_eq!(attempts > 0, bad.contains(&sample));
                prop_assert!(!quarantine.holds(read));
                prop_assert!(read.0 < samples);
                // What a loader that finds out by reading comes to.
                let (mut found, mut attempt) = (SampleId(sample), 0);
                while bad.contains(&found.0) {
                    found = substitute_for(seed, epoch, found, attempt, samples);
                    attempt += 1;
                }
                prop_assert_eq!(read, found);
            }
        }

        #[test]
        fn no_text_makes_reading_panic(text in "[{}\":,a-z0-9\n]{0,80}") {
            let _ = read_quarantine(&text, "v", 10);
        }
    }

    #[test]
    fn lines_of_other_versions_and_a_cut_last_line_are_passed_over_and_others_are_named() {
        let sound = entry("v", 7).to_line() + &entry("w", 8).to_line() + "\n" + &entry("v", 3).to_line();
        assert_eq!(read_quarantine(&sound, "v", 10).unwrap().ids(), [3, 7]);
        let cut = sound.clone() + &entry("v", 5).to_line()[..20];
        assert_eq!(read_quarantine(&cut, "v", 10).unwrap().ids(), [3, 7]);
        let wrong = format!("{{\n{sound}");
        let error = read_quarantine(&wrong, "v", 10).unwrap_err();
        assert!(error.message().contains("line 1"), "{error:?}");
        assert!(read_quarantine(&sound, "v", 5).unwrap_err().message().contains("no such sample"));
    }

    #[test]
    fn what_may_pass_is_no_fault_of_the_sample() {
        assert!(QuarantineEntry::of("v", SampleId(1), &Error::unavailable("fetch: no answer")).is_none());
        assert!(QuarantineEntry::of("v", SampleId(1), &Error::cancelled("closed")).is_none());
    }
}
