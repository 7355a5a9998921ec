//! Text is UTF-8, handed over as it is.

use forebay_core::{Error, Result};

/// The bytes as text, or where they stop being UTF-8.
pub fn decode(payload: &[u8]) -> Result<&str> {
    std::str::from_utf8(payload).map_err(|cause| {
        let message =
            format!("decode text: not UTF-8 from byte {} of {} on", cause.valid_up_to(), payload.len());
        Error::corrupt(message).with_hint("take the field as bytes to deliver it undecoded")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_passes_unchanged_and_the_first_bad_byte_is_named() {
        assert_eq!(decode("grüße\n".as_bytes()).unwrap(), "grüße\n");
        assert_eq!(decode(b"").unwrap(), "");
        let error = decode(b"ok \xe9").unwrap_err();
        assert_eq!(error.message(), "decode text: not UTF-8 from byte 3 of 4 on");
    }

    #[test]
    fn overlong_forms_and_surrogates_are_refused() {
        for bytes in [&b"\xc0\x80"[..], b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\x80"] {
            assert!(decode(bytes).is_err(), "{bytes:?}");
        }
    }
}
