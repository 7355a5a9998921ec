//! Bytes to tensors: decode, augment, collate.
//!
//! A [`Program`] is a compiled recipe. For every sample it takes payloads and writes each column into its slot: a
//! row of the batch when the shape is known beforehand, a value of its own otherwise. [`collate`] holds the batch
//! while many threads write its rows. What never enters: async, files, sockets.
#![expect(unsafe_code, reason = "batch rows are written by several threads, and libjpeg-turbo is C")]

pub mod assets;
mod audio_path;
pub mod augment;
mod boxes;
pub mod buffer;
pub mod collate;
pub mod decode;
pub mod encode;
mod flow;
pub mod function;
pub mod geometry;
pub mod image;
mod image_path;
mod kernels;
mod mixing;
pub mod npy;
mod program;
pub mod record;
mod tokens;
pub mod track;
mod value;
mod video_path;

pub use assets::Assets;
pub use buffer::{Buffer, BufferPool};
pub use collate::ragged::Ragged;
pub use collate::{BatchBuilder, Column, RowWriter};
pub use function::{Call, Function, FunctionKey, Functions, Interpreter, Named};
pub use image::{Image, ImageMut, ImageRef, Rect};
pub use program::{Program, Scratch};
pub use tokens::Vocabulary;
pub use value::{
    Following, Input, Output, OutputKind, Padding, SampleContext, Slot, Tensor, TokenBatch, TokenGather,
    Value,
};
