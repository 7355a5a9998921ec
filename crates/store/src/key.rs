//! Which strings may be keys: the one rule that every store and adapter shares.
//!
//! A key is a relative path of non-empty parts separated by `/`. What a store puts behind a key (a file, an object, a
//! map entry) lives with that store.

use forebay_core::{Error, Result};

/// Parts that begin so belong to writes that have not finished; no key may use them and no listing shows them.
pub const TEMPORARY_PREFIX: &str = ".tmp-";

/// Refuses keys that are absolute, that have empty, `.` or `..` parts, or that contain NUL.
///
/// One object has one key: `a//b`, `./a` and `a/../b` would be second names of it, and `..` would leave the store.
pub fn check(key: &str) -> Result<()> {
    let why = if key.is_empty() {
        "it is empty"
    } else if key.starts_with('/') {
        "it is absolute, and keys are relative to the store"
    } else if key.contains('\0') {
        "it contains a NUL byte"
    } else if key.split('/').any(str::is_empty) {
        "it has an empty part"
    } else if key.split('/').any(|part| part == "." || part == "..") {
        "it has a `.` or `..` part"
    } else {
        return Ok(());
    };
    Err(Error::invalid_config(format!("use key `{}`: {why}", key.escape_debug())))
}

/// As [`check`], and refuses the names kept for unfinished writes.
pub fn check_for_write(key: &str) -> Result<()> {
    check(key)?;
    if key.split('/').any(|part| part.starts_with(TEMPORARY_PREFIX)) {
        let why = format!("parts that begin with `{TEMPORARY_PREFIX}` are kept for unfinished writes");
        return Err(Error::invalid_config(format!("write key `{}`: {why}", key.escape_debug())));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn keys_that_leave_the_store_or_name_an_object_twice_are_refused() {
        for bad in ["", "/", "/a", "a/", "a//b", "..", "../a", "a/..", "a/../b", ".", "./a", "a/./b", "a\0b"]
        {
            assert!(check(bad).is_err(), "{bad:?}");
        }
        for good in ["a", "a/b", "...", ".hidden", "..a", "a b", "ü/日本", "a\\b", "a?b#c%2e", "-", "~"] {
            assert!(check(good).is_ok(), "{good:?}");
        }
        assert!(check(".tmp-1").is_ok());
        assert!(check_for_write("a/.tmp-1").is_err());
    }

    proptest! {
        #[test]
        fn a_key_that_passes_joins_to_a_path_below_the_root(key in "[./a\\\\-]{0,12}") {
            if check(&key).is_ok() {
                let path = std::path::Path::new("/root").join(&key);
                prop_assert!(path.components().all(|part| part != std::path::Component::ParentDir));
                prop_assert!(path.starts_with("/root") && path != std::path::Path::new("/root"));
            }
        }
    }
}
