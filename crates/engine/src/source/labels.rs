//! Reads a file of labels, CSV or JSONL, into rows of text. What the columns mean is decided in `table`.

use super::options::extension;
use forebay_core::{Error, Result};

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
        Some("csv") => separated(text, ',').map_err(doing),
        Some("tsv") => separated(text, '\t').map_err(doing),
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

/// RFC 4180: quotes around fields that hold separators, quotes (doubled) or line ends.
fn separated(text: &str, separator: char) -> Result<Rows> {
    let mut records = Records { text, separator, line: 1 };
    let Some((_, header)) = records.next().transpose()? else {
        return Err(Error::corrupt("it is empty, and its first line must name the columns"));
    };
    let columns: Vec<String> = header.into_iter().map(|name| name.trim().to_string()).collect();
    let mut rows = Vec::new();
    for record in records {
        let (line, fields) = record?;
        if fields.len() != columns.len() {
            let (have, want) = (fields.len(), columns.len());
            return Err(Error::corrupt(format!("line {line} has {have} fields, the header has {want}")));
        }
        rows.push((line, fields.iter().map(|field| cell(field)).collect()));
    }
    Ok(Rows { columns, rows })
}

fn cell(text: &str) -> Cell {
    match text.trim() {
        "" => Cell::Missing,
        trimmed => trimmed.parse().map_or_else(|_| Cell::Text(text.to_string()), Cell::Int),
    }
}

struct Records<'a> {
    text: &'a str,
    separator: char,
    line: u64,
}

impl Iterator for Records<'_> {
    type Item = Result<(u64, Vec<String>)>;

    fn next(&mut self) -> Option<Self::Item> {
        // Blank lines, often the last one, are no records.
        while let Some(rest) = self.text.strip_prefix("\r\n").or_else(|| self.text.strip_prefix('\n')) {
            self.text = rest;
            self.line += 1;
        }
        if self.text.is_empty() {
            return None;
        }
        let start = self.line;
        let mut fields = Vec::new();
        loop {
            let field = if self.text.starts_with('"') { self.quoted() } else { Ok(self.plain()) };
            match field {
                Ok(field) => fields.push(field),
                Err(error) => {
                    self.text = "";
                    return Some(Err(error));
                }
            }
            if let Some(rest) = self.text.strip_prefix(self.separator) {
                self.text = rest;
                continue;
            }
            self.text = self.text.strip_prefix("\r\n").or_else(|| self.text.strip_prefix('\n')).unwrap_or("");
            self.line += 1;
            return Some(Ok((start, fields)));
        }
    }
}

impl Records<'_> {
    fn plain(&mut self) -> String {
        let end = self.text.find([self.separator, '\n']).unwrap_or(self.text.len());
        let mut field = &self.text[..end];
        self.text = &self.text[end..];
        if field.ends_with('\r') && !self.text.starts_with(self.separator) {
            field = &field[..field.len() - 1];
        }
        field.to_string()
    }

    fn quoted(&mut self) -> Result<String> {
        let start = self.line;
        let mut field = String::new();
        self.text = &self.text[1..];
        loop {
            let Some(quote) = self.text.find('"') else {
                return Err(Error::corrupt(format!("the quote opened on line {start} is never closed")));
            };
            let part = &self.text[..quote];
            self.line += part.matches('\n').count() as u64;
            field.push_str(part);
            self.text = &self.text[quote + 1..];
            match self.text.strip_prefix('"') {
                Some(rest) => {
                    field.push('"');
                    self.text = rest;
                }
                None if self.text.is_empty() || self.text.starts_with([self.separator, '\n', '\r']) => {
                    return Ok(field);
                }
                None => {
                    return Err(Error::corrupt(format!(
                        "text follows a closing quote on line {}",
                        self.line
                    )));
                }
            }
        }
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
            ("l.csv", b"file,label\n\"a,1\n", "opened on line 2"),
            ("l.csv", b"file\n\"a\"b\n", "closing quote on line 2"),
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
