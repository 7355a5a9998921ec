//! What a sample becomes in a shard: members of a tar, or a record of TFRecord; and the file that takes them.

use super::encode::file_bytes;
use super::group::{FIELDS_OF_A_SAMPLE, is_meta, split_name};
use super::header::BLOCK;
use flate2::write::GzEncoder;
use flate2::{Compression, GzBuilder};
use forebay_core::{Error, Result};
use forebay_ops::record::example::{self, Feature};
use forebay_ops::record::{features, tfrecord};
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufWriter, Write};

/// One value of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell<'a> {
    /// A payload.
    Bytes(&'a [u8]),
    /// An integer: decimal text in a tar, a number in TFRecord.
    Int(i64),
    /// The payload of a record of TFRecord, for TFRecord alone. By itself it is the record, byte for byte; beside other
    /// values its features stand among them as they are. Its name does not count.
    Record(&'a [u8]),
}

/// The feature that holds a sample's key in TFRecord, which has no place for it.
pub const KEY_FEATURE: &str = "__key__";

/// Two blocks of zeros end a tar.
pub(super) const END: [u8; 2 * BLOCK] = [0; 2 * BLOCK];

/// A file, compressed on its way or not.
#[derive(Debug)]
pub(super) enum Sink {
    Plain(BufWriter<File>),
    Gzip(Box<GzEncoder<BufWriter<File>>>),
}

impl Sink {
    pub(super) fn new(file: BufWriter<File>, format: Format) -> Self {
        match format {
            // No time and no name: the same samples give the same bytes.
            Format::Tfrecord { gzip: true } => {
                Self::Gzip(Box::new(GzBuilder::new().write(file, Compression::default())))
            }
            _ => Self::Plain(file),
        }
    }

    pub(super) fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(file) => file.write_all(bytes),
            Self::Gzip(file) => file.write_all(bytes),
        }
    }

    pub(super) fn finish(self) -> io::Result<File> {
        let file = match self {
            Self::Plain(file) => file,
            Self::Gzip(file) => file.finish()?,
        };
        file.into_inner().map_err(io::IntoInnerError::into_error)
    }
}

/// What a shard's name says that it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Tar,
    Tfrecord { gzip: bool },
}

impl Format {
    pub(super) fn of(name: &str) -> Option<Self> {
        let ends = |ending: &str| name.strip_suffix(ending).is_some();
        if ends(".tar") {
            return Some(Self::Tar);
        }
        let gzip = ends(".tfrecord.gz");
        (gzip || ends(".tfrecord")).then_some(Self::Tfrecord { gzip })
    }

    /// What a shard ends with.
    pub(super) fn end(self) -> &'static [u8] {
        match self {
            Self::Tar => &END,
            Self::Tfrecord { .. } => &[],
        }
    }
}

/// A sample as it will lie in a shard.
pub(super) enum Sample<'a> {
    Members(Vec<(String, Cow<'a, [u8]>)>),
    Record(Vec<u8>),
}

impl Sample<'_> {
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Members(members) => {
                members.iter().map(|(name, bytes)| file_bytes(name, bytes.len() as u64)).sum()
            }
            Self::Record(record) => record.len() as u64,
        }
    }
}

/// The members of a tar that a sample becomes.
pub(super) fn members<'a>(key: &str, fields: &[(&str, Cell<'a>)]) -> Result<Vec<(String, Cow<'a, [u8]>)>> {
    let names: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
    let bytes = |(name, (_, cell)): (String, &(&str, Cell<'a>))| match cell {
        Cell::Bytes(bytes) => Ok((name, (*bytes).into())),
        Cell::Int(value) => Ok((name, value.to_string().into_bytes().into())),
        Cell::Record(_) => Err(Error::invalid_config(format!(
            "write sample `{key}`: a record of TFRecord is no member of a tar"
        ))
        .with_hint("give its fields one by one")),
    };
    member_names(key, &names)?.into_iter().zip(fields).map(bytes).collect()
}

/// The record that a sample becomes, with its frame.
pub(super) fn record(key: &str, fields: &[(&str, Cell<'_>)]) -> Result<Vec<u8>> {
    let mut framed = Vec::new();
    if let [(_, Cell::Record(payload))] = fields {
        tfrecord::frame(&mut framed, payload);
        return Ok(framed);
    }
    let mut sorted: Vec<(&str, Feature<'_>)> = Vec::with_capacity(fields.len() + 1);
    for (name, cell) in fields {
        match cell {
            Cell::Bytes(bytes) => sorted.push((name, Feature::Bytes(bytes))),
            Cell::Int(value) => sorted.push((name, Feature::Ints(std::slice::from_ref(value)))),
            Cell::Record(payload) => {
                let stored = features::stored(payload)
                    .map_err(|error| error.while_doing(format_args!("write sample `{key}`")))?;
                sorted.extend(stored.into_iter().map(|(name, feature)| (name, Feature::Stored(feature))));
            }
        }
    }
    if !sorted.iter().any(|(name, _)| *name == KEY_FEATURE) {
        sorted.push((KEY_FEATURE, Feature::Bytes(key.as_bytes())));
    }
    sorted.sort_by_key(|(name, _)| *name);
    if let Some(pair) = sorted.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(Error::invalid_config(format!(
            "write sample `{key}`: field `{}` is given twice",
            pair[0].0
        )));
    }
    tfrecord::frame(&mut framed, &example::encode(&sorted));
    Ok(framed)
}

/// The members of a sample, checked to read back as that sample.
fn member_names(key: &str, fields: &[&str]) -> Result<Vec<String>> {
    let refuse = |why: &str| Err(Error::invalid_config(format!("write sample `{key}`: {why}")));
    if fields.is_empty() {
        return refuse("it has no fields");
    }
    if fields.len() > FIELDS_OF_A_SAMPLE {
        let many = fields.len();
        let why =
            format!("write sample `{key}`: {many} fields, a tar is read with at most {FIELDS_OF_A_SAMPLE}");
        return Err(Error::invalid_config(why).with_hint("write TFRecord, which has no such limit"));
    }
    if key.starts_with('/') || key.split('/').any(|part| part == "..") || key.contains('\0') {
        return refuse("a key is a relative path without `..`, so that any tar program can unpack the shard");
    }
    let mut names: Vec<String> = Vec::with_capacity(fields.len());
    for (at, field) in fields.iter().enumerate() {
        let name = format!("{key}.{field}");
        if field.is_empty()
            || field.contains('\0')
            || is_meta(&name)
            || split_name(&name) != Some((key, field))
        {
            let why = format!("member `{name}` would read back under another key");
            return Err(Error::invalid_config(format!("write sample `{key}`: {why}"))
                .with_hint("a key ends at the first dot of its file name; replace its dots"));
        }
        if fields[..at].iter().any(|other| other.to_lowercase() == field.to_lowercase()) {
            return refuse(&format!("field `{field}` is given twice (fields are lower-cased)"));
        }
        names.push(name);
    }
    Ok(names)
}
