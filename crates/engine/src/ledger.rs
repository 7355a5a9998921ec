//! The ledger on file: every loader writes what its loop received, and a folder is read back as a whole.
//!
//! Each loader adds to a file of its own, made with its first batch, so that nobody ever writes into what another process
//! began. A record is one write at the end of the file, done before the batch is handed over: a process that is killed
//! has every batch in it that its loop received, and at most one more, which a restart supersedes. Nothing is flushed to
//! the disk itself but at the end of an epoch: a machine that loses power may lose more.

use crate::batch::Batch;
use crate::config::{DeliveryOrder, LoaderConfig};
use crate::feed::OrderSpec;
use forebay_core::cursor::Cursor;
use forebay_core::ledger::{
    Details, Encoder, Fate, OddRow, Parsed, Received, SectionHead, Stream, parse, rows_check,
};
use forebay_core::manifest::Manifest;
use forebay_core::plan::block::Blocks;
use forebay_core::plan::{Plan, Sampler, Shuffle};
use forebay_core::portion::Place;
use forebay_core::recipe::Recipe;
use forebay_core::{Error, Result, SampleId};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Largest file that is read: four hundred million batches.
const MAX_FILE_BYTES: u64 = 1 << 32;

/// Names tried for a new file: loaders of one process may be made in the same microsecond.
const MAX_NAMES: u64 = 1000;

/// Writes down what one loop received.
pub(crate) struct LedgerWriter {
    folder: PathBuf,
    /// What every section says; cursor and time are filled in.
    head: SectionHead,
    arrival: bool,
    sampler: Sampler,
    config: LoaderConfig,
    file: Option<File>,
    encoder: Encoder,
    /// The epoch of the last batch, when there is a section to add to.
    epoch: Option<u64>,
    /// When the last record was written, to the millisecond.
    last_micros: u64,
    /// Looked at when rows are not all as planned.
    plan: Option<Plan>,
}

