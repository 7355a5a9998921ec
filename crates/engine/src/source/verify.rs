//! Looks at every header and every payload and names each fault with its place; never stops at the first.
//!
//! Memory: one shard's list of members and a small map entry for each sample, so that a key used twice in different
//! shards is found. Findings beyond a limit are counted, not kept.

#[cfg(feature = "cassandra")]
mod rows;

use super::inventory::Inventory;
use super::open::take_inventory;
use super::options::{OpenOptions, SourceKind, field_name};
use super::{blocking, shards};
use crate::shard::group::split_name;
use crate::shard::{Grouper, Limits, Member, WalkEnd, Walker, walk_object};
use bytes::Bytes;
use forebay_core::{Error, Result};
use forebay_store::{ByteRange, ObjectMeta, Store};
use futures::{StreamExt, stream};
use std::collections::HashMap;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// Decides whether a field's payload is sound: given the field's name and the bytes.
pub type Check = Arc<dyn Fn(&str, &[u8]) -> Result<()> + Send + Sync>;

/// What `verify` looks at.
#[derive(Clone, Default)]
pub struct VerifyOptions {
    /// Tries every payload, usually with [`super::decodable`]; `None` reads headers only.
    pub check: Option<Check>,
}

/// What is wrong with a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FindingKind {
    /// A header or a payload is cut off or damaged, so the rest of the shard was not looked at.
    BadShard,
    /// A field appears twice in one sample.
    DuplicateField,
    /// A key names two samples.
    DuplicateKey,
    /// A payload has no bytes.
    EmptyPayload,
    /// A payload cannot be decoded.
    BadPayload,
    /// A payload or object cannot be read.
    Unreadable,
    /// Bytes follow the end of an archive, where no reader looks.
    TrailingBytes,
    /// The archive has no end blocks. It may have been cut exactly between two members.
    NoEndMark,
}

impl FindingKind {
    /// The stable name in JSON output.
    pub fn name(self) -> &'static str {
        match self {
            Self::BadShard => "bad_shard",
            Self::DuplicateField => "duplicate_field",
            Self::DuplicateKey => "duplicate_key",
            Self::EmptyPayload => "empty_payload",
            Self::BadPayload => "bad_payload",
            Self::Unreadable => "unreadable",
            Self::TrailingBytes => "trailing_bytes",
            Self::NoEndMark => "no_end_mark",
        }
    }

    /// Whether training can go on over it. The others make opening or reading fail.
    pub fn is_warning(self) -> bool {
        matches!(self, Self::DuplicateKey | Self::EmptyPayload | Self::TrailingBytes | Self::NoEndMark)
    }
}

/// One fault and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What is wrong.
    pub kind: FindingKind,
    /// The shard or file.
    pub object: String,
    /// The member inside a shard.
    pub member: Option<String>,
    /// Byte offset of the member's header, or of the fault.
    pub offset: Option<u64>,
    /// The fault in words.
    pub message: String,
}

/// What was looked at and what was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Shards or files.
    pub objects: u64,
    /// Samples in them.
    pub samples: u64,
    /// Payload bytes in them.
    pub bytes: u64,
    /// Payloads that were read and tried.
    pub checked: u64,
    /// The first faults, in order of the objects.
    pub findings: Vec<Finding>,
    /// Findings that are errors, kept or not.
    pub errors: u64,
    /// Findings that are warnings, kept or not.
    pub warnings: u64,
}

/// How many findings a report keeps; all are counted and given to the callback.
pub const KEPT_FINDINGS: usize = 10_000;

/// Payloads larger than this are not tried.
const MAX_CHECKED_BYTES: u64 = 1 << 30;

/// Bytes of payloads that are tried together on one thread.
const BATCH_BYTES: u64 = 8 << 20;

/// Looks at everything that `spec` names. `found` is told each finding at once.
///
/// An error is returned only when there is nothing to look at; faults of the data are findings.
pub async fn verify(
    spec: &[String],
    options: &OpenOptions,
    verify: &VerifyOptions,
    found: &(dyn Fn(&Finding) + Send + Sync),
) -> Result<VerifyReport> {
    #[cfg(feature = "cassandra")]
    if let Some(report) = rows::verify(spec, options, verify, found).await? {
        return Ok(report);
    }
    let (store, inventory) = take_inventory(spec, options).await?;
    let keys = inventory.objects.iter().map(|object| object.key.as_str());
    let store = if inventory.kind == SourceKind::Tar { shards::reading_store(&store, keys) } else { store };
    let mut run = Run { store, verify, found, report: VerifyReport::default(), seen: HashMap::new() };
    run.objects(&inventory, options).await?;
    Ok(run.report)
}

