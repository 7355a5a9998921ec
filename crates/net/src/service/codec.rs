//! Batches as bytes: a header says what the columns are, the body is their bytes one after the other.
//!
//! Bodies are written straight from the batch's buffers and read straight into buffers of a pool. Nothing a header
//! says is believed: every number is checked before memory is taken for it, and all of them against each other.

use super::message::{BatchHeader, ColumnHeader, ColumnKind, FaultHeader, Packing, Place};
use super::packing::{Unpack, most_packed};
use bytes::Bytes;
use forebay_core::tensor::{Dtype, TensorSpec};
use forebay_core::{Error, ErrorKind, Result, SampleId};
use forebay_engine::{Batch, Fault};
use forebay_ops::{Buffer, BufferPool, Column, Ragged, Tensor};
use std::borrow::Cow;
use std::io::Read;
use std::time::Duration;

/// Axes of a tensor, at most.
const MAX_AXES: usize = 32;
/// Values shorter than this on average are put together before they are written.
const SMALL: usize = 4096;

/// How long a batch took to make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Until its last payload was there.
    pub fetch: Duration,
    /// From then on until it was done.
    pub prep: Duration,
}

/// How large a batch may be that someone else sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of all columns.
    pub bytes: u64,
    /// Most rows.
    pub rows: u64,
}

impl Limits {
    /// For a batch of which `batch_bytes` and `rows` are expected. Values without a fixed size may make it larger.
    pub fn expecting(batch_bytes: u64, rows: u64) -> Self {
        Self { bytes: batch_bytes.saturating_mul(2).max(64 << 20), rows }
    }
}

/// A batch made ready to be written.
pub(crate) struct Described<'a> {
    pub(crate) header: BatchHeader,
    pub(crate) pieces: Vec<Cow<'a, [u8]>>,
}

/// What a batch looks like on the wire. `place` says where the bytes of a tensor go.
pub(crate) fn describe<'a>(
    batch: &'a Batch,
    times: Times,
    mut place: impl FnMut(&'a Buffer) -> Place,
) -> Described<'a> {
    let mut pieces = Vec::new();
    let columns = batch.columns.iter().map(|(name, column)| {
        let kind = match column {
            Column::Tensor { spec, rows, data } => {
                let place = place(data);
                if place == Place::Body {
                    pieces.push(Cow::Borrowed(data.as_slice()));
                }
                let (dtype, shape) = form(spec);
                ColumnKind::Tensor { dtype, shape, rows: *rows as u64, place }
            }
            Column::Tensors(tensors) => {
                put(&mut pieces, tensors.iter().map(|tensor| tensor.data.as_slice()));
                ColumnKind::Tensors(tensors.iter().map(|tensor| form(&tensor.spec)).collect())
            }
            Column::Ragged(ragged) => {
                let place = place(&ragged.values.data);
                if place == Place::Body {
                    pieces.push(Cow::Borrowed(ragged.values.data.as_slice()));
                }
                let (dtype, shape) = form(&ragged.values.spec);
                let (axis, offsets) = (ragged.axis as u64, ragged.offsets.clone());
                ColumnKind::Ragged { dtype, shape, axis, offsets, counted: ragged.counted, place }
            }
            Column::Bytes(values) => {
                put(&mut pieces, values.iter().map(|value| &value[..]));
                ColumnKind::Bytes(values.iter().map(|value| value.len() as u64).collect())
            }
            Column::Text(values) => {
                put(&mut pieces, values.iter().map(String::as_bytes));
                ColumnKind::Text(values.iter().map(|value| value.len() as u64).collect())
            }
            Column::Json(values) => {
                put(&mut pieces, values.iter().map(String::as_bytes));
                ColumnKind::Json(values.iter().map(|value| value.len() as u64).collect())
            }
        };
        ColumnHeader { name: name.clone(), kind }
    });
    let columns = columns.collect();
    let faults = batch.faults.iter().map(|fault| FaultHeader {
        sample_id: fault.sample_id.0,
        key: fault.key.clone(),
        error: (&fault.error).into(),
        substitute: fault.substitute.map(|id| id.0),
    });
    let bytes = pieces.iter().map(|piece| piece.len() as u64).sum();
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let header = BatchHeader {
        epoch: batch.epoch,
        ids: batch.ids.iter().map(|id| id.0).collect(),
        padding: batch.padding.clone(),
        columns,
        faults: faults.collect(),
        fetch_nanos: nanos(times.fetch),
        prep_nanos: nanos(times.prep),
        packing: Packing::None,
        packed_bytes: bytes,
        bytes,
    };
    Described { header, pieces }
}

