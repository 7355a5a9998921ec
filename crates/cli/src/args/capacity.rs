//! The arguments of `forebay plan`, as typed and as meant.

use clap::{Args, ValueEnum};
use forebay_core::capacity::{Access, Catalog, Demand, Drive, Instance, MAX_CATALOG_BYTES};
use forebay_core::size::parse_bytes;
use forebay_core::stall::Setup;
use forebay_core::{Error, Result};
use std::path::{Path, PathBuf};

/// Bytes of a sample when their number is not given: about that of an ImageNet photograph.
const TYPICAL_SAMPLE_BYTES: u64 = 100_000;
/// Bytes of one request for shards, when not given: what the loader begins with.
const SHARD_REQUEST_BYTES: f64 = (1 << 20) as f64;
/// Most runs simulated at once.
const MAX_RUNS: usize = 1000;

/// `forebay plan`.
#[derive(Debug, Args)]
pub(crate) struct CapacityArgs {
    /// Bytes of the dataset, such as `100TB`.
    #[arg(long, value_name = "SIZE")]
    dataset: String,
    /// Samples of the dataset. [default: as many as have 100 KB each]
    #[arg(long, value_name = "N")]
    samples: Option<u64>,
    /// Accelerators that train at once.
    #[arg(long, value_name = "N")]
    accelerators: u64,
    /// Bytes that each accelerator takes in a second, such as `200MB`.
    #[arg(long, value_name = "SIZE")]
    rate: String,
    /// Passes over the dataset.
    #[arg(long, default_value_t = 1, value_name = "N")]
    epochs: u64,
    /// What drives and links should give beyond what is asked, in percent of it.
    #[arg(long, default_value_t = 20.0, value_name = "PERCENT")]
    headroom: f64,
    /// How samples are read: shards in long reads, or one file for each.
    #[arg(long, value_enum, default_value_t, value_name = "HOW")]
    access: AccessWord,
    /// A TOML file of your own drives, links and machines, beside the built-in ones.
    #[arg(long, value_name = "FILE.toml")]
    catalog: Option<PathBuf>,
    /// Look at this kind of drive only; may be given several times.
    #[arg(long = "drive", value_name = "NAME")]
    drives: Vec<String>,
    /// Drives that you have or have in mind, to be judged.
    #[arg(long, value_name = "NAME=COUNT")]
    have: Option<String>,
    /// The kind of machine that drives are put into.
    #[arg(long, default_value = "server-12", value_name = "NAME")]
    server: String,
    /// Simulate: machines that train, one number or several separated by commas.
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = "Simulation")]
    nodes: Vec<u64>,
    /// Simulate: bytes that each node keeps, one size or several separated by commas.
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = "Simulation")]
    cache: Vec<String>,
    /// Simulate: milliseconds from a request to its answer, one number or several separated by commas.
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = "Simulation")]
    rtt_ms: Vec<f64>,
    /// Nodes keep different samples for each other.
    #[arg(long, help_heading = "Simulation")]
    peers: bool,
    /// Requests that a node has in flight.
    #[arg(long, default_value_t = 64, value_name = "N", help_heading = "Simulation")]
    window: u64,
    /// Bytes of one request. [default: 1MiB for shards, a sample for files]
    #[arg(long, value_name = "SIZE", help_heading = "Simulation")]
    request_bytes: Option<String>,
    /// Samples a second that one core prepares; without it prep never limits.
    #[arg(long, value_name = "N", help_heading = "Simulation")]
    prep_rate: Option<f64>,
    /// Cores of each node that prepare.
    #[arg(long, default_value_t = 16, value_name = "N", help_heading = "Simulation")]
    cores: u64,
    /// Bytes a second into each node: a link's name or a size. Without it links never limit.
    #[arg(long, value_name = "NAME|SIZE", help_heading = "Simulation")]
    node_link: Option<String>,
    /// Bytes a second of the store. [default: what --have gives, else what is asked with headroom]
    #[arg(long, value_name = "SIZE", help_heading = "Simulation")]
    store_rate: Option<String>,
}

/// How samples are read.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum AccessWord {
    /// Shards, in long sequential reads.
    #[default]
    Shards,
    /// One read at a random place for each sample.
    Files,
}

/// What `forebay plan` computes.
#[derive(Debug)]
pub(crate) struct CapacityJob {
    pub(crate) demand: Demand,
    pub(crate) catalog: Catalog,
    pub(crate) drives: Vec<Drive>,
    pub(crate) have: Option<(Drive, u64)>,
    pub(crate) server: Instance,
    /// Runs to be predicted; what the store gives is open when it depends on the drives.
    pub(crate) runs: Vec<Setup>,
    pub(crate) store_bytes_per_second: Option<f64>,
}

