//! A dataset into a table: every sample a row, many written at once, and a second run goes on where the first ended.
//!
//! The id of a row is made from the sample's key, so that a sample always lands in the same row. A row whose id and
//! size are noted in the table already is left alone. The row of the metadata table is written behind that of the
//! data: what is noted there can be read.

use super::dataset::Dataset;
use forebay_core::manifest::{FieldKind, Manifest};
use forebay_core::{Error, Facts, Result, SampleId};
use forebay_store::cassandra::{CassandraStore, CreateTables, LabelType, NewLabel, NewRow, RowInfo};
use forebay_store::{ByteRange, Store};
use futures::stream::{self, StreamExt};
use std::collections::{HashMap, HashSet};
use std::time::Duration;
use xxhash_rust::xxh3::xxh3_128;

/// The member of a shard, or the field of a tree, that holds the class.
const CLASS_FIELD: &str = "cls";
/// Columns of a table of labels that hold the class, the likeliest first.
const CLASS_COLUMNS: [&str; 6] = ["label", "class", "class_name", "category", "target", "y"];
/// How often a row is sent when the cluster does not take it for the moment.
const TRIES: u32 = 6;
/// The wait before the second try; it doubles from there on.
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// How rows are written.
#[derive(Clone, Debug)]
pub struct IngestOptions {
    /// Makes the keyspace and the tables, with this many copies of every row, where they are missing.
    pub create: Option<u16>,
    /// The field that becomes the data column; may be left open when samples have one payload besides the label.
    pub data_field: Option<String>,
    /// The field that becomes the label column: `cls` or its like when left open.
    pub label_field: Option<String>,
    /// Writes rows that are there already, too.
    pub overwrite: bool,
    /// Rows on their way at once.
    pub in_flight: usize,
}

impl Default for IngestOptions {
    fn default() -> Self {
        Self { create: None, data_field: None, label_field: None, overwrite: false, in_flight: 32 }
    }
}

/// What an ingest did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ingested {
    /// Samples of the dataset.
    pub samples: u64,
    /// Rows written.
    pub written: u64,
    /// Samples whose rows were there.
    pub skipped: u64,
    /// Payload bytes written, labels included.
    pub bytes: u64,
}

/// Writes every sample of `dataset` into the table. `watch` is told what is done so far and may end the work with an
/// error; rows that are on their way then may or may not arrive, and the next run settles that.
pub async fn ingest(
    dataset: &Dataset,
    store: &CassandraStore,
    options: &IngestOptions,
    watch: &(dyn Fn(&Ingested) -> Result<()> + Sync),
) -> Result<Ingested> {
    let manifest = dataset.manifest();
    let label = Label::of(manifest, options)?;
    refuse_double_keys(manifest)?;
    if let Some(replication) = options.create {
        store.create(CreateTables { replication, label: label.kind() }).await?;
    }
    let kind = store.label_type().await?;
    if kind != label.kind() && label != Label::None {
        let (there, ours) = (kind.name(), label.kind().name());
        let message = format!(
            "ingest `{}` into `{}`: its labels are of type {ours}, the table's of type {there}",
            dataset.url(),
            store.url("")
        );
        return Err(
            Error::invalid_config(message).with_hint("name another table, or the field with `label_field`")
        );
    }
    let there: HashMap<String, RowInfo> = if options.overwrite {
        HashMap::new()
    } else {
        store.scan().await?.into_iter().map(|row| (row.id.clone(), row)).collect()
    };
    let mut done = Ingested { samples: manifest.len(), ..Ingested::default() };
    let (there, label) = (&there, &label);
    let rows = stream::iter((0..manifest.len()).map(SampleId)).map(|sample| async move {
        let data = data_field(manifest, sample, label, options)?;
        let id = row_id(&manifest.key(sample));
        if there.get(&id).is_some_and(|row| same_sizes(manifest, sample, data, label, row)) {
            return Ok(None);
        }
        let facts = Facts { sample_id: Some(sample), key: Some(manifest.key(sample)), ..Facts::default() };
        let row =
            read(dataset, sample, id, data, label).await.map_err(|error| error.with_facts(facts.clone()))?;
        let bytes = row.data.len() as u64 + label_len(row.label.as_ref());
        write(store, row).await.map_err(|error| error.with_facts(facts))?;
        Result::Ok(Some(bytes))
    });
    let mut rows = Box::pin(rows.buffer_unordered(options.in_flight.max(1)));
    while let Some(row) = rows.next().await {
        match row? {
            Some(bytes) => {
                done.written += 1;
                done.bytes += bytes;
            }
            None => done.skipped += 1,
        }
        watch(&done)?;
    }
    Ok(done)
}

