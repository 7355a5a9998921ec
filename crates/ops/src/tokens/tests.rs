//! Promises of columns of tokens: what is stored is what comes, whatever the types; ops do what they say.

use super::*;
use crate::npy as npy_form;
use forebay_core::SampleId;
use forebay_core::recipe::Recipe;
use proptest::prelude::*;

fn path(json: &str) -> (TokenPath, OutputKind) {
    let recipe = Recipe::from_json(&format!("[{json}]")).unwrap();
    TokenPath::compile(0, &recipe.fields[0])
}

fn context(sample: u64) -> SampleContext {
    SampleContext { seed: 1, epoch: 0, sample_id: SampleId(sample) }
}

fn array(tokens: &[u16]) -> Vec<u8> {
    let data: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
    let mut made = Vec::new();
    npy_form::write(&mut made, Dtype::U16, &[tokens.len()], &data).unwrap();
    made
}

fn tokens(json: &str, payload: &[u8]) -> Result<Vec<i64>> {
    Ok(path(json).0.row(&context(3), payload)?.tokens)
}

const STORED: &str = r#"{"field": "x", "decode": {"kind": "tokens"}, "ops": [OPS]}"#;

fn with(ops: &str) -> String {
    STORED.replace("OPS", ops)
}

proptest! {
    #[test]
    fn tokens_come_as_they_are_stored(stored in proptest::collection::vec(any::<u16>(), 0..40)) {
        let wanted: Vec<i64> = stored.iter().copied().map(i64::from).collect();
        prop_assert_eq!(tokens(&with(""), &array(&stored)).unwrap(), wanted.clone());
        let bare: Vec<u8> = stored.iter().flat_map(|token| token.to_le_bytes()).collect();
        let json = r#"{"field": "x", "decode": {"kind": "tokens", "stored": "u16"}}"#;
        prop_assert_eq!(tokens(json, &bare).unwrap(), wanted);
    }

    #[test]
    fn any_payload_is_tokens_or_an_error(payload in proptest::collection::vec(any::<u8>(), 0..200), ops in 0usize..5) {
        let ops = ["", r#"{"op": "slice", "start": 3, "length": 4}"#, r#"{"op": "truncate", "length": 5, "side": "left"}"#,
            r#"{"op": "random_window", "length": 3}"#, r#"{"op": "mask_tokens", "p": 0.5, "mask_id": 1, "vocab": 9}"#][ops];
        let _ = tokens(&with(ops), &payload);
        let json = with(ops).replace(r#""kind": "tokens""#, r#""kind": "tokens", "stored": "i32""#);
        let _ = tokens(&json, &payload);
    }
}

#[test]
fn ops_take_the_tokens_that_they_say() {
    let stored = array(&[1, 2, 3, 4, 5, 6]);
    let of = |ops: &str| tokens(&with(ops), &stored).unwrap();
    assert_eq!(of(r#"{"op": "slice", "start": 1, "length": 3}"#), [2, 3, 4]);
    assert_eq!(of(r#"{"op": "truncate", "length": 2}"#), [1, 2]);
    assert_eq!(of(r#"{"op": "truncate", "length": 2, "side": "left"}"#), [5, 6]);
    assert_eq!(of(r#"{"op": "random_window", "length": 9}"#), [1, 2, 3, 4, 5, 6]);
    let window = of(r#"{"op": "random_window", "length": 3}"#);
    assert!(window.windows(2).all(|pair| pair[1] == pair[0] + 1) && window.len() == 3);
    assert!(tokens(&with(r#"{"op": "slice", "start": 4, "length": 3}"#), &stored).is_err());
    let text = r#"{"field": "x", "decode": "text", "ops": [{"op": "byte_tokens", "offset": 3, "bos": 1, "eos": 2}]}"#;
    assert_eq!(tokens(text, "hé".as_bytes()).unwrap(), [1, 107, 198, 172, 2]);
    assert!(tokens(text, b"\xff").is_err());
}

#[test]
fn random_windows_begin_everywhere_equally_often() {
    let stored = array(&(0..10).collect::<Vec<u16>>());
    let path = path(&with(r#"{"op": "random_window", "length": 6}"#)).0;
    let mut counts = [0u32; 5];
    for sample in 0..5000 {
        counts[path.row(&context(sample), &stored).unwrap().tokens[0] as usize] += 1;
    }
    assert!(counts.iter().all(|count| (880..1120).contains(count)), "{counts:?}");
}

#[test]
fn tokens_of_a_known_number_are_written_into_their_row_and_others_are_refused() {
    let json = r#"{"field": "x", "decode": {"kind": "tokens", "length": 3}, "dtype": "u8"}"#;
    let (path, kind) = path(json);
    assert_eq!(kind, OutputKind::Tensor(TensorSpec { dtype: Dtype::U8, shape: vec![3] }));
    let (pool, mut row) = (BufferPool::new(0), [0u8; 3]);
    path.prepare(&context(0), &array(&[7, 8, 9]), &mut Slot::Row(&mut row), &pool).unwrap();
    assert_eq!(row, [7, 8, 9]);
    assert!(path.prepare(&context(0), &array(&[7, 8]), &mut Slot::Row(&mut row), &pool).is_err());
    let error = path.prepare(&context(0), &array(&[7, 8, 300]), &mut Slot::Row(&mut row), &pool).unwrap_err();
    assert!(error.message().contains("300"), "{error}");
}
