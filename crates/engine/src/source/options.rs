//! What a caller may say about opening a dataset.

use super::records::TokenOptions;
use forebay_core::Result;
use forebay_store::listing::list_all;
use forebay_store::{ObjectMeta, Store, StoreOptions};
use std::path::PathBuf;
use std::sync::Arc;

/// How a dataset is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SourceKind {
    /// Tar shards.
    Tar,
    /// TFRecord files.
    Tfrecord,
    /// Lines of JSON.
    Jsonl,
    /// Rows of CSV or TSV files, with the files that they name.
    Csv,
    /// Zip archives.
    Zip,
    /// RecordIO files, as MXNet writes them.
    Recordio,
    /// MDS shards, as MosaicML's streaming library writes them.
    Mds,
    /// LitData chunks with their `index.json`.
    Litdata,
    /// Files of tokens, with or without the index that Megatron-LM writes.
    Tokens,
    /// Parquet files.
    Parquet,
    /// One folder per class, one file per sample.
    Tree,
    /// A folder of files, with or without a table of labels.
    Table,
    /// Bytes made on demand.
    Synthetic,
    /// Several datasets, mixed by weight.
    Mix,
    /// Several datasets whose samples belong together by key.
    Join,
    /// Rows of a table.
    Rows,
}

impl SourceKind {
    /// The name used in manifests, options and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tar => "tar",
            Self::Tfrecord => "tfrecord",
            Self::Jsonl => "jsonl",
            Self::Csv => "csv",
            Self::Zip => "zip",
            Self::Recordio => "recordio",
            Self::Mds => "mds",
            Self::Litdata => "litdata",
            Self::Tokens => "tokens",
            Self::Parquet => "parquet",
            Self::Tree => "tree",
            Self::Table => "table",
            Self::Synthetic => "synthetic",
            Self::Mix => "mix",
            Self::Join => "join",
            Self::Rows => "rows",
        }
    }

    /// The kind with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Every kind.
    pub const ALL: [Self; 16] = [
        Self::Tar,
        Self::Tree,
        Self::Table,
        Self::Tfrecord,
        Self::Jsonl,
        Self::Csv,
        Self::Zip,
        Self::Recordio,
        Self::Mds,
        Self::Litdata,
        Self::Tokens,
        Self::Parquet,
        Self::Synthetic,
        Self::Mix,
        Self::Join,
        Self::Rows,
    ];

    /// Names of the kinds that stored files may have, as a list in a sentence.
    pub fn stored_names() -> String {
        let stored = Self::ALL
            .into_iter()
            .filter(|kind| !matches!(kind, Self::Synthetic | Self::Mix | Self::Join | Self::Rows));
        let names: Vec<String> = stored.map(|kind| format!("`{}`", kind.name())).collect();
        match names.split_last() {
            Some((last, others)) => format!("{} or {last}", others.join(", ")),
            None => String::new(),
        }
    }

    /// Whether an object of this kind frames many samples.
    pub(super) fn is_shards(self) -> bool {
        self == Self::Tar || self.is_records()
    }

    /// Whether samples lie in records, which the manifest describes.
    pub(super) fn is_records(self) -> bool {
        matches!(
            self,
            Self::Tfrecord
                | Self::Jsonl
                | Self::Csv
                | Self::Zip
                | Self::Recordio
                | Self::Tokens
                | Self::Parquet
        ) || self.is_described()
    }

    /// Whether an `index.json` beside the objects says what they hold.
    pub(super) fn is_described(self) -> bool {
        matches!(self, Self::Mds | Self::Litdata)
    }
}

/// How far indexing has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Whether objects are still being listed: `objects_total` is what was found so far, nothing is indexed yet.
    pub is_listing: bool,
    /// Objects indexed.
    pub objects_done: u64,
    /// Objects in all.
    pub objects_total: u64,
    /// Samples found so far.
    pub samples: u64,
    /// Payload bytes found so far.
    pub bytes: u64,
}

impl Progress {
    /// So many objects were found, and the listing goes on.
    pub(super) fn listing(found: u64) -> Self {
        Self { is_listing: true, objects_total: found, ..Self::default() }
    }
}

