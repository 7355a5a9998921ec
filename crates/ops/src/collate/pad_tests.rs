//! Promises of padding: every value in its corner, the filler elsewhere, lengths and masks that say so.

use super::*;
use crate::buffer::Buffer;
use forebay_core::recipe::Size;
use proptest::prelude::*;

fn tensor(shape: &[usize], first: u16) -> Tensor {
    let count: usize = shape.iter().product();
    let mut data = Buffer::alone(count * 2);
    for (number, place) in data.as_mut_slice().chunks_exact_mut(2).enumerate() {
        place.copy_from_slice(&(first + number as u16).to_ne_bytes());
    }
    Tensor { spec: TensorSpec { dtype: Dtype::U16, shape: shape.to_vec() }, data }
}

fn padding(axes: std::ops::Range<usize>, value: i64, multiple: u32, to: Option<Size>) -> Padding {
    Padding { padded: Padded { value, multiple, to, mask: true, side: Side::Right }, axes }
}

fn column(columns: &[(String, Column)], name: &str) -> (Vec<usize>, Vec<u8>) {
    let found = columns.iter().find(|(known, _)| known == name).unwrap();
    let Column::Tensor { spec, data, .. } = &found.1 else { panic!("{found:?}") };
    (spec.shape.clone(), data.as_slice().to_vec())
}

proptest! {
    /// Element by element, for arrays of one to three axes and images in either layout.
    #[test]
    fn p031_every_element_is_a_value_in_its_place_or_the_filler(
        axes in 1usize..4, long in 0usize..3, multiple in 1u32..5, rows in 1usize..6, seed: u64,
    ) {
        let long = match (long, axes) { (1, 3) => 0..2, (2, 3) => 1..3, _ => 0..1 };
        let mut rng = forebay_core::rng::Rng::keyed(seed, 1, 2);
        let tensors: Vec<Tensor> = (0..rows)
            .map(|row| {
                let shape: Vec<usize> = (0..axes).map(|_| rng.below(5) as usize).collect();
                tensor(&shape, row as u16 * 1000 + 1)
            })
            .collect();
        let padding = padding(long.clone(), 60_000, multiple, None);
        let columns = pad("x", &padding, &tensors, &BufferPool::new(0)).unwrap();
        let (shape, data) = column(&columns, "x");
        for (axis, found) in shape.iter().enumerate().take(axes) {
            let longest = tensors.iter().map(|tensor| tensor.spec.shape[axis]).max().unwrap();
            let rounded = if long.contains(&axis) { longest.next_multiple_of(multiple as usize) } else { longest };
            prop_assert_eq!(*found, rounded);
        }
        let (mask_shape, mask) = column(&columns, "x_mask");
        let count: usize = shape.iter().product();
        for (row, tensor) in tensors.iter().enumerate() {
            for number in 0..count {
                let (mut rest, mut at) = (number, vec![0; axes]);
                for axis in (0..axes).rev() {
                    at[axis] = rest % shape[axis];
                    rest /= shape[axis];
                }
                let real = at.iter().zip(&tensor.spec.shape).all(|(at, length)| at < length);
                let source = at.iter().zip(&tensor.spec.shape).fold(0, |sum, (at, length)| sum * length + at);
                let wanted = if real { row as u16 * 1000 + 1 + source as u16 } else { 60_000 };
                let place = (row * count + number) * 2;
                prop_assert_eq!(u16::from_ne_bytes([data[place], data[place + 1]]), wanted);
                let inside = long.clone().all(|axis| at[axis] < tensor.spec.shape[axis]);
                let marked = long.clone().fold(row, |sum, axis| sum * shape[axis] + at[axis]);
                prop_assert_eq!(mask[marked] == 1, inside);
            }
        }
        prop_assert_eq!(mask_shape, shape[long].to_vec());
    }
}

#[test]
fn lengths_are_one_number_for_arrays_and_two_for_images() {
    let columns =
        pad("x", &padding(0..1, 0, 1, None), &[tensor(&[2], 1), tensor(&[3], 1)], &BufferPool::new(0));
    let (shape, data) = column(&columns.unwrap(), "x_length");
    assert_eq!((shape, data.len()), (vec![], 16));
    let images = [tensor(&[3, 4, 5], 1), tensor(&[3, 2, 7], 1)];
    let columns = pad("x", &padding(1..3, 0, 8, None), &images, &BufferPool::new(0)).unwrap();
    assert_eq!(column(&columns, "x").0, [3, 8, 8]);
    let (shape, data) = column(&columns, "x_length");
    let numbers: Vec<u64> = data.chunks(8).map(|n| u64::from_ne_bytes(n.try_into().unwrap())).collect();
    assert_eq!((shape, numbers), (vec![2], vec![4, 5, 2, 7]));
}

#[test]
fn what_does_not_fit_together_is_an_error_that_says_why() {
    let fail = |padding: Padding, tensors: &[Tensor]| {
        pad("x", &padding, tensors, &BufferPool::new(0)).unwrap_err().to_string()
    };
    let axes = fail(padding(0..1, 0, 1, None), &[tensor(&[2], 1), tensor(&[2, 2], 1)]);
    assert!(axes.contains("row 1 is u16[2, 2], row 0 is u16[2]"), "{axes}");
    let long = fail(padding(0..1, 0, 1, Some(Size::Side(3))), &[tensor(&[4], 1)]);
    assert!(long.contains("4 long, `to` says 3"), "{long}");
    let value = fail(padding(0..1, -1, 1, None), &[tensor(&[4], 1)]);
    assert!(value.contains("-1 is no u16"), "{value}");
    let large = fail(padding(0..1, 0, 1, None), &[tensor(&[0, 1 << 40], 1), tensor(&[1 << 20, 0], 1)]);
    assert!(large.contains("MiB"), "{large}");
    let to = pad("x", &padding(0..1, 0, 1, Some(Size::Side(6))), &[tensor(&[4], 1)], &BufferPool::new(0));
    assert_eq!(column(&to.unwrap(), "x").0, [6]);
}
