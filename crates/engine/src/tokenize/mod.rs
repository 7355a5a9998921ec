//! Texts of a dataset become a file of tokens, once: Megatron-LM's `.bin` and `.idx`, a document for each sample.
//!
//! A loader reads and tokenizes in stored order, on its threads and within its memory, so documents hold the tokens that a
//! loop with the same tokenizer gets. One thread writes them one behind the other (`files`), so the bytes do not depend on
//! how many threads there were. How such files are read is in `source`.

mod files;
mod names;

use crate::assets;
use crate::batch::Batch;
use crate::config::{LoaderConfig, available_threads};
use crate::loader::{Loader, Next};
use crate::source::Dataset;
use files::TokenFiles;
use forebay_core::manifest::Manifest;
use forebay_core::portion::{Consumer, LastBatch};
use forebay_core::recipe::Recipe;
use forebay_core::recipe::tokens::Tokenize;
use forebay_core::tensor::Dtype;
use forebay_core::{Error, Result};
use forebay_ops::{Column, Vocabulary};
use names::Names;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How long one wait for a batch lasts before the caller is asked whether to go on.
const SLICE: Duration = Duration::from_millis(50);

/// Most samples of a batch: enough for all threads, few enough to see progress.
const MOST_ROWS: u64 = 256;

/// How often a sample of the largest size must find room in memory for each row of a batch: a loader expects up to sixteen
/// bytes for each that is stored, beside the payload, and some batches are open at once.
const ROOM: u64 = 4 * 17;

/// What is tokenized, and where tokens go.
#[derive(Clone, Debug)]
pub struct TokenizeOptions {
    /// The two files without `.bin` and `.idx`. Their folder is made.
    pub out: PathBuf,
    /// The field with the text.
    pub field: String,
    /// The tokenizer's file.
    pub tokenizer: PathBuf,
    /// Whether tokens that the tokenizer puts around every text are there.
    pub add_special_tokens: bool,
    /// A token behind every document; one without any token stays empty.
    pub eos: Option<u32>,
    /// Element type: `u16`, `i32` or `u32`. `None` takes the first of these that the vocabulary fits into.
    pub dtype: Option<Dtype>,
    /// Preparing threads.
    pub threads: usize,
    /// Bytes that payloads and tokens may take together.
    pub memory_bytes: u64,
    /// Whether files that are there are replaced. Otherwise they are an error.
    pub overwrite: bool,
}

impl TokenizeOptions {
    /// `field` by `tokenizer` into `out`, with 1 GiB of memory.
    pub fn new(out: impl Into<PathBuf>, field: impl Into<String>, tokenizer: impl Into<PathBuf>) -> Self {
        Self {
            out: out.into(),
            field: field.into(),
            tokenizer: tokenizer.into(),
            add_special_tokens: true,
            eos: None,
            dtype: None,
            threads: available_threads(),
            memory_bytes: 1 << 30,
            overwrite: false,
        }
    }
}

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tokenized {
    /// Documents: one for each sample.
    pub documents: u64,
    /// Those without any token, which are no samples of the files.
    pub empty: u64,
    /// Tokens of all documents.
    pub tokens: u64,
    /// Element type of the tokens.
    pub dtype: Dtype,
    /// The file of tokens.
    pub data: PathBuf,
    /// Bytes of it.
    pub data_bytes: u64,
    /// The file that says where documents are.
    pub index: PathBuf,
    /// Bytes of it.
    pub index_bytes: u64,
}

/// What a run has to do, as far as that is known without the dataset.
pub struct TokenizePlan {
    options: TokenizeOptions,
    names: Names,
    op: Tokenize,
    /// What the tokenizer knows.
    pub vocabulary: Vocabulary,
    /// Element type of the tokens.
    pub dtype: Dtype,
}

/// Reads the tokenizer and says what is to be done. Writes nothing.
pub fn plan(options: TokenizeOptions) -> Result<TokenizePlan> {
    let names = Names::of(&options.out)?;
    names.refuse_existing(options.overwrite)?;
    let (op, file) = assets::tokenizer(&options.tokenizer, options.add_special_tokens)?;
    let vocabulary = Vocabulary::read(&file)
        .map_err(|error| error.while_doing(format_args!("read tokenizer `{}`", op.file)))?;
    let dtype = dtype(&options, &vocabulary)?;
    Ok(TokenizePlan { options, names, op, vocabulary, dtype })
}

/// Tokenizes all samples of a dataset in stored order. `watch` is told how many samples are written and how many there
/// are, many times a second, and may end it by an error: then nothing is left, and files that were there before stay.
pub fn run(
    dataset: &Dataset,
    plan: &TokenizePlan,
    watch: &mut dyn FnMut(u64, u64) -> Result<()>,
) -> Result<Tokenized> {
    let samples = dataset.manifest().len();
    let mut loader = loader(dataset, plan)?;
    let options = &plan.options;
    let mut files = TokenFiles::create(plan.names.clone(), plan.dtype, options.eos, options.overwrite)?;
    loader.begin()?;
    loop {
        match loader.next(SLICE)? {
            Next::Batch(batch) => add(&mut files, &batch, dataset.manifest())?,
            Next::Waiting => {}
            Next::End => break,
        }
        watch(files.documents(), samples)?;
    }
    if files.documents() != samples {
        let why = format!("tokenize: {} of {samples} samples came", files.documents());
        return Err(Error::internal(why));
    }
    files.finish()
}

