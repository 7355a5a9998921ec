//! From a URL to a store: which schemes there are, where the store ends and the key begins.
//!
//! Opening connects to nothing: the first request does. What a scheme's options mean lives with its store.

use crate::{AisStore, HttpStore, Store, http};
use forebay_core::{Error, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a user may say about a store, by name: `storage_options` in Python, `--storage-option` on the command line.
pub type StoreOptions = BTreeMap<String, String>;

/// A URL in two parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The store: scheme, host or bucket. Two URLs with the same root live in the same store.
    pub root: String,
    /// The key in it, as the store's keys are written: not percent-encoded.
    pub key: String,
}

/// Splits a URL of a remote store; `None` for paths, `file://` and anything that is no URL.
pub fn address(url: &str) -> Result<Option<Address>> {
    let Some((scheme, rest)) = url.split_once("://") else { return Ok(None) };
    let scheme = scheme.to_ascii_lowercase();
    match scheme.as_str() {
        "http" | "https" | "s3" | "s3a" | "gs" | "az" | "ais" | "hdfs" => {
            let (root, key) = rest.split_once('/').unwrap_or((rest, ""));
            if root.is_empty() {
                return Err(Error::invalid_config(format!("open `{url}`: the URL names no host or bucket")));
            }
            let root = format!("{scheme}://{root}");
            if matches!(scheme.as_str(), "http" | "https") {
                return web_address(root, key).map(Some);
            }
            Ok(Some(Address { root, key: key.to_owned() }))
        }
        "cassandra" => {
            let mut parts = rest.splitn(4, '/');
            let mut part = || parts.next().filter(|part| !part.is_empty());
            let (Some(hosts), Some(keyspace), Some(table)) = (part(), part(), part()) else {
                return Err(Error::invalid_config(format!("open `{url}`: the URL names no table"))
                    .with_hint("write `cassandra://host[:port][,host]/keyspace/table`"));
            };
            let root = format!("cassandra://{hosts}/{keyspace}/{table}");
            Ok(Some(Address { root, key: parts.next().unwrap_or_default().to_owned() }))
        }
        _ => Ok(None),
    }
}

/// Paths on the web are percent-encoded, and a query belongs to every request: it is how addresses are signed.
fn web_address(root: String, path: &str) -> Result<Address> {
    let path = path.split('#').next().unwrap_or_default();
    let (path, root) = match path.split_once('?') {
        Some((path, query)) => (path, format!("{root}?{query}")),
        None => (path, root),
    };
    Ok(Address { root, key: http::uri::decode(path)? })
}

/// Opens the store that is the root of an [`Address`]. Nothing is sent before the first request.
pub fn open(root: &str, options: &StoreOptions) -> Result<Arc<dyn Store>> {
    let scheme = root.split("://").next().unwrap_or_default();
    match scheme {
        "http" | "https" => return Ok(Arc::new(HttpStore::open(root, options)?)),
        "ais" => return Ok(Arc::new(AisStore::open(root, options)?)),
        #[cfg(feature = "s3")]
        "s3" | "s3a" => return Ok(Arc::new(crate::cloud::s3::S3Store::open(root, options)?)),
        #[cfg(feature = "gcs")]
        "gs" => return Ok(Arc::new(crate::cloud::bucket::open::<crate::cloud::bucket::Gcs>(root, options)?)),
        #[cfg(feature = "azure")]
        "az" => {
            return Ok(Arc::new(crate::cloud::bucket::open::<crate::cloud::bucket::Azure>(root, options)?));
        }
        #[cfg(feature = "cassandra")]
        "cassandra" => return Ok(Arc::new(crate::CassandraStore::open(root, options)?)),
        #[cfg(feature = "hdfs")]
        "hdfs" => return Ok(Arc::new(crate::HdfsStore::open(root, options)?)),
        _ => {}
    }
    let feature = match scheme {
        "s3" | "s3a" => "s3",
        "gs" => "gcs",
        "az" => "azure",
        "cassandra" => "cassandra",
        "hdfs" => "hdfs",
        _ => return Err(Error::unsupported(format!("open `{root}`: no store has the scheme `{scheme}://`"))),
    };
    let why = format!("open `{root}`: this build leaves stores of scheme `{scheme}://` out");
    Err(Error::unsupported(why).with_hint(format!("build it with the feature `{feature}`")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_split_into_store_and_key() {
        let split = |url: &str| address(url).unwrap().map(|Address { root, key }| (root, key));
        let is = |root: &str, key: &str| Some((root.to_owned(), key.to_owned()));
        assert_eq!(split("s3://bucket/a/b.tar"), is("s3://bucket", "a/b.tar"));
        assert_eq!(split("S3://bucket"), is("s3://bucket", ""));
        assert_eq!(split("http://host:80/a/"), is("http://host:80", "a/"));
        assert_eq!(split("http://host/a%20b?sig=1#x"), is("http://host?sig=1", "a b"));
        assert_eq!(split("hdfs://host:9000/a/b.tar"), is("hdfs://host:9000", "a/b.tar"));
        assert_eq!(split("cassandra://a,b:9/space/table"), is("cassandra://a,b:9/space/table", ""));
        assert_eq!((split("/a/b"), split("file:///a"), split("a.tar")), (None, None, None));
        assert!(address("s3:///key").is_err() && address("cassandra://host/space").is_err());
    }

    #[test]
    fn a_store_that_is_left_out_is_named_with_its_feature() {
        for (root, feature, is_in) in [
            ("s3://bucket", "s3", cfg!(feature = "s3")),
            ("gs://bucket", "gcs", cfg!(feature = "gcs")),
            ("az://container", "azure", cfg!(feature = "azure")),
            ("cassandra://host/space/table", "cassandra", cfg!(feature = "cassandra")),
            ("hdfs://host:9000", "hdfs", cfg!(feature = "hdfs")),
        ] {
            let opened = open(root, &StoreOptions::new());
            let left_out = opened.err().filter(|error| error.kind() == forebay_core::ErrorKind::Unsupported);
            let hint = left_out.as_ref().and_then(Error::hint).unwrap_or_default();
            assert_eq!(hint.contains(&format!("the feature `{feature}`")), !is_in, "{root}");
        }
    }
}
