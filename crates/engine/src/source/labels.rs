//! Reads a file of labels, CSV or JSONL, into rows of text. What the columns mean is decided in `table`.

use super::options::extension;
use forebay_core::{Error, Result};
use forebay_ops::record::csv;

/// The largest file of labels that is read.
pub(super) const MAX_LABEL_BYTES: u64 = 1 << 30;

/// A value as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cell {
    Int(i64),
    Text(String),
    /// Empty in CSV; absent or null in JSONL.
    Missing,
    /// Something that is no label: a float, a list, an object.
    Other,
}

/// Column names, and rows with as many cells. Each row knows its line.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Rows {
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<(u64, Vec<Cell>)>,
}

/// Parses `bytes` by the ending of `name`.
pub(super) fn parse(name: &str, bytes: &[u8]) -> Result<Rows> {
    let doing = |error: Error| error.while_doing(format_args!("read labels `{name}`"));
    let text = std::str::from_utf8(bytes)
        .map_err(|e| doing(Error::corrupt(format!("byte {} is not UTF-8", e.valid_up_to()))))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    match extension(name).as_deref() {
        Some("jsonl" | "ndjson") => json_lines(text).map_err(doing),
        Some("csv") => separated(text, b',').map_err(doing),
        Some("tsv") => separated(text, b'\t').map_err(doing),
        _ => Err(doing(Error::unsupported("its name does not end in `.csv`, `.tsv` or `.jsonl`"))),
    }
}

fn json_lines(text: &str) -> Result<Rows> {
    let mut table = Rows::default();
    for (line, text) in (1..).zip(text.lines()).filter(|(_, text)| !text.trim().is_empty()) {
        let object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(text)
            .map_err(|e| Error::corrupt(format!("line {line} is not a JSON object")).with_source(e))?;
        let mut row = vec![Cell::Missing; table.columns.len()];
        for (column, value) in object {
            let cell = match value {
                serde_json::Value::Null => Cell::Missing,
                serde_json::Value::Bool(flag) => Cell::Int(flag.into()),
                serde_json::Value::Number(number) => number.as_i64().map_or(Cell::Other, Cell::Int),
                serde_json::Value::String(text) => Cell::Text(text),
                _ => Cell::Other,
            };
            if let Some(at) = table.columns.iter().position(|known| *known == column) {
                row[at] = cell;
            } else {
                table.columns.push(column);
                row.push(cell);
            }
        }
        table.rows.push((line, row));
    }
    let width = table.columns.len();
    table.rows.iter_mut().for_each(|(_, row)| row.resize(width, Cell::Missing));
    Ok(table)
}

/// The first row names the columns.
fn separated(text: &str, separator: u8) -> Result<Rows> {
    let mut records = csv::rows(text.as_bytes(), separator);
    let Some((_, header)) = records.next().transpose()? else {
        return Err(Error::corrupt("it is empty, and its first line must name the columns"));
    };
    let columns: Vec<String> =
        header.iter().map(|name| String::from_utf8_lossy(name).trim().to_string()).collect();
    let mut rows = Vec::new();
    for record in records {
        let (line, fields) = record?;
        if fields.len() != columns.len() {
            let (have, want) = (fields.len(), columns.len());
            return Err(Error::corrupt(format!("line {line} has {have} fields, the header has {want}")));
        }
        rows.push((line, fields.iter().map(|field| cell(&String::from_utf8_lossy(field))).collect()));
    }
    Ok(Rows { columns, rows })
}

fn cell(text: &str) -> Cell {
    match text.trim() {
        "" => Cell::Missing,
        trimmed => trimmed.parse().map_or_else(|_| Cell::Text(text.to_string()), Cell::Int),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(text: &str) -> Cell {
        Cell::Text(text.into())
    }

    #[test]
    fn csv_quotes_hold_separators_quotes_and_line_ends() {
        let rows = parse(
            "l.csv",
            "\u{feff}file,label\r\n\"a,\"\"b\"\".jpg\",cat\r\n\"c\nd.jpg\", 7 \n\ne.jpg,\n".as_bytes(),
        );
        let rows = rows.unwrap();
        assert_eq!(rows.columns, ["file", "label"]);
        let wanted = [
            (2, vec![text("a,\"b\".jpg"), text("cat")]),
            (3, vec![text("c\nd.jpg"), Cell::Int(7)]),
            (6, vec![text("e.jpg"), Cell::Missing]),
        ];
        assert_eq!(rows.rows, wanted);
    }

    #[test]
    fn jsonl_rows_may_lack_columns() {
        let rows =
            parse("l.jsonl", b"{\"file\":\"a\",\"y\":1}\n\n{\"z\":true,\"file\":\"b\",\"y\":1.5}\n").unwrap();
        assert_eq!(rows.columns, ["file", "y", "z"]);
        assert_eq!(rows.rows[0].1, [text("a"), Cell::Int(1), Cell::Missing]);
        assert_eq!(rows.rows[1], (3, vec![text("b"), Cell::Other, Cell::Int(1)]));
    }

    #[test]
    fn faults_name_file_and_line() {
        for (name, bytes, wanted) in [
            ("l.csv", &b"file,label\na\n"[..], "line 2 has 1 fields"),
            ("l.csv", b"file,label\n\"a,1\n", "line 2: column 1: the quote around it is never closed"),
            ("l.csv", b"file\n\"a\"b\n", "line 2: column 1: text follows its closing quote"),
            ("l.csv", b"", "it is empty"),
            ("l.csv", b"file\n\xff\n", "byte 5 is not UTF-8"),
            ("l.jsonl", b"{}\n[1]\n", "line 2 is not a JSON object"),
            ("l.xlsx", b"", "does not end in"),
        ] {
            let error = parse(name, bytes).unwrap_err();
            assert!(error.to_string().contains(wanted) && error.to_string().contains(name), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_rows_or_an_error(text in "[a,\"\n\r\\{\\}:1]{0,60}") {
            let _ = parse("l.csv", text.as_bytes());
            let _ = parse("l.jsonl", text.as_bytes());
        }

        #[test]
        fn what_is_quoted_reads_back(cells in proptest::collection::vec("[a-c,\"\n é]{1,8}x", 1..5)) {
            let quoted: Vec<String> = cells.iter().map(|c| format!("\"{}\"", c.replace('"', "\"\""))).collect();
            let header: Vec<String> = (0..cells.len()).map(|i| format!("c{i}")).collect();
            let rows = parse("l.csv", format!("{}\n{}\n", header.join(","), quoted.join(",")).as_bytes()).unwrap();
            let wanted: Vec<Cell> = cells.iter().map(|c| text(c)).collect();
            prop_assert_eq!(&rows.rows[0].1, &wanted);
        }
    }
}
