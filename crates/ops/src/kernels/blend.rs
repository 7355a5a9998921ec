//! Two rows of a batch blended: each element by its share, computed in `f32`.

use forebay_core::tensor::Dtype;
use half::{bf16, f16};

/// Makes `row` what `own` of it and `other` of the partner sum up to.
pub(crate) type Blend = fn(row: &mut [u8], partner: &[u8], own: f32, other: f32);

/// How elements of a type are blended; nothing for types that images do not have.
pub(crate) fn of(dtype: Dtype) -> Option<Blend> {
    Some(match dtype {
        // Rounded to the nearest level.
        Dtype::U8 => |row, partner, own, other| {
            each(row, partner, |a: [u8; 1], b| {
                [(f32::from(b[0]) * other + f32::from(a[0]) * own).round() as u8]
            });
        },
        Dtype::F32 => |row, partner, own, other| {
            each(row, partner, |a, b| {
                (f32::from_ne_bytes(b) * other + f32::from_ne_bytes(a) * own).to_ne_bytes()
            });
        },
        Dtype::F16 => |row, partner, own, other| {
            let value = |bytes| f16::from_ne_bytes(bytes).to_f32();
            each(row, partner, |a, b| f16::from_f32(value(b) * other + value(a) * own).to_ne_bytes());
        },
        Dtype::Bf16 => |row, partner, own, other| {
            let value = |bytes| bf16::from_ne_bytes(bytes).to_f32();
            each(row, partner, |a, b| bf16::from_f32(value(b) * other + value(a) * own).to_ne_bytes());
        },
        _ => return None,
    })
}

fn each<const N: usize>(row: &mut [u8], partner: &[u8], blend: impl Fn([u8; N], [u8; N]) -> [u8; N]) {
    for (a, b) in row.as_chunks_mut::<N>().0.iter_mut().zip(partner.as_chunks::<N>().0) {
        *a = blend(*a, *b);
    }
}
