//! The columns of a Parquet file: what the tree of its schema has at its ends.
//!
//! A column is named by its way through the tree, joined by dots, without the parts that only say *list*. A struct of
//! `bytes` and `path`, as Hugging Face's `datasets` writes images and sounds, is a field of its own name, and `name.path`.

use super::thrift::{Reader, STRUCT};
use crate::record::MAX_FIELDS;
use forebay_core::tensor::Dtype;
use forebay_core::{Error, Result};
use serde::{Deserialize, Serialize};

/// Deepest nesting of columns.
const MAX_DEPTH: usize = 32;

/// Most parts of a schema.
const MAX_ELEMENTS: usize = 1 << 16;

/// How the values of a column are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stored {
    /// One bit each.
    Boolean,
    /// Four bytes.
    Int32,
    /// Eight bytes.
    Int64,
    /// Twelve bytes: a time in a form that nobody should write any more.
    Int96,
    /// Four bytes.
    Float,
    /// Eight bytes.
    Double,
    /// Any length.
    Bytes,
    /// The same length each.
    Fixed(u32),
}

/// What the values of a column mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Meaning {
    /// Integers that fit 64 bits with a sign; truth values are 0 and 1, dates and times count from 1970.
    Int,
    /// Integers of 32 bits without a sign.
    Unsigned,
    /// Integers of 64 bits without a sign.
    Wide,
    /// Numbers of 16, 32 or 64 bits.
    Float,
    /// Numbers with so many decimals.
    Decimal(u32),
    /// Text.
    Text,
    /// Bytes.
    Bytes,
}

/// A column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Leaf {
    /// The field that it is.
    pub name: String,
    /// How its values are stored.
    pub stored: Stored,
    /// What they mean.
    pub meaning: Meaning,
    /// The definition level of a value that is there.
    pub defined: u8,
    /// For each list around the value, the definition level from which on it has an element.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lists: Vec<u8>,
}

impl Leaf {
    /// The element type of its numbers; `None` for text and bytes.
    pub fn dtype(&self) -> Option<Dtype> {
        Some(match (self.meaning, self.stored) {
            (Meaning::Int, Stored::Boolean) => Dtype::U8,
            (Meaning::Int, Stored::Int32) => Dtype::I32,
            (Meaning::Int, _) => Dtype::I64,
            (Meaning::Unsigned, _) => Dtype::U32,
            (Meaning::Wide, _) => Dtype::U64,
            (Meaning::Float, Stored::Fixed(_)) => Dtype::F16,
            (Meaning::Float, Stored::Float) => Dtype::F32,
            (Meaning::Float, _) => Dtype::F64,
            _ => return None,
        })
    }

    /// Whether its values are integers that a manifest can hold.
    pub fn is_int(&self) -> bool {
        self.lists.is_empty() && matches!(self.meaning, Meaning::Int | Meaning::Unsigned)
    }

    /// Why its values are not offered; `None` for most.
    pub fn refusal(&self) -> Option<String> {
        let why = match (self.stored, self.meaning) {
            (Stored::Int96, _) => "it holds times of 96 bits, which were given up long ago",
            (Stored::Fixed(17..), Meaning::Decimal(_)) => "its decimals are longer than 16 bytes",
            (_, Meaning::Bytes) if !self.lists.is_empty() => "it holds lists of bytes",
            _ => return None,
        };
        Some(why.to_owned())
    }

    /// How its records are told in a manifest; `None` when values need no record.
    pub fn encoding(&self) -> Option<String> {
        match (self.lists.is_empty(), self.dtype()) {
            (true, _) if self.is_int() => None,
            (true, dtype) => dtype.map(|dtype| dtype.name().to_owned()),
            (false, Some(dtype)) => Some(format!("list:{}", dtype.name())),
            (false, None) => Some("list:json".to_owned()),
        }
    }
}

/// One part of a schema, which stands in a list in the order of a walk.
#[derive(Debug, Default)]
pub(super) struct Element {
    name: String,
    stored: Option<i64>,
    length: i64,
    repetition: i64,
    children: usize,
    converted: Option<i64>,
    scale: i64,
    logical: Option<(i64, bool)>,
}