impl LedgerWriter {
    /// The writer of a loader with these parts. Nothing is opened before there is something to write.
    pub(crate) fn new(
        folder: PathBuf,
        manifest: &Manifest,
        recipe: &Recipe,
        sampler: &Sampler,
        config: &LoaderConfig,
    ) -> Result<Self> {
        if config.turn.of > 1 {
            return Err(Error::unsupported(
                "write a ledger inside several DataLoader processes: none of them knows what the loop received",
            )
            .with_hint("give DataLoader num_workers=0, or leave `ledger` out"));
        }
        let order = order_of(config)?;
        let mut head = SectionHead::new(config.consumer, Cursor::start_of(0));
        head.job = job(&|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
        manifest.version().clone_into(&mut head.dataset);
        (head.samples, head.positions) = (manifest.len(), sampler.samples());
        (head.recipe, head.order, head.is_cut) = (recipe.fingerprint(), order, sampler.walks());
        Ok(Self {
            folder,
            head,
            arrival: matches!(config.order, DeliveryOrder::Arrival { .. }),
            sampler: sampler.clone(),
            config: config.clone(),
            file: None,
            encoder: Encoder::default(),
            epoch: None,
            last_micros: 0,
            plan: None,
        })
    }

    /// Goes on under another order, which is told with the next batch.
    pub(crate) fn reorder(&mut self, sampler: &Sampler, config: &LoaderConfig) -> Result<()> {
        self.head.order = order_of(config)?;
        (self.sampler, self.config) = (sampler.clone(), config.clone());
        (self.epoch, self.plan) = (None, None);
        Ok(())
    }

    /// What there is to say of a batch of an iteration that began at `start`; `None` is one that was left out as a whole.
    pub(crate) fn describe(&mut self, start: &Cursor, places: &[Place], batch: Option<&Batch>) -> Received {
        let ids = batch.map_or(&[][..], |batch| &batch.ids);
        let mut more = Details::default();
        if self.lists_places(start) {
            more.locals = places.iter().map(|place| place.local).collect();
        }
        let planned = self.config.quarantine.ids().is_empty()
            && batch.is_some_and(|batch| batch.faults.is_empty() && batch.ids.len() == places.len());
        if !planned {
            more.odd = self.odd_rows(start.epoch, places, batch);
        }
        let more = (more != Details::default()).then(|| Box::new(more));
        Received { check: rows_check(ids.iter().copied()), millis: 0, more }
    }

    /// Writes a batch down: the `step`-th of an iteration that began at `start`.
    pub(crate) fn write(&mut self, start: &Cursor, step: u64, batch: Received) -> Result<()> {
        let written = self.try_write(start, step, batch);
        if written.is_err() {
            // A part of a record may be there, and nothing can be read behind it.
            (self.file, self.epoch, self.encoder) = (None, None, Encoder::default());
        }
        written.map_err(|error| {
            error.with_hint("a ledger with holes proves nothing: make room, or leave `ledger` out")
        })
    }

    fn try_write(&mut self, start: &Cursor, step: u64, batch: Received) -> Result<()> {
        let mut bytes = Vec::new();
        let what = |folder: &Path| format!("write ledger in `{}`", folder.display());
        let now = now_micros();
        if step == 0 {
            let goes_on = self.epoch.is_some_and(|last| *start == Cursor::start_of(last + 1))
                && self.lists_places(start) == self.head.lists_places;
            if goes_on {
                if let Some(file) = &self.file {
                    file.sync_data().map_err(|cause| Error::io(what(&self.folder), cause))?;
                }
                bytes.extend(self.encoder.epoch()?);
            } else {
                self.head.lists_places = self.lists_places(start);
                self.head.cursor = start.clone();
                self.head.started_micros = now.max(self.last_micros + 1);
                self.last_micros = self.head.started_micros;
                bytes.extend(self.encoder.head(&self.head)?);
            }
            self.epoch = Some(start.epoch);
        }
        let millis = u32::try_from(now.saturating_sub(self.last_micros) / 1000).unwrap_or(u32::MAX);
        self.last_micros += u64::from(millis) * 1000;
        bytes.extend(self.encoder.received(&Received { millis, ..batch })?);
        let file = match &mut self.file {
            Some(file) => file,
            empty => empty.insert(
                create(&self.folder, &self.head).map_err(|cause| Error::io(what(&self.folder), cause))?,
            ),
        };
        file.write_all(&bytes).map_err(|cause| Error::io(what(&self.folder), cause))
    }

    /// Whether the batches of an iteration follow arrival, or what an earlier one by arrival left.
    fn lists_places(&self, start: &Cursor) -> bool {
        self.arrival || start.is_by_arrival()
    }

    /// Which planned rows became something else.
    fn odd_rows(&mut self, epoch: u64, places: &[Place], batch: Option<&Batch>) -> Vec<OddRow> {
        if self.plan.as_ref().is_none_or(|plan| plan.epoch() != epoch) {
            self.plan = Some(self.sampler.plan(epoch));
        }
        let Some(plan) = &self.plan else { return Vec::new() };
        let samples = self.head.samples;
        let mut ids = batch.into_iter().flat_map(|batch| batch.ids.iter().copied()).peekable();
        let mut odd = Vec::new();
        for (row, place) in places.iter().enumerate() {
            let planned = plan.at(place.position);
            let (stand_in, _) = self.config.quarantine.stand_in(self.config.seed, epoch, planned, samples);
            let read = batch.map_or(Some(stand_in), |batch| read_instead(stand_in, batch));
            let fate = match read {
                None => Fate::Skipped,
                Some(read) if ids.next_if_eq(&read).is_none() => Fate::Filtered,
                Some(read) if read != planned => Fate::Substituted(read),
                Some(_) => continue,
            };
            odd.push(OddRow { row: row as u64, fate });
        }
        odd
    }
}

fn order_of(config: &LoaderConfig) -> Result<serde_json::Value> {
    serde_json::to_value(OrderSpec::of(config))
        .map_err(|cause| Error::internal("write ledger: the order").with_source(cause))
}

/// The sample that was read for a row in the end; `None` when it was bad and left out.
fn read_instead(mut sample: SampleId, batch: &Batch) -> Option<SampleId> {
    for _ in 0..batch.faults.len() {
        match batch.faults.iter().find(|fault| fault.sample_id == sample) {
            Some(fault) => sample = fault.substitute?,
            None => break,
        }
    }
    Some(sample)
}

/// What the launcher calls this start of the job: another word after every restart, the same on all ranks.
fn job(word: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let (id, again) = if let Some(id) = word("TORCHELASTIC_RUN_ID") {
        (format!("torchrun {id}"), word("TORCHELASTIC_RESTART_COUNT"))
    } else {
        let step = word("SLURM_STEP_ID").map_or_else(String::new, |step| format!(".{step}"));
        (format!("slurm {}{step}", word("SLURM_JOB_ID")?), word("SLURM_RESTART_COUNT"))
    };
    Some(format!("{id} start {}", again.unwrap_or_else(|| "0".to_owned())))
}

/// A new file for a rank, under a name that nobody else has.
fn create(folder: &Path, head: &SectionHead) -> std::io::Result<File> {
    std::fs::create_dir_all(folder)?;
    let pid = std::process::id();
    for number in 0..MAX_NAMES {
        let name = format!("rank-{:05}-{}-{pid}.ledger", head.rank, head.started_micros + number);
        match OpenOptions::new().append(true).create_new(true).open(folder.join(name)) {
            Err(cause) if cause.kind() == ErrorKind::AlreadyExists => {}
            done => return done,
        }
    }
    Err(std::io::Error::from(ErrorKind::AlreadyExists))
}

fn now_micros() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// A file of a ledger.
#[derive(Debug)]
pub struct LedgerFile {
    /// Its name.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// What it holds.
    pub parsed: Parsed,
}

/// Reads all files of a ledger, by name. A folder without any is an error.
pub fn read(folder: &Path) -> Result<Vec<LedgerFile>> {
    let what = || format!("read ledger `{}`", folder.display());
    let entries = std::fs::read_dir(folder).map_err(|cause| Error::io(what(), cause))?;
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(|cause| Error::io(what(), cause))?.path();
        if path.extension().is_some_and(|ending| ending == "ledger") {
            paths.push(path);
        }
    }
    paths.sort();
    if paths.is_empty() {
        return Err(Error::not_found(format!("{}: no file there ends in `.ledger`", what()))
            .with_hint("give a Loader `ledger=DIR`, or set FOREBAY_LEDGER, and let it hand over a batch"));
    }
    paths.iter().map(|path| read_file(path)).collect()
}

