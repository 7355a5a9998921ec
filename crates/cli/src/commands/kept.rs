//! The file in which the engine keeps a dataset's manifest, found by what is in it, and whether it is new.

use crate::args::Data;
use forebay_core::Result;
use forebay_core::manifest::Manifest;
use forebay_engine::source::Dataset;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Where a manifest came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    /// The kept file, when there is one.
    pub(super) path: Option<PathBuf>,
    pub(super) state: State,
}

/// What opening did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Took the manifest that an earlier run kept.
    Kept,
    /// Built it: there was none.
    Built,
    /// Built it again: the kept one was not true any more, or that was asked for.
    Rebuilt,
    /// Took the file that was named in the place of a dataset.
    Given,
    /// It is not kept between runs.
    NotKept,
}

impl State {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Built => "built",
            Self::Rebuilt => "rebuilt",
            Self::Given => "given",
            Self::NotKept => "not_kept",
        }
    }

    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Kept => "kept by an earlier run",
            Self::Built => "built now",
            Self::Rebuilt => "built again",
            Self::Given => "as given",
            Self::NotKept => "not kept",
        }
    }
}

impl Origin {
    pub(super) fn object(&self) -> Value {
        let path = self.path.as_ref().map(|path| path.display().to_string());
        json!({ "path": path, "state": self.state.name() })
    }

    pub(super) fn text(&self) -> String {
        match &self.path {
            Some(path) => format!("{}, {}", path.display(), self.state.words()),
            None => self.state.words().to_owned(),
        }
    }
}

/// Opens a dataset by `open` and finds out where its manifest came from.
pub(super) fn watch(data: &Data, open: impl FnOnce() -> Result<Dataset>) -> Result<(Dataset, Origin)> {
    if let [spec] = data.spec.as_slice()
        && Path::new(spec).extension().is_some_and(|end| end == "fbm")
    {
        return Ok((open()?, Origin { path: Some(spec.into()), state: State::Given }));
    }
    let folder = data.options.manifest_dir.as_deref();
    let before = folder.map(manifests).unwrap_or_default();
    let dataset = open()?;
    let after = folder.map(manifests).unwrap_or_default();
    let path = after.keys().find(|path| holds(path, dataset.manifest())).cloned();
    let state = match &path {
        None => State::NotKept,
        Some(path) if before.get(path) == after.get(path) => State::Kept,
        Some(path) if before.contains_key(path) => State::Rebuilt,
        Some(_) => State::Built,
    };
    Ok((dataset, Origin { path, state }))
}

fn manifests(folder: &Path) -> HashMap<PathBuf, SystemTime> {
    // A folder that cannot be read keeps nothing, which is what is reported then.
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let of_manifest = |entry: &std::fs::DirEntry| entry.path().extension().is_some_and(|end| end == "fbm");
    let timed = entries
        .filter(of_manifest)
        .map(|entry| Some((entry.path(), entry.metadata().ok()?.modified().ok()?)));
    timed.flatten().collect()
}

fn holds(path: &Path, manifest: &Manifest) -> bool {
    let bytes = manifest.as_bytes();
    let same_size = std::fs::metadata(path).is_ok_and(|meta| meta.len() == bytes.len() as u64);
    same_size && std::fs::read(path).is_ok_and(|found| found == bytes)
}
