//! How runs of tokens are cut into samples. Pure.

use forebay_core::tensor::Dtype;
use forebay_core::{Error, Result};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Most samples of one file.
const MAX_SAMPLES: usize = 1 << 28;

/// Longest window.
const MAX_WINDOW: u64 = 1 << 28;

/// How files of tokens are cut into samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenOptions {
    /// Tokens of a sample; `None` takes documents whole.
    #[serde(default)]
    pub window: Option<u64>,
    /// Tokens from the beginning of one window to that of the next; `None` is the window.
    #[serde(default)]
    pub stride: Option<u64>,
    /// Whether a window has one token more, so that it holds the target of its last one. `None` does with a window.
    #[serde(default)]
    pub target: Option<bool>,
    /// Whether windows end with their document. `None` does when documents are known.
    #[serde(default)]
    pub documents: Option<TokenDocuments>,
    /// What becomes of less than a window.
    #[serde(default)]
    pub tail: Option<TokenTail>,
    /// Element type of files that do not tell it.
    #[serde(default)]
    pub dtype: Option<Dtype>,
}

/// Whether windows end with their document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenDocuments {
    /// No window holds tokens of two documents.
    Exact,
    /// Windows follow each other whatever documents they meet.
    Cross,
}

/// What becomes of less than a window at the end of a document or file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenTail {
    /// It is a sample, shorter than the others.
    Keep,
    /// It is left out.
    Drop,
}

/// Cuts runs of tokens, one after the other.
pub(super) struct Cutter {
    window: Option<u64>,
    stride: u64,
    /// Tokens of a sample that are no input: the last target.
    extra: u64,
    exact: bool,
    keeps: bool,
    found: Vec<Range<u64>>,
}

impl Cutter {
    /// `known` says whether documents are.
    pub(super) fn new(options: &TokenOptions, known: bool) -> Result<Self> {
        let TokenOptions { window, stride, target, documents, tail, .. } = *options;
        let wrong = |why: String| Err(Error::invalid_config(format!("cut tokens into samples: {why}")));
        for (name, number) in [("window", window), ("stride", stride)] {
            if let Some(number) = number.filter(|number| !(1..=MAX_WINDOW).contains(number)) {
                return wrong(format!("{name} is {number}: give 1 to {MAX_WINDOW} tokens"));
            }
        }
        if window.is_none() && (stride.is_some() || target.is_some() || tail.is_some()) {
            return wrong("stride, target and tail are of windows: give `window`".to_owned());
        }
        if window.is_none() && documents == Some(TokenDocuments::Cross) {
            return wrong("documents are samples whole, or give `window`".to_owned());
        }
        if !known && (window.is_none() || documents == Some(TokenDocuments::Exact)) {
            let why = "cut tokens into samples: where documents end is not known, there is no index";
            return Err(Error::invalid_config(why).with_hint("give `window`, and leave `documents` out"));
        }
        let exact = known && documents != Some(TokenDocuments::Cross);
        Ok(Self {
            window,
            stride: stride.or(window).unwrap_or(1),
            extra: u64::from(window.is_some() && target.unwrap_or(true)),
            exact,
            // A last piece of a file is one among many; pieces of documents may be most of them.
            keeps: tail.map_or(exact, |tail| tail == TokenTail::Keep),
            found: Vec::new(),
        })
    }

    /// Whether documents are cut one by one.
    pub(super) fn keeps_documents(&self) -> bool {
        self.exact
    }

    /// Cuts one run.
    pub(super) fn cut(&mut self, run: Range<u64>) -> Result<()> {
        let Some(window) = self.window else {
            return if run.is_empty() { Ok(()) } else { self.add(run) };
        };
        let (mut at, mut covered) = (run.start, run.start);
        let size = window + self.extra;
        while run.end - at >= size {
            self.add(at..at + size)?;
            covered = at + size;
            at = (at + self.stride).min(run.end);
        }
        // What has no input and target of its own teaches nothing.
        if self.keeps && run.end > covered && run.end - at > self.extra {
            self.add(at..run.end)?;
        }
        Ok(())
    }

    fn add(&mut self, sample: Range<u64>) -> Result<()> {
        if self.found.len() >= MAX_SAMPLES {
            let error = Error::exhausted(format!("it gives more than {MAX_SAMPLES} samples"));
            return Err(error.with_hint("enlarge `stride`, or cut the file into several"));
        }
        self.found.push(sample);
        Ok(())
    }

    pub(super) fn finish(self) -> Vec<Range<u64>> {
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cut(options: TokenOptions, known: bool, runs: &[Range<u64>]) -> Vec<Range<u64>> {
        let mut cutter = Cutter::new(&options, known).unwrap();
        for run in runs {
            cutter.cut(run.clone()).unwrap();
        }
        cutter.finish()
    }

    #[test]
    fn windows_share_the_target_and_tails_are_as_asked() {
        let options = TokenOptions { window: Some(4), ..TokenOptions::default() };
        let one = 0..10;
        assert_eq!(cut(options, false, std::slice::from_ref(&one)), [0..5, 4..9]);
        let kept = TokenOptions { tail: Some(TokenTail::Keep), ..options };
        assert_eq!(cut(kept, false, std::slice::from_ref(&one)), [0..5, 4..9, 8..10]);
        let bare = TokenOptions { target: Some(false), ..kept };
        assert_eq!(cut(bare, false, std::slice::from_ref(&one)), [0..4, 4..8, 8..10]);
        // Documents end windows; a token alone has nothing to be predicted from.
        assert_eq!(cut(options, true, &[0..1, 1..4, 4..13]), [1..4, 4..9, 8..13]);
        let dropped = TokenOptions { tail: Some(TokenTail::Drop), ..options };
        assert_eq!(cut(dropped, true, &[0..1, 1..4, 4..13]), [4..9, 8..13]);
        assert_eq!(cut(TokenOptions::default(), true, &[0..3, 3..3, 3..9]), [0..3, 3..9]);
    }

    #[test]
    fn options_that_make_no_sense_are_refused() {
        let none = TokenOptions::default();
        for (options, known) in [
            (TokenOptions { window: Some(0), ..none }, true),
            (TokenOptions { window: Some(1 << 40), ..none }, true),
            (TokenOptions { stride: Some(4), ..none }, true),
            (TokenOptions { documents: Some(TokenDocuments::Cross), ..none }, true),
            (TokenOptions { window: Some(4), documents: Some(TokenDocuments::Exact), ..none }, false),
            (none, false),
        ] {
            assert!(Cutter::new(&options, known).is_err(), "{options:?}");
        }
    }

    proptest! {
        #[test]
        fn every_target_comes_once_and_no_window_leaves_its_document(
            lengths in proptest::collection::vec(0u64..40, 0..12), window in 1u64..12,
        ) {
            let (mut at, mut runs) = (0, Vec::new());
            for length in lengths {
                runs.push(at..at + length);
                at += length;
            }
            let options = TokenOptions { window: Some(window), ..TokenOptions::default() };
            let mut targets = Vec::new();
            for sample in cut(options, true, &runs) {
                prop_assert!(sample.end - sample.start <= window + 1);
                prop_assert!(runs.iter().any(|run| run.start <= sample.start && sample.end <= run.end));
                targets.extend(sample.start + 1..sample.end);
            }
            let wanted: Vec<u64> = runs.iter().flat_map(|run| run.start + 1..run.end.max(run.start + 1)).collect();
            prop_assert_eq!(targets, wanted);
        }
    }
}
