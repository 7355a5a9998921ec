//! A batch in the making: every row is written once, by any thread, and rows that failed are closed up at the end.
//!
//! Fixed tensors are written where they stay. Everything else is kept one by one until [`BatchBuilder::finish`];
//! tensors that turn out to have one shape are stacked there, and others padded to one if the recipe says so,
//! which is the only copy a batch ever makes. Which
//! samples belong to a batch, and what to do when one fails, is decided in the engine.

mod pad;
pub mod ragged;
mod tokens;

use crate::buffer::{Buffer, BufferPool, RowMut, Rows};
use crate::value::{Output, OutputKind, Slot, Tensor, Value};
use bytes::Bytes;
use forebay_core::tensor::TensorSpec;
use forebay_core::{Error, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An open batch. Threads claim rows, write their slots and commit them.
pub struct BatchBuilder {
    outputs: Vec<Output>,
    fixed: Vec<Option<Arc<Rows>>>,
    rows: Arc<RowTable>,
    pool: BufferPool,
}

/// The right to write one row of every column. Dropped without [`RowWriter::commit`], the row counts as not done.
pub struct RowWriter {
    row: usize,
    cells: Vec<Cell>,
    rows: Arc<RowTable>,
}

/// One finished column.
#[derive(Debug)]
pub enum Column {
    /// All samples in one block of memory.
    Tensor {
        /// Element type and shape of one sample, without the batch axis.
        spec: TensorSpec,
        /// Extent of the batch axis.
        rows: usize,
        /// `rows * spec.bytes()` bytes.
        data: Buffer,
    },
    /// Samples of different shapes.
    Tensors(Vec<Tensor>),
    /// Samples of different lengths one behind the other.
    Ragged(ragged::Ragged),
    /// Payloads.
    Bytes(Vec<Bytes>),
    /// Texts.
    Text(Vec<String>),
    /// Texts of JSON documents.
    Json(Vec<String>),
}

enum Cell {
    Row(RowMut),
    Value(Option<Value>),
}

/// What became of each row. Values of their own are kept here until the batch is finished.
struct RowTable {
    claimed: Vec<AtomicBool>,
    done: Vec<Mutex<Option<Vec<Option<Value>>>>>,
}

impl BatchBuilder {
    /// A batch of `rows` rows with memory from `pool`.
    pub fn new(outputs: &[Output], rows: usize, pool: &BufferPool) -> Self {
        let fixed = outputs.iter().map(|output| match &output.kind {
            OutputKind::Tensor(spec) => Some(Rows::new(pool.take(spec.bytes() * rows), spec.bytes(), rows)),
            _ => None,
        });
        Self {
            outputs: outputs.to_vec(),
            fixed: fixed.collect(),
            rows: Arc::new(RowTable {
                claimed: (0..rows).map(|_| AtomicBool::new(false)).collect(),
                done: (0..rows).map(|_| Mutex::new(None)).collect(),
            }),
            pool: pool.clone(),
        }
    }

    /// Bytes the fixed tensors of one batch of `rows` rows take.
    pub fn bytes(outputs: &[Output], rows: usize) -> usize {
        outputs
            .iter()
            .map(|output| output.kind.row_bytes().saturating_mul(rows))
            .fold(0, usize::saturating_add)
    }

    /// The right to write row `row`; `None` when it was given away before or does not exist.
    pub fn claim(&self, row: usize) -> Option<RowWriter> {
        if self.rows.claimed.get(row)?.swap(true, Ordering::AcqRel) {
            return None;
        }
        let cells = self.fixed.iter().map(|rows| match rows {
            Some(rows) => rows.claim(row).map(Cell::Row),
            None => Some(Cell::Value(None)),
        });
        Some(RowWriter { row, cells: cells.collect::<Option<_>>()?, rows: Arc::clone(&self.rows) })
    }

    /// Whether row `row` was committed.
    pub fn is_done(&self, row: usize) -> bool {
        self.rows.done.get(row).is_some_and(|cell| lock(cell).is_some())
    }

    /// Closes the batch: columns with their names. Rows whose `keep` is false are left out and later ones move up, in
    /// order. Fails when tensors that should be padded do not fit together, and when a function gave one row a text and
    /// another an array.
    ///
    /// # Panics
    /// When `keep` has not one entry per row, when a row to keep was not committed, or when a writer still lives.
    pub fn finish(self, keep: &[bool]) -> Result<Vec<(String, Column)>> {
        assert_eq!(keep.len(), self.rows.done.len(), "one keep flag per row");
        let mut kept_values: Vec<Vec<Option<Value>>> = Vec::with_capacity(keep.len());
        for (row, cell) in self.rows.done.iter().enumerate().filter(|(row, _)| keep[*row]) {
            let values = lock(cell).take();
            assert!(values.is_some(), "row {row} is kept but was never committed");
            kept_values.extend(values);
        }
        let pool = &self.pool;
        let mut columns = Vec::with_capacity(self.outputs.len());
        for (index, (output, fixed)) in self.outputs.into_iter().zip(self.fixed).enumerate() {
            let values = kept_values
                .iter_mut()
                .map(|row| row[index].take().expect("a committed row has all its values"));
            match (output.kind, fixed) {
                (OutputKind::Tensor(spec), Some(rows)) => {
                    let buffer = rows.into_buffer().ok().expect("no writer outlives its batch");
                    columns.push((output.name, close_up(spec, buffer, keep)));
                }
                (OutputKind::Padded(padding), _) => {
                    let tensors = tensors(values.collect()).map_err(|why| mixed(&output.name, &why))?;
                    columns.extend(pad::pad(&output.name, &padding, &tensors, pool)?);
                }
                (OutputKind::Ragged(following), _) => {
                    let column = ragged::gather(&output.name, &following, values.collect(), pool)?;
                    columns.push((output.name, column));
                }
                (OutputKind::Tokens(batch), _) => {
                    let rows = tensors(values.collect()).map_err(|why| mixed(&output.name, &why))?;
                    columns.extend(self::tokens::gather(&output.name, &batch, &rows, pool)?);
                }
                (kind, _) => {
                    let column =
                        gather(&kind, values.collect(), pool).map_err(|why| mixed(&output.name, &why))?;
                    columns.push((output.name, column));
                }
            }
        }
        Ok(columns)
    }
}

impl RowWriter {
    /// The row's place in the batch.
    pub fn row(&self) -> usize {
        self.row
    }

    /// Where each column of this row goes.
    pub fn slots(&mut self) -> Vec<Slot<'_>> {
        self.cells
            .iter_mut()
            .map(|cell| match cell {
                Cell::Row(row) => Slot::Row(row),
                Cell::Value(value) => Slot::Value(value),
            })
            .collect()
    }

    /// Marks the row as written.
    ///
    /// # Panics
    /// When the value of a column is missing: the sample was not prepared.
    pub fn commit(self) {
        let values: Vec<Option<Value>> = self
            .cells
            .into_iter()
            .map(|cell| match cell {
                Cell::Row(_) => None,
                Cell::Value(value) => Some(value.expect("a prepared sample fills every slot")),
            })
            .collect();
        *lock(&self.rows.done[self.row]) = Some(values);
    }
}

