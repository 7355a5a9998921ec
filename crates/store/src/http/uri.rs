//! Keys in URLs and URLs in messages: percent-encoding one way, secrets left out the other way.

use forebay_core::{Error, Result};
use std::fmt::Write;
use url::Url;

/// A key as the path of a URL: everything but letters, digits, `-._~` and `/` is percent-encoded.
pub fn encode_path(key: &str) -> String {
    encode(key, true)
}

/// A value as one parameter of a query: `/` and `&` are encoded too.
pub fn encode_value(value: &str) -> String {
    encode(value, false)
}

fn encode(text: &str, keep_slash: bool) -> String {
    let mut encoded = String::with_capacity(text.len() + 16);
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(byte as char),
            b'/' if keep_slash => encoded.push('/'),
            _ => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}

/// The key that a URL's path names. A `%` that begins no escape stands for itself.
pub fn decode(path: &str) -> Result<String> {
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let (bytes, mut decoded, mut at) = (path.as_bytes(), Vec::with_capacity(path.len()), 0);
    while let Some(&byte) = bytes.get(at) {
        let escape = (byte, digit(bytes.get(at + 1)), digit(bytes.get(at + 2)));
        if let (b'%', Some(high), Some(low)) = escape {
            decoded.push((high * 16 + low) as u8);
            at += 3;
        } else {
            decoded.push(byte);
            at += 1;
        }
    }
    String::from_utf8(decoded).map_err(|_| {
        Error::invalid_config(format!("read the path `{path}`: decoded it is no text, and keys are"))
    })
}

/// A URL as messages show it: without user, password and the values of its query, which may be signatures.
pub fn shown(url: &Url) -> String {
    let mut text = format!("{}://{}", url.scheme(), url.host_str().unwrap_or_default());
    if let Some(port) = url.port() {
        let _ = write!(text, ":{port}");
    }
    text.push_str(url.path());
    if url.query().is_some() {
        text.push_str("?...");
    }
    text
}

/// Reads a URL; the message of a failure holds no more of it than the scheme, because the rest may hold a password.
pub fn parse(text: &str) -> Result<Url> {
    Url::parse(text).map_err(|error| {
        let scheme = text.split("://").next().filter(|scheme| scheme.len() < 12).unwrap_or_default();
        Error::invalid_config(format!("read a URL of scheme `{scheme}`")).with_source(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn no_message_shows_a_password_or_a_signature() {
        let url = parse("https://user:secret@host:8443/a/b.tar?X-Signature=abc").unwrap();
        assert_eq!(shown(&url), "https://host:8443/a/b.tar?...");
        assert!(!parse("http://user:secret@:bad").unwrap_err().report().contains("secret"));
    }

    #[test]
    fn a_percent_sign_that_begins_no_escape_is_kept() {
        assert_eq!(decode("a%20b%").unwrap(), "a b%");
        assert_eq!(decode("%zz%4").unwrap(), "%zz%4");
        assert!(decode("%ff").is_err());
    }

    proptest! {
        #[test]
        fn an_encoded_key_decodes_to_itself_and_survives_a_url(key in "[^\\x00]{1,20}") {
            prop_assert_eq!(decode(&encode_path(&key)).unwrap(), key.clone());
            let text = format!("http://host/{}", encode_value(&key));
            let plain = key != "." && key != "..";
            prop_assert!(!plain || parse(&text).unwrap().as_str() == text);
        }
    }
}
