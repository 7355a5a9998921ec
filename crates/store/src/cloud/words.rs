//! How option words are read: switches, and several spellings of one option.

use crate::StoreOptions;
use forebay_core::{Error, Result};

/// A switch: `true` or `false`, in the spellings that environment variables have too.
pub(super) fn switch(name: &str, value: &str) -> Result<bool> {
    match value.trim().to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Ok(true),
        "false" | "0" | "no" | "off" => Ok(false),
        other => {
            let why = format!("read option `{name}`: `{other}` is neither `true` nor `false`");
            Err(Error::invalid_config(why))
        }
    }
}

/// The value of the first of several spellings; two that differ are refused rather than one chosen.
pub(super) fn one_of<'a>(options: &'a StoreOptions, names: &[&str]) -> Result<Option<&'a str>> {
    let mut found: Option<(&str, &str)> = None;
    for name in names {
        let Some(value) = options.get(*name) else { continue };
        match found {
            Some((other, before)) if before != value => {
                let why = format!("read options `{other}` and `{name}`: they mean the same and differ");
                return Err(Error::invalid_config(why));
            }
            _ => found = Some((name, value)),
        }
    }
    Ok(found.map(|(_, value)| value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_spellings_of_one_option_may_not_differ() {
        let options = |pairs: &[(&str, &str)]| -> StoreOptions {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let names = ["secret", "secret_access_key"];
        assert_eq!(one_of(&options(&[("secret", "a")]), &names).unwrap(), Some("a"));
        assert_eq!(
            one_of(&options(&[("secret", "a"), ("secret_access_key", "a")]), &names).unwrap(),
            Some("a")
        );
        let error = one_of(&options(&[("secret", "hush"), ("secret_access_key", "b")]), &names).unwrap_err();
        assert!(!error.report().contains("hush"));
    }
}
