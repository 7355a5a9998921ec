//! Stored bytes to values, one format a file.
//!
//! Every decoder takes hostile bytes: sizes are checked before memory is taken, and what is wrong is named in a
//! `corrupt` error. Image formats share [`Header`]: it is read first, so that the geometry of the whole recipe
//! is known before a pixel is decoded.
//!
//! Shape of a file: an image format has `header` and `decode`; the others have `decode`, and where a fixed row
//! exists `decode_into`. [`avi`] only says where the frames lie, each of which is an image.

pub mod audio;
pub mod avi;
pub mod boxes;
pub mod exif;
pub mod image;
pub mod jpeg;
pub mod json;
pub mod label;
pub mod npy;
pub mod png;
pub mod text;
pub mod webp;

/// What an image says about itself before its pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Columns as stored.
    pub width: u32,
    /// Rows as stored.
    pub height: u32,
    /// EXIF orientation, 1 to 8; 1 when there is none.
    pub orientation: u8,
}
