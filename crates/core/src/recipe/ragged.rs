//! Values of different lengths delivered one behind the other, with the places at which each begins: nothing is filled up.
//!
//! Which columns can be so, and how places are counted. How values are put together is in the `ops` crate.

use super::{Decode, FieldRecipe, Op};
use crate::tensor::Dtype;
use serde::{Deserialize, Serialize};

/// How values of a batch follow each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ragged {
    /// Integers that places are counted in.
    #[serde(default)]
    pub offsets: Offsets,
}

/// Integers that places are counted in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Offsets {
    /// As attention kernels for rows of varying length take them; a batch has less than 2^31 elements along the axis.
    I32,
    /// As nested tensors take them.
    #[default]
    I64,
}

impl Offsets {
    /// The element type.
    pub fn dtype(self) -> Dtype {
        match self {
            Self::I32 => Dtype::I32,
            Self::I64 => Dtype::I64,
        }
    }
}

impl Op {
    /// Whether this only says how the values of a batch are put together. Such an op comes last.
    pub fn closes_batch(&self) -> bool {
        matches!(self, Self::PadBatch(_) | Self::Ragged(_))
    }
}

impl FieldRecipe {
    /// How values follow each other, when they are neither stacked nor padded.
    pub fn ragged(&self) -> Option<Ragged> {
        self.ops.iter().find_map(|op| if let Op::Ragged(ragged) = op { Some(*ragged) } else { None })
    }

    /// Why the values of this column cannot follow each other, if they cannot.
    pub(super) fn ragged_fault(&self) -> Option<&'static str> {
        let mapped = self.ops.iter().rev().find_map(|op| match op {
            Op::Map { shape, .. } => Some(shape.is_some()),
            _ => None,
        });
        let one_size = "all samples are of one size already: leave `ragged` out";
        match (mapped, &self.decode) {
            (Some(fixed), _) => fixed.then_some(one_size),
            (None, _) if self.has_tokens() => self.fixed_tokens().map(|_| one_size),
            (None, Decode::Image { .. }) => Some("images differ along two axes: use `pad_batch`"),
            (None, Decode::Video { .. }) => self.along_time_fault(),
            (None, Decode::Json {}) => {
                Some("objects have no elements: decode tokens, or return an array from a function")
            }
            (None, Decode::Label {}) => Some(one_size),
            (None, Decode::Npy { shape }) => (shape.is_some() && self.dtype.is_some()).then_some(one_size),
            (None, Decode::Audio { .. }) => {
                self.audio_form().is_some_and(|form| form.shape().is_some()).then_some(one_size)
            }
            (None, Decode::Text {} | Decode::Bytes {} | Decode::Tokens { .. } | Decode::Boxes(_)) => None,
        }
    }
}
