//! Promises of the batch builder.

use super::*;
use forebay_core::tensor::Dtype;
use proptest::prelude::*;

fn outputs() -> Vec<Output> {
    let spec = TensorSpec { dtype: Dtype::U8, shape: vec![3] };
    [("fixed", OutputKind::Tensor(spec)), ("text", OutputKind::Text), ("ragged", OutputKind::Tensors)]
        .map(|(name, kind)| Output { name: name.into(), kind })
        .to_vec()
}

fn tensor(values: &[u8]) -> Tensor {
    let mut data = Buffer::alone(values.len());
    data.as_mut_slice().copy_from_slice(values);
    Tensor { spec: TensorSpec { dtype: Dtype::U8, shape: vec![values.len()] }, data }
}

fn write(builder: &BatchBuilder, row: usize, ragged: usize) {
    let mut writer = builder.claim(row).unwrap();
    for slot in writer.slots() {
        match slot {
            Slot::Row(bytes) => bytes.fill(row as u8),
            Slot::Value(value) if value.is_none() && ragged == usize::MAX => unreachable!(),
            Slot::Value(value) => *value = Some(Value::Text(row.to_string())),
        }
    }
    if let Some(Slot::Value(value)) = writer.slots().into_iter().nth(2) {
        *value = Some(Value::Tensor(tensor(&vec![row as u8; ragged])));
    }
    writer.commit();
}

proptest! {
    #[test]
    fn rows_left_out_are_closed_up_and_the_order_stays(keep in prop::collection::vec(any::<bool>(), 0..40)) {
        let builder = BatchBuilder::new(&outputs(), keep.len(), &BufferPool::new(0));
        for row in (0..keep.len()).rev().filter(|row| keep[*row] || row % 2 == 0) {
            write(&builder, row, 1 + row % 3);
        }
        let kept: Vec<usize> = (0..keep.len()).filter(|row| keep[*row]).collect();
        let columns: Vec<Column> = builder.finish(&keep).unwrap().into_iter().map(|(_, column)| column).collect();
        let Column::Tensor { rows, data, .. } = &columns[0] else { panic!("fixed") };
        prop_assert_eq!(*rows, kept.len());
        let want: Vec<u8> = kept.iter().flat_map(|row| [*row as u8; 3]).collect();
        prop_assert_eq!(data.as_slice(), want);
        let Column::Text(texts) = &columns[1] else { panic!("text") };
        prop_assert_eq!(texts, &kept.iter().map(ToString::to_string).collect::<Vec<_>>());
        prop_assert_eq!(columns[2].rows(), kept.len());
    }
}

#[test]
fn equal_shapes_are_stacked_and_different_ones_stay_apart() {
    for (lengths, stacked) in [([4, 4, 4], true), ([4, 5, 4], false)] {
        let builder = BatchBuilder::new(&outputs(), 3, &BufferPool::new(0));
        lengths.iter().enumerate().for_each(|(row, length)| write(&builder, row, *length));
        match &builder.finish(&[true; 3]).unwrap()[2].1 {
            Column::Tensor { spec, rows: 3, data } if stacked => {
                assert_eq!(spec.shape, [4]);
                assert_eq!(data.as_slice(), [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]);
            }
            Column::Tensors(tensors) if !stacked => assert_eq!(tensors[1].data.as_slice(), [1; 5]),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_row_is_claimed_once_and_an_abandoned_one_is_not_done() {
    let builder = BatchBuilder::new(&outputs(), 2, &BufferPool::new(0));
    drop(builder.claim(0).unwrap());
    assert!(builder.claim(0).is_none() && builder.claim(2).is_none());
    write(&builder, 1, 1);
    assert!(!builder.is_done(0) && builder.is_done(1));
    assert_eq!(builder.finish(&[false, true]).unwrap()[0].1.rows(), 1);
}

#[test]
fn the_stated_memory_is_that_of_the_fixed_tensors() {
    assert_eq!(BatchBuilder::bytes(&outputs(), 7), 21);
}