fn form(spec: &TensorSpec) -> (Dtype, Vec<u64>) {
    (spec.dtype, spec.shape.iter().map(|extent| *extent as u64).collect())
}

/// Adds the values of a column; many small ones as one piece, since each piece costs the system some time.
fn put<'a>(pieces: &mut Vec<Cow<'a, [u8]>>, values: impl Iterator<Item = &'a [u8]> + Clone) {
    let (count, bytes) =
        values.clone().fold((0, 0), |(count, bytes), value| (count + 1, bytes + value.len()));
    if count > 1 && bytes / count < SMALL {
        let mut together = Vec::with_capacity(bytes);
        values.for_each(|value| together.extend_from_slice(value));
        pieces.push(Cow::Owned(together));
    } else {
        pieces.extend(values.map(Cow::Borrowed));
    }
}

/// Reads the batch that `header` announces. `shared` gives the memory of a tensor that is not in the body.
pub(crate) fn read(
    from: &mut impl Read,
    header: &BatchHeader,
    pool: &BufferPool,
    limits: Limits,
    mut shared: impl FnMut(u64, u64, usize) -> Result<Buffer>,
) -> Result<Batch> {
    check(header, limits)?;
    let columns = if header.packing == Packing::None {
        read_columns(from, header, pool, &mut shared)?
    } else {
        let mut body = Unpack::new(from, header.packing, header.packed_bytes);
        let columns = read_columns(&mut body, header, pool, &mut shared)?;
        if !body.is_done() {
            return Err(corrupt("its body is longer than its columns"));
        }
        columns
    };
    let faults = header.faults.iter().map(|fault| Fault {
        sample_id: SampleId(fault.sample_id),
        key: fault.key.clone(),
        epoch: header.epoch,
        error: fault.error.clone().into(),
        substitute: fault.substitute.map(SampleId),
    });
    Ok(Batch {
        epoch: header.epoch,
        step: 0,
        ids: header.ids.iter().copied().map(SampleId).collect(),
        padding: header.padding.clone(),
        columns,
        faults: faults.collect(),
        object: None,
    })
}

/// Columns whose bytes are not in the body.
pub(crate) fn shared_columns(header: &BatchHeader) -> usize {
    let is_shared = |column: &&ColumnHeader| {
        matches!(
            column.kind,
            ColumnKind::Tensor { place: Place::Shared { .. }, .. }
                | ColumnKind::Ragged { place: Place::Shared { .. }, .. }
        )
    };
    header.columns.iter().filter(is_shared).count()
}

fn corrupt(why: impl std::fmt::Display) -> Error {
    Error::corrupt(format!("read a batch: {why}"))
}

