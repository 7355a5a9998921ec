//! What a user may say about connections, and how words become numbers.

use super::checksum::Checksums;
use super::tls::TlsOptions;
use crate::StoreOptions;
use forebay_core::{Error, Result};
use std::time::Duration;

/// Option words read by [`HttpOptions::from_words`], those of [`super::tls::WORDS`] not included.
pub const WORDS: &[&str] = &["connections", "connect_timeout_seconds", "read_timeout_seconds", "checksums"];

/// How connections are made and kept.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// A connection that is not there after this time counts as refused.
    pub connect_timeout: Duration,
    /// A server that sends no byte for so long counts as gone.
    pub read_timeout: Duration,
    /// Most connections to one host and port at once; requests beyond wait in order.
    pub connections: usize,
    /// Most connections kept open without a request.
    pub idle_connections: usize,
    /// Which checksums that come with an object are compared with its bytes.
    pub checksums: Checksums,
    /// How the other side of `https://` is checked.
    pub tls: TlsOptions,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            read_timeout: Duration::from_secs(30),
            connections: 4096,
            idle_connections: 512,
            checksums: Checksums::default(),
            tls: TlsOptions::default(),
        }
    }
}

impl HttpOptions {
    /// From what a user said about a store: see [`WORDS`] and [`super::tls::WORDS`].
    pub fn from_words(words: &StoreOptions) -> Result<Self> {
        let plain = Self::default();
        let connections = match words.get("connections").map(|word| (word, word.trim().parse::<usize>())) {
            None => plain.connections,
            Some((_, Ok(number @ 1..=65_536))) => number,
            Some((word, _)) => {
                let why = format!("read option `connections`: `{word}` is no number from 1 to 65536");
                return Err(Error::invalid_config(why));
            }
        };
        Ok(Self {
            connect_timeout: seconds(words, "connect_timeout_seconds", plain.connect_timeout)?,
            read_timeout: seconds(words, "read_timeout_seconds", plain.read_timeout)?,
            connections,
            checksums: Checksums::from_words(words)?,
            tls: TlsOptions::from_words(words)?,
            ..plain
        })
    }
}

/// Refuses words that are in none of the lists, because a misspelt option would silently do nothing.
pub fn refuse_unknown(words: &StoreOptions, scheme: &str, known: &[&[&str]]) -> Result<()> {
    let Some(word) = words.keys().find(|word| !known.iter().any(|list| list.contains(&word.as_str()))) else {
        return Ok(());
    };
    let list = known.concat().join("`, `");
    Err(Error::invalid_config(format!("read the options of a `{scheme}://` store: there is no `{word}`"))
        .with_hint(format!("known are `{list}`")))
}

fn seconds(words: &StoreOptions, word: &str, default: Duration) -> Result<Duration> {
    let Some(value) = words.get(word) else { return Ok(default) };
    let parsed = value.trim().parse::<f64>().ok().filter(|seconds| (0.001..=86_400.0).contains(seconds));
    parsed.map(Duration::from_secs_f64).ok_or_else(|| {
        Error::invalid_config(format!("read option `{word}`: `{value}` is no number of seconds up to a day"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_options_and_misspelt_ones_are_named() {
        let words = |pairs: &[(&str, &str)]| -> StoreOptions {
            pairs.iter().map(|(word, value)| ((*word).to_owned(), (*value).to_owned())).collect()
        };
        let options =
            HttpOptions::from_words(&words(&[("connections", "8"), ("read_timeout_seconds", "0.5")]));
        let options = options.unwrap();
        assert_eq!((options.connections, options.read_timeout), (8, Duration::from_millis(500)));
        for bad in [("connections", "0"), ("connections", "many"), ("connect_timeout_seconds", "NaN")] {
            assert!(HttpOptions::from_words(&words(&[bad])).is_err(), "{bad:?}");
        }
        let error =
            refuse_unknown(&words(&[("conections", "1")]), "http", &[WORDS, super::super::tls::WORDS])
                .unwrap_err();
        assert!(error.message().contains("conections") && error.hint().unwrap().contains("connections"));
    }
}
