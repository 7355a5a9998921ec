//! Braces of a shard spec: ranges and lists, expanded in the order of bash.
//!
//! Braces are matched in one pass, parsed into a small tree whose nodes know how many names they stand for, and name
//! `i` is then written by taking the digits of `i` apart. So limits are checked before a name is made, and neither
//! time nor memory exceeds what the names themselves need.

use super::{MAX_NESTING, Token};
use crate::{Error, Result};
use std::collections::HashMap;
use std::ops::Range;

/// Which brace closes which, and the commas that belong to each pair.
pub(super) struct Braces {
    pairs: HashMap<usize, Pair>,
}

struct Pair {
    close: usize,
    commas: Vec<usize>,
}

impl Braces {
    /// Matches braces. An opening or closing brace without a partner stands for itself.
    pub(super) fn find(tokens: &[Token]) -> Self {
        let mut pairs = HashMap::new();
        let mut open: Vec<(usize, Vec<usize>)> = Vec::new();
        for (at, token) in tokens.iter().enumerate() {
            if token.is('{') {
                open.push((at, Vec::new()));
            } else if token.is(',') {
                if let Some((_, commas)) = open.last_mut() {
                    commas.push(at);
                }
            } else if token.is('}')
                && let Some((start, commas)) = open.pop()
            {
                pairs.insert(start, Pair { close: at, commas });
            }
        }
        Self { pairs }
    }

    /// The partner of the brace that opens at `at`.
    pub(super) fn close_of(&self, at: usize) -> Option<usize> {
        self.pairs.get(&at).map(|pair| pair.close)
    }

    /// Parses a run of tokens.
    pub(super) fn parse(&self, tokens: &[Token], range: Range<usize>) -> Result<Sequence> {
        self.parse_nested(tokens, range, 0)
    }

    fn parse_nested(&self, tokens: &[Token], range: Range<usize>, depth: usize) -> Result<Sequence> {
        let mut sequence = Sequence::default();
        let mut at = range.start;
        while at < range.end {
            let choice = match self.pairs.get(&at) {
                Some(pair) if pair.commas.is_empty() => {
                    Steps::parse(&tokens[at + 1..pair.close])?.map(Node::Steps)
                }
                Some(pair) => Some(self.parse_list(tokens, at, pair, depth)?),
                None => None,
            };
            if let Some(node) = choice {
                sequence.push(node);
                at = self.close_of(at).unwrap_or(at) + 1;
            } else {
                // A brace that holds neither list nor range stands for itself, as in bash.
                sequence.push_literal(tokens[at]);
                at += 1;
            }
        }
        Ok(sequence)
    }

    fn parse_list(&self, tokens: &[Token], open: usize, pair: &Pair, depth: usize) -> Result<Node> {
        if depth == MAX_NESTING {
            return Err(Error::exhausted(format!("its braces are nested more than {MAX_NESTING} deep")));
        }
        let mut alternatives = Vec::with_capacity(pair.commas.len() + 1);
        let mut ends = Vec::with_capacity(pair.commas.len() + 1);
        let (mut start, mut count) = (open + 1, 0u64);
        for end in pair.commas.iter().copied().chain([pair.close]) {
            let alternative = self.parse_nested(tokens, start..end, depth + 1)?;
            count = count.saturating_add(alternative.count());
            alternatives.push(alternative);
            ends.push(count);
            start = end + 1;
        }
        Ok(Node::List { alternatives, ends })
    }
}

/// Nodes whose texts follow each other.
#[derive(Debug, Default)]
pub(super) struct Sequence {
    nodes: Vec<Node>,
}

#[derive(Debug)]
enum Node {
    Literal(String),
    /// Alternatives, and how many names stand in each and all before it.
    List {
        alternatives: Vec<Sequence>,
        ends: Vec<u64>,
    },
    Steps(Steps),
}

impl Sequence {
    /// Names this stands for; the largest number when there are more.
    pub(super) fn count(&self) -> u64 {
        self.nodes.iter().map(Node::count).fold(1, u64::saturating_mul)
    }

    /// Bytes of all names together, or somewhat more; the largest number when there are more.
    pub(super) fn bytes(&self) -> u64 {
        let names = u128::from(self.count());
        let each = self.nodes.iter().map(|node| {
            // Every text of a node appears as often as the other nodes have combinations.
            u128::from(node.bytes()).saturating_mul(names) / u128::from(node.count().max(1))
        });
        u64::try_from(each.fold(0, u128::saturating_add)).unwrap_or(u64::MAX)
    }

    /// Name number `index`, with glob characters that stand for themselves escaped.
    pub(super) fn name(&self, index: u64) -> String {
        let mut text = String::new();
        self.write(index, &mut text);
        text
    }

