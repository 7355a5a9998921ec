//! What a column of a batch holds, in a few numbers: shape, element type, checksum, least, mean and greatest value.
//!
//! The checksum is XXH3-128 over the column's bytes, so that two machines can compare batches without moving them.

use forebay_core::tensor::Dtype;
use forebay_ops::Column;
use serde_json::{Value, json};
use xxhash_rust::xxh3::Xxh3;

/// A column in a few numbers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Digest {
    pub(crate) name: String,
    /// `tensor`, `tensors`, `bytes`, `text` or `json`.
    pub(crate) kind: &'static str,
    pub(crate) dtype: Option<Dtype>,
    /// With the batch axis; of the rows when they differ.
    pub(crate) shapes: Vec<Vec<usize>>,
    pub(crate) bytes: u64,
    pub(crate) xxh3: String,
    /// Least, mean and greatest value, when there are numbers.
    pub(crate) range: Option<[f64; 3]>,
}

impl Digest {
    pub(crate) fn new(name: &str, column: &Column) -> Self {
        let mut sum = Sum::default();
        let (kind, dtype, shapes) = match column {
            Column::Tensor { spec, rows, data } => {
                sum.hash.update(data.as_slice());
                sum.bytes += data.as_slice().len() as u64;
                sum.numbers(spec.dtype, data.as_slice());
                let shape = std::iter::once(*rows).chain(spec.shape.iter().copied()).collect();
                ("tensor", Some(spec.dtype), vec![shape])
            }
            Column::Tensors(tensors) => {
                for tensor in tensors {
                    sum.row(tensor.data.as_slice());
                    sum.numbers(tensor.spec.dtype, tensor.data.as_slice());
                }
                let shapes = tensors.iter().map(|tensor| tensor.spec.shape.clone()).collect();
                ("tensors", tensors.first().map(|tensor| tensor.spec.dtype), shapes)
            }
            Column::Ragged(ragged) => {
                ragged.offsets.iter().for_each(|at| sum.hash.update(&at.to_le_bytes()));
                let spec = &ragged.values.spec;
                sum.hash.update(ragged.values.data.as_slice());
                sum.bytes += ragged.values.data.len() as u64;
                sum.numbers(spec.dtype, ragged.values.data.as_slice());
                let shape = |length: u64| {
                    let mut shape = spec.shape.clone();
                    shape[ragged.axis] = length as usize;
                    shape
                };
                let shapes = ragged.offsets.windows(2).map(|pair| shape(pair[1] - pair[0])).collect();
                ("ragged", Some(spec.dtype), shapes)
            }
            Column::Bytes(rows) => {
                sum.rows(rows.iter().map(AsRef::as_ref));
                ("bytes", None, Vec::new())
            }
            Column::Text(rows) => {
                sum.rows(rows.iter().map(String::as_bytes));
                ("text", None, Vec::new())
            }
            Column::Json(rows) => {
                sum.rows(rows.iter().map(String::as_bytes));
                ("json", None, Vec::new())
            }
        };
        let xxh3 = format!("{:032x}", sum.hash.digest128());
        let range = sum.range();
        Self { name: name.to_owned(), kind, dtype, shapes, bytes: sum.bytes, xxh3, range }
    }

    /// The digest as `--json` shows it.
    pub(crate) fn object(&self) -> Value {
        let shape = if self.kind == "tensor" { json!(self.shapes[0]) } else { Value::Null };
        let shapes = if matches!(self.kind, "tensors" | "ragged") { json!(self.shapes) } else { Value::Null };
        json!({
            "name": self.name,
            "kind": self.kind,
            "dtype": self.dtype.map(Dtype::name),
            "shape": shape,
            "shapes": shapes,
            "bytes": self.bytes,
            "xxh3": self.xxh3,
            "min": self.range.map(|[min, _, _]| min),
            "mean": self.range.map(|[_, mean, _]| mean),
            "max": self.range.map(|[_, _, max]| max),
        })
    }

