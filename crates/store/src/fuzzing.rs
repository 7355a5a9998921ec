//! Parsers of outside bytes, for the fuzz targets alone: nothing of this is the crate's interface.

use crate::aistore::batch_entries_of;
use crate::http::chunked;
use bytes::Bytes;

/// What comes of a chunked body of which at most `limit` bytes are taken, whether or not it ends well.
pub fn chunked_body(bytes: &[u8], limit: u64) -> Vec<u8> {
    thread_local! {
        static RUNTIME: Option<tokio::runtime::Runtime> =
            tokio::runtime::Builder::new_current_thread().enable_time().build().ok();
    }
    RUNTIME.with(|runtime| {
        runtime.as_ref().map(|runtime| runtime.block_on(chunked(bytes, limit))).unwrap_or_default()
    })
}

/// The objects of a page of a listing.
#[cfg(feature = "s3")]
pub fn s3_listing(page: &[u8]) -> forebay_core::Result<Vec<crate::ObjectMeta>> {
    crate::cloud::s3::listed(page)
}

/// Names and bytes of the entries of a batched answer, up to the first that makes no sense.
pub fn batch_entries(archive: Bytes) -> Vec<(String, Bytes)> {
    batch_entries_of(archive)
}