impl Column {
    /// A column of values that are all of the kind of the first; says why not otherwise.
    pub fn of(values: Vec<Value>, pool: &BufferPool) -> Result<Self, String> {
        gather(&OutputKind::Any, values, pool)
    }

    /// Bytes of all values.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Tensor { data, .. } => data.len(),
            Self::Tensors(tensors) => tensors.iter().map(|tensor| tensor.data.len()).sum(),
            Self::Ragged(ragged) => ragged.values.data.len() + size_of_val(ragged.offsets.as_slice()),
            Self::Bytes(payloads) => payloads.iter().map(Bytes::len).sum(),
            Self::Text(texts) | Self::Json(texts) => texts.iter().map(String::len).sum(),
        }
    }

    /// Extent of the batch axis.
    pub fn rows(&self) -> usize {
        match self {
            Self::Tensor { rows, .. } => *rows,
            Self::Tensors(values) => values.len(),
            Self::Ragged(ragged) => ragged.rows(),
            Self::Bytes(values) => values.len(),
            Self::Text(values) | Self::Json(values) => values.len(),
        }
    }
}

/// Moves kept rows up over the others.
fn close_up(spec: TensorSpec, mut buffer: Buffer, keep: &[bool]) -> Column {
    let row_bytes = spec.bytes();
    let mut rows = 0;
    for from in keep.iter().enumerate().filter_map(|(row, keep)| keep.then_some(row)) {
        if from != rows {
            let start = from * row_bytes;
            buffer.as_mut_slice().copy_within(start..start + row_bytes, rows * row_bytes);
        }
        rows += 1;
    }
    buffer.truncate(rows * row_bytes);
    Column::Tensor { spec, rows, data: buffer }
}

