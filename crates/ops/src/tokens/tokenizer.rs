//! `tokenize`: a text becomes the tokens that a tokenizer in a file makes of it.
//!
//! The file is Hugging Face's `tokenizer.json`, and the crate that reads it is theirs, so tokens are those of the Python
//! package: normalizer, pre-tokenizer, model, post-processor, truncation and padding are what the file says. The file is
//! read by whoever runs a program ([`crate::assets`]). One that makes the crate panic is an error like any other.

use forebay_core::recipe::tokens::Tokenize;
use forebay_core::{Error, Result};
use std::sync::OnceLock;

/// An op that is given its file when the program is first run.
pub(super) struct Tokenizer {
    op: Tokenize,
    model: OnceLock<Model>,
}

impl Tokenizer {
    pub(super) fn new(op: &Tokenize) -> Self {
        Self { op: op.clone(), model: OnceLock::new() }
    }

    /// The op whose file is to be read; `None` once it was.
    pub(super) fn wants(&self) -> Option<&Tokenize> {
        self.model.get().is_none().then_some(&self.op)
    }

    /// Takes the contents of the file.
    pub(super) fn equip(&self, file: &[u8]) -> Result<()> {
        let model = Model::read(file)
            .map_err(|error| error.while_doing(format_args!("read tokenizer `{}`", self.op.file)))?;
        // Whoever was first has read the same bytes.
        let _ = self.model.set(model);
        Ok(())
    }

    /// The tokens of a text.
    pub(super) fn tokens(&self, text: &str) -> Result<Vec<i64>> {
        let model = self.model.get().ok_or_else(|| {
            Error::internal(format!("tokenize a text: `{}` was not read before", self.op.file))
        })?;
        model.tokens(text, self.op.add_special_tokens)
    }
}

/// What a tokenizer's file says beside how texts are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vocabulary {
    /// One more than the largest token that it knows.
    pub end: u64,
    /// Tokens at which it cuts texts off, when it does.
    pub truncates: Option<u64>,
    /// Whether it fills texts up.
    pub pads: bool,
}

impl Vocabulary {
    /// What the contents of a file say.
    pub fn read(file: &[u8]) -> Result<Self> {
        Model::read(file)?.vocabulary()
    }
}

/// Tokens that a file may fill texts up to: one of a few bytes must not take all memory.
#[cfg(feature = "tokenizers")]
const MAX_FILLED: usize = 1 << 20;

#[cfg(feature = "tokenizers")]
struct Model(tokenizers::Tokenizer);

#[cfg(feature = "tokenizers")]
impl Model {
    fn read(file: &[u8]) -> Result<Self> {
        let read = guarded(|| tokenizers::Tokenizer::from_bytes(file))
            .map_err(|error| error.with_hint("give a `tokenizer.json` as Hugging Face writes it"))?;
        let filled = read.get_padding().map_or(0, |padding| {
            let fixed =
                if let tokenizers::PaddingStrategy::Fixed(length) = padding.strategy { length } else { 0 };
            fixed.max(padding.pad_to_multiple_of.unwrap_or(0))
        });
        if filled > MAX_FILLED {
            let why = format!("it fills texts up to {filled} tokens, more than {MAX_FILLED}");
            return Err(Error::corrupt(why).with_hint("`pad_batch` fills up what a batch needs"));
        }
        Ok(Self(read))
    }

    fn tokens(&self, text: &str, add_special_tokens: bool) -> Result<Vec<i64>> {
        let made = guarded(|| self.0.encode_fast(text, add_special_tokens));
        let made = made.map_err(|error| error.while_doing("tokenize a text"))?;
        Ok(made.get_ids().iter().copied().map(i64::from).collect())
    }

    fn vocabulary(&self) -> Result<Vocabulary> {
        let known = guarded(|| Ok(self.0.get_vocab(true)))?.into_values().max();
        // What is put around texts may be tokens that the model does not have.
        let around = self.tokens("", true)?.into_iter().max().and_then(|token| u64::try_from(token).ok());
        Ok(Vocabulary {
            end: known.map(u64::from).max(around).map_or(0, |last| last + 1),
            truncates: self.0.get_truncation().map(|truncation| truncation.max_length as u64),
            pads: self.0.get_padding().is_some(),
        })
    }
}

/// What the crate says, where its panics are errors: files can hold what it takes for granted that they do not.
#[cfg(feature = "tokenizers")]
fn guarded<T>(run: impl FnOnce() -> tokenizers::Result<T>) -> Result<T> {
    let run = std::panic::AssertUnwindSafe(run);
    match std::panic::catch_unwind(run) {
        Ok(Ok(made)) => Ok(made),
        Ok(Err(cause)) => Err(Error::corrupt(format!("it is no sound tokenizer: {cause}"))),
        Err(_) => Err(Error::corrupt("it is no sound tokenizer: reading it panicked")),
    }
}

