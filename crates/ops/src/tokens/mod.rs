//! Tokens of one sample: read, changed by the ops of their column, written into a row or kept for the batch.
//!
//! Ops work on 64-bit integers whatever is stored or asked for; what does not fit the column's element type is an
//! error, never another token. How samples become a batch is in [`crate::collate`].

mod mask;
mod tokenizer;

use self::tokenizer::Tokenizer;
pub use self::tokenizer::Vocabulary;
use crate::assets::Assets;
use crate::buffer::BufferPool;
use crate::decode::{npy, text};
use crate::value::{
    Following, OutputKind, Padding, SampleContext, Slot, Tensor, TokenBatch, TokenGather, Value,
};
use forebay_core::recipe::tokens::{ByteTokens, MaskTokens, Side};
use forebay_core::recipe::{Decode, FieldRecipe, Op};
use forebay_core::rng::Rng;
use forebay_core::tensor::{Dtype, TensorSpec};
use forebay_core::{Error, Result};
use std::ops::Range;

/// How a column of tokens is made.
pub(crate) struct TokenPath {
    /// Element type of bare payloads.
    stored: Option<Dtype>,
    /// The op, and its place in the recipe.
    ops: Vec<(u64, Act)>,
    dtype: Dtype,
    /// Tokens of every sample, when that is known.
    fixed: Option<usize>,
}

enum Act {
    Bytes(ByteTokens),
    Tokenize(Box<Tokenizer>),
    Slice(u64, u64),
    Truncate(usize, Side),
    RandomWindow(usize),
    Mask(MaskTokens),
}

/// The tokens of a sample, and what is to be predicted where some were masked.
#[derive(Debug, Default)]
struct Row {
    tokens: Vec<i64>,
    labels: Option<Vec<i64>>,
}

impl TokenPath {
    /// The path of a column of a sound recipe, and what its values are.
    pub(crate) fn compile(index: usize, field: &FieldRecipe) -> (Self, OutputKind) {
        let stored = if let Decode::Tokens { stored, .. } = field.decode { stored } else { None };
        let act = |(at, op): (usize, &Op)| {
            let length = |length: &u64| usize::try_from(*length).unwrap_or(usize::MAX);
            let act = match op {
                Op::ByteTokens(op) => Act::Bytes(op.clone()),
                Op::Tokenize(op) => Act::Tokenize(Box::new(Tokenizer::new(op))),
                Op::Slice { start, length } => Act::Slice(*start, *length),
                Op::Truncate { length: most, side } => Act::Truncate(length(most), *side),
                Op::RandomWindow { length: most } => Act::RandomWindow(length(most)),
                Op::MaskTokens(op) => Act::Mask(op.clone()),
                _ => return None,
            };
            Some((index as u64 * 1000 + at as u64, act))
        };
        let ops = field.ops.iter().enumerate().filter_map(act).collect();
        let dtype = field.output_dtype().unwrap_or(Dtype::I64);
        let (masked, padding, following) = (field.is_masked(), Padding::of(field), Following::of(field));
        let fixed = field.fixed_tokens().and_then(|tokens| usize::try_from(tokens).ok());
        let gather = match (field.pack(), padding, following) {
            (Some(pack), ..) => Some(TokenGather::Pack { pack: pack.clone(), rows: None }),
            (None, Some(padding), _) => Some(TokenGather::Pad(padding)),
            (None, None, Some(following)) => Some(TokenGather::Ragged(following)),
            (None, None, None) if masked => Some(TokenGather::Stack),
            (None, None, None) => None,
        };
        let kind = match (gather, fixed) {
            (Some(TokenGather::Pad(padding)), _) if !masked => OutputKind::Padded(padding),
            (Some(TokenGather::Ragged(following)), _) if !masked => OutputKind::Ragged(following),
            (Some(gather), _) => OutputKind::Tokens(TokenBatch { dtype, masked, gather }),
            (None, Some(tokens)) => OutputKind::Tensor(TensorSpec { dtype, shape: vec![tokens] }),
            (None, None) => OutputKind::Tensors,
        };
        let fixed = matches!(kind, OutputKind::Tensor(_)).then_some(fixed).flatten();
        (Self { stored, ops, dtype, fixed }, kind)
    }

