//! `forebay tokenize`: what is typed, and what it means.

use super::Data;
use super::data::HowArgs;
use clap::{Args, ValueEnum};
use forebay_core::Result;
use forebay_core::size::parse_bytes;
use forebay_core::tensor::Dtype;
use forebay_engine::tokenize::TokenizeOptions;
use std::path::PathBuf;

/// `forebay tokenize`.
#[derive(Debug, Args)]
pub(crate) struct TokenizeArgs {
    /// What `info` understands: shards, lines, tables or folders with texts, also behind a URL.
    #[arg(value_name = "SOURCE")]
    from: String,
    /// Both files without their endings: `data/corpus` makes `data/corpus.bin` and `data/corpus.idx`.
    #[arg(value_name = "OUT")]
    out: PathBuf,
    /// The tokenizer: a `tokenizer.json` as Hugging Face writes it.
    #[arg(long, value_name = "FILE")]
    tokenizer: PathBuf,
    /// The field with the text.
    #[arg(long, default_value = "text", value_name = "FIELD")]
    field: String,
    /// How a token is stored. [default: u16 when the vocabulary fits, else i32]
    #[arg(long, value_enum, value_name = "TYPE")]
    dtype: Option<TokenType>,
    /// Leave out the tokens that the tokenizer puts around every text.
    #[arg(long)]
    no_special_tokens: bool,
    /// A token to put behind every document that has tokens, by its number. [default: none]
    #[arg(long, value_name = "ID")]
    eos: Option<u32>,
    /// Threads that tokenize. [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Bytes that texts and tokens may take together.
    #[arg(long, default_value = "1GiB", value_name = "SIZE")]
    memory: String,
    /// Replace files that are there.
    #[arg(long)]
    overwrite: bool,
    #[command(flatten)]
    how: HowArgs,
}

/// A type of tokens that is written.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum TokenType {
    /// Two bytes.
    U16,
    /// Four bytes.
    I32,
    /// Four bytes without a sign, which Megatron-LM itself does not read.
    U32,
}

/// What `tokenize` does.
#[derive(Debug)]
pub(crate) struct TokenizeJob {
    pub(crate) data: Data,
    pub(crate) options: TokenizeOptions,
}

impl TokenizeArgs {
    pub(crate) fn resolve(self) -> Result<TokenizeJob> {
        let given = TokenizeOptions::new(self.out, self.field, self.tokenizer);
        let memory_bytes = parse_bytes(&self.memory).map_err(|error| error.while_doing("read --memory"))?;
        let options = TokenizeOptions {
            add_special_tokens: !self.no_special_tokens,
            eos: self.eos,
            dtype: self.dtype.map(|dtype| match dtype {
                TokenType::U16 => Dtype::U16,
                TokenType::I32 => Dtype::I32,
                TokenType::U32 => Dtype::U32,
            }),
            threads: self.threads.map_or(given.threads, usize::from),
            memory_bytes,
            overwrite: self.overwrite,
            ..given
        };
        Ok(TokenizeJob { data: self.how.resolve(vec![self.from])?, options })
    }
}