/// The smallest type that holds every token, of those that are usual in such files: what Megatron-LM reads comes first.
fn dtype(options: &TokenizeOptions, vocabulary: &Vocabulary) -> Result<Dtype> {
    let end = vocabulary.end.max(options.eos.map_or(0, |eos| u64::from(eos) + 1));
    let ends = [(Dtype::U16, 1u64 << 16), (Dtype::I32, 1 << 31), (Dtype::U32, 1 << 32)];
    let fits = |dtype: &Dtype| ends.iter().find(|(known, _)| known == dtype).map(|(_, most)| end <= *most);
    let Some(asked) = options.dtype else {
        return Ok(ends.into_iter().find(|(_, most)| end <= *most).map_or(Dtype::U32, |(dtype, _)| dtype));
    };
    match fits(&asked) {
        Some(true) => Ok(asked),
        Some(false) => Err(Error::invalid_config(format!(
            "write tokens as {}: the largest is {}",
            asked.name(),
            end.saturating_sub(1)
        ))
        .with_hint("leave the type out: the smallest is taken that holds every token")),
        None => Err(Error::unsupported(format!("write tokens as {}", asked.name()))
            .with_hint("tokens are written as `u16`, `i32` or `u32`")),
    }
}

/// What reads and tokenizes.
fn loader(dataset: &Dataset, plan: &TokenizePlan) -> Result<Loader> {
    let (manifest, TokenizePlan { options, op, dtype, .. }) = (dataset.manifest(), plan);
    let recipe = Recipe::from_value(serde_json::json!([{
        "field": options.field,
        "decode": "text",
        "dtype": dtype.name(),
        "ops": [{
            "op": "tokenize",
            "file": op.file,
            "sha256": op.sha256,
            "add_special_tokens": op.add_special_tokens,
        }],
    }]))?;
    let largest = manifest.largest_sample_bytes().max(1);
    let batch_size = (options.memory_bytes / ROOM / largest).clamp(1, MOST_ROWS);
    let config = LoaderConfig {
        consumer: Consumer { rank: 0, world_size: 1, batch_size, last_batch: LastBatch::Partial },
        threads: options.threads,
        memory_bytes: Some(options.memory_bytes),
        epochs: Some(1),
        // Whoever watches decides how long is too long.
        timeout: None,
        ..LoaderConfig::default()
    };
    Loader::new(manifest, Arc::clone(dataset.store()), &recipe, config)
}

fn add(files: &mut TokenFiles, batch: &Batch, manifest: &Manifest) -> Result<()> {
    let rows: Vec<&[u8]> = match batch.columns.first() {
        Some((_, Column::Tensors(rows))) => rows.iter().map(|row| row.data.as_slice()).collect(),
        // All texts of the batch have as many tokens.
        Some((_, Column::Tensor { spec, rows, data })) => {
            let bytes = spec.bytes();
            (0..*rows).map(|row| &data.as_slice()[row * bytes..][..bytes]).collect()
        }
        _ => return Err(Error::internal("tokenize: the loader gave no tokens")),
    };
    for (sample, row) in batch.ids.iter().zip(rows) {
        files.add(row).map_err(|error| {
            error.while_doing(format_args!("write the tokens of sample `{}`", manifest.key(*sample)))
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::ErrorKind;

    #[test]
    fn the_smallest_type_is_taken_that_holds_every_token() {
        let chosen = |end: u64, eos: Option<u32>, dtype: Option<Dtype>| {
            let options = TokenizeOptions { eos, dtype, ..TokenizeOptions::new("x", "text", "t.json") };
            super::dtype(&options, &Vocabulary { end, truncates: None, pads: false })
        };
        for (end, eos, wanted) in [
            (0, None, Dtype::U16),
            (65_536, None, Dtype::U16),
            (65_537, None, Dtype::I32),
            (10, Some(65_535), Dtype::U16),
            (10, Some(65_536), Dtype::I32),
            (1 << 31, None, Dtype::I32),
            ((1 << 31) + 1, None, Dtype::U32),
        ] {
            assert_eq!(chosen(end, eos, None).unwrap(), wanted, "{end} {eos:?}");
        }
        assert_eq!(chosen(10, None, Some(Dtype::I32)).unwrap(), Dtype::I32);
        let error = chosen(70_000, None, Some(Dtype::U16)).unwrap_err();
        assert!(error.message().contains("the largest is 69999"), "{error}");
        assert_eq!(chosen(10, None, Some(Dtype::I64)).unwrap_err().kind(), ErrorKind::Unsupported);
    }
}
