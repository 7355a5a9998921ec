//! The arguments of `ingest` and `split`, as typed and as meant.

use super::Data;
use super::data::HowArgs;
use clap::Args;
use forebay_core::split::Ratios;
use forebay_core::{Error, Result};
#[cfg(feature = "cassandra")]
use forebay_engine::source::ingest::IngestOptions;
#[cfg(feature = "cassandra")]
use forebay_store::StoreOptions;
use std::path::PathBuf;

/// `forebay ingest`.
#[derive(Debug, Args)]
#[cfg_attr(
    not(feature = "cassandra"),
    allow(dead_code, reason = "known, so that the answer names the feature")
)]
pub(crate) struct IngestArgs {
    /// The dataset: anything `info` understands.
    #[arg(value_name = "SOURCE")]
    pub(crate) from: String,
    /// The table: `cassandra://host[:port][,host[:port]]/keyspace/table`.
    #[arg(value_name = "TABLE")]
    pub(crate) to: String,
    /// An option of the table's store, such as `username=me`, `tls=on` or `metadata_table=labels`; may be repeated.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) to_option: Vec<String>,
    /// Make the keyspace and the tables where they are missing.
    #[arg(long)]
    pub(crate) create: bool,
    /// Copies of every row, for `--create`.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) replication: u16,
    /// The field that becomes the data. [default: the one payload besides the label]
    #[arg(long, value_name = "FIELD")]
    pub(crate) data_field: Option<String>,
    /// The field that becomes the label. [default: cls, label and the like]
    #[arg(long, value_name = "FIELD")]
    pub(crate) label_field: Option<String>,
    /// Rows on their way at once.
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(crate) in_flight: u16,
    /// Write rows that are there already, too.
    #[arg(long)]
    pub(crate) overwrite: bool,
    #[command(flatten)]
    pub(crate) how: HowArgs,
}

/// What `ingest` does.
#[cfg(feature = "cassandra")]
#[derive(Debug)]
pub(crate) struct IngestPlan {
    pub(crate) data: Data,
    pub(crate) to: String,
    pub(crate) store: StoreOptions,
    pub(crate) options: IngestOptions,
}

#[cfg(feature = "cassandra")]
impl IngestArgs {
    pub(crate) fn resolve(&self) -> Result<IngestPlan> {
        let to = self.to.trim_end_matches('/');
        if !to.starts_with("cassandra://") {
            return Err(Error::unsupported(format!("ingest into `{to}`: it is no table"))
                .with_hint("write `cassandra://host[:port]/keyspace/table`; `forebay pack` writes shards"));
        }
        let mut store = StoreOptions::new();
        for word in &self.to_option {
            let Some((name, value)) = word.split_once('=') else {
                return Err(Error::invalid_config(format!("read --to-option `{word}`: it has no `=`")));
            };
            store.insert(name.trim().to_owned(), value.to_owned());
        }
        let options = IngestOptions {
            create: self.create.then_some(self.replication),
            data_field: self.data_field.clone(),
            label_field: self.label_field.clone(),
            overwrite: self.overwrite,
            in_flight: usize::from(self.in_flight),
        };
        Ok(IngestPlan { data: self.how.resolve(vec![self.from.clone()])?, to: to.to_owned(), store, options })
    }
}

/// `forebay split`.
#[derive(Debug, Args)]
pub(crate) struct SplitArgs {
    /// The dataset: anything `info` understands.
    #[arg(value_name = "SOURCE")]
    pub(crate) from: String,
    /// Shares of the parts, in any unit, separated by commas.
    #[arg(long, value_name = "LIST", value_delimiter = ',', required = true)]
    pub(crate) ratios: Vec<f64>,
    /// Names of the parts, separated by commas. [default: train,val,test; for other numbers part0,part1,...]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) names: Vec<String>,
    /// Decides which sample goes where.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) seed: u64,
    /// The field whose values are the classes, or `none`. [default: cls, if there is one]
    #[arg(long, value_name = "FIELD")]
    pub(crate) by: Option<String>,
    /// The file to write, as JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) how: HowArgs,
}

/// What `split` does.
#[derive(Debug)]
pub(crate) struct SplitPlan {
    pub(crate) data: Data,
    pub(crate) ratios: Ratios,
    pub(crate) names: Vec<String>,
    pub(crate) seed: u64,
    pub(crate) by: Option<String>,
    pub(crate) output: PathBuf,
}

impl SplitArgs {
    pub(crate) fn resolve(&self) -> Result<SplitPlan> {
        let ratios = Ratios::new(&self.ratios)?;
        let count = self.ratios.len();
        let names: Vec<String> = match (self.names.len(), count) {
            (0, 2 | 3) => ["train", "val", "test"][..count].iter().map(|name| (*name).to_owned()).collect(),
            (0, _) => (0..count).map(|part| format!("part{part}")).collect(),
            _ => self.names.iter().map(|name| name.trim().to_owned()).collect(),
        };
        let twice = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name));
        if names.len() != count || names.iter().any(String::is_empty) || twice.is_some() {
            let message =
                format!("split into `{}`: {count} ratios need {count} different names", names.join("`, `"));
            return Err(Error::invalid_config(message));
        }
        Ok(SplitPlan {
            data: self.how.resolve(vec![self.from.clone()])?,
            ratios,
            names,
            seed: self.seed,
            by: self.by.clone(),
            output: self.output.clone(),
        })
    }
}
