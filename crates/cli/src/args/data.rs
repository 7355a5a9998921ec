//! Which dataset: the spec, and how it is to be opened.

use clap::{Args, ValueEnum};
use forebay_core::{Error, Result};
use forebay_engine::source::{OpenOptions, SourceKind, TokenOptions};
use std::path::PathBuf;

/// A dataset and how to open it.
#[derive(Debug, Args)]
pub(crate) struct DataArgs {
    /// A folder, shards (`train-{000..146}.tar`, `shards/*.tar`), a manifest `x.fbm`, any of them behind `s3://`,
    /// `https://` or `ais://`, a table `cassandra://host/keyspace/table`, or `synthetic://`.
    #[arg(value_name = "SPEC", required = true)]
    pub(crate) spec: Vec<String>,
    #[command(flatten)]
    pub(crate) how: HowArgs,
}

/// How a dataset is opened.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct HowArgs {
    /// How the dataset is stored, when it should not be guessed.
    #[arg(long, value_enum, value_name = "KIND")]
    pub(crate) kind: Option<Kind>,
    /// A file of labels, CSV or JSONL, for a folder of files.
    #[arg(long, value_name = "FILE")]
    pub(crate) labels: Option<PathBuf>,
    /// Extensions of the files that are samples, separated by commas. [default: jpg,jpeg,png,webp,npy]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) extensions: Vec<String>,
    /// How files of tokens are cut into samples, as JSON: `{"window": 2048}`. [default: every document is one]
    #[arg(long, value_name = "JSON", value_parser = token_options)]
    pub(crate) tokens: Option<TokenOptions>,
    /// Where manifests are kept between runs. [default: $XDG_CACHE_HOME/forebay/manifests]
    #[arg(long, value_name = "DIR")]
    pub(crate) manifest_dir: Option<PathBuf>,
    /// What a remote store is told, such as `endpoint=http://127.0.0.1:9000`; may be given several times.
    #[arg(long = "storage-option", value_name = "NAME=VALUE", value_parser = option_pair)]
    pub(crate) storage_options: Vec<(String, String)>,
}

/// How a dataset is stored.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Kind {
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
    /// MDS shards of MosaicML's streaming library.
    Mds,
    /// LitData chunks with their `index.json`.
    Litdata,
    /// Files of tokens, with or without the index of Megatron-LM.
    Tokens,
    /// Parquet files.
    Parquet,
    /// One folder per class, one file per sample.
    Tree,
    /// A folder of files, with or without labels.
    Table,
}

/// A dataset to open: what the engine needs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Data {
    pub(crate) spec: Vec<String>,
    pub(crate) options: OpenOptions,
    /// The datasets of a mix, with their weights; then nothing else counts.
    pub(crate) parts: Vec<(Data, f64)>,
}

impl DataArgs {
    pub(crate) fn resolve(&self) -> Result<Data> {
        self.how.resolve(self.spec.clone())
    }
}

impl HowArgs {
    pub(crate) fn resolve(&self, spec: Vec<String>) -> Result<Data> {
        let mut options = OpenOptions {
            labels: self.labels.clone(),
            kind: self.kind.map(Kind::source),
            tokens: self.tokens,
            manifest_dir: self.manifest_dir.clone().or_else(default_manifest_dir),
            storage_options: self.storage_options.iter().cloned().collect(),
            ..OpenOptions::default()
        };
        if !self.extensions.is_empty() {
            options.extensions = extensions(&self.extensions)?;
        }
        Ok(Data { spec, options, parts: Vec::new() })
    }
}

impl Kind {
    fn source(self) -> SourceKind {
        match self {
            Self::Tar => SourceKind::Tar,
            Self::Tfrecord => SourceKind::Tfrecord,
            Self::Jsonl => SourceKind::Jsonl,
            Self::Csv => SourceKind::Csv,
            Self::Zip => SourceKind::Zip,
            Self::Recordio => SourceKind::Recordio,
            Self::Mds => SourceKind::Mds,
            Self::Litdata => SourceKind::Litdata,
            Self::Tokens => SourceKind::Tokens,
            Self::Parquet => SourceKind::Parquet,
            Self::Tree => SourceKind::Tree,
            Self::Table => SourceKind::Table,
        }
    }
}

/// `name=value`; the value may hold further equals signs.
pub(super) fn option_pair(text: &str) -> std::result::Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim().to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE, for example `region=eu-central-1`".to_owned()),
    }
}

/// How tokens are cut, as JSON.
fn token_options(text: &str) -> std::result::Result<TokenOptions, String> {
    serde_json::from_str(text)
        .map_err(|error| format!("{error}; write it as JSON, such as `{{\"window\": 2048}}`"))
}

/// Extensions as the engine compares them: lower-case and without a dot.
pub(crate) fn extensions(typed: &[String]) -> Result<Vec<String>> {
    let clean = |typed: &String| typed.trim().trim_start_matches('.').to_lowercase();
    let found: Vec<String> = typed.iter().map(clean).collect();
    if found.iter().any(String::is_empty) {
        return Err(Error::invalid_config("read extensions: one is empty").with_hint("write `jpg,png`"));
    }
    Ok(found)
}

/// Where the engine keeps manifests when nothing else is said. Said here too, because `info` names the file.
fn default_manifest_dir() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")))?;
    Some(cache.join("forebay").join("manifests"))
}
