//! Mixing against torchvision's formulas, what is drawn how often, and that partners are as they were.

use super::*;
use forebay_core::rng::Rng;
use proptest::prelude::{prop_assert_eq, proptest};

fn recipe(op: &str, dtype: &str, layout: &str) -> Recipe {
    let text = format!(
        r#"[{{"field": "jpg", "decode": "image", "dtype": "{dtype}", "layout": "{layout}",
              "ops": [{{"op": "center_crop", "size": [6, 5]}}]}},
            {{"field": "cls", "decode": "label"}}, {op}]"#
    );
    Recipe::from_json(&text).unwrap()
}

fn mixer(op: &str, dtype: &str, layout: &str) -> Mixer {
    let recipe = recipe(op, dtype, layout);
    Mixer::of(&recipe, &recipe.ops[0]).unwrap()
}

const BOTH: &str = r#"{"op": "mixup_or_cutmix", "image": "jpg", "label": "cls", "classes": 4}"#;
const CUT: &str = r#"{"op": "cutmix", "image": "jpg", "label": "cls", "classes": 4}"#;
const BLEND: &str = r#"{"op": "mixup", "image": "jpg", "label": "cls", "classes": 4, "alpha": 0.4}"#;

fn tensor(dtype: Dtype, shape: &[usize], rows: usize, bytes: &[u8]) -> Column {
    let spec = TensorSpec { dtype, shape: shape.to_vec() };
    let mut data = BufferPool::new(0).take(spec.bytes() * rows);
    data.as_mut_slice().copy_from_slice(bytes);
    Column::Tensor { spec, rows, data }
}

/// Row `i` is filled with level `10 * i + 1` everywhere, so that it is known where a pixel is from.
fn batch(rows: usize, dtype: Dtype, shape: &[usize; 3]) -> Named {
    let each = shape.iter().product::<usize>();
    let pixels: Vec<u8> = (0..rows)
        .flat_map(|row| {
            let level = (10 * row + 1) as u8;
            let one = match dtype {
                Dtype::F32 => f32::from(level).to_ne_bytes().to_vec(),
                Dtype::F16 => half::f16::from_f32(f32::from(level)).to_ne_bytes().to_vec(),
                Dtype::Bf16 => half::bf16::from_f32(f32::from(level)).to_ne_bytes().to_vec(),
                _ => vec![level],
            };
            one.repeat(each)
        })
        .collect();
    let labels: Vec<u8> = (0..rows as i64).flat_map(|row| (row % 4).to_ne_bytes()).collect();
    vec![
        ("jpg".to_owned(), tensor(dtype, shape, rows, &pixels)),
        ("cls".to_owned(), tensor(Dtype::I64, &[], rows, &labels)),
    ]
}

fn ids(rows: usize, first: u64) -> Vec<SampleId> {
    (0..rows as u64).map(|id| SampleId(first + id)).collect()
}

fn bytes(columns: &Named, at: usize) -> &[u8] {
    match &columns[at].1 {
        Column::Tensor { data, .. } => data.as_slice(),
        other => panic!("{other:?}"),
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_ne_bytes(*bytes)).collect()
}

fn draw_of(mixer: &Mixer, rows: usize, epoch: u64, first: u64) -> Draw {
    let mut columns = batch(rows, Dtype::U8, &[3, 6, 5]);
    let mut rng = {
        let members = ids(rows, first).iter().fold(rows as u64, |folded, id| fold(&[folded, id.0]));
        Rng::keyed(fold(&[7, epoch]), members, MIX_STREAM)
    };
    mixer.images(rows, &mut columns, &mut rng).unwrap()
}

#[test]
fn blended_images_and_labels_are_torchvisions_for_the_same_share() {
    let mixer = mixer(BLEND, "f32", "chw");
    let rows = 7;
    let draw = draw_of(&self::mixer(BLEND, "u8", "chw"), rows, 3, 100);
    assert!(draw.way == Way::Blend && (1..rows).contains(&draw.back), "{draw:?}");
    let mixed =
        mixer.run((7, 3), &ids(rows, 100), batch(rows, Dtype::F32, &[3, 6, 5]), &BufferPool::new(0)).unwrap();
    let (own, other) = (draw.own as f32, (1.0 - draw.own) as f32);
    let (pixels, labels) = (floats(bytes(&mixed, 0)), floats(bytes(&mixed, 1)));
    for row in 0..rows {
        let partner = (row + rows - draw.back) % rows;
        let level = |row: usize| (10 * row + 1) as f32;
        // `x.roll(back, 0).mul_(1 - lam).add_(x.mul(lam))`, to the bit.
        let expected = level(partner) * other + level(row) * own;
        assert!(pixels[row * 90..][..90].iter().all(|pixel| *pixel == expected), "row {row}");
        let mut shares = [0.0; 4];
        shares[partner % 4] += other;
        shares[row % 4] += own;
        assert_eq!(labels[row * 4..][..4], shares, "row {row}");
    }
}