struct Run<'a> {
    store: Arc<dyn Store>,
    verify: &'a VerifyOptions,
    found: &'a (dyn Fn(&Finding) + Send + Sync),
    report: VerifyReport,
    /// Hash of each key and the number of the object that had it first.
    seen: HashMap<u64, u32>,
}

/// A payload that waits to be tried.
struct Waiting {
    object: String,
    key: String,
    member: Option<Member>,
    field: String,
    range: std::ops::Range<u64>,
}

impl Run<'_> {
    async fn objects(&mut self, inventory: &Inventory, options: &OpenOptions) -> Result<()> {
        let mut waiting = Vec::new();
        for (number, object) in inventory.objects.iter().enumerate() {
            self.report.objects += 1;
            if inventory.kind == SourceKind::Tar {
                self.shard(number as u32, object, inventory, &mut waiting).await;
                self.try_all(std::mem::take(&mut waiting), options.parallel).await?;
            } else {
                self.file(object, &mut waiting);
                if waiting.len() >= 4096 {
                    self.try_all(std::mem::take(&mut waiting), options.parallel).await?;
                }
            }
            let report = &self.report;
            options.report(super::Progress {
                objects_done: report.objects,
                objects_total: inventory.objects.len() as u64,
                samples: report.samples,
                bytes: report.bytes,
            });
        }
        self.try_all(waiting, options.parallel).await
    }

    fn file(&mut self, object: &ObjectMeta, waiting: &mut Vec<Waiting>) {
        let url = self.store.url(&object.key);
        self.report.samples += 1;
        self.report.bytes += object.size;
        if object.size == 0 {
            self.add(FindingKind::EmptyPayload, &url, None, Some(0), "the file is empty".into());
            return;
        }
        let (field, key) = (field_name(&object.key), object.key.clone());
        waiting.push(Waiting { object: url, key, member: None, field, range: 0..object.size });
    }

    async fn shard(
        &mut self,
        number: u32,
        object: &ObjectMeta,
        inventory: &Inventory,
        waiting: &mut Vec<Waiting>,
    ) {
        let url = self.store.url(&object.key);
        let mut members = Vec::new();
        let walked = match shards::expanded(self.store.as_ref(), object).await {
            Ok(object) => {
                let mut walker = Walker::new(object.size, Limits::default());
                let visit = |member| {
                    members.push(member);
                    Ok(())
                };
                walk_object(
                    self.store.as_ref(),
                    &object.key,
                    &mut walker,
                    shards::header_reads(self.store.as_ref()),
                    visit,
                )
                .await
            }
            Err(error) => Err(error),
        };
        self.members(number, &url, &members, inventory);
        match walked {
            Ok(WalkEnd { marked: false, .. }) => {
                let why = "no end blocks: complete, or cut exactly between two members".to_string();
                self.add(FindingKind::NoEndMark, &url, None, None, why);
            }
            Ok(WalkEnd { trailing: Some(at), .. }) => {
                let why = "bytes follow the end of the archive, where no reader looks".to_string();
                self.add(FindingKind::TrailingBytes, &url, None, Some(at), why);
            }
            Ok(_) => {}
            Err(error) => {
                let (member, offset) = (error.facts().key.clone(), error.facts().offset);
                self.add(FindingKind::BadShard, &url, member.as_deref(), offset, error.report());
            }
        }
        if self.verify.check.is_some() {
            waiting.extend(members.into_iter().filter(|member| member.length > 0).filter_map(|member| {
                let field = split_name(&member.name)?.1.to_lowercase();
                let range = member.offset..member.offset + member.length;
                Some(Waiting {
                    object: url.clone(),
                    key: object.key.clone(),
                    member: Some(member),
                    field,
                    range,
                })
            }));
        }
    }

    /// Samples, empty payloads and keys used twice.
    fn members(&mut self, number: u32, url: &str, members: &[Member], inventory: &Inventory) {
        let mut grouper = Grouper::default();
        let mut samples = Vec::new();
        for member in members {
            match grouper.add(member) {
                Ok(sample) => samples.extend(sample),
                Err(error) => {
                    self.add(
                        FindingKind::DuplicateField,
                        url,
                        Some(&member.name),
                        Some(member.header),
                        error.report(),
                    );
                }
            }
            self.report.bytes += member.length;
            if member.length == 0 && split_name(&member.name).is_some() {
                let why = "the payload is empty".to_string();
                self.add(FindingKind::EmptyPayload, url, Some(&member.name), Some(member.header), why);
            }
        }
        samples.extend(grouper.finish());
        self.report.samples += samples.len() as u64;
        for sample in samples {
            if let Some(first) = self.seen.insert(xxh3_64(sample.key.as_bytes()), number) {
                let first = inventory.objects.get(first as usize).map(|object| self.store.url(&object.key));
                let why = match first {
                    Some(first) if first != url => format!("key `{}` is in `{first}` too", sample.key),
                    _ => format!(
                        "key `{}` names an earlier sample of this shard too: members apart are two samples",
                        sample.key
                    ),
                };
                self.add(FindingKind::DuplicateKey, url, Some(&sample.key), Some(sample.header), why);
            }
        }
    }

    /// Reads payloads, many at a time, and tries them away from the async threads.
    async fn try_all(&mut self, waiting: Vec<Waiting>, parallel: usize) -> Result<()> {
        let Some(check) = self.verify.check.clone() else { return Ok(()) };
        let store = Arc::clone(&self.store);
        let read = stream::iter(waiting).map(|waiting| {
            let store = Arc::clone(&store);
            async move {
                let bytes = read_payload(store.as_ref(), &waiting).await;
                (waiting, bytes)
            }
        });
        let mut read = read.buffered(parallel.max(1));
        let (mut batch, mut batch_bytes) = (Vec::new(), 0);
        loop {
            let next = read.next().await;
            let last = next.is_none();
            if let Some((waiting, bytes)) = next {
                batch_bytes += bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
                batch.push((waiting, bytes));
            }
            if last || batch_bytes >= BATCH_BYTES {
                batch_bytes = 0;
                let (tried, check) = (std::mem::take(&mut batch), Arc::clone(&check));
                for (waiting, outcome) in blocking(move || try_batch(tried, &check)).await? {
                    self.note(&waiting, outcome);
                }
            }
            if last {
                return Ok(());
            }
        }
    }

    fn note(&mut self, waiting: &Waiting, outcome: Result<(), (FindingKind, Error)>) {
        self.report.checked += 1;
        if let Err((kind, error)) = outcome {
            let (name, offset) =
                waiting.member.as_ref().map_or((None, Some(0)), |m| (Some(m.name.as_str()), Some(m.header)));
            self.add(kind, &waiting.object, name, offset, error.report());
        }
    }

    fn add(
        &mut self,
        kind: FindingKind,
        object: &str,
        member: Option<&str>,
        offset: Option<u64>,
        message: String,
    ) {
        let finding =
            Finding { kind, object: object.into(), member: member.map(Into::into), offset, message };
        (self.found)(&finding);
        if kind.is_warning() {
            self.report.warnings += 1;
        } else {
            self.report.errors += 1;
        }
        if self.report.findings.len() < KEPT_FINDINGS {
            self.report.findings.push(finding);
        }
    }
}

async fn read_payload(store: &dyn Store, waiting: &Waiting) -> Result<Bytes> {
    let length = waiting.range.end - waiting.range.start;
    if length > MAX_CHECKED_BYTES {
        return Err(Error::exhausted(format!(
            "payload of {length} bytes, at most {MAX_CHECKED_BYTES} are tried"
        )));
    }
    let range = match waiting.member {
        Some(_) => waiting.range.clone().into(),
        // All of the file, so that a checksum of it is compared where the store has one.
        None => ByteRange::Whole(length),
    };
    store.read(&waiting.key, range).await
}

type Tried = (Waiting, Result<(), (FindingKind, Error)>);

fn try_batch(batch: Vec<(Waiting, Result<Bytes>)>, check: &Check) -> Vec<Tried> {
    let attempt = |(waiting, bytes): (Waiting, Result<Bytes>)| {
        let outcome = match bytes {
            Err(error) => Err((FindingKind::Unreadable, error)),
            Ok(bytes) => check(&waiting.field, &bytes).map_err(|error| (FindingKind::BadPayload, error)),
        };
        (waiting, outcome)
    };
    batch.into_iter().map(attempt).collect()
}