impl Element {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let mut found = Self::default();
        reader.fields(|reader, number, kind| {
            match (number, kind) {
                (1, _) => found.stored = Some(reader.int()?),
                (2, _) => found.length = reader.int()?,
                (3, _) => found.repetition = reader.int()?,
                (4, _) => found.name = reader.text()?,
                (5, _) => found.children = usize::try_from(reader.count()?).unwrap_or(usize::MAX),
                (6, _) => found.converted = Some(reader.int()?),
                (7, _) => found.scale = reader.int()?,
                (10, STRUCT) => found.logical(reader)?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(found)
    }

    fn logical(&mut self, reader: &mut Reader<'_>) -> Result<()> {
        reader.fields(|reader, number, kind| {
            if kind != STRUCT {
                return Ok(false);
            }
            let mut signed = true;
            reader.fields(|reader, inner, kind| {
                match (number, inner) {
                    (5, 1) => self.scale = reader.int()?,
                    (10, 2) => {
                        signed = kind == super::thrift::TRUE;
                        return Ok(matches!(kind, super::thrift::TRUE | super::thrift::FALSE));
                    }
                    _ => return Ok(false),
                }
                Ok(true)
            })?;
            self.logical = Some((number, signed));
            Ok(true)
        })
    }

    fn is_list(&self) -> bool {
        self.converted == Some(3) || matches!(self.logical, Some((3, _)))
    }

    fn is_map(&self) -> bool {
        matches!(self.converted, Some(1 | 2)) || matches!(self.logical, Some((2, _)))
    }

    fn stored(&self) -> Result<Stored> {
        Ok(match self.stored {
            Some(0) => Stored::Boolean,
            Some(1) => Stored::Int32,
            Some(2) => Stored::Int64,
            Some(3) => Stored::Int96,
            Some(4) => Stored::Float,
            Some(5) => Stored::Double,
            Some(6) => Stored::Bytes,
            Some(7) => {
                Stored::Fixed(u32::try_from(self.length).ok().filter(|length| *length > 0).ok_or_else(
                    || Error::corrupt(format!("column `{}` has values without length", self.name)),
                )?)
            }
            other => return Err(Error::corrupt(format!("column `{}` has type {other:?}", self.name))),
        })
    }

    fn meaning(&self, stored: Stored) -> Meaning {
        let decimal = self.converted == Some(5) || matches!(self.logical, Some((5, _)));
        let text =
            matches!(self.converted, Some(0 | 4 | 19)) || matches!(self.logical, Some((1 | 4 | 12, _)));
        let unsigned = matches!(self.converted, Some(11..=14)) || matches!(self.logical, Some((10, false)));
        match stored {
            _ if decimal => Meaning::Decimal(u32::try_from(self.scale).unwrap_or(0).min(64)),
            Stored::Int32 if unsigned => Meaning::Unsigned,
            Stored::Int64 if unsigned => Meaning::Wide,
            Stored::Boolean | Stored::Int32 | Stored::Int64 | Stored::Int96 => Meaning::Int,
            Stored::Float | Stored::Double => Meaning::Float,
            Stored::Fixed(2) if matches!(self.logical, Some((15, _))) => Meaning::Float,
            Stored::Bytes if text => Meaning::Text,
            Stored::Bytes | Stored::Fixed(_) => Meaning::Bytes,
        }
    }
}

/// The ends of a schema's tree.
pub(super) fn leaves(elements: &[Element]) -> Result<Vec<Leaf>> {
    if elements.len() > MAX_ELEMENTS {
        return Err(Error::exhausted(format!("its schema has more than {MAX_ELEMENTS} parts")));
    }
    let mut walk = Walk { elements, at: 0, leaves: Vec::new() };
    let root = walk.next()?;
    for _ in 0..root.children {
        walk.part(&Way::default(), false)?;
    }
    Ok(walk.leaves)
}

/// How a part was reached.
#[derive(Clone, Default)]
struct Way {
    name: String,
    defined: u8,
    lists: Vec<u8>,
    depth: usize,
}

struct Walk<'a> {
    elements: &'a [Element],
    at: usize,
    leaves: Vec<Leaf>,
}

impl<'a> Walk<'a> {
    fn next(&mut self) -> Result<&'a Element> {
        let found = self.elements.get(self.at).ok_or_else(|| Error::corrupt("its schema is cut off"))?;
        self.at += 1;
        Ok(found)
    }

    /// One part and what is below; `nameless` when its name only says that it is a list's.
    fn part(&mut self, above: &Way, nameless: bool) -> Result<()> {
        let element = self.next()?;
        let mut way = above.clone();
        way.depth += 1;
        if way.depth > MAX_DEPTH {
            return Err(Error::exhausted(format!("its columns are nested deeper than {MAX_DEPTH}")));
        }
        if !nameless {
            if !way.name.is_empty() {
                way.name.push('.');
            }
            way.name.push_str(&element.name);
        }
        way.defined += u8::from(element.repetition != 0);
        if element.repetition == 2 {
            way.lists.push(way.defined);
        }
        if element.children == 0 {
            return self.leaf(element, way);
        }
        let folded = self.is_payload_struct(element);
        let first = self.leaves.len();
        for _ in 0..element.children {
            let below = self.elements.get(self.at);
            let is_list =
                below.is_some_and(|below| below.repetition == 2) && (element.is_list() || element.is_map());
            // `list.element`: the part that repeats has one child, which is what the list is of.
            let of_list = element.repetition == 2 && nameless && element.children == 1;
            self.part(&way, is_list || of_list)?;
        }
        if folded {
            for leaf in
                self.leaves.iter_mut().skip(first).filter(|leaf| leaf.name == format!("{}.bytes", way.name))
            {
                leaf.name.clone_from(&way.name);
            }
        }
        Ok(())
    }

    /// Whether a struct is a payload with the path that it came from.
    fn is_payload_struct(&self, element: &Element) -> bool {
        let children =
            self.elements.get(self.at..self.at.saturating_add(element.children)).unwrap_or_default();
        let plain = |child: &Element| {
            child.children == 0 && child.stored == Some(6) && matches!(child.name.as_str(), "bytes" | "path")
        };
        children.iter().all(plain) && children.iter().any(|child| child.name == "bytes")
    }

    fn leaf(&mut self, element: &Element, way: Way) -> Result<()> {
        if self.leaves.len() == MAX_FIELDS {
            return Err(Error::exhausted(format!("it has more than {MAX_FIELDS} columns")));
        }
        let stored = element.stored()?;
        let meaning = element.meaning(stored);
        self.leaves.push(Leaf { name: way.name, stored, meaning, defined: way.defined, lists: way.lists });
        Ok(())
    }
}
