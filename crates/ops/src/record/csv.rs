//! A row of separated values, CSV or TSV: its cells are the fields, and the columns say which is which.
//!
//! RFC 4180 with line ends of either kind: quotes around a cell that holds separators, quotes (doubled) or line ends. A
//! quote inside of a cell that does not begin with one is a character like any other. [`Scanner`] finds where rows end
//! without looking at more of a file than was read, [`cells`] takes one row apart and refuses what is broken.

use super::Column;
use super::value::Taken;
use bytes::Bytes;
use forebay_core::{Error, Result};
use std::borrow::Cow;

/// The name of a manifest's field that holds such records.
pub const FIELD: &str = "@csv";

/// The encoding of a column whose cells are text.
pub const TEXT: &str = "text";

/// The encoding of a column whose cells are numbers.
pub const FLOAT: &str = "float";

/// The encoding of a column that the manifest holds by itself: integers, classes, names of files.
pub const IN_MANIFEST: &str = "manifest";

/// The longest cell that is taken.
pub const MAX_CELL_BYTES: usize = 16 << 20;

/// Finds the ends of rows in a file that is read in pieces.
#[derive(Clone, Debug)]
pub struct Scanner {
    separator: u8,
    state: State,
    /// The line that the next byte is on, and the one that the open quote is on.
    line: u64,
    quote_line: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// At the begin of a cell.
    Begin,
    Plain,
    Quoted,
    /// Behind a quote inside of a quoted cell: it closes the cell, or stands for one.
    Closed,
}

impl Scanner {
    /// At the begin of a file, on line 1.
    pub fn new(separator: u8) -> Self {
        Self { separator, state: State::Begin, line: 1, quote_line: 0 }
    }

    /// Goes on over `bytes`, which follow those of the last call: the place behind the line end of the open row, or nothing
    /// when it goes on behind them.
    pub fn row_end(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            match self.state {
                State::Begin if rest[0] == b'"' => {
                    (self.state, self.quote_line) = (State::Quoted, self.line);
                    at += 1;
                }
                State::Closed if rest[0] == b'"' => {
                    self.state = State::Quoted;
                    at += 1;
                }
                State::Begin | State::Closed => self.state = State::Plain,
                State::Plain => {
                    at += rest.iter().position(|byte| *byte == self.separator || *byte == b'\n')? + 1;
                    self.state = State::Begin;
                    if bytes[at - 1] == b'\n' {
                        self.line += 1;
                        return Some(at);
                    }
                }
                State::Quoted => {
                    at += rest.iter().position(|byte| matches!(byte, b'"' | b'\n'))? + 1;
                    if bytes[at - 1] == b'"' {
                        self.state = State::Closed;
                    } else {
                        self.line += 1;
                    }
                }
            }
        }
        None
    }

    /// The line that the next byte is on, counted from 1.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// At the end of the file: the line of a quote that nothing closes.
    pub fn open_quote(&self) -> Option<u64> {
        (self.state == State::Quoted).then_some(self.quote_line)
    }
}

/// A row without its line end.
pub fn without_line_end(row: &[u8]) -> &[u8] {
    let row = row.strip_suffix(b"\n").unwrap_or(row);
    row.strip_suffix(b"\r").unwrap_or(row)
}

/// The cells of a row that has no line end any more. Errors name the column by its number, counted from 1.
pub fn cells(row: &[u8], separator: u8) -> Result<Vec<Cow<'_, [u8]>>> {
    let (mut cells, mut rest) = (Vec::new(), row);
    loop {
        let broken = |why: &str| Error::corrupt(format!("column {}: {why}", cells.len() + 1));
        let (cell, left) = if let Some(inside) = rest.strip_prefix(b"\"") {
            quoted(inside).ok_or_else(|| broken("the quote around it is never closed"))?
        } else {
            let end = rest.iter().position(|byte| *byte == separator).unwrap_or(rest.len());
            (Cow::Borrowed(&rest[..end]), &rest[end..])
        };
        if cell.len() > MAX_CELL_BYTES {
            let why = format!("column {}: it has {} bytes", cells.len() + 1, cell.len());
            return Err(Error::exhausted(format!("{why}, at most {MAX_CELL_BYTES} are read")));
        }
        match left.split_first() {
            None => {
                cells.push(cell);
                return Ok(cells);
            }
            Some((first, after)) if *first == separator => {
                cells.push(cell);
                rest = after;
            }
            Some(_) => return Err(broken("text follows its closing quote")),
        }
    }
}

