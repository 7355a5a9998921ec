use super::*;
use forebay_core::ErrorKind;
use proptest::prelude::*;

/// A file as NumPy writes it: header padded with spaces so that the elements begin at a multiple of 64.
fn file(version: u8, header: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = SIGNATURE.to_vec();
    bytes.extend([version, 0]);
    let prefix = if version == 1 { 10 } else { 12 };
    let len = (prefix + header.len() + 1).next_multiple_of(64) - prefix;
    match version {
        1 => bytes.extend((len as u16).to_le_bytes()),
        _ => bytes.extend((len as u32).to_le_bytes()),
    }
    bytes.extend(format!("{header:<width$}\n", width = len - 1).bytes());
    bytes.extend(data);
    bytes
}

fn plain(descr: &str, shape: &str, data: usize) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    file(1, &header, &vec![7; data])
}

fn kind(bytes: &[u8]) -> ErrorKind {
    parse(bytes).unwrap_err().kind()
}

#[test]
fn every_offered_type_is_known_by_its_numpy_name() {
    let types = [
        ("|b1", Dtype::Bool),
        ("|u1", Dtype::U8),
        ("<u2", Dtype::U16),
        ("<u4", Dtype::U32),
        ("<u8", Dtype::U64),
        ("|i1", Dtype::I8),
        ("<i2", Dtype::I16),
        ("<i4", Dtype::I32),
        ("<i8", Dtype::I64),
        ("<f2", Dtype::F16),
        ("<f4", Dtype::F32),
        ("<f8", Dtype::F64),
    ];
    for (descr, dtype) in types {
        let array = parse(&plain(descr, "(2, 3)", 6 * dtype.size())).unwrap();
        assert_eq!(array.spec, TensorSpec { dtype, shape: vec![2, 3] });
        assert_eq!(array.data.len(), array.spec.bytes());
        assert_eq!(array.data.start % 64, 0);
    }
}

#[test]
fn all_three_versions_and_odd_shapes_are_read() {
    let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (5,), }";
    for version in 1..=3 {
        assert_eq!(parse(&file(version, header, &[0; 20])).unwrap().spec.shape, [5]);
    }
    for (shape, expected) in
        [("()", vec![]), ("(5,)", vec![5]), ("(1, 5)", vec![1, 5]), ("(0, 9)", vec![0, 9])]
    {
        assert_eq!(parse(&plain("<f4", shape, 20)).unwrap().spec.shape, expected, "{shape}");
    }
    assert_eq!(parse(&plain("<i8", "(2L, 1L)", 16)).unwrap().spec.shape, [2, 1], "as Python 2 wrote it");
    let reordered = file(1, r#"{"shape":(2,),"fortran_order":False,"descr":"|u1"}"#, &[0; 2]);
    assert_eq!(parse(&reordered).unwrap().spec.shape, [2]);
}

#[test]
fn bytes_after_the_elements_are_ignored_and_missing_ones_are_corrupt() {
    let bytes = plain("<f4", "(2, 3)", 30);
    assert_eq!(parse(&bytes).unwrap().data.len(), 24);
    for len in 0..bytes.len() - 6 {
        assert_eq!(kind(&bytes[..len]), ErrorKind::Corrupt, "cut to {len}");
    }
}

#[test]
fn elements_are_copied_and_another_form_is_refused() {
    let header = "{'descr': '<u2', 'fortran_order': False, 'shape': (2, 1), }";
    let bytes = file(1, header, &[1, 2, 3, 4]);
    let tensor = decode(&bytes).unwrap();
    assert_eq!(tensor.data.as_slice(), [1, 2, 3, 4]);
    let mut row = [0; 4];
    decode_into(&bytes, &tensor.spec, &mut row).unwrap();
    assert_eq!(row, [1, 2, 3, 4]);
    let other = TensorSpec { dtype: Dtype::I16, shape: vec![2, 1] };
    let error = decode_into(&bytes, &other, &mut row).unwrap_err();
    assert_eq!(error.message(), "decode npy of u16 [2, 1]: the recipe says i16 [2, 1]");
}

#[test]
fn what_would_need_a_copy_or_a_pickle_is_unsupported_with_a_way_out() {
    for (bytes, way_out) in [
        (plain("|O", "(1,)", 99), "json"),
        (plain(">f4", "(1,)", 4), "newbyteorder"),
        (plain("<c8", "(1,)", 8), "floats"),
        (plain("<U3", "(1,)", 12), "floats"),
        (file(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2)}", &[0; 16]), "ascontiguousarray"),
        (file(1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", &[0; 4]), "field"),
    ] {
        let error = parse(&bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:?}");
        assert!(error.hint().is_some_and(|hint| hint.contains(way_out)), "{error:?}");
    }
    let line = file(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (1, 4)}", &[0; 16]);
    assert!(parse(&line).is_ok(), "one long axis lies the same way in both orders");
}

#[test]
fn p079_sizes_that_do_not_fit_in_memory_are_refused_without_wrapping() {
    for shape in
        ["(18446744073709551615,)", "(4294967296, 4294967296)", "(99999999999999999999999,)", "(-1,)"]
    {
        assert_eq!(kind(&plain("<f8", shape, 64)), ErrorKind::Corrupt, "{shape}");
    }
    assert_eq!(kind(&plain("<f8", "(18446744073709551615, 9, 0)", 64)), ErrorKind::Corrupt);
    let many = format!("({})", "1,".repeat(65));
    assert_eq!(kind(&plain("<f8", &many, 64)), ErrorKind::Corrupt);
    let mut huge_header = SIGNATURE.to_vec();
    huge_header.extend([2, 0, 0xff, 0xff, 0xff, 0xff]);
    assert_eq!(kind(&huge_header), ErrorKind::Unsupported);
}

#[test]
fn headers_that_say_too_little_or_too_much_are_corrupt() {
    for header in [
        "",
        "{",
        "{}",
        "[]",
        "{'descr': '<f4'}",
        "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': ()}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (), 'evil': 1}",
        "{'descr': '<f4', 'fortran_order': 0, 'shape': ()}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1 2)}",
        "{'descr': '<f4' 'fortran_order': False, 'shape': ()}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': ()} + exec('x')",
        "{'descr': 'f4', 'fortran_order': False, 'shape': ()}",
        "{'descr': '', 'fortran_order': False, 'shape': ()}",
        "{'descr': 'é', 'fortran_order': False, 'shape': ()}",
    ] {
        let error = parse(&file(1, header, &[0; 64])).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported), "{header}: {error:?}");
    }
}

proptest! {
    #[test]
    fn p079_no_header_makes_it_panic(version in 1u8..=4, header in ".{0,60}", data in prop::collection::vec(any::<u8>(), 0..9)) {
        if let Ok(array) = parse(&file(version, &header, &data)) {
            prop_assert_eq!(array.data.len(), array.spec.bytes());
        }
    }

    #[test]
    fn p079_no_flipped_byte_makes_it_panic_or_reach_outside(at in 0usize..134, to: u8) {
        let mut bytes = plain("<f4", "(2, 1)", 8);
        bytes[at] = to;
        if let Ok(array) = parse(&bytes) {
            prop_assert!(array.data.end <= bytes.len());
            prop_assert_eq!(array.data.len(), array.spec.bytes());
        }
    }
}
