//! Rows of tokens as columns: what was masked beside what it was, and documents packed into rows of one length.
//!
//! Which document stands in which row follows from their lengths alone ([`Rows`]); the plan dealt no more of them to a
//! batch than find room.

use super::{Column, pad, ragged, stack};
use crate::buffer::{Buffer, BufferPool};
use crate::value::{Tensor, TokenBatch, TokenGather};
use forebay_core::plan::batching::packing::{Piece, Rows};
use forebay_core::recipe::Padded;
use forebay_core::recipe::tokens::{IGNORED, Pack, labels_name};
use forebay_core::tensor::{Dtype, TensorSpec};
use forebay_core::{Error, Result};

/// Most tokens of a packed batch: places in it are 32-bit integers.
const MAX_TOKENS: u64 = i32::MAX as u64;

/// The column called `name`, and those beside it.
pub(super) fn gather(
    name: &str,
    batch: &TokenBatch,
    values: &[Tensor],
    pool: &BufferPool,
) -> Result<Vec<(String, Column)>> {
    match &batch.gather {
        TokenGather::Pack { pack, rows } => packed(name, batch, pack, *rows, values, pool),
        TokenGather::Pad(padding) => {
            let (tokens, labels) = halves(values, pool);
            let mut columns = pad::pad(name, padding, &tokens, pool)?;
            let mut of_labels = padding.clone();
            of_labels.padded = Padded { value: IGNORED, mask: false, ..of_labels.padded };
            let labels = pad::pad(&labels_name(name), &of_labels, &labels, pool)?;
            columns.extend(labels.into_iter().take(1));
            Ok(columns)
        }
        TokenGather::Ragged(following) => {
            let (tokens, labels) = halves(values, pool);
            let gathered = |name: String, values: &[Tensor]| match ragged::of_tensors(following, values, pool)
            {
                Ok(column) => Ok((name, column)),
                Err(why) => Err(Error::corrupt(format!("put column `{name}` one behind the other: {why}"))),
            };
            Ok(vec![gathered(name.to_owned(), &tokens)?, gathered(labels_name(name), &labels)?])
        }
        TokenGather::Stack => {
            let (tokens, labels) = halves(values, pool);
            Ok(vec![(name.to_owned(), stack(tokens, pool)), (labels_name(name), stack(labels, pool))])
        }
    }
}

/// Tokens and labels, which the sample has one after the other.
fn halves(values: &[Tensor], pool: &BufferPool) -> (Vec<Tensor>, Vec<Tensor>) {
    let half = |tensor: &Tensor, second: bool| {
        let bytes = tensor.data.len() / 2;
        let mut data = pool.take(bytes);
        data.as_mut_slice().copy_from_slice(&tensor.data.as_slice()[usize::from(second) * bytes..][..bytes]);
        let spec = TensorSpec { dtype: tensor.spec.dtype, shape: vec![bytes / tensor.spec.dtype.size()] };
        Tensor { spec, data }
    };
    values.iter().map(|tensor| (half(tensor, false), half(tensor, true))).unzip()
}

fn packed(
    name: &str,
    batch: &TokenBatch,
    pack: &Pack,
    rows: Option<u64>,
    values: &[Tensor],
    pool: &BufferPool,
) -> Result<Vec<(String, Column)>> {
    let size = batch.dtype.size();
    let count = |tensor: &Tensor| tensor.data.len() / size / if batch.masked { 2 } else { 1 };
    let mut places = Rows::new(rows.unwrap_or(u64::MAX), pack.length, pack.long);
    let documents = values.iter().enumerate();
    let pieces: Vec<Piece> =
        documents.flat_map(|(document, tensor)| places.add(document, count(tensor) as u64)).collect();
    let rows = rows.unwrap_or(places.begun());
    let all = rows.checked_mul(pack.length).filter(|all| *all <= MAX_TOKENS).ok_or_else(|| {
        let why = format!("pack column `{name}`: {rows} rows of {} tokens are more than 2^31", pack.length);
        Error::exhausted(why).with_hint("give a smaller batch_size")
    })? as usize;
    let mut tokens = filled(all, pack.value, batch.dtype, name, pool)?;
    let has_labels = pack.labels || batch.masked;
    let mut labels = has_labels.then(|| filled(all, IGNORED, batch.dtype, name, pool)).transpose()?;
    let (mut positions, mut segments) = (zeros(all, pool), zeros(all, pool));
    let (mut bounds, mut last_row, mut segment) = (vec![0i32], u64::MAX, 0i32);
    for piece in &pieces {
        let data = values[piece.document].data.as_slice();
        let (from, length) = (piece.from as usize, piece.length as usize);
        let at = (piece.row * pack.length + piece.at) as usize;
        put(&mut tokens, at, &data[from * size..(from + length) * size], size);
        if let Some(labels) = &mut labels {
            let (first, end) = if batch.masked {
                let all = data.len() / 2 / size;
                (all + from, all + from + length)
            } else {
                // The last token of a document has no next one.
                (from + 1, (from + 1 + length).min(data.len() / size))
            };
            put(labels, at, &data[first.min(end) * size..end * size], size);
        }
        segment = if piece.row == last_row { segment + 1 } else { 1 };
        last_row = piece.row;
        for token in 0..length {
            put(&mut positions, at + token, &(token as i32).to_ne_bytes(), 4);
            put(&mut segments, at + token, &segment.to_ne_bytes(), 4);
        }
        // What is behind the last document of a row is a run of its own: the bounds cover the whole batch.
        for bound in [at as i32, (at + length) as i32] {
            if bounds.last() != Some(&bound) {
                bounds.push(bound);
            }
        }
    }
    if bounds.last() != Some(&(all as i32)) {
        bounds.push(all as i32);
    }
    let rows = rows as usize;
    let row = |dtype| TensorSpec { dtype, shape: vec![pack.length as usize] };
    let mut columns = vec![(name.to_owned(), Column::Tensor { spec: row(batch.dtype), rows, data: tokens })];
    let mut cumulative = zeros(bounds.len(), pool);
    bounds.iter().enumerate().for_each(|(at, bound)| put(&mut cumulative, at, &bound.to_ne_bytes(), 4));
    let scalar = TensorSpec { dtype: Dtype::I32, shape: Vec::new() };
    let made = labels
        .map(|data| Column::Tensor { spec: row(batch.dtype), rows, data })
        .into_iter()
        .chain([positions, segments].map(|data| Column::Tensor { spec: row(Dtype::I32), rows, data }))
        .chain([Column::Tensor { spec: scalar, rows: bounds.len(), data: cumulative }]);
    columns.extend(Pack::column_names(name, has_labels).into_iter().zip(made));
    Ok(columns)
}

fn put(buffer: &mut Buffer, at: usize, bytes: &[u8], size: usize) {
    buffer.as_mut_slice()[at * size..][..bytes.len()].copy_from_slice(bytes);
}

fn zeros(count: usize, pool: &BufferPool) -> Buffer {
    let mut data = pool.take(count * 4);
    data.as_mut_slice().fill(0);
    data
}

fn filled(count: usize, value: i64, dtype: Dtype, name: &str, pool: &BufferPool) -> Result<Buffer> {
    let mut element = vec![0; dtype.size()];
    crate::tokens::write(&[value], dtype, &mut element)
        .map_err(|error| error.while_doing(format_args!("fill column `{name}`")))?;
    let mut data = pool.take(count * dtype.size());
    data.as_mut_slice().chunks_exact_mut(dtype.size()).for_each(|place| place.copy_from_slice(&element));
    Ok(data)
}

#[cfg(test)]
#[path = "tokens_tests.rs"]
mod tests;