/// What a quote that is open encloses, and what follows it.
fn quoted(inside: &[u8]) -> Option<(Cow<'_, [u8]>, &[u8])> {
    let mut cell = Cow::Borrowed(&inside[..0]);
    let mut from = 0;
    loop {
        let quote = from + inside[from..].iter().position(|byte| *byte == b'"')?;
        let doubled = inside.get(quote + 1) == Some(&b'"');
        let part = &inside[from..quote + usize::from(doubled)];
        match &mut cell {
            Cow::Borrowed([]) => cell = Cow::Borrowed(part),
            known => known.to_mut().extend_from_slice(part),
        }
        if !doubled {
            return Some((cell, &inside[quote + 1..]));
        }
        from = quote + 2;
    }
}

/// Every row of a text that is in memory, with its line. Blank lines are no rows. Ends at the first fault, which names its
/// line.
pub fn rows(text: &[u8], separator: u8) -> impl Iterator<Item = Result<(u64, Vec<Cow<'_, [u8]>>)>> {
    let (mut rest, mut scanner) = (text, Scanner::new(separator));
    std::iter::from_fn(move || {
        while !rest.is_empty() {
            let line = scanner.line();
            let end = scanner.row_end(rest).unwrap_or(rest.len());
            let (row, after) = rest.split_at(end);
            rest = after;
            let row = without_line_end(row);
            if row.is_empty() {
                continue;
            }
            let cells = cells(row, separator).map_err(|error| error.while_doing(on_line(line)));
            if cells.is_err() {
                rest = &[];
            }
            return Some(cells.map(|cells| (line, cells)));
        }
        None
    })
}

/// How faults name a row.
pub fn on_line(line: u64) -> String {
    format!("line {line}")
}

pub(super) fn take(row: &Bytes, columns: &[Column], names: &[&str], separator: u8) -> Result<Vec<Taken>> {
    let cells = cells(row, separator)?;
    if cells.len() != columns.len() {
        let (have, want) = (cells.len(), columns.len());
        return Err(Error::corrupt(format!("the row has {have} cells, the header has {want}")));
    }
    let one = |name: &&str| match columns.iter().position(|column| column.name == *name) {
        None => Ok(Taken::Missing),
        Some(at) => value(&columns[at].encoding, cells[at].clone(), row)
            .map_err(|error| error.while_doing(format_args!("take column `{name}`"))),
    };
    names.iter().map(one).collect()
}

/// An empty cell is a missing field.
fn value(encoding: &str, cell: Cow<'_, [u8]>, row: &Bytes) -> Result<Taken> {
    match (encoding, cell) {
        (_, cell) if cell.is_empty() => Ok(Taken::Missing),
        (TEXT, Cow::Borrowed(cell)) => Ok(Taken::Bytes(row.slice_ref(cell))),
        (TEXT, Cow::Owned(cell)) => Ok(Taken::Bytes(cell.into())),
        (FLOAT, cell) if cell.trim_ascii().is_empty() => Ok(Taken::Missing),
        (FLOAT, cell) => {
            number(&cell).map(Taken::Float).ok_or_else(|| Error::corrupt("its cell is not a number"))
        }
        (other, _) => Err(super::columns::refused(other)),
    }
}

/// The number that a cell is. Digits with a zero before them are none: they are a code, and would not read back.
pub fn number(cell: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(cell.trim_ascii()).ok()?;
    let digits = text.trim_start_matches(['+', '-']);
    let code = digits.starts_with('0') && digits.as_bytes().get(1).is_some_and(u8::is_ascii_digit);
    (!code).then(|| text.parse().ok()).flatten()
}

