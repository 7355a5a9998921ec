//! Tensors of different sizes as one tensor: each is copied to the corner of its row, and what is left of the row is filled.
//!
//! The long axes are those that samples differ in: the first of an array, height and width of an image. They are as long
//! as the longest of the batch, rounded up, or as long as the recipe says. Two more columns say what is real:
//! `NAME_length` and, when asked for, `NAME_mask`.

use super::Column;
use crate::buffer::BufferPool;
use crate::decode::label;
use crate::value::{Padding, Tensor};
use forebay_core::recipe::Padded;
use forebay_core::recipe::tokens::Side;
use forebay_core::tensor::{Dtype, TensorSpec};
use forebay_core::{Error, Result};

/// Most bytes of one padded column: few long samples among many short ones must not take all memory.
const MAX_BYTES: usize = 16 << 30;

/// The padded column called `name`, and those that say what of it is real.
pub(super) fn pad(
    name: &str,
    padding: &Padding,
    tensors: &[Tensor],
    pool: &BufferPool,
) -> Result<Vec<(String, Column)>> {
    if tensors.is_empty() {
        return Ok(empty(name, padding));
    }
    let fail = |why: String| Error::corrupt(format!("pad column `{name}`: {why}"));
    let spec = padded_spec(padding, tensors).map_err(fail)?;
    let rows = tensors.len();
    let row_bytes = spec.bytes();
    let mut filler = vec![0; spec.dtype.size()];
    label::write(padding.padded.value, spec.dtype, &mut filler)
        .map_err(|_| fail(format!("{} is no {}", padding.padded.value, spec.dtype.name())))?;
    let mut data = pool.take(row_bytes * rows);
    for (tensor, row) in tensors.iter().zip(data.as_mut_slice().chunks_exact_mut(row_bytes.max(1))) {
        if tensor.spec.shape != spec.shape {
            fill(row, &filler);
        }
        let start = if left(padding) { row.len() - tensor.data.len() } else { 0 };
        copy(tensor, &spec.shape, &mut row[start..]);
    }
    let long = |tensor: &Tensor| padding.axes.clone().map(|axis| tensor.spec.shape[axis]).collect::<Vec<_>>();
    let mut columns = vec![(name.to_owned(), Column::Tensor { spec: spec.clone(), rows, data })];
    // One number where there is one long axis, one for each otherwise.
    let shape = if padding.axes.len() == 1 { vec![] } else { vec![padding.axes.len()] };
    let lengths = TensorSpec { dtype: Dtype::I64, shape };
    let mut data = pool.take(lengths.bytes() * rows);
    let numbers = tensors.iter().flat_map(&long);
    for (number, place) in numbers.zip(data.as_mut_slice().chunks_exact_mut(8)) {
        place.copy_from_slice(&(number as i64).to_ne_bytes());
    }
    columns.push((Padded::length_name(name), Column::Tensor { spec: lengths, rows, data }));
    if padding.padded.mask {
        let shape: Vec<usize> = padding.axes.clone().map(|axis| spec.shape[axis]).collect();
        let mask = TensorSpec { dtype: Dtype::Bool, shape };
        let mut data = pool.take(mask.bytes() * rows);
        for (tensor, row) in tensors.iter().zip(data.as_mut_slice().chunks_exact_mut(mask.bytes().max(1))) {
            row.fill(0);
            let start = if left(padding) { row.len() - tensor.spec.shape[0] } else { 0 };
            ones(&long(tensor), &mask.shape, &mut row[start..]);
        }
        columns.push((Padded::mask_name(name), Column::Tensor { spec: mask, rows, data }));
    }
    Ok(columns)
}

/// Whether rows are filled up on the left. Only tokens are, and they have one axis.
fn left(padding: &Padding) -> bool {
    padding.padded.side == Side::Left
}

/// The columns of a batch of which every sample was left out.
fn empty(name: &str, padding: &Padding) -> Vec<(String, Column)> {
    let mut names = vec![name.to_owned(), Padded::length_name(name)];
    names.extend(padding.padded.mask.then(|| Padded::mask_name(name)));
    names.into_iter().map(|name| (name, Column::Tensors(Vec::new()))).collect()
}

