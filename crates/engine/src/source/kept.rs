//! Manifests kept between runs: where they are, whether they still tell the truth, and how they are replaced.
//!
//! A kept manifest is only ever a shortcut. One that is missing, stale, broken or cannot be written costs time, never
//! correctness: it is built again and the user is told why.

use super::csv;
use super::inventory::Inventory;
use super::locate::is_packed;
use super::options::{OpenOptions, SourceKind};
use forebay_core::manifest::Manifest;
use forebay_core::{ErrorKind, Result};
use forebay_store::local::map::map_file;
use forebay_store::{LocalStore, ObjectMeta, Store};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

/// Raised when the meaning of what the source writes into manifests changes.
const SOURCE_FORMAT: u32 = 1;

/// The place of one dataset's manifest.
#[derive(Debug)]
pub(super) struct Kept {
    store: LocalStore,
    key: String,
}

impl Kept {
    /// The place for a spec and the options that change what is found.
    pub(super) fn new(folder: PathBuf, identity: &[String], options: &OpenOptions) -> Self {
        let kind = options.kind.map(SourceKind::name);
        let mut identity =
            serde_json::json!([SOURCE_FORMAT, identity, kind, options.labels, options.extensions]);
        if let (Some(tokens), Some(all)) = (&options.tokens, identity.as_array_mut()) {
            all.push(serde_json::json!(tokens));
        }
        let key = format!("{:032x}.fbm", xxh3_128(identity.to_string().as_bytes()));
        Self { store: LocalStore::new(folder), key }
    }

    /// The manifest kept earlier. A broken one is told about and left out.
    pub(super) fn load(&self, notes: &mut Vec<String>) -> Option<Manifest> {
        let loaded = match map_file(self.store.root().join(&self.key)) {
            Ok(bytes) => Manifest::open(bytes),
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Err(error) => Err(error),
        };
        match loaded {
            Ok(manifest) => Some(manifest),
            Err(error) => {
                let path = self.store.url(&self.key);
                tracing::warn!(manifest = path, reason = %error, "kept manifest cannot be read");
                notes.push(format!("kept manifest `{path}` cannot be read and is built again: {error}"));
                None
            }
        }
    }

    /// Keeps a manifest. When that is not possible the run goes on without, and says so.
    pub(super) async fn save(&self, manifest: &Manifest, notes: &mut Vec<String>) {
        let bytes = bytes::Bytes::copy_from_slice(manifest.as_bytes());
        if let Err(error) = self.store.write(&self.key, bytes).await {
            let path = self.store.url(&self.key);
            tracing::warn!(manifest = path, reason = %error, "manifest cannot be kept");
            notes.push(format!(
                "the manifest cannot be kept, so the next run indexes again: {}",
                error.report()
            ));
        }
    }
}

/// Where manifests are kept when nothing else is said: below the user's cache folder, if there is one.
pub(super) fn default_folder(options: &OpenOptions) -> Option<PathBuf> {
    let set =
        |name: &str| options.variable(name).filter(|value| Path::new(value).is_absolute()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")))?;
    Some(cache.join("forebay").join("manifests"))
}

/// A number for everything an inventory holds; part of the manifest's meta.
pub(super) fn fingerprint(inventory: &Inventory) -> String {
    let mut hash = Xxh3::new();
    let mut put = |meta: &ObjectMeta| {
        hash.update(&(meta.key.len() as u64).to_le_bytes());
        hash.update(meta.key.as_bytes());
        hash.update(&meta.size.to_le_bytes());
        hash.update(&meta.stamp.to_le_bytes());
    };
    inventory.objects.iter().for_each(&mut put);
    inventory.labels.iter().for_each(&mut put);
    inventory.described.file.iter().for_each(&mut put);
    for other in &inventory.others {
        hash.update(other.as_bytes());
        hash.update(b"\0");
    }
    format!("{:032x}", hash.digest128())
}

/// Why a manifest does not describe what is there now; `None` when it does.
pub(super) fn stale(manifest: &Manifest, inventory: &Inventory) -> Option<String> {
    let meta = manifest.meta();
    let said = |name: &str| meta.get(name).and_then(|value| value.as_str());
    if said("inventory") == Some(fingerprint(inventory).as_str())
        && said("kind") == Some(inventory.kind.name())
    {
        return None;
    }
    // What rows name is not in the inventory.
    let tables = csv::tables(manifest);
    let known = (0..manifest.object_count()).map(|object| manifest.object(object));
    let mut known = known.filter(|object| tables.as_ref().is_none_or(|own| own.contains(&*object.key)));
    for found in &inventory.objects {
        let Some(known) = known.next() else { return Some(format!("`{}` is new", found.key)) };
        if known.key != found.key {
            return Some(format!("`{}` is where `{}` was", found.key, known.key));
        }
        // A compressed shard is noted with the size of what it holds.
        if known.size != found.size && !(inventory.kind.is_shards() && is_packed(&found.key)) {
            return Some(format!("`{}` has {} bytes, it had {}", found.key, found.size, known.size));
        }
        if known.stamp != found.stamp {
            return Some(format!("`{}` was written again", found.key));
        }
    }
    match known.next() {
        Some(gone) => Some(format!("`{}` is gone", gone.key)),
        None => Some("files around the samples changed".into()),
    }
}

/// Folders of a large tree with the times of their last change, so that opening it again need not list its files.
pub(super) fn folder_times(root: &Path) -> std::io::Result<Option<serde_json::Value>> {
    let mut times = serde_json::Map::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(folder) = open.pop() {
        if times.len() == MAX_FOLDERS {
            return Ok(None);
        }
        // The time is taken before the names, so that a change in between is seen the next time.
        let time = modified(&folder)?;
        for entry in std::fs::read_dir(&folder)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            // A linked folder changes without its link: such trees are listed every time.
            if kind.is_symlink() && entry.path().is_dir() {
                return Ok(None);
            }
            if kind.is_dir() {
                open.push(entry.path());
            }
        }
        let Some(name) = folder.strip_prefix(root).ok().and_then(Path::to_str) else { return Ok(None) };
        times.insert(name.to_string(), time.into());
    }
    Ok(Some(times.into()))
}

/// Whether every folder noted in `manifest` still has its time. `None` when it noted none.
pub(super) fn folders_unchanged(manifest: &Manifest, root: &Path) -> Option<bool> {
    let times = manifest.meta().get("folders")?.as_object()?;
    let same = |(folder, time): (&String, &serde_json::Value)| {
        modified(&root.join(folder)).is_ok_and(|now| time.as_u64() == Some(now))
    };
    Some(times.iter().all(same))
}

/// Most folders whose times a manifest notes: about a megabyte of text.
const MAX_FOLDERS: usize = 20_000;

fn modified(folder: &Path) -> std::io::Result<u64> {
    let time = std::fs::metadata(folder)?.modified()?;
    Ok(time.duration_since(std::time::UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64))
}

/// Opens a manifest that was built a moment ago.
pub(super) fn open_built(bytes: Vec<u8>) -> Result<Manifest> {
    Manifest::open(bytes).map_err(|error| error.while_doing("open the manifest that was built"))
}