fn mixed(column: &str, why: &str) -> Error {
    Error::function(format!("collate column `{column}`: {why}"))
}

fn gather(kind: &OutputKind, values: Vec<Value>, pool: &BufferPool) -> Result<Column, String> {
    let kind = match (kind, values.first()) {
        (OutputKind::Any, None | Some(Value::Tensor(_))) => &OutputKind::Tensors,
        (OutputKind::Any, Some(Value::Bytes(_))) => &OutputKind::Bytes,
        (OutputKind::Any, Some(Value::Text(_))) => &OutputKind::Text,
        (OutputKind::Any, Some(Value::Json(_))) => &OutputKind::Json,
        (kind, _) => kind,
    };
    Ok(match kind {
        OutputKind::Tensor(_)
        | OutputKind::Tensors
        | OutputKind::Padded(_)
        | OutputKind::Ragged(_)
        | OutputKind::Tokens(_)
        | OutputKind::Any => stack(tensors(values)?, pool),
        OutputKind::Bytes => {
            Column::Bytes(pick(values, |v| if let Value::Bytes(b) = v { Some(b) } else { None })?)
        }
        OutputKind::Text => {
            Column::Text(pick(values, |v| if let Value::Text(t) = v { Some(t) } else { None })?)
        }
        OutputKind::Json => {
            Column::Json(pick(values, |v| if let Value::Json(t) = v { Some(t) } else { None })?)
        }
    })
}

fn tensors(values: Vec<Value>) -> Result<Vec<Tensor>, String> {
    pick(values, |v| if let Value::Tensor(tensor) = v { Some(tensor) } else { None })
}

/// Values of one kind: only functions give others.
fn pick<T>(values: Vec<Value>, take: impl Fn(Value) -> Option<T>) -> Result<Vec<T>, String> {
    let rows = values.into_iter().enumerate();
    rows.map(|(row, value)| {
        let other = value.kind_name();
        take(value).ok_or_else(|| format!("row {row} holds {other}, its column does not"))
    })
    .collect()
}

/// One block of memory when all tensors have one element type and shape; themselves otherwise.
fn stack(tensors: Vec<Tensor>, pool: &BufferPool) -> Column {
    let Some(first) = tensors.first() else { return Column::Tensors(tensors) };
    if tensors.iter().any(|tensor| tensor.spec != first.spec) {
        return Column::Tensors(tensors);
    }
    let spec = first.spec.clone();
    let row_bytes = spec.bytes();
    let mut data = pool.take(row_bytes * tensors.len());
    for (row, tensor) in tensors.iter().enumerate() {
        data.as_mut_slice()[row * row_bytes..][..row_bytes].copy_from_slice(tensor.data.as_slice());
    }
    Column::Tensor { spec, rows: tensors.len(), data }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
