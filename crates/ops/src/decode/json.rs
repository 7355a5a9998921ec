//! JSON is checked here and handed over as text; the front end builds its own objects from it.
//!
//! No tree is built, so a document costs no more than its own bytes, and nesting is bounded, so that no reader
//! further on can be made to run out of stack.

use forebay_core::{Error, Result};
use serde::de::IgnoredAny;

/// Levels of nesting a document may have.
pub const MAX_DEPTH: usize = 128;

/// The document's text, when it is valid JSON in UTF-8 of at most [`MAX_DEPTH`] levels.
pub fn decode(payload: &[u8]) -> Result<&str> {
    let text = super::text::decode(payload).map_err(|error| error.while_doing("decode json"))?;
    if depth(payload) > MAX_DEPTH {
        return Err(Error::unsupported(format!("decode json: nested deeper than {MAX_DEPTH} levels")));
    }
    serde_json::from_str::<IgnoredAny>(text)
        .map_err(|cause| Error::corrupt("decode json").with_source(cause))?;
    Ok(text)
}

/// The deepest nesting of brackets outside strings; exact for valid JSON, and some number for other bytes.
fn depth(bytes: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0usize, 0);
    let mut bytes = bytes.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'"' => skip_string(&mut bytes),
            _ => {}
        }
    }
    deepest
}

fn skip_string(bytes: &mut std::slice::Iter<'_, u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => drop(bytes.next()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::ErrorKind;
    use proptest::prelude::*;

    #[test]
    fn documents_come_back_as_they_are() {
        for text in
            ["{}", " [1, 2.5e3, null, true] ", r#"{"a\"[[[": "\u00e9", "b": {"c": []}}"#, "\"ü\"", "3"]
        {
            assert_eq!(decode(text.as_bytes()).unwrap(), text);
        }
    }

    #[test]
    fn what_is_not_json_is_corrupt() {
        for text in ["", "{", "[1,]", "nul", "{'a': 1}", "1 2", "NaN", "\"\u{1}\"", "]["] {
            assert_eq!(decode(text.as_bytes()).unwrap_err().kind(), ErrorKind::Corrupt, "{text:?}");
        }
        assert_eq!(decode(b"\"\xff\"").unwrap_err().kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn p079_nesting_is_bounded_and_a_million_brackets_do_no_harm() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(decode(nested(MAX_DEPTH).as_bytes()).is_ok());
        assert_eq!(decode(nested(MAX_DEPTH + 1).as_bytes()).unwrap_err().kind(), ErrorKind::Unsupported);
        assert_eq!(decode("[".repeat(1 << 20).as_bytes()).unwrap_err().kind(), ErrorKind::Unsupported);
        assert_eq!(decode("{\"a\":".repeat(1 << 20).as_bytes()).unwrap_err().kind(), ErrorKind::Unsupported);
    }

    proptest! {
        #[test]
        fn any_text_is_judged_as_a_full_parser_judges_it(text in r#"[\[\]{}",:0-9a\\ ntrue\-\.]{0,24}"#) {
            let full = serde_json::from_str::<serde_json::Value>(&text);
            // Numbers beyond every float are syntax, and only a parser that builds values minds them.
            prop_assume!(!full.as_ref().is_err_and(|e| e.to_string().contains("number out of range")));
            // The same goes for halves of surrogate pairs.
            prop_assume!(!text.contains("\\u"));
            prop_assert_eq!(decode(text.as_bytes()).is_ok(), full.is_ok(), "{:?}", full);
        }
    }
}
