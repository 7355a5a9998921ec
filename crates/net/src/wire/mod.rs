//! What is said on a connection: frames, each one [`Message`] and for some of them the bytes of a payload.
//!
//! ```text
//! u32 length of the body | u8 kind | u64 request | fields of the kind | payload of `Message::tail` bytes
//! ```
//!
//! Numbers are little endian. The body holds no payload, so a payload is written from where it lies and read into
//! one buffer. Every length is checked against a limit before anything is allocated for it, and a list is never
//! longer than the body that holds it. Requests carry a number and are answered in any order. How a connection
//! begins is in `handshake`.

mod fields;
pub(crate) mod frame;
mod message;

pub use message::{Answer, Kind, Message};

/// Said first by both sides; other versions are refused.
pub const VERSION: u8 = 2;

/// Largest body of a frame, in bytes.
pub const MAX_BODY: usize = 1 << 20;

/// Largest payload that is carried, in bytes. Larger ones are not shared.
pub const MAX_TAIL: u64 = 256 << 20;

/// Most payloads that one request names.
pub const MAX_PAYLOADS: usize = 4096;