/// The integer that a cell is: written as integers are, so that it reads back as it was.
pub fn integer(cell: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(cell.trim_ascii()).ok()?;
    let digits = text.strip_prefix('-').unwrap_or(text);
    let plain = digits == "0" || digits.starts_with(|first: char| matches!(first, '1'..='9'));
    // The least of all stands for a missing integer in manifests.
    (plain && text != "-0").then(|| text.parse().ok()).flatten().filter(|value| *value != i64::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(cells: &[Cow<'_, [u8]>]) -> Vec<String> {
        cells.iter().map(|cell| String::from_utf8_lossy(cell).into_owned()).collect()
    }

    /// A writer that knows nothing but the rule: everything in quotes.
    fn written(table: &[Vec<String>], separator: char, end: &str) -> String {
        let cell = |cell: &String| format!("\"{}\"", cell.replace('"', "\"\""));
        let row = |row: &Vec<String>| row.iter().map(cell).collect::<Vec<_>>().join(&separator.to_string());
        table.iter().map(|cells| row(cells) + end).collect()
    }

    #[test]
    fn numbers_are_what_reads_back_as_it_was_written() {
        for (cell, whole, float) in [
            ("7", Some(7), Some(7.0)),
            (" -12 ", Some(-12), Some(-12.0)),
            ("0", Some(0), Some(0.0)),
            ("007", None, None),
            ("-0", None, Some(-0.0)),
            ("+5", None, Some(5.0)),
            ("1e3", None, Some(1000.0)),
            ("0.5", None, Some(0.5)),
            ("9223372036854775808", None, Some(9_223_372_036_854_775_808.0)),
            ("-9223372036854775808", None, Some(-9_223_372_036_854_775_808.0)),
            ("", None, None),
            ("cat", None, None),
        ] {
            assert_eq!((integer(cell.as_bytes()), number(cell.as_bytes())), (whole, float), "{cell}");
        }
    }

    #[test]
    fn broken_rows_name_their_column() {
        for (row, wanted) in
            [("a,\"b", "column 2: the quote"), ("\"a\"b,c", "column 1: text follows"), ("x,\"", "column 2")]
        {
            let error = cells(row.as_bytes(), b',').unwrap_err();
            assert!(error.to_string().contains(wanted), "{error}");
        }
        assert_eq!(text(&cells(b"5\" nail,\"\",", b',').unwrap()), ["5\" nail", "", ""]);
    }

    #[test]
    fn a_row_gives_text_numbers_and_nothing() {
        let columns = [("a", TEXT), ("b", FLOAT), ("c", IN_MANIFEST), ("d", TEXT)]
            .map(|(name, encoding)| Column { name: name.into(), encoding: encoding.into(), bytes: None });
        let row = Bytes::from_static(b"x \"y\",1.5,7,\"p\"\"q\"");
        let taken = take(&row, &columns, &["d", "b", "a"], b',').unwrap();
        assert_eq!(taken, [Taken::Bytes("p\"q".into()), Taken::Float(1.5), Taken::Bytes("x \"y\"".into())]);
        assert_eq!(
            take(&Bytes::from_static(b",,,"), &columns, &["a", "b"], b',').unwrap(),
            [Taken::Missing, Taken::Missing]
        );
        assert!(take(&Bytes::from_static(b"a,b"), &columns, &["a"], b',').is_err());
        assert!(take(&Bytes::from_static(b"a,b,1,c"), &columns, &["b"], b',').is_err());
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back_however_the_file_is_cut(
            table in (1usize..4).prop_flat_map(|width| proptest::collection::vec(proptest::collection::vec("[a,;\"\r\n\té ]{0,6}", width), 1..6)),
            crlf: bool,
            tabs: bool,
            last_end: bool,
            cuts in proptest::collection::vec(0usize..120, 0..6),
        ) {
            let separator = if tabs { '\t' } else { ',' };
            let mut file = written(&table, separator, if crlf { "\r\n" } else { "\n" });
            if !last_end {
                file.truncate(file.trim_end_matches(['\r', '\n']).len());
            }
            let found: Vec<Vec<String>> =
                rows(file.as_bytes(), separator as u8).map(|row| text(&row.unwrap().1)).collect();
            prop_assert_eq!(&found, &table);
            // The ends of rows do not depend on how the file is cut.
            let whole = ends(file.as_bytes(), separator as u8, &[]);
            prop_assert_eq!(ends(file.as_bytes(), separator as u8, &cuts), whole);
        }

        #[test]
        fn any_bytes_are_rows_or_an_error(bytes in proptest::collection::vec(proptest::sample::select(b"a,\"\r\n\xff".to_vec()), 0..40)) {
            for (line, cells) in rows(&bytes, b',').flatten() {
                prop_assert!(line >= 1 && !cells.is_empty());
            }
        }
    }

    fn ends(file: &[u8], separator: u8, cuts: &[usize]) -> (Vec<usize>, u64, Option<u64>) {
        let mut cuts: Vec<usize> =
            cuts.iter().copied().filter(|cut| *cut < file.len()).chain([file.len()]).collect();
        cuts.sort_unstable();
        let (mut scanner, mut ends, mut at) = (Scanner::new(separator), Vec::new(), 0);
        for cut in cuts {
            while let Some(end) = scanner.row_end(&file[at..cut]) {
                at += end;
                ends.push(at);
            }
            at = cut;
        }
        (ends, scanner.line(), scanner.open_quote())
    }
}