/// What every row is padded to, or why the rows do not fit together.
fn padded_spec(padding: &Padding, tensors: &[Tensor]) -> std::result::Result<TensorSpec, String> {
    let Some(first) = tensors.first() else { return Err("it has no rows".to_owned()) };
    let TensorSpec { dtype, shape } = &first.spec;
    if shape.len() < padding.axes.end {
        return Err(format!("its values have {} axes, it takes {}", shape.len(), padding.axes.end));
    }
    let mut shape = shape.clone();
    for (row, tensor) in tensors.iter().enumerate() {
        let other = &tensor.spec;
        if other.dtype != *dtype || other.shape.len() != shape.len() {
            let (found, wanted) = (describe(other), describe(&first.spec));
            return Err(format!("row {row} is {found}, row 0 is {wanted}"));
        }
        shape.iter_mut().zip(&other.shape).for_each(|(most, length)| *most = (*most).max(*length));
    }
    for (number, axis) in padding.axes.clone().enumerate() {
        let longest = shape[axis];
        shape[axis] = match padding.padded.lengths() {
            Some(lengths) if lengths[number] < longest => {
                return Err(format!("a value is {longest} long, `to` says {}", lengths[number]));
            }
            Some(lengths) => lengths[number],
            None => longest.next_multiple_of(padding.padded.multiple.max(1) as usize),
        };
    }
    let bytes =
        shape.iter().chain([&tensors.len()]).try_fold(dtype.size(), |all, axis| all.checked_mul(*axis));
    if bytes.is_none_or(|bytes| bytes > MAX_BYTES) {
        let mebibytes = MAX_BYTES >> 20;
        return Err(format!("{} rows of {shape:?} take more than {mebibytes} MiB", tensors.len()));
    }
    Ok(TensorSpec { dtype: *dtype, shape })
}

/// A form in words.
pub(super) fn describe(spec: &TensorSpec) -> String {
    format!("{}{:?}", spec.dtype.name(), spec.shape)
}

fn fill(row: &mut [u8], filler: &[u8]) {
    if filler.iter().all(|byte| *byte == filler[0]) {
        row.fill(filler[0]);
    } else {
        row.chunks_exact_mut(filler.len()).for_each(|place| place.copy_from_slice(filler));
    }
}

/// Copies a tensor to the corner of a larger one, in the longest runs that both have.
fn copy(tensor: &Tensor, to: &[usize], row: &mut [u8]) {
    let from = &tensor.spec.shape;
    // Axes behind the last one that differs are copied as a whole, with that one.
    let last = (0..from.len()).rev().find(|axis| from[*axis] != to[*axis]).unwrap_or(0);
    let run =
        |shape: &[usize]| shape[last.min(shape.len())..].iter().product::<usize>() * tensor.spec.dtype.size();
    let (source_run, target_run) = (run(from), run(to));
    if source_run == 0 {
        return;
    }
    for (number, bytes) in tensor.data.as_slice().chunks_exact(source_run).enumerate() {
        let start = corner(number, &from[..last.min(from.len())], to) * target_run;
        row[start..start + source_run].copy_from_slice(bytes);
    }
}

/// Marks what is real of a mask of `shape`.
fn ones(real: &[usize], shape: &[usize], row: &mut [u8]) {
    let Some((run, outer)) = real.split_last() else { return };
    let width = shape.last().copied().unwrap_or(1);
    for number in 0..outer.iter().product::<usize>() {
        let start = corner(number, outer, shape) * width;
        row[start..start + run].fill(1);
    }
}

/// Number in a larger tensor of what is `number`-th in the smaller one, both counted over the axes of `from`.
fn corner(mut number: usize, from: &[usize], to: &[usize]) -> usize {
    let (mut place, mut stride) = (0, 1);
    for axis in (0..from.len()).rev() {
        place += number % from[axis] * stride;
        number /= from[axis];
        stride *= to[axis];
    }
    place
}

#[cfg(test)]
#[path = "pad_tests.rs"]
mod tests;
