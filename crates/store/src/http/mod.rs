//! Bytes over HTTP.

pub mod tls;

pub use tls::TlsOptions;