/// Builds without the feature have none.
#[cfg(not(feature = "tokenizers"))]
enum Model {}

#[cfg(not(feature = "tokenizers"))]
impl Model {
    fn read(_: &[u8]) -> Result<Self> {
        Err(Error::unsupported("this build has no tokenizers")
            .with_hint("build with the feature `tokenizers`, or take `byte_tokens`"))
    }

    fn tokens(&self, _: &str, _: bool) -> Result<Vec<i64>> {
        match *self {}
    }

    fn vocabulary(&self) -> Result<Vocabulary> {
        match *self {}
    }
}

#[cfg(all(test, feature = "tokenizers"))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    /// Words, told apart by white space, between the tokens 1 and 2.
    fn words() -> Value {
        json!({"version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
            "normalizer": {"type": "Lowercase"}, "pre_tokenizer": {"type": "Whitespace"},
            "post_processor": {"type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                    {"SpecialToken": {"id": "</s>", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]},
                    "</s>": {"id": "</s>", "ids": [2], "tokens": ["</s>"]}}},
            "decoder": null,
            "model": {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "<s>": 1, "</s>": 2, "the": 3,
                "basin": 4, "above": 5}}})
    }

    fn op(add_special_tokens: bool) -> Tokenizer {
        Tokenizer::new(&Tokenize { file: "t.json".into(), sha256: String::new(), add_special_tokens })
    }

    #[test]
    fn a_file_decides_the_tokens_and_the_recipe_whether_special_ones_are_among_them() {
        for (special, wanted) in [(true, vec![1, 3, 4, 0, 5, 2]), (false, vec![3, 4, 0, 5])] {
            let tokenizer = op(special);
            assert!(tokenizer.wants().is_some() && tokenizer.tokens("the").is_err());
            tokenizer.equip(words().to_string().as_bytes()).unwrap();
            assert!(tokenizer.wants().is_none());
            assert_eq!(tokenizer.tokens("The basin, above").unwrap(), wanted);
        }
    }

    #[test]
    fn a_vocabulary_ends_behind_its_largest_token_whoever_brings_it() {
        let read = |made: &Value| Vocabulary::read(made.to_string().as_bytes()).unwrap();
        assert_eq!(read(&words()), Vocabulary { end: 6, truncates: None, pads: false });
        let mut made = words();
        made["truncation"] =
            json!({"direction": "Right", "max_length": 512, "strategy": "LongestFirst", "stride": 0});
        made["padding"] = json!({"strategy": {"Fixed": 8}, "direction": "Right", "pad_to_multiple_of": null,
            "pad_id": 0, "pad_type_id": 0, "pad_token": "?"});
        assert_eq!(read(&made), Vocabulary { end: 6, truncates: Some(512), pads: true });
        let mut made = words();
        made["post_processor"]["special_tokens"]["<s>"]["ids"] = json!([90_000]);
        assert_eq!(read(&made).end, 90_001);
        assert!(Vocabulary::read(b"{}").is_err());
    }

    #[test]
    fn p079_a_small_file_cannot_fill_memory_with_what_it_fills_texts_up_with() {
        let filling = |strategy: Value, multiple: Value| {
            let mut made = words();
            made["padding"] = json!({"strategy": strategy, "direction": "Right", "pad_to_multiple_of": multiple,
                "pad_id": 0, "pad_type_id": 0, "pad_token": "?"});
            op(true).equip(made.to_string().as_bytes())
        };
        for (strategy, multiple) in [
            (json!({"Fixed": 100_000_000_000_u64}), Value::Null),
            (json!("BatchLongest"), json!(100_000_000_000_u64)),
        ] {
            let error = filling(strategy, multiple).unwrap_err();
            assert!(error.message().contains("100000000000 tokens"), "{error}");
        }
        filling(json!({"Fixed": 8}), json!(16)).unwrap();
    }

    #[test]
    fn files_that_are_no_tokenizers_are_refused_with_their_name() {
        let without = |key: &str| {
            let mut made = words();
            made["model"].as_object_mut().unwrap().remove(key);
            made.to_string()
        };
        let deep = "[".repeat(100_000);
        for file in ["", "{}", "[1]", "\u{0}", &without("vocab"), &deep] {
            let error = op(true).equip(file.as_bytes()).unwrap_err();
            assert!(error.message().contains("read tokenizer `t.json`"), "{error}");
            assert_eq!(error.kind(), forebay_core::ErrorKind::Corrupt);
        }
    }

    proptest! {
        #[test]
        fn a_damaged_file_gives_tokens_or_an_error(
            at in any::<prop::sample::Index>(), byte in any::<u8>(), text in ".{0,30}",
        ) {
            let mut file = words().to_string().into_bytes();
            let at = at.index(file.len());
            file[at] = byte;
            let tokenizer = op(true);
            if tokenizer.equip(&file).is_ok() {
                let _ = tokenizer.tokens(&text);
            }
        }
    }
}
