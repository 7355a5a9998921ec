//! The HTTP client and store against servers that behave, misbehave and lie.
#![expect(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

mod client;
mod reads;
mod server;
mod tls;

use forebay_store::{HttpStore, StoreOptions};

fn words(pairs: &[(&str, &str)]) -> StoreOptions {
    pairs.iter().map(|(word, value)| ((*word).to_owned(), (*value).to_owned())).collect()
}

fn store(root: &str) -> HttpStore {
    HttpStore::open(root, &words(&[])).unwrap()
}
