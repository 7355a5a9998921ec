//! Bytes to tensors: decode, augment, collate.
#![expect(unsafe_code, reason = "batch rows are written by several threads, and libjpeg-turbo is C")]

pub mod buffer;