#[test]
fn blended_levels_are_rounded_and_short_floats_are_near() {
    for (name, dtype, most) in
        [("u8", Dtype::U8, 0.5001), ("f16", Dtype::F16, 0.04), ("bf16", Dtype::Bf16, 0.3)]
    {
        let rows = 6;
        let draw = draw_of(&mixer(BLEND, "u8", "chw"), rows, 3, 9);
        let columns = batch(rows, dtype, &[3, 6, 5]);
        let mixed =
            mixer(BLEND, name, "chw").run((7, 3), &ids(rows, 9), columns, &BufferPool::new(0)).unwrap();
        let size = dtype.size();
        for (at, element) in bytes(&mixed, 0).chunks_exact(size).enumerate() {
            let row = at / 90;
            let partner = (row + rows - draw.back) % rows;
            let expected = (10 * partner + 1) as f64 * (1.0 - draw.own) + (10 * row + 1) as f64 * draw.own;
            let found = match dtype {
                Dtype::F16 => half::f16::from_ne_bytes([element[0], element[1]]).to_f64(),
                Dtype::Bf16 => half::bf16::from_ne_bytes([element[0], element[1]]).to_f64(),
                _ => f64::from(element[0]),
            };
            assert!((found - expected).abs() <= most, "{found}, not {expected}, as {name}");
        }
    }
}

#[test]
fn a_cut_is_the_partners_and_labels_have_the_share_of_its_area() {
    for (layout, shape) in [("chw", [3, 6, 5]), ("hwc", [6, 5, 3])] {
        let mixer = mixer(CUT, "u8", layout);
        let rows = 5;
        for epoch in 0..40 {
            let columns = batch(rows, Dtype::U8, &shape);
            let mixed = mixer.run((7, epoch), &ids(rows, 0), columns, &BufferPool::new(0)).unwrap();
            let draw = draw_of(&self::mixer(CUT, "u8", "chw"), rows, epoch, 0);
            let Way::Cut(rect) = draw.way else { panic!("{draw:?}") };
            for (at, level) in bytes(&mixed, 0).iter().enumerate() {
                let (row, at) = (at / 90, at % 90);
                let (x, y) = if layout == "chw" { (at % 5, at / 5 % 6) } else { (at / 3 % 5, at / 15) };
                let inside = (rect.x..rect.right()).contains(&(x as u32))
                    && (rect.y..rect.bottom()).contains(&(y as u32));
                let from = if inside { (row + rows - draw.back) % rows } else { row };
                assert_eq!(usize::from(*level), 10 * from + 1, "{layout} {row} {x} {y} {rect:?}");
            }
            let area = f64::from(rect.width * rect.height) / 30.0;
            assert!((draw.own - (1.0 - area)).abs() < 1e-12);
            assert!(
                floats(bytes(&mixed, 1)).chunks(4).all(|row| (row.iter().sum::<f32>() - 1.0).abs() < 1e-6)
            );
        }
    }
}

#[test]
fn boxes_have_torchvisions_distribution() {
    let op = mixer(CUT, "u8", "chw").op;
    let (mut sums, mut lefts) = (0.0, 0u32);
    for sample in 0..20_000 {
        let drawn = draw(&op, 8, (40, 20), &mut Rng::keyed(1, sample, 2));
        let Way::Cut(rect) = drawn.way else { panic!("{drawn:?}") };
        sums += drawn.own;
        lefts += u32::from(rect.x == 0);
    }
    // 200 000 boxes of torchvision's `CutMix(alpha=1)` on 20 x 40 pixels: 0.7064 of the image stays, 0.3457 touch the left.
    assert!((sums / 20_000.0 - KEPT).abs() < 0.01, "{}", sums / 20_000.0);
    assert!((f64::from(lefts) / 20_000.0 - TOUCHING).abs() < 0.015, "{}", f64::from(lefts) / 20_000.0);
}