    fn write(&self, mut index: u64, text: &mut String) {
        let mut below = self.count();
        for node in &self.nodes {
            below /= node.count();
            node.write(index / below, text);
            index %= below;
        }
    }

    fn push(&mut self, node: Node) {
        self.nodes.push(node);
    }

    fn push_literal(&mut self, token: Token) {
        if !matches!(self.nodes.last(), Some(Node::Literal(_))) {
            self.nodes.push(Node::Literal(String::new()));
        }
        if let Some(Node::Literal(text)) = self.nodes.last_mut() {
            if token.escaped && matches!(token.text, '*' | '?' | '[' | ']' | '\\') {
                text.push('\\');
            }
            text.push(token.text);
        }
    }
}

impl Node {
    fn count(&self) -> u64 {
        match self {
            Self::Literal(_) => 1,
            Self::List { ends, .. } => ends.last().copied().unwrap_or(1),
            Self::Steps(steps) => steps.count,
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Self::Literal(text) => text.len() as u64,
            Self::List { alternatives, .. } => {
                alternatives.iter().map(Sequence::bytes).fold(0, u64::saturating_add)
            }
            Self::Steps(steps) => steps.count.saturating_mul(steps.width.max(20) as u64),
        }
    }

    fn write(&self, index: u64, text: &mut String) {
        match self {
            Self::Literal(literal) => text.push_str(literal),
            Self::List { alternatives, ends } => {
                let chosen = ends.partition_point(|end| *end <= index);
                let before = if chosen == 0 { 0 } else { ends[chosen - 1] };
                alternatives[chosen].write(index - before, text);
            }
            Self::Steps(steps) => steps.write(index, text),
        }
    }
}

/// A range `{first..last}` or `{first..last..step}` of numbers or letters.
#[derive(Debug)]
struct Steps {
    first: i64,
    /// Distance from one to the next, with its direction.
    step: i128,
    count: u64,
    /// Characters to pad numbers to with zeros, sign included.
    width: usize,
    letters: bool,
}

impl Steps {
    /// `None` when the text between braces is not a range.
    fn parse(tokens: &[Token]) -> Result<Option<Self>> {
        if tokens.len() < 4 || tokens.iter().any(|token| token.escaped) {
            return Ok(None);
        }
        let text: String = tokens.iter().map(|token| token.text).collect();
        let parts: Vec<&str> = text.split("..").collect();
        let (first, last, step) = match *parts.as_slice() {
            [first, last] => (first, last, "1"),
            [first, last, step] => (first, last, step),
            _ => return Ok(None),
        };
        let letters = is_letters(first, last);
        if !(letters || is_number(first) && is_number(last)) || !is_number(step) {
            return Ok(None);
        }
        let end = |part: &str| if letters { Ok(i64::from(part.as_bytes()[0])) } else { number(part) };
        let (low, high, stride) = (end(first)?, end(last)?, number(step)?.unsigned_abs());
        if stride == 0 {
            return Err(Error::invalid_config(format!("range `{{{text}}}` has a step of 0")));
        }
        let padded = |part: &str| {
            part.trim_start_matches('-').len() > 1 && part.trim_start_matches('-').starts_with('0')
        };
        let width = if !letters && (padded(first) || padded(last)) { first.len().max(last.len()) } else { 0 };
        Ok(Some(Self {
            first: low,
            step: if high < low { -i128::from(stride) } else { i128::from(stride) },
            count: (low.abs_diff(high) / stride).saturating_add(1),
            width,
            letters,
        }))
    }

    fn write(&self, index: u64, text: &mut String) {
        use std::fmt::Write;
        let value = i128::from(self.first) + self.step * i128::from(index);
        if self.letters {
            text.push(char::from(value as u8));
        } else {
            // Rust counts the sign as part of the width, as bash does.
            let width = self.width;
            write!(text, "{value:0width$}").unwrap_or_default();
        }
    }
}

fn is_letters(first: &str, last: &str) -> bool {
    let one = |part: &str, kind: fn(&u8) -> bool| part.len() == 1 && part.as_bytes().iter().all(kind);
    one(first, u8::is_ascii_lowercase) && one(last, u8::is_ascii_lowercase)
        || one(first, u8::is_ascii_uppercase) && one(last, u8::is_ascii_uppercase)
}

fn is_number(part: &str) -> bool {
    let digits = part.strip_prefix('-').unwrap_or(part);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn number(part: &str) -> Result<i64> {
    part.parse().map_err(|_| {
        Error::invalid_config(format!("`{}` in a range is beyond 64 bits", super::shortened(part)))
    })
}