impl CapacityArgs {
    pub(crate) fn resolve(&self) -> Result<CapacityJob> {
        let dataset_bytes = size("--dataset", &self.dataset)?;
        let demand = Demand {
            dataset_bytes,
            samples: self.samples.unwrap_or(dataset_bytes.div_ceil(TYPICAL_SAMPLE_BYTES)),
            accelerators: self.accelerators,
            accelerator_bytes_per_second: size("--rate", &self.rate)?,
            epochs: self.epochs,
            headroom: self.headroom / 100.0,
            access: match self.access {
                AccessWord::Shards => Access::Shards,
                AccessWord::Files => Access::Files,
            },
        };
        demand.check()?;
        let catalog = match &self.catalog {
            Some(path) => Catalog::typical().with(read_catalog(path)?),
            None => Catalog::typical(),
        };
        let drives = if self.drives.is_empty() {
            catalog.drives.clone()
        } else {
            self.drives.iter().map(|name| catalog.drive(name).cloned()).collect::<Result<_>>()?
        };
        let have = self.have.as_deref().map(|word| have(word, &catalog)).transpose()?;
        let store = self.store_rate.as_deref().map(|text| size("--store-rate", text)).transpose()?;
        Ok(CapacityJob {
            runs: self.runs(&demand, &catalog)?,
            server: catalog.instance(&self.server)?.clone(),
            store_bytes_per_second: store.map(|rate| rate as f64),
            demand,
            drives,
            have,
            catalog,
        })
    }

    /// Every combination of nodes, cache and round trip that was asked for; none when nothing was.
    fn runs(&self, demand: &Demand, catalog: &Catalog) -> Result<Vec<Setup>> {
        let asked = !self.nodes.is_empty() || !self.cache.is_empty() || !self.rtt_ms.is_empty();
        if !asked && self.prep_rate.is_none() && self.node_link.is_none() && self.store_rate.is_none() {
            return Ok(Vec::new());
        }
        let or = |list: &[f64], default: f64| if list.is_empty() { vec![default] } else { list.to_vec() };
        let caches: Vec<f64> = self
            .cache
            .iter()
            .map(|text| size("--cache", text).map(|bytes| bytes as f64))
            .collect::<Result<_>>()?;
        let nodes = if self.nodes.is_empty() { vec![1] } else { self.nodes.clone() };
        let (caches, trips) = (or(&caches, 0.0), or(&self.rtt_ms, 0.0));
        let count = nodes.len() * caches.len() * trips.len();
        if count > MAX_RUNS {
            let message = format!("simulate {count} runs: at most {MAX_RUNS} are simulated at once");
            return Err(Error::invalid_config(message));
        }
        let sample_bytes = demand.sample_bytes();
        let link = match &self.node_link {
            None => f64::INFINITY,
            Some(name) => match catalog.link(name) {
                Ok(link) => link.bytes_per_second as f64,
                Err(unknown) => parse_bytes(name).map_err(|_| unknown)? as f64,
            },
        };
        let request_bytes = match (&self.request_bytes, demand.access) {
            (Some(text), _) => size("--request-bytes", text)? as f64,
            (None, Access::Shards) => SHARD_REQUEST_BYTES,
            (None, Access::Files) => sample_bytes,
        };
        let same = Setup {
            cores: self.cores as f64,
            prep_rate_per_core: self.prep_rate.unwrap_or(f64::INFINITY),
            request_bytes,
            window_requests: self.window as f64,
            link_bytes_per_second: link,
            peers: self.peers,
            ..Setup::unlimited(demand.samples, sample_bytes, demand.bytes_per_second() / sample_bytes)
        };
        let mut runs = Vec::with_capacity(count);
        for nodes in &nodes {
            for cache_bytes in &caches {
                for trip in &trips {
                    let (nodes, cache_bytes, round_trip_seconds) = (*nodes, *cache_bytes, trip / 1000.0);
                    runs.push(Setup { nodes, cache_bytes, round_trip_seconds, ..same });
                }
            }
        }
        Ok(runs)
    }
}

fn size(flag: &str, text: &str) -> Result<u64> {
    parse_bytes(text).map_err(|error| error.while_doing(flag))
}

fn have(word: &str, catalog: &Catalog) -> Result<(Drive, u64)> {
    let fault = || {
        Error::invalid_config(format!("read --have `{word}`: it is not a drive and a number above 0"))
            .with_hint("write a drive's name, `=` and how many, such as `hdd-8tb=16`")
    };
    let (name, count) = word.split_once('=').ok_or_else(fault)?;
    let count = count.trim().parse().ok().filter(|count| *count > 0).ok_or_else(fault)?;
    Ok((catalog.drive(name.trim())?.clone(), count))
}

fn read_catalog(path: &Path) -> Result<Catalog> {
    use std::io::Read;
    let doing = format!("read catalog `{}`", path.display());
    let file = std::fs::File::open(path).map_err(|error| Error::io(doing.clone(), error))?;
    let mut text = String::new();
    // One byte more than allowed, so that too long is told from just long enough.
    file.take(MAX_CATALOG_BYTES as u64 + 1)
        .read_to_string(&mut text)
        .map_err(|error| Error::io(doing.clone(), error))?;
    Catalog::from_toml(&text).map_err(|error| error.while_doing(format_args!("`{}`", path.display())))
}
