//! What a recipe names beside samples, read where samples are prepared: the file of a tokenizer, recordings of noise.
//!
//! Nothing is read where a loader is made, nor where others make its batches. What was read is compared with what the
//! recipe says of it, so that every process of a job works with the same.

use crate::inputs::Inputs;
use crate::source::DataSpec;
use bytes::Bytes;
use forebay_core::manifest::Location;
use forebay_core::recipe::tokens::Tokenize;
use forebay_core::recipe::{MixNoise, Recipe};
use forebay_core::{Error, ErrorKind, Result, SampleId};
use forebay_ops::Input;
use forebay_store::{ByteRange, RetryOptions, RetryStore, Store};
use futures::{StreamExt, TryStreamExt, stream};
use ring::digest::{SHA256, digest};
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// Largest file of a tokenizer that is read; the largest in common use have some 30 MiB.
const MAX_TOKENIZER_BYTES: u64 = 64 << 20;

/// Recordings that are read at once.
const READS_AT_ONCE: usize = 16;

/// Reads files of this machine, and datasets wherever they lie.
pub(crate) struct Assets;

impl forebay_ops::Assets for Assets {
    fn tokenizer(&self, op: &Tokenize) -> Result<Bytes> {
        let read = read_tokenizer(&op.file).map_err(|error| match error.kind() {
            ErrorKind::Exhausted => error,
            _ => error.with_hint(
                "the file has to lie under this name on every machine that prepares samples of the recipe",
            ),
        })?;
        if hex(digest(&SHA256, &read).as_ref()) != op.sha256 {
            let why =
                format!("read tokenizer `{}`: it is not the file that the recipe was made with", op.file);
            return Err(Error::stale(why)
                .with_hint("make the recipe anew, or bring the file whose `sha256sum` the recipe has"));
        }
        Ok(read.into())
    }

    fn noise(&self, op: &MixNoise) -> Result<Vec<(String, Bytes)>> {
        // A thread of its own: whoever asks may be inside an executor, where no other can be waited for.
        let read = || {
            let executor = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let executor =
                executor.map_err(|cause| Error::exhausted("start an executor").with_source(cause))?;
            let read = executor.block_on(recordings(op));
            executor.shutdown_background();
            read
        };
        let read = std::thread::scope(|scope| scope.spawn(read).join());
        let read = read.unwrap_or_else(|_| Err(Error::internal("a thread panicked")));
        read.map_err(|error| error.while_doing("read noise to mix in"))
    }
}

/// The op that a file of a tokenizer makes, and what is in the file.
pub(crate) fn tokenizer(file: &Path, add_special_tokens: bool) -> Result<(Tokenize, Vec<u8>)> {
    let file = std::path::absolute(file)
        .map_err(|cause| Error::io(format!("read tokenizer `{}`", file.display()), cause))?;
    let file = file.to_str().map(str::to_owned).ok_or_else(|| {
        Error::invalid_config(format!("read tokenizer `{}`: its path is no UTF-8", file.display()))
    })?;
    let read = read_tokenizer(&file)?;
    let sha256 = hex(digest(&SHA256, &read).as_ref());
    Ok((Tokenize { file, sha256, add_special_tokens }, read))
}

fn read_tokenizer(path: &str) -> Result<Vec<u8>> {
    let doing = format!("read tokenizer `{path}`");
    let fail = |cause: std::io::Error| Error::io(doing.clone(), cause);
    let mut read = Vec::new();
    let file = File::open(path).map_err(fail)?;
    file.take(MAX_TOKENIZER_BYTES + 1).read_to_end(&mut read).map_err(fail)?;
    if read.len() as u64 > MAX_TOKENIZER_BYTES {
        return Err(Error::exhausted(format!("{doing}: it has more than {} MiB", MAX_TOKENIZER_BYTES >> 20)));
    }
    Ok(read)
}

/// The payloads of one field of all samples of a dataset, and where each lies.
async fn recordings(op: &MixNoise) -> Result<Vec<(String, Bytes)>> {
    let spec: DataSpec = serde_json::from_value(op.data.clone().into()).map_err(|cause| {
        Error::invalid_config("`data` does not say how a dataset is opened").with_source(cause)
    })?;
    spec.refuse_secrets()?;
    let dataset = spec.open().await?;
    let (url, manifest) = (dataset.url(), dataset.manifest());
    if manifest.version() != op.version {
        let why = format!("`{url}` has version {}, the recipe means {}", manifest.version(), op.version);
        return Err(Error::stale(why).with_hint("the recordings changed: make the recipe anew"));
    }
    let column = serde_json::json!([{"field": op.field, "decode": "bytes"}]);
    let inputs = Inputs::new(manifest, &Recipe::from_value(column)?)?;
    let samples = || (0..manifest.len()).map(SampleId);
    let bytes = samples().fold(0u64, |all, sample| all.saturating_add(inputs.payload_bytes(sample)));
    if bytes > op.max_bytes {
        let why = format!("`{url}` has {bytes} bytes of recordings, `max_bytes` is {}", op.max_bytes);
        return Err(Error::exhausted(why).with_hint(
            "all of them are kept in memory: raise `max_bytes`, or take fewer or shorter recordings",
        ));
    }
    let store: Arc<dyn Store> = match dataset.store() {
        store if store.is_remote() => Arc::new(RetryStore::new(Arc::clone(store), RetryOptions::default())),
        store => Arc::clone(store),
    };
    let read = |sample: SampleId| {
        let (inputs, store) = (&inputs, &store);
        async move {
            let (mut values, fields) = inputs.of(sample);
            for (field, location) in fields {
                let came = Input::Payload(fetch(store.as_ref(), inputs, location).await?);
                inputs.fill(&mut values, sample, field, &came);
            }
            inputs.take(sample, &mut values)?;
            let Some(Input::Payload(payload)) = values.pop() else {
                let why = format!("sample `{}` of `{url}` has no `{}`", inputs.key(sample), op.field);
                return Err(Error::corrupt(why).with_hint("name the field of the recordings by `field`"));
            };
            Ok((inputs.key(sample), payload))
        }
    };
    // In the order of the dataset, whatever comes first: a draw is the number of a recording.
    stream::iter(samples().map(read)).buffered(READS_AT_ONCE).try_collect().await
}

async fn fetch(store: &dyn Store, inputs: &Inputs, location: Location) -> Result<Bytes> {
    let (key, size) = inputs.object(location.object);
    let range = location.offset..location.offset + location.length;
    let range = if store.is_remote() { ByteRange::within(range, size) } else { range.into() };
    store.read(&key, range).await
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_ops::Assets as _;

    #[test]
    fn a_tokenizer_is_the_file_that_the_recipe_means_or_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokenizer.json");
        let op = |sha256: &str| Tokenize {
            file: path.display().to_string(),
            sha256: sha256.to_owned(),
            add_special_tokens: true,
        };
        // What `sha256sum` says of the three letters.
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(Assets.tokenizer(&op(known)).unwrap_err().kind(), ErrorKind::NotFound);
        std::fs::write(&path, "abc").unwrap();
        assert_eq!(Assets.tokenizer(&op(known)).unwrap(), "abc");
        std::fs::write(&path, "abd").unwrap();
        let error = Assets.tokenizer(&op(known)).unwrap_err();
        assert!(error.kind() == ErrorKind::Stale && error.message().contains("tokenizer.json"), "{error}");
        File::options().write(true).open(&path).unwrap().set_len(MAX_TOKENIZER_BYTES + 1).unwrap();
        assert_eq!(Assets.tokenizer(&op(known)).unwrap_err().kind(), ErrorKind::Exhausted);
    }
}