    /// Reads what ops need beside samples, unless that was done.
    pub(crate) fn equip(&self, assets: &dyn Assets) -> Result<()> {
        for (_, act) in &self.ops {
            let Act::Tokenize(tokenizer) = act else { continue };
            if let Some(op) = tokenizer.wants() {
                tokenizer.equip(&assets.tokenizer(op)?)?;
            }
        }
        Ok(())
    }

    /// Reads a payload and writes its tokens.
    pub(crate) fn prepare(
        &self,
        sample: &SampleContext,
        payload: &[u8],
        slot: &mut Slot<'_>,
        pool: &BufferPool,
    ) -> Result<()> {
        let row = self.row(sample, payload)?;
        if let Some(wanted) = self.fixed.filter(|wanted| *wanted != row.tokens.len()) {
            let why = format!("read tokens: the sample has {}, the recipe says {wanted}", row.tokens.len());
            return Err(Error::corrupt(why)
                .with_hint("leave `length` out and pad, or drop tails when the dataset is opened"));
        }
        match slot {
            Slot::Row(place) => write(&row.tokens, self.dtype, place),
            Slot::Value(place) => {
                let count = row.tokens.len();
                let shape = if row.labels.is_some() { vec![2, count] } else { vec![count] };
                let spec = TensorSpec { dtype: self.dtype, shape };
                let mut data = pool.take(spec.bytes());
                let (first, second) = data.as_mut_slice().split_at_mut(count * self.dtype.size());
                write(&row.tokens, self.dtype, first)?;
                if let Some(labels) = &row.labels {
                    write(labels, self.dtype, second)?;
                }
                **place = Some(Value::Tensor(Tensor { spec, data }));
                Ok(())
            }
        }
    }

    fn row(&self, sample: &SampleContext, payload: &[u8]) -> Result<Row> {
        let mut row = match self.ops.first() {
            Some((_, Act::Bytes(op))) => Row { tokens: bytes(op, payload)?, labels: None },
            Some((_, Act::Tokenize(op))) => Row { tokens: op.tokens(text::decode(payload)?)?, labels: None },
            _ => Row { tokens: read(payload, self.stored)?, labels: None },
        };
        for (key, act) in &self.ops {
            let count = row.tokens.len();
            match act {
                Act::Bytes(_) | Act::Tokenize(_) => {}
                Act::Slice(start, length) => {
                    let range = usize::try_from(*start).ok().zip(start.checked_add(*length));
                    let range = range.filter(|(_, end)| *end <= count as u64).ok_or_else(|| {
                        let why =
                            format!("take {length} tokens from token {start} on: the sample has {count}");
                        Error::corrupt(why)
                            .with_hint("drop tails when the dataset is opened, or use `truncate`")
                    })?;
                    row.keep(range.0..range.1 as usize);
                }
                Act::Truncate(most, Side::Right) => row.keep(0..count.min(*most)),
                Act::Truncate(most, Side::Left) => row.keep(count.saturating_sub(*most)..count),
                Act::RandomWindow(most) => {
                    if count > *most {
                        let mut rng = Rng::for_op(sample.seed, sample.epoch, sample.sample_id, *key);
                        let start = rng.below((count - most) as u64 + 1) as usize;
                        row.keep(start..start + most);
                    }
                }
                Act::Mask(op) => {
                    let mut rng = Rng::for_op(sample.seed, sample.epoch, sample.sample_id, *key);
                    row.labels = Some(mask::apply(op, &mut row.tokens, &mut rng));
                }
            }
        }
        Ok(row)
    }
}

