//! Values of different lengths one behind the other in one block of memory, and the places at which each begins.
//!
//! Arrays follow each other along one axis: the first, or that of time of a waveform. Texts and payloads are rows of
//! bytes. Nothing is filled up; the copy into the block is the only one.

use super::{Column, tensors};
use crate::buffer::BufferPool;
use crate::value::{Following, Tensor, Value};
use forebay_core::recipe::Offsets;
use forebay_core::tensor::{Dtype, TensorSpec};
use forebay_core::{Error, Result};

/// Most bytes of one column: few long samples among many short ones must not take all memory.
const MAX_BYTES: usize = 16 << 30;

/// The values of a batch one behind the other.
#[derive(Debug)]
pub struct Ragged {
    /// All of them, with the extent of all of them along [`Self::axis`].
    pub values: Tensor,
    /// The axis along which they follow each other.
    pub axis: usize,
    /// Where each begins along that axis, and where the last one ends: one number more than there are samples, the
    /// first of them 0, none less than the one before.
    pub offsets: Vec<u64>,
    /// Integers that offsets are counted in when they leave.
    pub counted: Offsets,
}

impl Ragged {
    /// Number of samples.
    pub fn rows(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    /// Offsets in the memory of arrays.
    pub fn offset_bytes(&self) -> Vec<u8> {
        match self.counted {
            Offsets::I32 => self.offsets.iter().flat_map(|at| (*at as i32).to_ne_bytes()).collect(),
            Offsets::I64 => self.offsets.iter().flat_map(|at| (*at as i64).to_ne_bytes()).collect(),
        }
    }

    /// Checks what came from elsewhere: offsets that lie in order inside the values.
    pub fn checked(
        values: Tensor,
        axis: usize,
        offsets: Vec<u64>,
        counted: Offsets,
    ) -> std::result::Result<Self, String> {
        let Some(all) = values.spec.shape.get(axis) else {
            return Err(format!("its values have no axis {axis}"));
        };
        let in_order = offsets.windows(2).all(|pair| pair[0] <= pair[1]);
        if offsets.first() != Some(&0) || offsets.last() != Some(&(*all as u64)) || !in_order {
            return Err(format!("its offsets do not lead from 0 to {all}"));
        }
        if counted == Offsets::I32 && i32::try_from(*all).is_err() {
            return Err(format!("{all} elements are more than offsets of 32 bits count"));
        }
        Ok(Self { values, axis, offsets, counted })
    }
}

/// The ragged column of these values.
pub(super) fn gather(
    name: &str,
    following: &Following,
    values: Vec<Value>,
    pool: &BufferPool,
) -> Result<Column> {
    let fail = |why: String| Error::corrupt(format!("put column `{name}` one behind the other: {why}"));
    match values.first() {
        Some(Value::Json(_)) => {
            let why = "its values are objects, which have no elements".to_owned();
            Err(Error::function(fail(why).message()))
        }
        Some(Value::Bytes(_) | Value::Text(_)) => {
            let rows: Vec<&[u8]> = values.iter().filter_map(bytes_of).collect();
            if rows.len() != values.len() {
                let why = "some of its values are bytes or text, others are not".to_owned();
                return Err(Error::function(fail(why).message()));
            }
            let lengths: Vec<usize> = rows.iter().map(|row| row.len()).collect();
            let spec = TensorSpec { dtype: Dtype::U8, shape: vec![lengths.iter().sum()] };
            build(spec, 0, &rows, &lengths, following.counted, pool).map_err(fail)
        }
        _ => {
            let tensors = tensors(values).map_err(|why| super::mixed(name, &why))?;
            of_tensors(following, &tensors, pool).map_err(fail)
        }
    }
}

/// The ragged column of tensors.
pub(super) fn of_tensors(
    following: &Following,
    tensors: &[Tensor],
    pool: &BufferPool,
) -> std::result::Result<Column, String> {
    let axis = following.axis;
    let Some(first) = tensors.first() else {
        // A batch of which every sample was left out.
        let spec = TensorSpec { dtype: following.dtype.unwrap_or(Dtype::U8), shape: vec![0; axis + 1] };
        return build(spec, axis, &[], &[], following.counted, pool);
    };
    let (mut lengths, mut rows) = (Vec::with_capacity(tensors.len()), Vec::with_capacity(tensors.len()));
    for (row, tensor) in tensors.iter().enumerate() {
        let Some(length) = tensor.spec.shape.get(axis) else {
            return Err(format!(
                "row {row} is {}, which has no axis {axis}",
                super::pad::describe(&tensor.spec)
            ));
        };
        let others = |spec: &TensorSpec| {
            let shape = spec.shape.iter().enumerate().filter(|(at, _)| *at != axis);
            shape.map(|(_, extent)| *extent).collect::<Vec<_>>()
        };
        let same_form = others(&tensor.spec) == others(&first.spec)
            && tensor.spec.shape.len() == first.spec.shape.len()
            && tensor.spec.dtype == first.spec.dtype;
        if !same_form {
            let (found, wanted) = (super::pad::describe(&tensor.spec), super::pad::describe(&first.spec));
            return Err(format!("row {row} is {found}, row 0 is {wanted}: they differ beyond axis {axis}"));
        }
        lengths.push(*length);
        rows.push(tensor.data.as_slice());
    }
    let mut spec = first.spec.clone();
    spec.shape[axis] =
        lengths.iter().try_fold(0usize, |all, length| all.checked_add(*length)).unwrap_or(usize::MAX);
    build(spec, axis, &rows, &lengths, following.counted, pool)
}

/// Copies `rows`, of these lengths along `axis`, into memory of their own.
fn build(
    spec: TensorSpec,
    axis: usize,
    rows: &[&[u8]],
    lengths: &[usize],
    counted: Offsets,
    pool: &BufferPool,
) -> std::result::Result<Column, String> {
    let bytes = spec.shape.iter().try_fold(spec.dtype.size(), |all, extent| all.checked_mul(*extent));
    let Some(bytes) = bytes.filter(|bytes| *bytes <= MAX_BYTES) else {
        return Err(format!("{:?} takes more than {} MiB", spec.shape, MAX_BYTES >> 20));
    };
    let mut offsets = Vec::with_capacity(lengths.len() + 1);
    offsets.push(0u64);
    let mut end = 0;
    for length in lengths {
        end += *length as u64;
        offsets.push(end);
    }
    let mut data = pool.take(bytes);
    // Before the axis, every value has as many runs as all of them together; a run is a part of one line of the block.
    let runs: usize = spec.shape[..axis].iter().product();
    let element = spec.shape[axis + 1..].iter().product::<usize>() * spec.dtype.size();
    let line = spec.shape[axis] * element;
    for ((row, length), start) in rows.iter().zip(lengths).zip(&offsets) {
        let run = length * element;
        for number in 0..runs {
            let at = number * line + *start as usize * element;
            data.as_mut_slice()[at..at + run].copy_from_slice(&row[number * run..(number + 1) * run]);
        }
    }
    Ragged::checked(Tensor { spec, data }, axis, offsets, counted).map(Column::Ragged)
}

fn bytes_of(value: &Value) -> Option<&[u8]> {
    match value {
        Value::Bytes(payload) => Some(payload),
        Value::Text(text) => Some(text.as_bytes()),
        Value::Tensor(_) | Value::Json(_) => None,
    }
}

#[cfg(test)]
#[path = "ragged_tests.rs"]
mod tests;
