//! What goes into a recipe and what comes out: inputs, outputs, slots and values of one sample.
//!
//! Nothing is computed here. How a value is made is in [`crate::program`], how values of many samples become a
//! batch in [`crate::collate`].

use crate::buffer::Buffer;
use bytes::Bytes;
use forebay_core::SampleId;
use forebay_core::recipe::tokens::Pack;
use forebay_core::recipe::{Decode, FieldRecipe, Offsets, Op, Padded};
use forebay_core::tensor::{Dtype, Layout, TensorSpec};
use std::ops::Range;

/// What a random op may depend on, besides its place in the recipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleContext {
    /// Seed of the job.
    pub seed: u64,
    /// Epoch in which the sample is prepared.
    pub epoch: u64,
    /// The sample.
    pub sample_id: SampleId,
}

/// What the source holds for one column of one sample.
#[derive(Clone, Debug)]
pub enum Input {
    /// Stored bytes, still encoded.
    Payload(Bytes),
    /// Stored frames of a video, each still encoded, in order.
    Frames(Vec<Bytes>),
    /// What the beginning of the column's recipe made of them, as [`Program::prepare_until`] writes it.
    ///
    /// [`Program::prepare_until`]: crate::Program::prepare_until
    Pixels(Bytes),
    /// An integer known to the manifest.
    Int(i64),
    /// The sample has none of the field's alternatives.
    Missing,
}

impl From<Bytes> for Input {
    fn from(payload: Bytes) -> Self {
        Self::Payload(payload)
    }
}

/// One column of the batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Name of the column.
    pub name: String,
    /// What its values are.
    pub kind: OutputKind,
}

/// What the values of a column are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputKind {
    /// Tensors of one shape, written in place: the column's slots are [`Slot::Row`].
    Tensor(TensorSpec),
    /// Tensors whose shape is known only after decoding.
    Tensors,
    /// Tensors that are padded to one shape when the batch is closed.
    Padded(Padding),
    /// Values that are put one behind the other when the batch is closed.
    Ragged(Following),
    /// Tokens that become several columns when the batch is closed.
    Tokens(TokenBatch),
    /// Payloads as they are.
    Bytes,
    /// UTF-8 text.
    Text,
    /// JSON documents.
    Json,
    /// What a function makes: any of the others, but the same throughout a batch.
    Any,
}

/// How rows of tokens become columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenBatch {
    /// Element type.
    pub dtype: Dtype,
    /// Whether each value has labels behind its tokens.
    pub masked: bool,
    /// How they are put together.
    pub gather: TokenGather,
}

/// How rows of tokens are put together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenGather {
    /// As they are.
    Stack,
    /// Filled up to one length.
    Pad(Padding),
    /// One behind the other.
    Ragged(Following),
    /// Packed into rows.
    Pack {
        /// As the recipe says it.
        pack: Pack,
        /// Rows of every batch; as many as it takes when that is not known.
        rows: Option<u64>,
    },
}

/// How the tensors of a batch are made one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Padding {
    /// As the recipe says it.
    pub padded: Padded,
    /// The axes that samples differ in.
    pub axes: Range<usize>,
}

impl Padding {
    /// How a column is padded, when it is.
    pub(crate) fn of(field: &FieldRecipe) -> Option<Self> {
        let time = field.audio_form().map(|form| form.time_axis()..form.time_axis() + 1);
        let axes = match (&field.decode, field.layout) {
            (Decode::Audio { .. }, _) => time.unwrap_or(1..2),
            (Decode::Image { .. }, Layout::Chw) => 1..3,
            (Decode::Image { .. }, Layout::Hwc) => 0..2,
            _ => 0..1,
        };
        field.padded().map(|padded| Self { padded: padded.clone(), axes })
    }
}

/// How the values of a batch follow each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Following {
    /// The axis of a value along which the next one follows.
    pub axis: usize,
    /// Integers that places are counted in.
    pub counted: Offsets,
    /// Element type, when the recipe decides it.
    pub dtype: Option<Dtype>,
}

impl Following {
    /// How the values of a column follow each other, when they do.
    pub(crate) fn of(field: &FieldRecipe) -> Option<Self> {
        let maps = field.ops.iter().any(|op| matches!(op, Op::Map { .. }));
        let axis = match field.decode {
            Decode::Audio { .. } if !maps => field.audio_form().map_or(1, |form| form.time_axis()),
            _ => 0,
        };
        let dtype = if maps { None } else { field.output_dtype() };
        field.ragged().map(|ragged| Self { axis, counted: ragged.offsets, dtype })
    }
}

impl OutputKind {
    /// Bytes one sample takes in a batch's own memory; zero for values that are kept one by one.
    pub fn row_bytes(&self) -> usize {
        match self {
            Self::Tensor(spec) => spec.bytes(),
            Self::Tensors
            | Self::Padded(_)
            | Self::Ragged(_)
            | Self::Tokens(_)
            | Self::Bytes
            | Self::Text
            | Self::Json
            | Self::Any => 0,
        }
    }
}

/// Where one column of one sample goes.
#[derive(Debug)]
pub enum Slot<'a> {
    /// The sample's row of a fixed tensor, [`OutputKind::row_bytes`] long. Its contents are unspecified before.
    Row(&'a mut [u8]),
    /// A place for a value of its own.
    Value(&'a mut Option<Value>),
}

/// A prepared value that is not written in place.
#[derive(Debug)]
pub enum Value {
    /// A tensor of its own shape.
    Tensor(Tensor),
    /// A payload as it is.
    Bytes(Bytes),
    /// UTF-8 text.
    Text(String),
    /// The text of a JSON document, already checked.
    Json(String),
}

impl Value {
    /// What it is, in words.
    pub fn kind_name(&self) -> &'static str {
        match self {
            Self::Tensor(_) => "an array",
            Self::Bytes(_) => "bytes",
            Self::Text(_) => "text",
            Self::Json(_) => "an object",
        }
    }
}

/// Decoded values with element type and shape, in C order.
#[derive(Debug)]
pub struct Tensor {
    /// Element type and shape.
    pub spec: TensorSpec,
    /// The elements, in native byte order.
    pub data: Buffer,
}
