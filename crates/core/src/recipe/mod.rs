//! A recipe: what is done to each field of a sample, as plain data with a fingerprint.
//!
//! Equal recipes have equal fingerprints, whether they were written in Python, TOML or JSON, so jobs can share one
//! preparation and a checkpoint can tell that the recipe changed. This module holds the words, the checks
//! and the round trip; what an op *does* to pixels lives in the `ops` crate, one file per op.

mod audio;
mod augment;
mod check;
mod follow;
mod function;
mod mixing;
mod op;
mod parse;
mod policies;
mod prefix;
mod ragged;
pub mod tokens;
mod video;

pub use audio::{
    AudioForm, AudioOp, Bands, Length, LogMel, LogUnit, MAX_RATE, MIN_RATE, MaskFill, Mel, MelNorm, MelScale,
    Mfcc, MixNoise, PadMode, Quality, SpecAugment, Spectrogram, Stft, Window, default_max_samples,
};
pub use augment::{
    Affine, GaussianBlur, Interpolation, Posterize, RandAugment, Sharpness, Solarize, TrivialAugment,
};
pub use follow::{BoxFormat, BoxPart, Boxes};
pub use function::{Function, SampleOp};
pub use mixing::{Cutmix, Mixing, Mixup, MixupOrCutmix};
pub use op::{Direction, Filter, Interval, Op, Padded, Size};
pub use policies::{AugMix, AutoAugment, Perspective, Policy};
pub use prefix::Cut;
pub use ragged::{Offsets, Ragged};
pub use video::{Clip, ClipPlace, ShortVideo, default_video_pixels, frame_number};

use crate::tensor::{Dtype, Layout};
use serde::{Deserialize, Serialize, Serializer};

/// The ordered fields a job asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recipe {
    /// One entry per column, in the order of the batch.
    pub fields: Vec<FieldRecipe>,
    /// What is done to whole samples once their columns are made, then to whole batches.
    pub ops: Vec<SampleOp>,
}

/// Written as one list: columns, then ops on samples.
impl Serialize for Recipe {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(untagged)]
        enum Entry<'a> {
            Field(&'a FieldRecipe),
            Op(&'a SampleOp),
        }
        serializer.collect_seq(self.fields.iter().map(Entry::Field).chain(self.ops.iter().map(Entry::Op)))
    }
}

/// How one column of the batch is made from one field of the sample.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FieldRecipe {
    /// Field of the stored sample. Alternatives are separated by `;` (`jpg;jpeg;png`), the first present one is read.
    pub field: String,
    /// Name of the column in the batch; the first alternative of `field` when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How stored bytes become a value.
    pub decode: Decode,
    /// What is done to the value, in order.
    #[serde(default, serialize_with = "op::serialize_all")]
    pub ops: Vec<Op>,
    /// Element type of the column; `None` takes the natural one (see [`FieldRecipe::output_dtype`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<Dtype>,
    /// Axis order of images.
    #[serde(default)]
    pub layout: Layout,
    /// Column of images whose geometry this one follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follow: Option<String>,
}

/// How stored bytes become a value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Decode {
    /// JPEG, PNG or WebP, told apart by their first bytes.
    Image {
        /// Channels of the result.
        #[serde(default)]
        mode: ImageMode,
        /// What to do with the EXIF orientation tag.
        #[serde(default)]
        orientation: Orientation,
        /// Images with more pixels are refused before they are decoded.
        #[serde(default = "default_max_pixels")]
        max_pixels: u64,
    },
    /// Motion JPEG in AVI, or a field for each frame, which is any image: `*` in a field's name stands for the frames'
    /// numbers.
    Video {
        /// Channels of the result.
        #[serde(default)]
        mode: ImageMode,
        /// Most pixels, all frames together, that are decoded of one sample.
        #[serde(default = "default_video_pixels")]
        max_pixels: u64,
    },
    /// WAV, FLAC, MP3, Ogg Vorbis or Ogg Opus, told apart by their first bytes.
    Audio {
        /// Most samples, all channels together, that are decoded of one file.
        #[serde(default = "default_max_samples")]
        max_samples: u64,
    },
    /// A NumPy `.npy` array, format versions 1 to 3, little endian, C order.
    Npy {
        /// Shape of every sample. When it is given (together with `dtype`), arrays are written straight into the batch.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        shape: Option<Vec<usize>>,
    },
    /// A JSON document, delivered as Python objects.
    Json {},
    /// UTF-8 text.
    Text {},
    /// An integer: decimal text in a payload, or a value known to the manifest.
    Label {},
    /// Tokens: integers in a row.
    Tokens {
        /// Element type of payloads that are bare integers, little endian; records and arrays tell theirs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stored: Option<Dtype>,
        /// Tokens of every sample. When it is given, they are written straight into the batch.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        length: Option<u64>,
    },
    /// The payload as it is.
    Bytes {},
    /// Annotations of an image in JSON, as COCO has them: boxes, labels or keypoints.
    Boxes(Boxes),
}

