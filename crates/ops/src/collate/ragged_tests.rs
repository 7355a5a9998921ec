//! Promises of ragged columns: every element in its place, whatever the axis, and offsets that say where.

use super::*;
use crate::buffer::Buffer;
use bytes::Bytes;
use proptest::prelude::*;

fn following(axis: usize) -> Following {
    Following { axis, counted: Offsets::I64, dtype: None }
}

fn tensor(shape: &[usize], first: u16) -> Tensor {
    let count: usize = shape.iter().product();
    let mut data = Buffer::alone(count * 2);
    for (number, place) in data.as_mut_slice().chunks_exact_mut(2).enumerate() {
        place.copy_from_slice(&(first + number as u16).to_ne_bytes());
    }
    Tensor { spec: TensorSpec { dtype: Dtype::U16, shape: shape.to_vec() }, data }
}

fn ragged(column: Column) -> Ragged {
    match column {
        Column::Ragged(ragged) => ragged,
        other => panic!("{other:?}"),
    }
}

/// The place of a number in an array of this shape, axis by axis.
fn place(mut number: usize, shape: &[usize]) -> Vec<usize> {
    let mut at = vec![0; shape.len()];
    for axis in (0..shape.len()).rev() {
        at[axis] = number % shape[axis];
        number /= shape[axis];
    }
    at
}

proptest! {
    /// Element by element, for arrays of one to three axes along each of them.
    #[test]
    fn p031_every_element_of_a_ragged_column_is_in_its_place(
        before in proptest::collection::vec(0usize..4, 0..3), behind in proptest::collection::vec(0usize..4, 0..2),
        lengths in proptest::collection::vec(0usize..6, 1..7),
    ) {
        let axis = before.len();
        let shape = |length: usize| [before.clone(), vec![length], behind.clone()].concat();
        let tensors: Vec<Tensor> =
            lengths.iter().enumerate().map(|(row, length)| tensor(&shape(*length), row as u16 * 1000)).collect();
        let found = ragged(of_tensors(&following(axis), &tensors, &BufferPool::new(0)).unwrap());
        prop_assert_eq!(found.rows(), lengths.len());
        let ends: Vec<u64> = lengths.iter().scan(0, |end, length| { *end += *length as u64; Some(*end) }).collect();
        prop_assert_eq!(&found.offsets, &[vec![0], ends].concat());
        let all = shape(lengths.iter().sum());
        prop_assert_eq!(&found.values.spec.shape, &all);
        let data = found.values.data.as_slice();
        for (row, length) in lengths.iter().enumerate() {
            let own = shape(*length);
            for number in 0..own.iter().product() {
                let mut at = place(number, &own);
                at[axis] += found.offsets[row] as usize;
                let there = at.iter().zip(&all).fold(0, |sum, (at, extent)| sum * extent + at) * 2;
                let value = u16::from_ne_bytes([data[there], data[there + 1]]);
                prop_assert_eq!(value, row as u16 * 1000 + number as u16);
            }
        }
    }

    /// Payloads and texts are bytes, whichever they are.
    #[test]
    fn p031_payloads_and_texts_follow_each_other_as_bytes(texts in proptest::collection::vec(".{0,9}", 0..6)) {
        let all: Vec<u8> = texts.concat().into_bytes();
        let payloads = texts.iter().map(|text| Value::Bytes(Bytes::from(text.clone())));
        let words = texts.iter().cloned().map(Value::Text);
        for values in [payloads.collect::<Vec<_>>(), words.collect()] {
            let found = ragged(gather("x", &following(0), values, &BufferPool::new(0)).unwrap());
            prop_assert_eq!(found.values.data.as_slice(), &all);
            prop_assert_eq!(found.values.spec.dtype, Dtype::U8);
            let lengths: Vec<u64> = found.offsets.windows(2).map(|pair| pair[1] - pair[0]).collect();
            prop_assert_eq!(lengths, texts.iter().map(|text| text.len() as u64).collect::<Vec<_>>());
        }
    }

    /// What came from elsewhere is held against itself.
    #[test]
    fn p079_offsets_from_elsewhere_lead_from_the_first_element_to_the_last(
        offsets in proptest::collection::vec(0u64..6, 0..5), axis in 0usize..3, all in 0usize..6,
    ) {
        let sound = axis == 0
            && offsets.first() == Some(&0)
            && offsets.last() == Some(&(all as u64))
            && offsets.is_sorted();
        let found = Ragged::checked(tensor(&[all], 0), axis, offsets, Offsets::I32);
        prop_assert_eq!(found.is_ok(), sound);
    }
}

#[test]
fn values_that_do_not_fit_together_are_refused() {
    let pool = BufferPool::new(0);
    let of = |tensors: &[Tensor]| of_tensors(&following(0), tensors, &pool).unwrap_err();
    assert!(of(&[tensor(&[2, 3], 0), tensor(&[2, 4], 0)]).contains("row 1 is u16[2, 4]"));
    assert!(of(&[tensor(&[2], 0), tensor(&[2, 1], 0)]).contains("differ beyond axis 0"));
    assert!(of(&[tensor(&[], 0)]).contains("no axis 0"));
    let objects = vec![Value::Json("{}".into())];
    assert!(gather("x", &following(0), objects, &pool).unwrap_err().to_string().contains("objects"));
    let mixed = vec![Value::Text("a".into()), Value::Tensor(tensor(&[1], 0))];
    assert!(gather("x", &following(0), mixed, &pool).unwrap_err().to_string().contains("others are not"));
}

#[test]
fn offsets_are_of_the_integers_that_were_asked_for() {
    let tensors = [tensor(&[2], 0), tensor(&[0], 0), tensor(&[1], 0)];
    let of = |counted| {
        let following = Following { axis: 0, counted, dtype: None };
        ragged(of_tensors(&following, &tensors, &BufferPool::new(0)).unwrap()).offset_bytes()
    };
    assert_eq!(of(Offsets::I32), [0i32, 2, 2, 3].map(i32::to_ne_bytes).concat());
    assert_eq!(of(Offsets::I64), [0i64, 2, 2, 3].map(i64::to_ne_bytes).concat());
}

#[test]
fn a_batch_without_samples_has_no_elements() {
    let empty = Following { axis: 1, counted: Offsets::I64, dtype: Some(Dtype::F32) };
    let found = ragged(of_tensors(&empty, &[], &BufferPool::new(0)).unwrap());
    assert_eq!((found.rows(), found.offsets, found.values.spec.shape), (0, vec![0], vec![0, 0]));
}