/// Called now and then while a manifest is built, from the task that builds it or that lists.
pub type ProgressFn = Arc<dyn Fn(Progress) + Send + Sync>;

/// Where `${NAME}` in a spec is looked up.
pub type Environment = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Settings of [`super::open`]. The default suits almost everybody.
#[derive(Clone)]
pub struct OpenOptions {
    /// A CSV or JSONL file of labels for a folder of files. `None` looks for `labels.csv`, `labels.jsonl`,
    /// `metadata.csv` and `metadata.jsonl` in the folder.
    pub labels: Option<PathBuf>,
    /// The kind, when it should not be guessed from what is there.
    pub kind: Option<SourceKind>,
    /// Where manifests are kept between runs. `None` is `$XDG_CACHE_HOME/forebay/manifests` for [`super::open`] and
    /// nowhere for [`super::open_with_store`].
    pub manifest_dir: Option<PathBuf>,
    /// What is said to a remote store: endpoint, credentials, trust. Local files take none.
    pub storage_options: StoreOptions,
    /// A folder with a copy of the dataset's objects, or of some, that [`crate::stage`] made: what is whole there is
    /// read there. Samples, version and order are the same as without.
    pub local: Option<PathBuf>,
    /// Whether a materialized dataset that is not whole yet is opened as far as it is there without a gap, as a dataset of
    /// its own. Otherwise one that is not whole is refused.
    pub follow: bool,
    /// Whether a manifest kept by an earlier run is ignored and replaced.
    pub rebuild: bool,
    /// How files of tokens are cut into samples; `None` takes their documents.
    pub tokens: Option<TokenOptions>,
    /// Extensions (lower-case, no dot) of the files that are samples in a folder. Shards ignore it.
    pub extensions: Vec<String>,
    /// How many shards are indexed at once. More helps stores with long answers.
    pub parallel: usize,
    /// Told how far indexing has come.
    pub progress: Option<ProgressFn>,
    /// Where variables of the spec are looked up; `None` is the process environment.
    pub environment: Option<Environment>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            labels: None,
            kind: None,
            manifest_dir: None,
            storage_options: StoreOptions::new(),
            local: None,
            follow: false,
            rebuild: false,
            tokens: None,
            extensions: ["jpg", "jpeg", "png", "webp", "npy"].map(String::from).into(),
            parallel: 16,
            progress: None,
            environment: None,
        }
    }
}

impl OpenOptions {
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        match &self.environment {
            Some(environment) => environment(name),
            None => std::env::var(name).ok(),
        }
    }

    pub(super) fn report(&self, progress: Progress) {
        if let Some(report) = &self.progress {
            report(progress);
        }
    }

    /// Everything in a store that begins with a prefix; how much was found is reported while it goes on.
    pub(super) async fn list(&self, store: &dyn Store, prefix: &str) -> Result<Vec<ObjectMeta>> {
        list_all(store, prefix, &|found| self.report(Progress::listing(found))).await
    }

    /// Whether a file with this name is a sample of a folder.
    pub(super) fn accepts(&self, key: &str) -> bool {
        extension(key).is_some_and(|found| self.extensions.contains(&found))
    }
}

impl std::fmt::Debug for OpenOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenOptions")
            .field("labels", &self.labels)
            .field("kind", &self.kind)
            .field("manifest_dir", &self.manifest_dir)
            .field("local", &self.local)
            .field("follow", &self.follow)
            .field("rebuild", &self.rebuild)
            .field("tokens", &self.tokens)
            .field("extensions", &self.extensions)
            .field("parallel", &self.parallel)
            .finish_non_exhaustive()
    }
}

/// The lower-cased extension of a key's file name: what follows its last dot.
pub(super) fn extension(key: &str) -> Option<String> {
    let name = key.rsplit('/').next()?;
    let (stem, extension) = name.rsplit_once('.')?;
    (!stem.is_empty()).then(|| extension.to_lowercase())
}

/// The field that a file's payload has: its extension, with `jpeg` said as `jpg`.
pub(super) fn field_name(key: &str) -> String {
    match extension(key).as_deref() {
        Some("jpeg") => "jpg".into(),
        Some(other) => other.into(),
        None => "bin".into(),
    }
}