const KEPT: f64 = 0.7064;
const TOUCHING: f64 = 0.3457;

#[test]
fn both_ways_are_drawn_as_often_as_asked_and_any_partner_alike() {
    let text = BOTH.replace("4}", r#"4, "cutmix_share": 0.25, "p": 0.8}"#);
    let op = mixer(&text, "u8", "chw").op;
    let (mut kept, mut cut, mut backs) = (0, 0, [0u32; 6]);
    for sample in 0..10_000 {
        let drawn = draw(&op, 6, (8, 8), &mut Rng::keyed(1, sample, 2));
        kept += u32::from(drawn.way == Way::Keep);
        cut += u32::from(matches!(drawn.way, Way::Cut(_)));
        backs[drawn.back] += u32::from(drawn.way != Way::Keep);
    }
    assert!(
        (1880..2120).contains(&kept) && (1880..2120).contains(&cut),
        "{kept} kept and {cut} cut of 10000"
    );
    assert!(backs[0] == 0 && backs[1..].iter().all(|count| (1480..1720).contains(count)), "{backs:?}");
}

#[test]
fn short_batches_are_mixed_and_single_samples_and_none_are_not() {
    let both = mixer(BOTH, "u8", "chw");
    for rows in [0, 1, 2, 3] {
        let columns = batch(rows, Dtype::U8, &[3, 6, 5]);
        let before = bytes(&columns, 0).to_vec();
        let mixed = both.run((7, 1), &ids(rows, 0), columns, &BufferPool::new(0)).unwrap();
        let Column::Tensor { spec, rows: found, .. } = &mixed[1].1 else { panic!("{mixed:?}") };
        assert_eq!((spec.dtype, spec.shape.as_slice(), *found), (Dtype::F32, &[4][..], rows));
        if rows < 2 {
            assert_eq!(bytes(&mixed, 0), before);
            assert_eq!(floats(bytes(&mixed, 1)), [1.0, 0.0, 0.0, 0.0][..4 * rows]);
        }
    }
}

#[test]
fn the_same_batch_is_mixed_alike_and_others_are_not() {
    let both = mixer(BOTH, "u8", "chw");
    let drawn = |epoch, first| draw_of(&both, 8, epoch, first);
    assert_eq!(drawn(1, 5), drawn(1, 5));
    assert_ne!(drawn(1, 5), drawn(2, 5));
    assert_ne!(drawn(1, 5), drawn(1, 6));
}

#[test]
fn labels_outside_the_classes_and_columns_of_another_kind_are_said() {
    let both = mixer(BOTH, "u8", "chw");
    let pool = &BufferPool::new(0);
    for label in [4i64, -1] {
        let mut columns = batch(2, Dtype::U8, &[3, 6, 5]);
        columns[1].1 = tensor(Dtype::I64, &[], 2, &[0i64, label].map(i64::to_ne_bytes).concat());
        let error = both.run((7, 1), &ids(2, 0), columns, pool).unwrap_err();
        assert!(error.message().contains(&format!("{label} is none of 4 classes")), "{error}");
    }
    let mut columns = batch(2, Dtype::U8, &[3, 6, 5]);
    columns[0].1 = Column::Text(vec!["a".into(), "b".into()]);
    assert!(both.run((7, 1), &ids(2, 0), columns, pool).unwrap_err().message().contains("`jpg`"));
    let columns = batch(2, Dtype::U8, &[3, 6, 5]).split_off(1);
    assert!(both.run((7, 1), &ids(2, 0), columns, pool).unwrap_err().message().contains("not in the batch"));
}

proptest! {
    #[test]
    fn every_row_meets_its_partner_as_it_was(rows in 1usize..40, back in 0usize..40, bytes in 1usize..5) {
        let mut data: Vec<u8> = (0..rows).flat_map(|row| vec![row as u8; bytes]).collect();
        let mut met = vec![None; rows];
        with_partners(&mut data, bytes, back % rows, |row, partner| {
            assert!(partner.iter().all(|byte| *byte == partner[0]));
            assert_eq!(met[usize::from(row[0])].replace(partner[0]), None);
            row.fill(255);
        });
        for (row, partner) in met.into_iter().enumerate().filter(|_| back % rows != 0) {
            prop_assert_eq!(partner, Some(((row + rows - back % rows) % rows) as u8));
        }
    }
}
