//! What samples are called in shards.

use crate::source::{Dataset, SourceKind};
use forebay_core::manifest::Manifest;
use forebay_core::{Error, Result, SampleId};
use std::collections::HashSet;
use xxhash_rust::xxh3::xxh3_64;

/// Keys for shards. A file's key loses its extension, which is the name of its field, and dots in the file name, at which a
/// shard's key would end. Files that differ in nothing else keep the extension behind `_`. Other keys stay as they are.
pub struct ShardKeys<'a> {
    manifest: &'a Manifest,
    files: bool,
    /// Hashes of short keys that several samples would have.
    ambiguous: HashSet<u64>,
    used: HashSet<u64>,
}

impl<'a> ShardKeys<'a> {
    /// The keys of a dataset's samples.
    pub fn new(dataset: &'a Dataset) -> Self {
        let manifest = dataset.manifest();
        let files = matches!(dataset.kind(), SourceKind::Tree | SourceKind::Table);
        let mut ambiguous = HashSet::new();
        if files {
            let mut seen = HashSet::new();
            for sample in 0..manifest.len() {
                let hash = xxh3_64(short(&manifest.key(SampleId(sample))).0.as_bytes());
                if !seen.insert(hash) {
                    ambiguous.insert(hash);
                }
            }
        }
        Self { manifest, files, ambiguous, used: HashSet::new() }
    }

    /// The key of a sample; a function of the dataset alone.
    pub fn name(&self, sample: SampleId) -> String {
        let stored = self.manifest.key(sample);
        if !self.files {
            return stored;
        }
        let (key, extension) = short(&stored);
        if self.ambiguous.contains(&xxh3_64(key.as_bytes())) { format!("{key}_{extension}") } else { key }
    }

    /// As [`Self::name`]; a key that another sample was given before is an error.
    pub fn of(&mut self, sample: SampleId) -> Result<String> {
        let key = self.name(sample);
        if !self.used.insert(xxh3_64(key.as_bytes())) {
            let stored = self.manifest.key(sample);
            let message = format!("write sample `{stored}`: another sample has the key `{key}` already");
            return Err(Error::invalid_config(message).with_hint("rename one of the two"));
        }
        Ok(key)
    }
}

/// A file's key in a shard, and its extension.
fn short(path: &str) -> (String, String) {
    let (folder, name) = path.rsplit_once('/').map_or(("", path), |(folder, name)| (folder, name));
    let (stem, extension) = name.rsplit_once('.').unwrap_or((name, ""));
    let stem = stem.replace('.', "_");
    let key = if folder.is_empty() { stem } else { format!("{folder}/{stem}") };
    (key, extension.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn a_key_in_a_shard_has_no_dot_in_its_file_name() {
        for (path, key, extension) in
            [("cat/001.jpg", "cat/001", "jpg"), ("v1.2/a.b.PNG", "v1.2/a_b", "png"), ("plain", "plain", "")]
        {
            assert_eq!(short(path), (key.to_owned(), extension.to_owned()));
        }
    }
}