/// Holds a header against itself and against what was asked for.
fn check(header: &BatchHeader, limits: Limits) -> Result<()> {
    let rows = header.ids.len() as u64;
    if rows > limits.rows || header.padding.len() as u64 != rows {
        let marks = header.padding.len();
        return Err(corrupt(format!("it has {rows} rows and {marks} marks, {} were asked for", limits.rows)));
    }
    let (mut body, mut all) = (Some(0u64), Some(0u64));
    for column in &header.columns {
        let (bytes, in_body) = column_bytes(column, rows)?;
        all = all.and_then(|all| all.checked_add(bytes));
        if in_body {
            body = body.and_then(|body| body.checked_add(bytes));
        }
    }
    if all.is_none_or(|all| all > limits.bytes) {
        return Err(corrupt(format!("its columns are larger than {} bytes", limits.bytes)));
    }
    if body != Some(header.bytes) {
        return Err(corrupt(format!("its columns do not have {} bytes", header.bytes)));
    }
    let fits = match header.packing {
        Packing::None => header.packed_bytes == header.bytes,
        Packing::Lz4 | Packing::Zstd => header.packed_bytes <= most_packed(header.bytes),
        Packing::Auto => false,
    };
    if fits { Ok(()) } else { Err(corrupt("its body cannot be packed like that")) }
}

/// Bytes of a column, and whether they are in the body.
fn column_bytes(column: &ColumnHeader, rows: u64) -> Result<(u64, bool)> {
    let wrong = |why: &str| corrupt(format!("column `{}` {why}", short(&column.name)));
    let sum = |lengths: &[u64]| lengths.iter().try_fold(0u64, |sum, length| sum.checked_add(*length));
    let (found, bytes, in_body) = match &column.kind {
        ColumnKind::Tensor { dtype, shape, rows, place } => {
            let bytes = tensor_bytes(*dtype, shape).and_then(|bytes| bytes.checked_mul(*rows));
            if !fits(bytes, *place) {
                return Err(wrong("is larger than its memory"));
            }
            (*rows, bytes, *place == Place::Body)
        }
        ColumnKind::Ragged { dtype, shape, offsets, place, .. } => {
            let bytes = tensor_bytes(*dtype, shape);
            if !fits(bytes, *place) {
                return Err(wrong("is larger than its memory"));
            }
            ((offsets.len() as u64).saturating_sub(1), bytes, *place == Place::Body)
        }
        ColumnKind::Tensors(forms) => {
            let bytes = forms
                .iter()
                .try_fold(0u64, |sum, (dtype, shape)| sum.checked_add(tensor_bytes(*dtype, shape)?));
            (forms.len() as u64, bytes, true)
        }
        ColumnKind::Bytes(lengths) | ColumnKind::Text(lengths) | ColumnKind::Json(lengths) => {
            (lengths.len() as u64, sum(lengths), true)
        }
    };
    // Packed columns have rows of their own; that nothing is larger than it may be is a matter of bytes.
    if found != rows && !matches!(column.kind, ColumnKind::Tensor { .. }) {
        return Err(wrong(&format!("has {found} rows, others have {rows}")));
    }
    let bytes = bytes.filter(|bytes| usize::try_from(*bytes).is_ok());
    Ok((bytes.ok_or_else(|| wrong("has an impossible size"))?, in_body))
}

/// Whether memory that is shared has room.
fn fits(bytes: Option<u64>, place: Place) -> bool {
    match place {
        Place::Body => true,
        Place::Shared { size, .. } => bytes.is_some_and(|bytes| bytes <= size),
    }
}

fn tensor_bytes(dtype: Dtype, shape: &[u64]) -> Option<u64> {
    if shape.len() > MAX_AXES {
        return None;
    }
    // Extents are checked without those that are zero too: a product of zero must not hide one that overflows later.
    shape.iter().try_fold(dtype.size() as u64, |product, extent| product.checked_mul((*extent).max(1)))?;
    shape.iter().try_fold(dtype.size() as u64, |product, extent| product.checked_mul(*extent))
}

fn short(name: &str) -> String {
    name.chars().take(64).collect()
}

fn spec(dtype: Dtype, shape: &[u64]) -> TensorSpec {
    // `check` has shown that the product of the extents fits.
    TensorSpec { dtype, shape: shape.iter().map(|extent| *extent as usize).collect() }
}

