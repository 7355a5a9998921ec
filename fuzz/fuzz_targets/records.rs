//! Records of every format: fields are taken or refused. The first byte says which format the others are read as.
#![no_main]

use bytes::Bytes;
use forebay_ops::record::{Column, Format, RecordSpec, tfrecord};
use libfuzzer_sys::fuzz_target;

/// Encodings of the formats whose records are columns.
const ENCODINGS: [(Format, &[&str]); 2] = [
    (Format::Mds, &["ndarray", "ndarray:int16", "ndarray:int16:2,3", "pil", "json", "uint64", "str_int", "str_float"]),
    (Format::Litdata, &["numpy", "tensor", "no_header_numpy:2", "no_header_tensor:14", "pil", "bool", "json", "float"]),
];

fuzz_target!(|bytes: &[u8]| {
    let Some((which, record)) = bytes.split_first() else { return };
    let formats = [Format::Tfrecord, Format::JsonLine, Format::ZipMember, Format::Recordio];
    if let Some(encodings) = ENCODINGS.get(usize::from(*which).wrapping_sub(formats.len())) {
        let columns = encodings.1.iter().map(|encoding| Column {
            name: (*encoding).into(),
            encoding: (*encoding).into(),
            bytes: None,
        });
        let _ = RecordSpec::of_columns(encodings.0, columns.collect()).check(&Bytes::copy_from_slice(record));
        // One column alone takes all bytes.
        for encoding in encodings.1 {
            let (name, bytes) = (String::from("a"), Some(record.len() as u32));
            let column = Column { name, encoding: (*encoding).into(), bytes };
            let _ = RecordSpec::of_columns(encodings.0, vec![column]).check(&Bytes::copy_from_slice(record));
        }
        return;
    }
    let format = formats[usize::from(*which) % formats.len()];
    let fields = ["a", "b", "id", "image", "label", "record"].map(String::from).to_vec();
    let _ = RecordSpec::new(format, fields).check(&Bytes::copy_from_slice(record));
    // Behind right checksums, what is inside is read too.
    let mut framed = Vec::new();
    tfrecord::frame(&mut framed, record);
    let framed = Bytes::from(framed);
    if let Ok(fields) = tfrecord::names(&framed) {
        let _ = RecordSpec::new(Format::Tfrecord, fields).check(&framed);
    }
});
