//! Rows of a table, wherever reads cut it: ends do not depend on the cuts, cells are taken or refused.
#![no_main]

use bytes::Bytes;
use forebay_ops::record::csv::{self, Scanner};
use forebay_ops::record::{Column, Format, RecordSpec};
use libfuzzer_sys::fuzz_target;

fn ends(text: &[u8], separator: u8, piece: usize) -> Vec<usize> {
    let (mut scanner, mut ends, mut begin) = (Scanner::new(separator), Vec::new(), 0);
    for part in text.chunks(piece) {
        let mut at = 0;
        while let Some(end) = scanner.row_end(&part[at..]) {
            at += end;
            ends.push(begin + at);
        }
        begin += part.len();
    }
    ends
}

fuzz_target!(|bytes: &[u8]| {
    let Some((how, text)) = bytes.split_first() else { return };
    let (separator, format) = if how % 2 == 0 { (b',', Format::Csv) } else { (b'\t', Format::Tsv) };
    let whole = ends(text, separator, usize::MAX);
    assert_eq!(ends(text, separator, 1 + usize::from(how / 2)), whole);
    assert!(whole.iter().all(|end| text[end - 1] == b'\n'));
    let mut width = 0;
    for row in csv::rows(text, separator) {
        let Ok((line, cells)) = row else { break };
        assert!(line >= 1 && !cells.is_empty());
        width = width.max(cells.len());
    }
    // As many columns as the widest row has, of both kinds.
    let column = |at: usize| Column {
        name: at.to_string(),
        encoding: if at % 2 == 0 { csv::TEXT.into() } else { csv::FLOAT.into() },
        bytes: None,
    };
    let columns: Vec<Column> = (0..width.min(64)).map(column).collect();
    let fields = columns.iter().map(|column| column.name.clone()).collect();
    let spec = RecordSpec { format, fields, columns };
    let mut begin = 0;
    for end in whole {
        let row = csv::without_line_end(&text[begin..end]);
        let _ = spec.check(&Bytes::copy_from_slice(row));
        begin = end;
    }
});