/// The row of a sample's key, as a uuid of version 8 whose other bits are a hash of the key.
pub fn row_id(key: &str) -> String {
    let hash = xxh3_128(format!("forebay row {key}").as_bytes());
    let bits = (hash & !(0xF << 76) & !(0x3 << 62)) | (0x8 << 76) | (0x2 << 62);
    let hex = format!("{bits:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// Where labels come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Label {
    None,
    /// A field of integers.
    Int(usize),
    /// A payload that is an integer in decimal digits.
    Digits(usize),
    /// A payload as it is.
    Blob(usize),
}

impl Label {
    fn of(manifest: &Manifest, options: &IngestOptions) -> Result<Self> {
        let int = |at: &usize| manifest.fields()[*at].kind == FieldKind::Int;
        if let Some(name) = &options.label_field {
            let Some(at) = manifest.field_index(name) else {
                return Err(no_field(manifest, "label", name));
            };
            return Ok(if int(&at) {
                Self::Int(at)
            } else if name == CLASS_FIELD {
                Self::Digits(at)
            } else {
                Self::Blob(at)
            });
        }
        let column = |name: &&str| manifest.field_index(name).filter(int);
        Ok(match manifest.field_index(CLASS_FIELD) {
            Some(at) if int(&at) => Self::Int(at),
            Some(at) => Self::Digits(at),
            None => CLASS_COLUMNS.iter().find_map(column).map_or(Self::None, Self::Int),
        })
    }

    fn kind(self) -> LabelType {
        match self {
            Self::None => LabelType::None,
            Self::Int(_) | Self::Digits(_) => LabelType::Int,
            Self::Blob(_) => LabelType::Blob,
        }
    }

    fn field(self) -> Option<usize> {
        match self {
            Self::None => None,
            Self::Int(at) | Self::Digits(at) | Self::Blob(at) => Some(at),
        }
    }
}

/// The one payload of a sample that is its data.
fn data_field(
    manifest: &Manifest,
    sample: SampleId,
    label: &Label,
    options: &IngestOptions,
) -> Result<usize> {
    let key = manifest.key(sample);
    if let Some(name) = &options.data_field {
        let at = manifest.field_index(name).ok_or_else(|| no_field(manifest, "data", name))?;
        return manifest
            .location(sample, at)
            .map(|_| at)
            .ok_or_else(|| Error::not_found(format!("ingest sample `{key}`: it has no payload `{name}`")));
    }
    let payloads: Vec<usize> = (0..manifest.fields().len())
        .filter(|at| Some(*at) != label.field() && manifest.location(sample, *at).is_some())
        .collect();
    match payloads.as_slice() {
        [at] => Ok(*at),
        several => {
            let names: Vec<_> =
                several.iter().map(|at| format!("`{}`", manifest.fields()[*at].name)).collect();
            let why = if names.is_empty() {
                "no payload".into()
            } else {
                format!("several payloads: {}", names.join(", "))
            };
            Err(Error::invalid_config(format!("ingest sample `{key}`: besides its label it has {why}"))
                .with_hint(
                    "a row holds one payload and one label: name them with `data_field` and `label_field`",
                ))
        }
    }
}

fn no_field(manifest: &Manifest, what: &str, name: &str) -> Error {
    let names: Vec<_> = manifest.fields().iter().map(|field| format!("`{}`", field.name)).collect();
    Error::invalid_config(format!("ingest: no field `{name}` for the {what}"))
        .with_hint(format!("the dataset has {}", names.join(", ")))
}

/// Two samples of one key would share a row, and the one written last would win.
fn refuse_double_keys(manifest: &Manifest) -> Result<()> {
    let mut seen = HashSet::new();
    for sample in 0..manifest.len() {
        let key = manifest.key(SampleId(sample));
        if !seen.insert(xxh3_128(key.as_bytes())) {
            let message = format!("ingest sample {sample}: another sample has the key `{key}` as well");
            return Err(Error::invalid_config(message)
                .with_hint("a row's id is made from the sample's key: rename one"));
        }
    }
    Ok(())
}

/// Whether the row that is there has the sizes of the sample, as far as they are noted.
fn same_sizes(manifest: &Manifest, sample: SampleId, data: usize, label: &Label, row: &RowInfo) -> bool {
    let length = |field| manifest.location(sample, field).map(|at| at.length);
    let same = |noted: Option<u64>, field| noted.is_none() || noted == length(field);
    let int = match label {
        Label::Int(at) => manifest.int(sample, *at) == row.label,
        Label::Blob(at) => same(row.label_size, *at),
        Label::None | Label::Digits(_) => true,
    };
    same(row.size, data) && int
}

async fn read(dataset: &Dataset, sample: SampleId, id: String, data: usize, label: &Label) -> Result<NewRow> {
    let manifest = dataset.manifest();
    let payload = |field| dataset.read_field(sample, field, ByteRange::Full);
    let number = match *label {
        Label::Int(at) => manifest.int(sample, at),
        Label::Digits(at) if manifest.location(sample, at).is_some() => Some(digits(&payload(at).await?)?),
        _ => None,
    };
    let label = match *label {
        Label::Blob(at) if manifest.location(sample, at).is_some() => {
            Some(NewLabel::Blob(payload(at).await?))
        }
        _ => number.map(NewLabel::Int),
    };
    let name = |number: i64| dataset.class_names()?.get(usize::try_from(number).ok()?).cloned();
    Ok(NewRow {
        id,
        data: payload(data).await?,
        label,
        label_name: number.and_then(name),
        field: Some(manifest.fields()[data].name.clone()),
        key: Some(manifest.key(sample)),
    })
}

fn digits(bytes: &[u8]) -> Result<i64> {
    let text = std::str::from_utf8(bytes).ok().map(str::trim);
    text.and_then(|text| text.parse().ok()).ok_or_else(|| {
        Error::invalid_config("ingest field `cls`: it is no integer")
            .with_hint("name a label with `label_field`")
    })
}

fn label_len(label: Option<&NewLabel>) -> u64 {
    match label {
        Some(NewLabel::Blob(bytes)) => bytes.len() as u64,
        _ => 0,
    }
}

/// Writes a row, again after a pause when the cluster is busy. Writing twice is as good as once.
async fn write(store: &CassandraStore, row: NewRow) -> Result<()> {
    let mut pause = FIRST_PAUSE;
    for _ in 1..TRIES {
        match store.write_row(row.clone()).await {
            Err(error) if error.kind().is_transient() => {
                tokio::time::sleep(error.throttled().unwrap_or_default().max(pause)).await;
                pause *= 2;
            }
            settled => return settled,
        }
    }
    store.write_row(row).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_one_row_for_good() {
        assert_eq!(row_id("class_00/000000.jpg"), row_id("class_00/000000.jpg"));
        assert_ne!(row_id("a"), row_id("b"));
        for key in ["", "a", "class_00/000000.jpg"] {
            let id = row_id(key);
            assert_eq!((id.len(), id.as_bytes()[14]), (36, b'8'), "{id}");
            assert!(b"89ab".contains(&id.as_bytes()[19]), "{id}");
        }
        assert_eq!(row_id("class_00/000000.jpg"), "3c522dd1-497d-88c9-9f52-dbd778b599f6");
    }
}
