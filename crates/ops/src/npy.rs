//! Writes NumPy's `.npy`, format version 1: a header of text and the elements as they are. Reading is in
//! [`decode::npy`](crate::decode::npy).

use forebay_core::tensor::Dtype;
use std::io::{self, Write};

/// Writes one array in C order. `bf16`, which NumPy does not know, is written as its bits in `u2`.
pub fn write(to: &mut impl Write, dtype: Dtype, shape: &[usize], elements: &[u8]) -> io::Result<()> {
    let axes: Vec<String> = shape.iter().map(ToString::to_string).collect();
    // Python writes a tuple of one with its comma and all others without a last one.
    let axes = if let [only] = axes.as_slice() { format!("{only},") } else { axes.join(", ") };
    let mut header = format!("{{'descr': '{}', 'fortran_order': False, 'shape': ({axes}), }}", descr(dtype));
    // Magic, version and length take ten bytes; the elements begin at a multiple of 64.
    let padded = (10 + header.len() + 1).next_multiple_of(64);
    header.push_str(&" ".repeat(padded - 10 - header.len() - 1));
    header.push('\n');
    let length = u16::try_from(header.len()).map_err(|_| io::Error::other("the array has too many axes"))?;
    to.write_all(b"\x93NUMPY\x01\x00")?;
    to.write_all(&length.to_le_bytes())?;
    to.write_all(header.as_bytes())?;
    to.write_all(elements)
}

fn descr(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::Bool => "|b1",
        Dtype::U8 => "|u1",
        Dtype::I8 => "|i1",
        Dtype::U16 | Dtype::Bf16 => "<u2",
        Dtype::U32 => "<u4",
        Dtype::U64 => "<u8",
        Dtype::I16 => "<i2",
        Dtype::I32 => "<i4",
        Dtype::I64 => "<i8",
        Dtype::F16 => "<f2",
        Dtype::F32 => "<f4",
        Dtype::F64 => "<f8",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back_with_its_type_and_shape() {
        for (dtype, shape) in [
            (Dtype::F32, vec![2, 3]),
            (Dtype::U8, vec![5]),
            (Dtype::I64, vec![]),
            (Dtype::F16, vec![1, 2, 4]),
        ] {
            let elements: Vec<u8> =
                (0..shape.iter().product::<usize>() * dtype.size()).map(|i| i as u8).collect();
            let mut bytes = Vec::new();
            write(&mut bytes, dtype, &shape, &elements).unwrap();
            let array = crate::decode::npy::parse(&bytes).unwrap();
            assert_eq!((array.spec.dtype, &array.spec.shape), (dtype, &shape));
            assert_eq!(array.data.start % 64, 0);
            assert_eq!(&bytes[array.data], &elements[..]);
        }
    }
}
