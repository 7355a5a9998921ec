//! Stores of the clouds: S3 and all that speaks like it ([`s3`]), Google Cloud Storage and Azure
//! (`bucket` opens them, [`store`] reads them).
//!
//! S3 has requests of its own over this crate's HTTP client, because it is the hot path and because its keys may hold
//! any character; of the `object_store` crate it uses the credentials. The others are `object_store`
//! behind the trait, with its limits: keys without control characters. Both send by this crate's client (`connector`).

#[cfg(any(feature = "azure", feature = "gcs"))]
pub mod bucket;
pub mod connector;
#[cfg(feature = "s3")]
pub mod s3;
pub mod store;

mod words;

pub use store::CloudStore;

use xxhash_rust::xxh3::xxh3_64;

/// The stamp of an object by its etag, which listings quote and answers may mark as weak.
fn stamp_of(etag: Option<&str>) -> u64 {
    let Some(etag) = etag else { return 0 };
    // 0 means that nothing is known.
    xxh3_64(etag.trim().trim_start_matches("W/").trim_matches('"').as_bytes()).max(1)
}

/// Whether any key may begin so: a prefix with an empty, `.` or `..` part before its last `/` begins none.
fn begins_a_key(prefix: &str) -> bool {
    let parts = prefix.rsplit_once('/').map(|(parts, _)| parts);
    !prefix.contains('\0') && parts.is_none_or(|parts| crate::key::check(parts).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_does_not_depend_on_how_the_etag_is_quoted() {
        assert_eq!(stamp_of(Some("\"abc\"")), stamp_of(Some("abc")));
        assert_eq!(stamp_of(Some("W/\"abc\"")), stamp_of(Some("abc")));
        assert_ne!(stamp_of(Some("abc")), stamp_of(Some("abd")));
        assert_eq!(stamp_of(None), 0);
    }

    #[test]
    fn prefixes_that_no_key_begins_with_are_known() {
        for good in ["", "a", "a/", "a/b", "a/.", ".", "..", "a/..", "..."] {
            assert!(begins_a_key(good), "{good:?}");
        }
        for bad in ["/", "//", "a//", "a//b", "./", "../", "a/../b", "a\0"] {
            assert!(!begins_a_key(bad), "{bad:?}");
        }
    }
}
