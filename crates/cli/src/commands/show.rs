//! `forebay show`: makes one batch again and says what is in it.

use super::{Context, Done, counted};
use crate::args::ShowPlan;
use crate::digest::Digest;
use crate::interrupt::SLICE;
use forebay_core::cursor::Cursor;
use forebay_core::{Error, Result};
use forebay_engine::source::Dataset;
use forebay_engine::{Batch, DeliveryOrder, Fault, Loader, LoaderConfig, Next};
use forebay_ops::{Column, npy};
use serde_json::json;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

pub(super) fn run(plan: &ShowPlan, context: &Context) -> Result<Done> {
    let dataset = context.open(&plan.data)?;
    // By arrival the rows of a batch depend on what was quick; the planned batch is the one that can be made again.
    let config = LoaderConfig {
        order: DeliveryOrder::Plan,
        prefetch_batches: Some(1),
        epochs: None,
        ..plan.loader.config(&dataset)?
    };
    let consumer = config.consumer;
    let mut loader = Loader::new(dataset.manifest(), Arc::clone(dataset.store()), &plan.recipe, config)?;
    let portion = loader.rank_portion(&Cursor::start_of(plan.epoch))?;
    if plan.batch >= portion.steps() {
        let (batch, epoch, steps) = (plan.batch, plan.epoch, portion.steps());
        let message = format!("show batch {batch} of epoch {epoch}: the number of batches is {steps}");
        return Err(Error::invalid_config(message).with_hint("batches count from 0 on every rank"));
    }
    loader.seek(portion.cursor_after(plan.epoch, plan.batch))?;
    loader.begin()?;
    let batch = loop {
        context.interrupt.check()?;
        match loader.next(SLICE)? {
            Next::Batch(batch) => break batch,
            Next::Waiting => {}
            Next::End => return Err(Error::internal("show a batch: the epoch ended before it")),
        }
    };
    let keys: Vec<String> = batch.ids.iter().map(|id| dataset.manifest().key(*id)).collect();
    let digests: Vec<Digest> = batch.columns.iter().map(|(name, column)| Digest::new(name, column)).collect();
    say(
        plan,
        context,
        &dataset,
        &Shown { batch: &batch, keys: &keys, digests: &digests, faults: loader.faults() },
    );
    let files = match &plan.out {
        Some(out) => write_all(out, &batch)?,
        None => Vec::new(),
    };
    if let Some(out) = &plan.out {
        let many = counted(files.len() as u64, "file");
        context.report.fact("written", format_args!("{many} in {}", out.display()));
    }
    let fault = |fault: &Fault| {
        json!({
            "sample_id": fault.sample_id,
            "key": fault.key,
            "message": fault.error.report(),
            "substitute": fault.substitute,
        })
    };
    Ok(Done::with(json!({
        "url": dataset.url(),
        "version": dataset.manifest().version(),
        "recipe": plan.recipe.fingerprint(),
        "epoch": plan.epoch,
        "batch": plan.batch,
        "batches": portion.steps(),
        "rank": consumer.rank,
        "world_size": consumer.world_size,
        "batch_size": consumer.batch_size,
        "seed": loader.config().seed,
        "ids": batch.ids,
        "keys": keys,
        "padding": batch.padding,
        "columns": digests.iter().map(Digest::object).collect::<Vec<_>>(),
        "faults": loader.faults().iter().map(fault).collect::<Vec<_>>(),
        "files": files,
    })))
}

struct Shown<'a> {
    batch: &'a Batch,
    keys: &'a [String],
    digests: &'a [Digest],
    faults: &'a [Fault],
}