impl Row {
    fn keep(&mut self, range: Range<usize>) {
        for row in [Some(&mut self.tokens), self.labels.as_mut()].into_iter().flatten() {
            row.truncate(range.end);
            row.drain(..range.start);
        }
    }
}

/// The bytes of a text.
fn bytes(op: &ByteTokens, payload: &[u8]) -> Result<Vec<i64>> {
    let text = text::decode(payload)?.as_bytes();
    let mut tokens = Vec::with_capacity(text.len() + 2);
    tokens.extend(op.bos.map(i64::from));
    tokens.extend(text.iter().map(|byte| i64::from(*byte) + i64::from(op.offset)));
    tokens.extend(op.eos.map(i64::from));
    Ok(tokens)
}

/// Stored tokens: an array, or bare integers of a type that was said.
fn read(payload: &[u8], stored: Option<Dtype>) -> Result<Vec<i64>> {
    let (dtype, data) = match (npy::parse(payload), stored) {
        (Ok(array), _) if array.spec.shape.len() <= 1 => (array.spec.dtype, &payload[array.data]),
        (_, Some(dtype)) if payload.len().is_multiple_of(dtype.size()) => (dtype, payload),
        (_, Some(dtype)) => {
            let why = format!("read tokens: {} bytes are no whole tokens of {}", payload.len(), dtype.name());
            return Err(Error::corrupt(why));
        }
        (Ok(array), None) => {
            return Err(Error::corrupt(format!("read tokens: the array has shape {:?}", array.spec.shape)));
        }
        (Err(cause), None) => {
            return Err(Error::corrupt("read tokens: the payload is no array")
                .with_source(cause)
                .with_hint("give `stored=\"u16\"` where payloads are bare integers"));
        }
    };
    macro_rules! numbers {
        ($kind:ty) => {
            Ok(data
                .chunks_exact(size_of::<$kind>())
                .map(|bytes| <$kind>::from_le_bytes(bytes.try_into().unwrap_or_default()) as i64)
                .collect())
        };
    }
    match dtype {
        Dtype::U8 => numbers!(u8),
        Dtype::I8 => numbers!(i8),
        Dtype::U16 => numbers!(u16),
        Dtype::I16 => numbers!(i16),
        Dtype::U32 => numbers!(u32),
        Dtype::I32 => numbers!(i32),
        // Beyond 2^63 the number would be another; it is negative then, and no token.
        Dtype::U64 | Dtype::I64 => numbers!(i64),
        other => Err(Error::corrupt(format!("read tokens: they are stored as {}", other.name()))),
    }
}

/// Writes tokens as elements of a type, if every one fits.
pub(crate) fn write(tokens: &[i64], dtype: Dtype, row: &mut [u8]) -> Result<()> {
    macro_rules! numbers {
        ($kind:ty) => {{
            for (token, place) in tokens.iter().zip(row.chunks_exact_mut(size_of::<$kind>())) {
                let number = <$kind>::try_from(*token).map_err(|_| {
                    Error::corrupt(format!("write token {token} as {}: it does not fit", dtype.name()))
                        .with_hint("ask for a larger `dtype`")
                })?;
                place.copy_from_slice(&number.to_ne_bytes());
            }
            Ok(())
        }};
    }
    match dtype {
        Dtype::U8 => numbers!(u8),
        Dtype::I8 => numbers!(i8),
        Dtype::U16 => numbers!(u16),
        Dtype::I16 => numbers!(i16),
        Dtype::U32 => numbers!(u32),
        Dtype::I32 => numbers!(i32),
        Dtype::U64 => numbers!(u64),
        Dtype::I64 => {
            let places = row.chunks_exact_mut(8);
            tokens.iter().zip(places).for_each(|(token, place)| place.copy_from_slice(&token.to_ne_bytes()));
            Ok(())
        }
        other => Err(Error::internal(format!("write tokens as {}", other.name()))),
    }
}

#[cfg(test)]
mod tests;