/// Channels of a decoded image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ImageMode {
    /// Three channels; gray is repeated, alpha is dropped, CMYK is converted.
    #[default]
    Rgb,
    /// One channel of luma (ITU-R 601, as Pillow's `L`).
    Gray,
    /// Four channels; images without alpha get 255.
    Rgba,
}

impl ImageMode {
    /// Number of channels.
    pub fn channels(self) -> usize {
        match self {
            Self::Gray => 1,
            Self::Rgb => 3,
            Self::Rgba => 4,
        }
    }
}

/// What to do with the EXIF orientation tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Orientation {
    /// Leave pixels as stored: what `torchvision`'s `ImageFolder` does.
    #[default]
    Ignore,
    /// Turn and mirror so that the image is upright.
    Apply,
}

/// Pixels above which an image is taken for a decompression bomb: Pillow's error limit, twice its warning limit.
pub const fn default_max_pixels() -> u64 {
    178_956_970
}

impl FieldRecipe {
    /// Name of the column in the batch.
    pub fn output_name(&self) -> &str {
        match &self.name {
            Some(name) => name,
            None => self.field.split(';').next().unwrap_or(&self.field),
        }
    }

    /// The alternatives of the stored field, in order of preference; of a video one may name many fields by a `*`.
    pub fn alternatives(&self) -> impl Iterator<Item = &str> {
        self.field.split(';')
    }

    /// How values of different sizes become one tensor, when they do.
    pub fn padded(&self) -> Option<&Padded> {
        self.ops.iter().find_map(|op| if let Op::PadBatch(padded) = op { Some(padded) } else { None })
    }

    /// All columns that this makes: its own, and those that say what of it is real.
    pub fn column_names(&self) -> Vec<String> {
        let name = self.output_name();
        let padded = self.padded();
        let length = padded.map(|_| Padded::length_name(name));
        let mask = padded.filter(|padded| padded.mask).map(|_| Padded::mask_name(name));
        [Some(name.to_owned()), length, mask].into_iter().flatten().chain(self.token_columns()).collect()
    }

    /// Element type of the column: as asked, or `f32` after `normalize`, `u8` for other images and videos, `i64` for labels.
    /// `None` means that the payload decides (`npy`) or that the column has no element type.
    pub fn output_dtype(&self) -> Option<Dtype> {
        match (&self.dtype, &self.decode) {
            (Some(dtype), _) => Some(*dtype),
            (None, Decode::Image { .. } | Decode::Video { .. }) => {
                let normalized = self.ops.iter().any(|op| matches!(op, Op::Normalize { .. }));
                Some(if normalized { Dtype::F32 } else { Dtype::U8 })
            }
            (None, Decode::Label {} | Decode::Tokens { .. }) => Some(Dtype::I64),
            (None, _) if self.has_tokens() => Some(Dtype::I64),
            (None, Decode::Boxes(boxes)) => Some(boxes.dtype()),
            (None, Decode::Audio { .. }) => Some(Dtype::F32),
            _ => None,
        }
    }
}

impl Recipe {
    /// A name for equal recipes: 128 bits over the canonical JSON, in hex. What is spelled out and equals its default
    /// makes no difference.
    pub fn fingerprint(&self) -> String {
        let mut recipe = self.clone();
        for field in &mut recipe.fields {
            field.name = Some(field.output_name().to_owned());
            field.dtype = field.output_dtype();
            field.ops.iter_mut().for_each(Op::spell_out);
        }
        let canonical = serde_json::to_vec(&recipe).unwrap_or_default();
        format!("{:032x}", xxhash_rust::xxh3::xxh3_128(&canonical))
    }
}

#[cfg(test)]
mod tests;