    /// The shape for people.
    pub(crate) fn shape_text(&self) -> String {
        match (self.kind, self.shapes.as_slice()) {
            ("tensor", [shape]) => format!("{shape:?}"),
            ("tensors" | "ragged", shapes) => format!("{} of their own shape", shapes.len()),
            _ => crate::commands::size(self.bytes),
        }
    }
}

#[derive(Default)]
struct Sum {
    hash: Xxh3,
    bytes: u64,
    count: u64,
    total: f64,
    least: Option<f64>,
    greatest: Option<f64>,
}

impl Sum {
    /// A row of its own length; the length is hashed too, so that moving bytes between rows shows.
    fn row(&mut self, row: &[u8]) {
        self.hash.update(&(row.len() as u64).to_le_bytes());
        self.hash.update(row);
        self.bytes += row.len() as u64;
    }

    fn rows<'a>(&mut self, rows: impl Iterator<Item = &'a [u8]>) {
        for row in rows {
            self.row(row);
        }
    }

    fn numbers(&mut self, dtype: Dtype, bytes: &[u8]) {
        for element in bytes.chunks_exact(dtype.size()) {
            let value = number(dtype, element);
            self.count += 1;
            self.total += value;
            self.least = Some(self.least.map_or(value, |least| least.min(value)));
            self.greatest = Some(self.greatest.map_or(value, |greatest| greatest.max(value)));
        }
    }

    fn range(&self) -> Option<[f64; 3]> {
        Some([self.least?, self.total / self.count as f64, self.greatest?])
    }
}

/// One element, in native byte order, as a number.
fn number(dtype: Dtype, element: &[u8]) -> f64 {
    fn bytes<const N: usize>(element: &[u8]) -> [u8; N] {
        element.try_into().expect("chunks are of the element's size")
    }
    match dtype {
        Dtype::Bool | Dtype::U8 => element[0].into(),
        Dtype::I8 => element[0].cast_signed().into(),
        Dtype::U16 => u16::from_ne_bytes(bytes(element)).into(),
        Dtype::I16 => i16::from_ne_bytes(bytes(element)).into(),
        Dtype::U32 => u32::from_ne_bytes(bytes(element)).into(),
        Dtype::I32 => i32::from_ne_bytes(bytes(element)).into(),
        Dtype::U64 => u64::from_ne_bytes(bytes(element)) as f64,
        Dtype::I64 => i64::from_ne_bytes(bytes(element)) as f64,
        Dtype::F16 => half::f16::from_ne_bytes(bytes(element)).into(),
        Dtype::Bf16 => half::bf16::from_ne_bytes(bytes(element)).into(),
        Dtype::F32 => f32::from_ne_bytes(bytes(element)).into(),
        Dtype::F64 => f64::from_ne_bytes(bytes(element)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_move_between_rows_change_the_checksum() {
        let text = |rows: &[&str]| Column::Text(rows.iter().map(|row| (*row).to_owned()).collect());
        let digest = |rows: &[&str]| Digest::new("t", &text(rows)).xxh3;
        assert_eq!(digest(&["ab", "c"]), digest(&["ab", "c"]));
        assert_ne!(digest(&["ab", "c"]), digest(&["a", "bc"]));
    }

    #[test]
    fn numbers_of_every_type_are_read() {
        let rows: [(Dtype, Vec<u8>, f64); 6] = [
            (Dtype::I8, vec![0xff], -1.0),
            (Dtype::U16, 300u16.to_ne_bytes().into(), 300.0),
            (Dtype::I64, (-5i64).to_ne_bytes().into(), -5.0),
            (Dtype::F16, half::f16::from_f32(0.5).to_ne_bytes().into(), 0.5),
            (Dtype::Bf16, half::bf16::from_f32(-2.0).to_ne_bytes().into(), -2.0),
            (Dtype::F32, 1.25f32.to_ne_bytes().into(), 1.25),
        ];
        for (dtype, bytes, value) in rows {
            let mut sum = Sum::default();
            sum.numbers(dtype, &bytes);
            assert_eq!(sum.range(), Some([value; 3]), "{dtype:?}");
        }
    }
}
