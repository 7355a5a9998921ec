//! Promises of packed and masked batches: every token where the rule says, and columns that say what is what.

use super::*;
use crate::value::Padding;
use forebay_core::recipe::tokens::{Fit, Long, Side};

fn document(tokens: &[i64]) -> Tensor {
    let mut data = Buffer::alone(tokens.len() * 4);
    crate::tokens::write(tokens, Dtype::I32, data.as_mut_slice()).unwrap();
    Tensor { spec: TensorSpec { dtype: Dtype::I32, shape: vec![tokens.len()] }, data }
}

fn numbers(columns: &[(String, Column)], name: &str) -> (Vec<usize>, Vec<i32>) {
    let found = columns.iter().find(|(known, _)| known == name).unwrap();
    let Column::Tensor { spec, rows, data } = &found.1 else { panic!("{found:?}") };
    let numbers = data.as_slice().chunks_exact(4).map(|four| i32::from_ne_bytes(four.try_into().unwrap()));
    (std::iter::once(*rows).chain(spec.shape.iter().copied()).collect(), numbers.collect())
}

fn pack(long: Long, rows: Option<u64>, labels: bool, masked: bool) -> TokenBatch {
    let pack = Pack { length: 4, fit: Fit::Greedy, look_ahead: 1, long, value: 0, labels, documents: 8 };
    TokenBatch { dtype: Dtype::I32, masked, gather: TokenGather::Pack { pack, rows } }
}

#[test]
fn documents_follow_each_other_with_positions_segments_labels_and_bounds() {
    let documents =
        vec![document(&[1, 2]), document(&[3]), document(&[4, 5, 6]), document(&[]), document(&[7; 6])];
    let batch = pack(Long::Split, Some(5), true, false);
    let columns = gather("x", &batch, &documents, &BufferPool::new(0)).unwrap();
    let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["x", "x_labels", "x_position", "x_segment", "x_cu_seqlens"]);
    let (shape, tokens) = numbers(&columns, "x");
    assert_eq!(
        (shape, tokens),
        (vec![5, 4], vec![1, 2, 3, 0, 4, 5, 6, 0, 7, 7, 7, 7, 7, 7, 0, 0, 0, 0, 0, 0])
    );
    let none = -100;
    let labels =
        vec![2, none, none, none, 5, 6, none, none, 7, 7, 7, 7, 7, none, none, none, none, none, none, none];
    assert_eq!(numbers(&columns, "x_labels").1, labels);
    let positions = vec![0, 1, 0, 0, 0, 1, 2, 0, 0, 1, 2, 3, 0, 1, 0, 0, 0, 0, 0, 0];
    assert_eq!(numbers(&columns, "x_position").1, positions);
    let segments = vec![1, 1, 2, 0, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0];
    assert_eq!(numbers(&columns, "x_segment").1, segments);
    assert_eq!(numbers(&columns, "x_cu_seqlens"), (vec![9], vec![0, 2, 3, 4, 7, 8, 12, 14, 20]));
}

#[test]
fn rows_are_as_many_as_needed_when_nothing_says_how_many() {
    let batch = pack(Long::Truncate, None, false, false);
    let columns = gather("x", &batch, &[document(&[1; 9]), document(&[2])], &BufferPool::new(0)).unwrap();
    assert_eq!(numbers(&columns, "x"), (vec![2, 4], vec![1, 1, 1, 1, 2, 0, 0, 0]));
    let columns = gather("x", &batch, &[], &BufferPool::new(0)).unwrap();
    assert_eq!(numbers(&columns, "x").0, [0, 4]);
}

#[test]
fn labels_of_masked_tokens_go_where_the_tokens_go() {
    let both = |tokens: &[i64], labels: &[i64]| {
        let mut made = document(&[tokens, labels].concat());
        made.spec.shape = vec![2, tokens.len()];
        made
    };
    let values = || vec![both(&[1, 9, 3], &[-100, 2, -100]), both(&[9, 5], &[4, -100])];
    let columns =
        gather("x", &pack(Long::Split, Some(2), false, true), &values(), &BufferPool::new(0)).unwrap();
    assert_eq!(numbers(&columns, "x").1, [1, 9, 3, 0, 9, 5, 0, 0]);
    assert_eq!(numbers(&columns, "x_labels").1, [-100, 2, -100, -100, 4, -100, -100, -100]);
    let padded = Padded { value: 0, multiple: 1, to: None, mask: true, side: Side::Left };
    let pad = TokenBatch {
        dtype: Dtype::I32,
        masked: true,
        gather: TokenGather::Pad(Padding { padded, axes: 0..1 }),
    };
    let columns = gather("x", &pad, &values(), &BufferPool::new(0)).unwrap();
    assert_eq!(numbers(&columns, "x").1, [1, 9, 3, 0, 9, 5]);
    assert_eq!(numbers(&columns, "x_labels").1, [-100, 2, -100, -100, 4, -100]);
    let mask = columns.iter().find(|(name, _)| name == "x_mask").unwrap();
    let Column::Tensor { data, .. } = &mask.1 else { panic!("{mask:?}") };
    assert_eq!(data.as_slice(), [1, 1, 1, 0, 1, 1]);
}
