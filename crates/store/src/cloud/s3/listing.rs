//! One page of a listing, out of the XML it comes in.
//!
//! Not an XML reader: it finds the few elements that a listing has, which are never nested in themselves. What it does
//! not understand is an error, never a guess; a page is at most a thousand keys, and its size is bounded by who asks.

use crate::http::uri;
use crate::{ObjectMeta, key};
use forebay_core::{Error, Result};

/// What a page says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Page {
    /// Objects in the order of the server; those whose keys this crate does not allow are left out.
    pub(super) objects: Vec<ObjectMeta>,
    /// The last key of the page, left out or not.
    pub(super) last: Option<String>,
    /// Whether there are more.
    pub(super) is_truncated: bool,
    /// What to ask for the next page with.
    pub(super) token: Option<String>,
}

/// Reads a page.
pub(super) fn parse(body: &[u8]) -> Result<Page> {
    let text = std::str::from_utf8(body).map_err(|error| wrong("it is not text").with_source(error))?;
    let head = text.find("<Contents>").map_or(text, |at| &text[..at]);
    let tail = text.rfind("</Contents>").map_or("", |at| &text[at..]);
    // Servers put these before or behind the objects.
    let around = |name: &str| element(head, name).or_else(|| element(tail, name));
    if !text.contains("<ListBucketResult") {
        return Err(wrong("it has no `ListBucketResult`"));
    }
    let is_encoded = around("EncodingType") == Some("url");
    let mut page = Page {
        is_truncated: around("IsTruncated").is_some_and(|word| word.trim() == "true"),
        token: around("NextContinuationToken").map(unescape).transpose()?.filter(|token| !token.is_empty()),
        ..Page::default()
    };
    let mut rest = text;
    while let Some((_, begin)) = rest.split_once("<Contents>") {
        let Some((object, behind)) = begin.split_once("</Contents>") else {
            return Err(wrong("it ends inside an object"));
        };
        rest = behind;
        let key = unescape(element(object, "Key").ok_or_else(|| wrong("an object has no key"))?)?;
        let key = if is_encoded { decode(&key)? } else { key };
        let size = element(object, "Size").and_then(|size| size.trim().parse().ok());
        let size = size.ok_or_else(|| wrong("an object has no size"))?;
        let etag = element(object, "ETag").map(unescape).transpose()?;
        let stamp = crate::cloud::stamp_of(etag.as_deref());
        page.last = Some(key.clone());
        // Folders that consoles make (`a/`), and keys that are second names by our rule.
        if key::check_for_write(&key).is_ok() {
            page.objects.push(ObjectMeta { key, size, stamp });
        }
    }
    Ok(page)
}

/// The text of the first element of that name.
pub(super) fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let begin = text.find(&format!("<{name}>"))? + name.len() + 2;
    let text = text.get(begin..)?;
    text.get(..text.find(&format!("</{name}>"))?)
}

/// Resolves `&amp;` and the like.
pub(super) fn unescape(text: &str) -> Result<String> {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('&') {
        plain.push_str(before);
        let (name, behind) = behind.split_once(';').ok_or_else(|| wrong("a `&` stands alone"))?;
        rest = behind;
        let number = |digits: &str, radix| u32::from_str_radix(digits, radix).ok().and_then(char::from_u32);
        let character = match name {
            "amp" => Some('&'),
            "lt" => Some('<'),
            "gt" => Some('>'),
            "quot" => Some('"'),
            "apos" => Some('\''),
            _ => match name.strip_prefix('#') {
                Some(digits) => match digits.strip_prefix(['x', 'X']) {
                    Some(digits) => number(digits, 16),
                    None => number(digits, 10),
                },
                None => None,
            },
        };
        plain.push(character.ok_or_else(|| wrong("it uses a name for a character that XML does not have"))?);
    }
    plain.push_str(rest);
    Ok(plain)
}

/// Keys in listings are encoded as forms are: a plus is a space.
fn decode(key: &str) -> Result<String> {
    uri::decode(&key.replace('+', "%20"))
        .map_err(|error| wrong("a key is not encoded as it says").with_source(error))
}

fn wrong(why: &str) -> Error {
    Error::corrupt(format!("the answer is no listing: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name><Prefix></Prefix><KeyCount>3</KeyCount>
<MaxKeys>1000</MaxKeys><IsTruncated>true</IsTruncated><NextContinuationToken>a&amp;b=</NextContinuationToken>
<Contents><Key>a/</Key><Size>0</Size></Contents>
<Contents><Key>a/b%2Bc+d%0Ae%26</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>&quot;e1&quot;</ETag>
<Size>12</Size><Owner><ID>x</ID></Owner></Contents><Contents><Key>a/%C3%BC</Key><ETag>"e2"</ETag><Size>5</Size></Contents>
<EncodingType>url</EncodingType></ListBucketResult>"#;

    #[test]
    fn a_page_gives_keys_decoded_and_the_way_to_the_next() {
        let page = parse(PAGE.as_bytes()).unwrap();
        let keys: Vec<_> = page.objects.iter().map(|meta| (meta.key.as_str(), meta.size)).collect();
        assert_eq!(keys, [("a/b+c d\ne&", 12), ("a/ü", 5)]);
        assert_eq!(page.objects[0].stamp, crate::cloud::stamp_of(Some("e1")));
        assert_eq!(
            (page.is_truncated, page.token.as_deref(), page.last.as_deref()),
            (true, Some("a&b="), Some("a/ü"))
        );
    }

    #[test]
    fn keys_of_servers_that_do_not_encode_are_taken_as_they_are() {
        let page = PAGE.replace("<EncodingType>url</EncodingType>", "").replace("%C3%BC", "x&#x3c;%41");
        assert_eq!(parse(page.as_bytes()).unwrap().objects[1].key, "a/x<%41");
    }

    #[test]
    fn what_is_no_listing_is_corrupt() {
        for bad in [
            "",
            "<html></html>",
            "<ListBucketResult><Contents><Key>a</Key>",
            "<ListBucketResult><Contents></Contents>",
        ] {
            assert_eq!(parse(bad.as_bytes()).unwrap_err().kind(), forebay_core::ErrorKind::Corrupt, "{bad}");
        }
        let no_size = PAGE.replace("<Size>12</Size>", "<Size>-1</Size>");
        assert!(parse(no_size.as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn any_damage_to_a_page_is_an_answer_or_an_error_never_a_panic(at in 0usize..700, byte: u8, cut in 0usize..700) {
            let mut page = PAGE.as_bytes().to_vec();
            let at = at % page.len();
            page[at] = byte;
            let _ = parse(&page);
            page.truncate(cut);
            let _ = parse(&page);
        }
    }
}
