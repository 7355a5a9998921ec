//! Prepares one image by a recipe and writes the tensor's bytes to standard output: for comparing with other
//! libraries by eye or by script.
//!
//! `prepare FILE RECIPE_JSON [SAMPLE]`, where the recipe is one field as JSON. Shape and element type go to standard error.

use forebay_core::recipe::{FieldRecipe, Recipe};
use forebay_core::{Error, Result, SampleId};
use forebay_ops::{BatchBuilder, BufferPool, Column, Input, Program, SampleContext};
use std::io::Write;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, recipe, rest @ ..] = arguments.as_slice() else {
        return Err(Error::invalid_config("prepare an image: give a file and a recipe"));
    };
    let payload = std::fs::read(file).map_err(|cause| Error::io(format!("read `{file}`"), cause))?;
    let field: FieldRecipe = serde_json::from_str(recipe)
        .map_err(|cause| Error::invalid_config("read the recipe").with_source(cause))?;
    let sample_id = SampleId(rest.first().and_then(|text| text.parse().ok()).unwrap_or(0));

    let program = Program::compile(&Recipe { fields: vec![field], ..Recipe::default() })?;
    let batch = BatchBuilder::new(program.outputs(), 1, &BufferPool::new(0));
    let mut writer = batch.claim(0).ok_or_else(|| Error::internal("claim the only row"))?;
    let sample = SampleContext { seed: 0, epoch: 0, sample_id };
    program.prepare(
        &sample,
        &[Input::Payload(payload.into())],
        &mut writer.slots(),
        &mut program.scratch(),
    )?;
    writer.commit();
    for (_, column) in batch.finish(&[true])? {
        if let Column::Tensor { spec, data, .. } = column {
            let (mut out, mut log) = (std::io::stdout(), std::io::stderr());
            let written = out.write_all(data.as_slice()).and_then(|()| writeln!(log, "{spec:?}"));
            written.map_err(|cause| Error::io("write the tensor", cause))?;
        }
    }
    Ok(())
}
