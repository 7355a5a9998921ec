//! Parameters of the ops on tokens, with their defaults and what they must obey.
//!
//! Tokens are integers in a row: stored as such, or the bytes of a text. What the ops do lives in the `ops` crate, how
//! documents are dealt to batches before any is read in [`crate::plan::batching`].

use super::{Decode, FieldRecipe, Op};
use crate::tensor::Dtype;
use serde::{Deserialize, Serialize};

/// What a label is where nothing is to be predicted: what losses leave out.
pub const IGNORED: i64 = -100;

/// Most tokens that an op may speak of.
const MAX_TOKENS: u64 = 1 << 28;

/// An end of a row of tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The beginning.
    Left,
    /// The end.
    #[default]
    Right,
}

impl Side {
    /// Whether this is the default, which recipes do not spell out.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
    pub(super) fn is_right(&self) -> bool {
        *self == Self::Right
    }
}

/// Makes the bytes of a text its tokens: 0 to 255, moved by `offset`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ByteTokens {
    /// Added to every byte.
    #[serde(default)]
    pub offset: u32,
    /// Token before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bos: Option<u32>,
    /// Token after the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eos: Option<u32>,
}

/// Makes a text its tokens by a tokenizer in a file: `tokenizer.json`, as Hugging Face writes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tokenize {
    /// Where the file lies for every process that prepares samples.
    pub file: String,
    /// SHA-256 of the file, in hex. It says which tokenizer is meant, wherever that lies.
    pub sha256: String,
    /// Whether tokens that the tokenizer puts around every text are there.
    #[serde(default = "yes")]
    pub add_special_tokens: bool,
}

/// Replaces tokens for masked-language modelling.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MaskTokens {
    /// Probability of each token to be chosen.
    pub p: f64,
    /// What most of the chosen become.
    pub mask_id: u32,
    /// Random tokens are drawn below this.
    pub vocab: u32,
    /// Tokens that are never chosen.
    #[serde(default)]
    pub special: Vec<u32>,
    /// Share of the chosen that become a random token.
    #[serde(default = "a_tenth")]
    pub random: f64,
    /// Share of the chosen that stay as they are.
    #[serde(default = "a_tenth")]
    pub keep: f64,
}

/// Packs documents into rows of one length.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pack {
    /// Tokens of a row.
    pub length: u64,
    /// Which document goes into which row.
    #[serde(default)]
    pub fit: Fit,
    /// Documents that are looked at, in the order of the plan, for one that fits. `greedy` takes the next one only.
    #[serde(default = "looked_at")]
    pub look_ahead: u32,
    /// What becomes of documents longer than a row.
    #[serde(default)]
    pub long: Long,
    /// What is behind the last document of a row.
    #[serde(default)]
    pub value: i64,
    /// Whether a column `NAME_labels` has the next token of the same document.
    #[serde(default)]
    pub labels: bool,
    /// Most documents of a row, as a mean over a batch.
    #[serde(default = "documents_of_a_row")]
    pub documents: u32,
}

/// Which document goes into which row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fit {
    /// In the order of the plan; a new row where the next one does not fit.
    #[default]
    Greedy,
    /// Into the fullest row of the batch that has room; what fits nowhere waits for the next batch.
    Best,
}

/// What becomes of documents longer than a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Long {
    /// They go on in the next row.
    #[default]
    Split,
    /// What is beyond a row is cut off.
    Truncate,
    /// They are left out of every epoch, and counted.
    Drop,
}