fn read_columns(
    body: &mut impl Read,
    header: &BatchHeader,
    pool: &BufferPool,
    shared: &mut impl FnMut(u64, u64, usize) -> Result<Buffer>,
) -> Result<Vec<(String, Column)>> {
    let mut columns = Vec::with_capacity(header.columns.len());
    for ColumnHeader { name, kind } in &header.columns {
        let column = match kind {
            ColumnKind::Tensor { dtype, shape, rows, place } => {
                let spec = spec(*dtype, shape);
                let (rows, bytes) = (*rows as usize, spec.bytes() * *rows as usize);
                let data = read_placed(body, *place, bytes, name, pool, shared)?;
                Column::Tensor { spec, rows, data }
            }
            ColumnKind::Ragged { dtype, shape, axis, offsets, counted, place } => {
                let spec = spec(*dtype, shape);
                let data = read_placed(body, *place, spec.bytes(), name, pool, shared)?;
                let axis = usize::try_from(*axis).unwrap_or(usize::MAX);
                let ragged = Ragged::checked(Tensor { spec, data }, axis, offsets.clone(), *counted);
                Column::Ragged(ragged.map_err(|why| corrupt(format!("column `{}`: {why}", short(name))))?)
            }
            ColumnKind::Tensors(forms) => {
                let tensors = forms.iter().map(|(dtype, shape)| {
                    let spec = spec(*dtype, shape);
                    Ok(Tensor { data: read_buffer(body, Buffer::alone(spec.bytes()))?, spec })
                });
                Column::Tensors(tensors.collect::<Result<_>>()?)
            }
            ColumnKind::Bytes(lengths) => Column::Bytes(read_values(body, lengths, pool)?),
            ColumnKind::Text(lengths) => Column::Text(read_texts(body, lengths, pool, name)?),
            ColumnKind::Json(lengths) => Column::Json(read_texts(body, lengths, pool, name)?),
        };
        columns.push((name.clone(), column));
    }
    Ok(columns)
}

/// The bytes of a block, wherever they are.
fn read_placed(
    body: &mut impl Read,
    place: Place,
    bytes: usize,
    name: &str,
    pool: &BufferPool,
    shared: &mut impl FnMut(u64, u64, usize) -> Result<Buffer>,
) -> Result<Buffer> {
    match place {
        Place::Body => read_buffer(body, pool.take(bytes)),
        Place::Shared { memory, size, new: true } => shared(memory, size, bytes),
        Place::Shared { new: false, .. } => Err(corrupt(format!("column `{}` has no memory", short(name)))),
    }
}

fn read_buffer(body: &mut impl Read, mut buffer: Buffer) -> Result<Buffer> {
    body.read_exact(buffer.as_mut_slice()).map_err(broken)?;
    Ok(buffer)
}

/// Values that share the memory they were read into, which goes back to the pool with the last of them.
fn read_values(body: &mut impl Read, lengths: &[u64], pool: &BufferPool) -> Result<Vec<Bytes>> {
    struct Owner(Buffer);
    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            self.0.as_slice()
        }
    }
    // `check` has held their sum against what a batch may have.
    let all = lengths.iter().sum::<u64>() as usize;
    let mut rest = Bytes::from_owner(Owner(read_buffer(body, pool.take(all))?));
    Ok(lengths.iter().map(|length| rest.split_to(*length as usize)).collect())
}

fn read_texts(body: &mut impl Read, lengths: &[u64], pool: &BufferPool, name: &str) -> Result<Vec<String>> {
    let texts = read_values(body, lengths, pool)?.into_iter().map(|value| {
        std::str::from_utf8(&value)
            .map(str::to_owned)
            .map_err(|cause| corrupt(format!("column `{}` is no text", short(name))).with_source(cause))
    });
    texts.collect()
}

fn broken(error: std::io::Error) -> Error {
    if error.kind() == std::io::ErrorKind::InvalidData {
        return corrupt("its body is damaged").with_source(error);
    }
    Error::new(ErrorKind::Unavailable, "read a batch: the connection was lost").with_source(error)
}
