//! `forebay tokenize`: texts of a dataset as a file of tokens.

use super::{Context, Done, count, counted, seconds, size};
use crate::args::TokenizeJob;
use crate::progress::Progress;
use forebay_core::Result;
use forebay_engine::tokenize::{self, TokenizePlan};
use serde_json::json;
use std::time::Instant;

pub(super) fn run(job: &TokenizeJob, context: &Context) -> Result<Done> {
    let begun = Instant::now();
    let plan = tokenize::plan(job.options.clone())?;
    warn(&plan, context);
    let dataset = context.open(&job.data)?;
    let bar = Progress::new(&context.report, "tokenizing", "samples", dataset.manifest().len());
    let done = tokenize::run(&dataset, &plan, &mut |done, total| {
        bar.set(done, total);
        context.interrupt.check()
    });
    drop(bar);
    let (done, elapsed) = (done?, begun.elapsed().as_secs_f64());
    let report = &context.report;
    let (data, index) = (done.data.display(), done.index.display());
    let dtype = done.dtype.name();
    let why = match job.options.dtype {
        Some(_) => String::new(),
        None => format!(", since the largest token is {}", count(plan.vocabulary.end.saturating_sub(1))),
    };
    report.line(format_args!(
        "{data}: {} of {dtype}{why}, {}",
        counted(done.tokens, "token"),
        size(done.data_bytes)
    ));
    report.line(format_args!("{index}: {}, {}", counted(done.documents, "document"), size(done.index_bytes)));
    report.line(format_args!("tokenized {} in {}", counted(done.documents, "sample"), seconds(elapsed)));
    if done.empty > 0 {
        report.note(format_args!(
            "{} without any token: the files keep their place, and have no sample for them",
            counted(done.empty, "document")
        ));
    }
    Ok(Done::with(json!({
        "documents": done.documents,
        "empty": done.empty,
        "tokens": done.tokens,
        "dtype": dtype,
        "vocabulary": plan.vocabulary.end,
        "truncates": plan.vocabulary.truncates,
        "pads": plan.vocabulary.pads,
        "eos": job.options.eos,
        "data": done.data,
        "data_bytes": done.data_bytes,
        "index": done.index,
        "index_bytes": done.index_bytes,
        "seconds": elapsed,
    })))
}

/// What a tokenizer that was made for a model's input does to a corpus.
fn warn(plan: &TokenizePlan, context: &Context) {
    if let Some(most) = plan.vocabulary.truncates {
        context.report.warning(format_args!(
            "the tokenizer cuts every text off behind {}: set `truncation` to null in its file to keep all",
            counted(most, "token")
        ));
    }
    if plan.vocabulary.pads {
        context.report.warning(
            "the tokenizer fills texts up, and what it fills with is stored: set `padding` to null in its file",
        );
    }
}