/// Faults of one op, by parameter.
type Found = Vec<(&'static str, String)>;

fn tokens(name: &'static str, number: u64, found: &mut Found) {
    if !(1..=MAX_TOKENS).contains(&number) {
        found.push((name, format!("{number} is not in 1..={MAX_TOKENS}")));
    }
}

impl Tokenize {
    fn faults(&self) -> Found {
        let mut found = Found::new();
        if self.file.trim().is_empty() {
            found.push(("file", "it is empty".to_owned()));
        }
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if self.sha256.len() != 64 || !self.sha256.bytes().all(is_digit) {
            let why = "it is not 64 digits of lower-case hex: give what `sha256sum` says of the file";
            found.push(("sha256", why.to_owned()));
        }
        found
    }
}

impl MaskTokens {
    pub(super) fn faults(&self) -> Found {
        let mut found = Found::new();
        for (name, share) in [("p", self.p), ("random", self.random), ("keep", self.keep)] {
            if !(0.0..=1.0).contains(&share) {
                found.push((name, format!("{share} is not in 0..=1")));
            }
        }
        if self.random + self.keep > 1.0 {
            found.push(("keep", format!("`random` and `keep` are {} together", self.random + self.keep)));
        }
        if self.vocab == 0 {
            found.push(("vocab", "it is 0".to_owned()));
        }
        found
    }
}

impl Pack {
    pub(super) fn faults(&self) -> Found {
        let mut found = Found::new();
        tokens("length", self.length, &mut found);
        tokens("look_ahead", self.look_ahead.into(), &mut found);
        if !(1..=1 << 16).contains(&self.documents) {
            found.push(("documents", format!("{} is not in 1..=65536", self.documents)));
        }
        found
    }

    /// The columns beside the tokens.
    pub fn column_names(name: &str, labels: bool) -> Vec<String> {
        let labels = labels.then(|| labels_name(name));
        let others = ["position", "segment", "cu_seqlens"].map(|what| format!("{name}_{what}"));
        labels.into_iter().chain(others).collect()
    }
}

/// The column of what is to be predicted.
pub fn labels_name(column: &str) -> String {
    format!("{column}_labels")
}

impl Op {
    /// Whether this is an op on tokens and nothing else.
    pub fn is_of_tokens(&self) -> bool {
        matches!(
            self,
            Self::ByteTokens(_)
                | Self::Tokenize(_)
                | Self::Slice { .. }
                | Self::Truncate { .. }
                | Self::RandomWindow { .. }
                | Self::MaskTokens(_)
                | Self::Pack(_)
        )
    }
}

impl FieldRecipe {
    /// Whether the column holds tokens.
    pub fn has_tokens(&self) -> bool {
        matches!(self.decode, Decode::Tokens { .. })
            || self.ops.iter().any(|op| matches!(op, Op::ByteTokens(_) | Op::Tokenize(_)))
    }

    /// How documents are packed, when they are.
    pub fn pack(&self) -> Option<&Pack> {
        self.ops.iter().find_map(|op| if let Op::Pack(pack) = op { Some(pack) } else { None })
    }

    /// Whether what was masked stands in a column of its own.
    pub fn is_masked(&self) -> bool {
        self.ops.iter().any(|op| matches!(op, Op::MaskTokens(_)))
    }

    /// Tokens of every sample, when the recipe alone decides.
    pub fn fixed_tokens(&self) -> Option<u64> {
        let known = if let Decode::Tokens { length, .. } = self.decode { length } else { None };
        self.ops.iter().fold(known, |known, op| match op {
            Op::Slice { length, .. } => Some(*length),
            Op::Truncate { length, .. } | Op::RandomWindow { length } => {
                known.map(|known| known.min(*length))
            }
            Op::ByteTokens(_) | Op::Tokenize(_) => None,
            _ => known,
        })
    }

    /// The op that makes as many tokens of a text as nobody knows before it is read.
    fn tokenize(&self) -> Option<&Tokenize> {
        self.ops.iter().find_map(|op| if let Op::Tokenize(op) = op { Some(op) } else { None })
    }

    /// Tokens that a sample has after these ops, of which `stored` are stored.
    pub fn tokens_of(&self, stored: u64) -> u64 {
        self.ops.iter().fold(stored, |tokens, op| match op {
            Op::ByteTokens(op) => tokens + u64::from(op.bos.is_some()) + u64::from(op.eos.is_some()),
            Op::Slice { length, .. } | Op::Truncate { length, .. } | Op::RandomWindow { length } => {
                tokens.min(*length)
            }
            _ => tokens,
        })
    }

    /// The columns that ops on tokens add.
    pub(super) fn token_columns(&self) -> Vec<String> {
        let (name, masked) = (self.output_name(), self.is_masked());
        match self.pack() {
            Some(pack) => Pack::column_names(name, pack.labels || masked),
            None => masked.then(|| labels_name(name)).into_iter().collect(),
        }
    }

    /// What is wrong with the ops on tokens as a whole, each with the number of the op.
    pub(super) fn token_faults(&self) -> Vec<(Option<usize>, &'static str, String)> {
        let mut found = Vec::new();
        let mut is_tokens = matches!(self.decode, Decode::Tokens { .. });
        let called = self.ops.iter().any(|op| op.function().is_some());
        let mut masked = false;
        for (at, op) in self.ops.iter().enumerate() {
            let mut say = |name: &'static str, why: String| found.push((Some(at), name, why));
            if let Op::ByteTokens(_) | Op::Tokenize(_) = op {
                if is_tokens || !matches!(self.decode, Decode::Text {}) {
                    say("", format!("`{}` works on a column of text", op.name()));
                }
                is_tokens = true;
            } else if op.is_of_tokens() && !is_tokens {
                say(
                    "",
                    format!(
                        "`{}` works on tokens: decode them, or take `tokenize` or `byte_tokens` of a text",
                        op.name()
                    ),
                );
            }
            let mut faults = Found::new();
            match op {
                Op::Slice { length, .. } | Op::Truncate { length, .. } | Op::RandomWindow { length } => {
                    tokens("length", *length, &mut faults);
                }
                Op::Tokenize(op) => faults = op.faults(),
                Op::MaskTokens(op) => {
                    faults = op.faults();
                    if masked {
                        faults.push(("", "`mask_tokens` stands there twice".to_owned()));
                    }
                    masked = true;
                }
                Op::Pack(op) => {
                    faults = op.faults();
                    if at + 1 < self.ops.len() {
                        faults.push(("", "`pack` is of whole batches: it comes last".to_owned()));
                    }
                    if self.tokenize().is_some() {
                        let why = "documents are dealt to rows before any is read, when nobody knows how many tokens \
                            `tokenize` makes of them: write the tokens to a file once, by `forebay tokenize`, or `pad_batch`";
                        faults.push(("", why.to_owned()));
                    }
                    if masked && op.labels {
                        faults.push(("labels", "`mask_tokens` gives labels already".to_owned()));
                    }
                }
                _ => {}
            }
            if called && matches!(op, Op::MaskTokens(_) | Op::Pack(_)) {
                faults.push((
                    "",
                    format!("`{}` makes several columns: leave functions out, or do it in one", op.name()),
                ));
            }
            for (name, why) in faults {
                say(name, why);
            }
        }
        let signed = [Dtype::I16, Dtype::I32, Dtype::I64];
        let needs_sign = masked || self.pack().is_some_and(|pack| pack.labels);
        if let Some(dtype) = self.dtype.filter(|dtype| is_tokens && needs_sign && !signed.contains(dtype)) {
            let why = format!("labels of {} cannot say what is left out: take i16, i32 or i64", dtype.name());
            found.push((None, "dtype", why));
        }
        if let Decode::Tokens { length: Some(length), .. } = self.decode {
            let mut faults = Found::new();
            tokens("decode.length", length, &mut faults);
            found.extend(faults.into_iter().map(|(name, why)| (None, name, why)));
        }
        found
    }
}

fn yes() -> bool {
    true
}
fn a_tenth() -> f64 {
    0.1
}
fn looked_at() -> u32 {
    256
}
fn documents_of_a_row() -> u32 {
    128
}