fn say(plan: &ShowPlan, context: &Context, dataset: &Dataset, shown: &Shown<'_>) {
    let report = &context.report;
    report.fact("dataset", format_args!("{}, version {}", dataset.url(), dataset.manifest().version()));
    report.fact("recipe", plan.recipe.fingerprint());
    let rows = counted(shown.batch.len() as u64, "row");
    report.fact("batch", format_args!("{} of epoch {}: {rows}", plan.batch, plan.epoch));
    let rows = shown.batch.ids.iter().zip(&shown.batch.padding).zip(shown.keys);
    for (row, ((id, padding), key)) in rows.enumerate() {
        let padding = if *padding { " (padding)" } else { "" };
        report.fact(if row == 0 { "samples" } else { "" }, format_args!("{:>8}  {key}{padding}", id.0));
    }
    for (at, digest) in shown.digests.iter().enumerate() {
        let dtype = digest.dtype.map_or(digest.kind, forebay_core::tensor::Dtype::name);
        let range = digest.range.map_or_else(String::new, |[min, mean, max]| {
            format!("  min {min:.4}  mean {mean:.4}  max {max:.4}")
        });
        report.fact(
            if at == 0 { "columns" } else { "" },
            format_args!("{}  {dtype} {}{range}  xxh3 {}", digest.name, digest.shape_text(), digest.xxh3),
        );
    }
    for fault in shown.faults {
        let instead = fault.substitute.map_or("left out".to_owned(), |id| format!("replaced by sample {id}"));
        report.warning(format_args!(
            "sample {} `{}` was {instead}: {}",
            fault.sample_id, fault.key, fault.error
        ));
    }
}

/// Writes every column and lists the files.
fn write_all(out: &Path, batch: &Batch) -> Result<Vec<String>> {
    fs::create_dir_all(out).map_err(|error| Error::io(format!("make folder `{}`", out.display()), error))?;
    let mut folder = Folder { out, files: Vec::new() };
    for (name, column) in &batch.columns {
        let name = file_name(name);
        match column {
            Column::Tensor { spec, rows, data } => {
                let shape: Vec<usize> = std::iter::once(*rows).chain(spec.shape.iter().copied()).collect();
                folder.write(&format!("{name}.npy"), |file| {
                    npy::write(file, spec.dtype, &shape, data.as_slice())
                })?;
            }
            Column::Tensors(tensors) => {
                for (row, tensor) in tensors.iter().enumerate() {
                    folder.write(&format!("{name}-{row:04}.npy"), |file| {
                        npy::write(file, tensor.spec.dtype, &tensor.spec.shape, tensor.data.as_slice())
                    })?;
                }
            }
            Column::Ragged(ragged) => {
                let values = &ragged.values;
                folder.write(&format!("{name}.npy"), |file| {
                    npy::write(file, values.spec.dtype, &values.spec.shape, values.data.as_slice())
                })?;
                folder.write(&format!("{name}-offsets.npy"), |file| {
                    let shape = [ragged.offsets.len()];
                    npy::write(file, ragged.counted.dtype(), &shape, &ragged.offset_bytes())
                })?;
            }
            Column::Bytes(rows) => folder.rows(&name, "bin", rows.iter().map(AsRef::as_ref))?,
            Column::Text(rows) => folder.rows(&name, "txt", rows.iter().map(String::as_bytes))?,
            Column::Json(rows) => folder.rows(&name, "json", rows.iter().map(String::as_bytes))?,
        }
    }
    Ok(folder.files)
}

struct Folder<'a> {
    out: &'a Path,
    files: Vec<String>,
}

impl Folder<'_> {
    fn write(
        &mut self,
        name: &str,
        content: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>,
    ) -> Result<()> {
        let path = self.out.join(name);
        let written = File::create(&path).map(BufWriter::new).and_then(|mut file| {
            content(&mut file)?;
            file.flush()
        });
        written.map_err(|error| Error::io(format!("write `{}`", path.display()), error))?;
        self.files.push(path.display().to_string());
        Ok(())
    }

    fn rows<'r>(&mut self, name: &str, ending: &str, rows: impl Iterator<Item = &'r [u8]>) -> Result<()> {
        for (row, bytes) in rows.enumerate() {
            self.write(&format!("{name}-{row:04}.{ending}"), |file| file.write_all(bytes))?;
        }
        Ok(())
    }
}

/// A column's name as the beginning of a file name: it may come from anywhere and must not lead elsewhere.
fn file_name(column: &str) -> String {
    let safe = |c: char| if c.is_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '_' };
    let name: String = column.chars().take(100).map(safe).collect();
    if name.starts_with('.') { format!("_{name}") } else { name }
}

#[cfg(test)]
mod tests {
    use super::file_name;

    #[test]
    fn p079_a_column_cannot_lead_out_of_the_folder() {
        for (column, name) in
            [("jpg", "jpg"), ("../a", "_.._a"), ("/etc/x", "_etc_x"), ("seg.png", "seg.png")]
        {
            assert_eq!(file_name(column), name);
        }
    }
}
