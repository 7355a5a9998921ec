//! What a recipe names and needs beside samples: the file of a tokenizer, recordings of noise.
//!
//! This room does no I/O: whoever runs a program brings what it asks for, once, before the first sample. Until then a
//! program can be looked at, checked and sent elsewhere, and nothing is read where no sample is prepared.

use bytes::Bytes;
use forebay_core::Result;
use forebay_core::recipe::MixNoise;
use forebay_core::recipe::tokens::Tokenize;

/// Brings what a recipe names.
pub trait Assets {
    /// The contents of a tokenizer's file, which are those that its `sha256` says.
    fn tokenizer(&self, op: &Tokenize) -> Result<Bytes>;

    /// All recordings that an op may mix in, each with what it is called in messages.
    fn noise(&self, op: &MixNoise) -> Result<Vec<(String, Bytes)>>;
}