fn read_file(path: &Path) -> Result<LedgerFile> {
    let what = || format!("read ledger `{}`", path.display());
    let file = File::open(path).map_err(|cause| Error::io(what(), cause))?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(|cause| Error::io(what(), cause))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(Error::exhausted(format!("{}: it is larger than 4 GiB", what())));
    }
    let parsed = parse(&bytes).map_err(|error| error.while_doing(what()))?;
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(LedgerFile { name, bytes: bytes.len() as u64, parsed })
}

/// The order of a stream of a ledger. Without the dataset only orders that do not depend on it are known, others are `None`.
pub fn sampler(stream: &Stream, manifest: Option<&Manifest>) -> Result<Option<Sampler>> {
    let head = stream.head();
    let order: OrderSpec = serde_json::from_value(stream.order().clone())
        .map_err(|cause| Error::corrupt("read ledger: its order is none").with_source(cause))?;
    let Some(manifest) = manifest else {
        let special = order.mix.is_some() || order.sharding.is_some() || order.size_classes.is_some();
        return match order.shuffle {
            Shuffle::Block(_) => Ok(None),
            _ if special || order.batching.is_some() => Ok(None),
            Shuffle::Resample { .. } => {
                let shuffle = Shuffle::Resample { epoch_samples: Some(head.positions) };
                Sampler::from_blocks(head.samples, Blocks::default(), shuffle, order.seed).map(Some)
            }
            shuffle => Sampler::from_blocks(head.samples, Blocks::default(), shuffle, order.seed).map(Some),
        };
    };
    if manifest.version() != head.dataset {
        return Err(Error::stale(format!(
            "check ledger: it is of version {} of a dataset, this is {}",
            head.dataset,
            manifest.version()
        ))
        .with_hint("name the dataset that was read, as it was then"));
    }
    order.config(head.batch_size).sampler(manifest).map(Some)
}

#[cfg(test)]
mod tests {
    use super::job;

    #[test]
    fn the_launcher_tells_restarts_apart() {
        let with = |words: &'static [(&str, &str)]| {
            job(&|name| words.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
        };
        assert_eq!(with(&[]), None);
        let restarted = with(&[("TORCHELASTIC_RUN_ID", "a"), ("TORCHELASTIC_RESTART_COUNT", "2")]);
        assert_eq!(restarted.as_deref(), Some("torchrun a start 2"));
        let step = with(&[("SLURM_JOB_ID", "7"), ("SLURM_STEP_ID", "1")]);
        assert_eq!(step.as_deref(), Some("slurm 7.1 start 0"));
    }
}
