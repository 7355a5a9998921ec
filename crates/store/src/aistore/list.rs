//! Listings, page by page.

use super::{Inner, MOST_LIST_BYTES, refusal};
use crate::http::client::{HttpRequest, Method, Redirects};
use crate::http::exchange::Limits;
use crate::http::tag::Tag;
use crate::http::{HttpClient, uri};
use crate::{ListPage, ObjectMeta, PagePlace, key};
use bytes::{Bytes, BytesMut};
use forebay_core::{Error, Result};
use serde::Deserialize;
use serde_json::json;

/// Keys of one page of a listing.
const PAGE_KEYS: u32 = 1000;

#[derive(Deserialize)]
struct Listed {
    #[serde(default)]
    uuid: String,
    #[serde(default)]
    continuation_token: String,
    #[serde(default)]
    entries: Option<Vec<ListedObject>>,
}

#[derive(Deserialize)]
struct ListedObject {
    name: String,
    #[serde(default)]
    size: String,
    #[serde(default)]
    checksum: String,
    #[serde(default)]
    version: String,
}

impl Inner {
    /// One page of a listing. Its tokens are those of the page and of the listing.
    pub(super) async fn page(&self, client: &HttpClient, prefix: &str, place: PagePlace) -> Result<ListPage> {
        let mut tokens = place.tokens.into_iter();
        let (token, listing) = (tokens.next().unwrap_or_default(), tokens.next().unwrap_or_default());
        let start_after = if token.is_empty() { place.after.as_str() } else { "" };
        let url = self.address(&format!("/v1/buckets/{}", uri::encode_value(&self.bucket)))?;
        // A prefix that is also a directory's name would list that directory only: so whole directories are asked for
        // and what does not fit is passed over. Buckets that stand for other stores know plain prefixes.
        let directory = prefix.rfind('/').map_or("", |at| &prefix[..=at]);
        let asked_prefix = if self.provider == "ais" { directory } else { prefix };
        let asked = json!({"action": "list", "value": {
            "prefix": asked_prefix, "pagesize": PAGE_KEYS, "props": "name,size,checksum,version", "flags": "0",
            "uuid": listing, "continuation_token": token, "start_after": start_after,
        }});
        let mut headers = self.headers.clone();
        headers.extend(["content-type", "accept"].map(|name| (name, "application/json".to_owned())));
        let body = Bytes::from(asked.to_string());
        let request = HttpRequest { method: Method::Get, url: &url, headers: &headers, body, expect: 0 };
        let limits = Limits { part: 0, whole: MOST_LIST_BYTES };
        let answer = client.follow(&request, limits, BytesMut::new(), Redirects::Cluster).await?;
        if answer.status != 200 {
            return Err(refusal(answer.status, &answer.headers, &answer.body));
        }
        if let Some(cut) = answer.cut {
            return Err(cut);
        }
        let senseless = |why: String| Error::corrupt(format!("the answer makes no sense: {why}"));
        let listed: Listed =
            serde_json::from_slice(&answer.body).map_err(|error| senseless(error.to_string()))?;
        let (mut found, mut passed, mut last) = (Vec::new(), false, None);
        for object in listed.entries.unwrap_or_default() {
            // Keys come in order: nothing fits behind the first that is too far.
            passed |= object.name.as_str() > prefix && !object.name.starts_with(prefix);
            last = Some(object.name.clone());
            if key::check(&object.name).is_err() || !object.name.starts_with(prefix) {
                continue;
            }
            let size = if object.size.is_empty() { Ok(0) } else { object.size.parse() };
            let size = size.map_err(|_| senseless(format!("size `{}`", object.size.escape_debug())))?;
            let tag = (!object.checksum.is_empty()).then(|| Tag::checked(&object.checksum, &object.version));
            found.push(ObjectMeta { key: object.name, size, stamp: Tag::stamp(tag.as_ref()) });
        }
        if passed || listed.continuation_token.is_empty() {
            return Ok(ListPage { objects: found, last, next: None });
        }
        if listed.continuation_token == token {
            return Err(senseless("the listing does not go on".to_owned()));
        }
        let after = last.clone().unwrap_or(place.after);
        let next = PagePlace { after, tokens: vec![listed.continuation_token, listed.uuid] };
        Ok(ListPage { objects: found, last, next: Some(next) })
    }
}

/// Whether no key can begin so, and asking would only be refused.
pub(super) fn names_nothing(prefix: &str) -> bool {
    let mut parts: Vec<&str> = prefix.split('/').collect();
    parts.pop();
    prefix.contains('\0') || parts.iter().any(|part| matches!(*part, "" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_that_no_key_has_are_not_asked_for() {
        for nothing in ["/", "../", "a/../", "./", "a//"] {
            assert!(names_nothing(nothing), "{nothing}");
        }
        for something in ["", "a", "a/", "..", "...", "a/."] {
            assert!(!names_nothing(something), "{something}");
        }
    }
}
