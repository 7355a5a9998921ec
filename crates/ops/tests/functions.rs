//! Promises about functions of a recipe: which is called when, with what, and where its results end.
#![allow(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

use bytes::Bytes;
use forebay_core::recipe::Recipe;
use forebay_core::tensor::{Dtype, TensorSpec};
use forebay_core::{Error, ErrorKind, Result, SampleId};
use forebay_ops::{
    BatchBuilder, Buffer, BufferPool, Call, Column, Function, FunctionKey, Input, Named, Program,
    SampleContext, Slot, Tensor, Value,
};
use std::sync::{Arc, Mutex};

/// A function whose results are texts about its arguments, or the bytes of a text as an array. It writes down its calls.
#[derive(Default)]
struct Told {
    calls: Mutex<Vec<(Vec<String>, Option<FunctionKey>)>>,
}

impl Function for Told {
    fn map(&self, call: &Call<'_>, values: Vec<Value>, slots: &mut [Slot<'_>]) -> Result<()> {
        self.calls.lock().unwrap().push((call.inputs.to_vec(), call.key));
        let texts: Vec<String> = values.into_iter().map(text).collect();
        if texts.contains(&"bad".to_owned()) {
            return Err(Error::function("it is bad"));
        }
        for (slot, name) in slots.iter_mut().zip(call.outputs) {
            let made = format!("{name}({})", texts.join(","));
            match slot {
                Slot::Row(row) => row.copy_from_slice(&made.as_bytes()[..row.len()]),
                Slot::Value(free) if call.bare => **free = Some(array(&texts[0])),
                Slot::Value(free) => **free = Some(Value::Text(made)),
            }
        }
        Ok(())
    }

    fn keep(&self, call: &Call<'_>, values: Vec<Value>) -> Result<(bool, Vec<Value>)> {
        self.calls.lock().unwrap().push((call.inputs.to_vec(), call.key));
        let kept = values.into_iter().map(|value| Value::Text(text(value))).collect::<Vec<_>>();
        Ok((!matches!(&kept[0], Value::Text(text) if text == "no"), kept))
    }

    fn map_batch(&self, call: &Call<'_>, ids: &[SampleId], columns: Named) -> Result<Named> {
        self.calls.lock().unwrap().push((ids.iter().map(ToString::to_string).collect(), call.key));
        Ok(columns)
    }
}

fn text(value: Value) -> String {
    match value {
        Value::Text(text) | Value::Json(text) => text,
        Value::Tensor(tensor) => String::from_utf8_lossy(tensor.data.as_slice()).into_owned(),
        Value::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
    }
}

fn array(text: &str) -> Value {
    let mut data = Buffer::alone(text.len());
    data.as_mut_slice().copy_from_slice(text.as_bytes());
    Value::Tensor(Tensor { spec: TensorSpec { dtype: Dtype::U8, shape: vec![text.len()] }, data })
}

fn compile(recipe: &str) -> (Program, Vec<Arc<Told>>) {
    let recipe = Recipe::from_json(recipe).unwrap();
    let told: Vec<Arc<Told>> = recipe.functions().map(|_| Arc::default()).collect();
    let functions: Vec<Arc<dyn Function>> =
        told.iter().map(|told| Arc::clone(told) as Arc<dyn Function>).collect();
    (Program::compile_with(&recipe, &functions).unwrap(), told)
}

fn context(epoch: u64, sample: u64) -> SampleContext {
    SampleContext { seed: 7, epoch, sample_id: SampleId(sample) }
}

/// Samples of texts, one per field, as a batch of those that stay.
fn batch(program: &Program, samples: &[&[&str]]) -> Result<Named> {
    let builder = BatchBuilder::new(program.outputs(), samples.len(), &BufferPool::new(0));
    let mut keep = Vec::new();
    for (row, fields) in samples.iter().enumerate() {
        let inputs: Vec<Input> =
            fields.iter().map(|text| Bytes::copy_from_slice(text.as_bytes()).into()).collect();
        let mut writer = builder.claim(row).unwrap();
        let context = context(0, row as u64);
        let stays = program.prepare(&context, &inputs, &mut writer.slots(), &mut program.scratch())?;
        if stays {
            writer.commit();
        }
        keep.push(stays);
    }
    builder.finish(&keep)
}

#[test]
fn a_filter_saves_the_columns_after_it_and_an_emptied_batch_keeps_its_columns() {
    let recipe = r#"[
        {"field": "a", "decode": "text", "ops": [{"op": "filter", "function": "m:f"}]},
        {"field": "b", "decode": "text", "ops": [{"op": "map", "function": "m:g"}, {"op": "pad_batch", "mask": true}]}
    ]"#;
    let (program, told) = compile(recipe);
    let columns = batch(&program, &[&["yes", "one"], &["no", "three"], &["yes", "fifteen"]]).unwrap();
    assert_eq!(told[0].calls.lock().unwrap().len(), 3);
    assert_eq!(told[1].calls.lock().unwrap().len(), 2, "not for the sample that was left out");
    let Column::Text(kept) = &columns[0].1 else { panic!("{columns:?}") };
    assert_eq!(kept, &["yes", "yes"]);
    let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a", "b", "b_length", "b_mask"]);
    let Column::Tensor { spec, rows: 2, data } = &columns[1].1 else { panic!("{columns:?}") };
    assert_eq!(spec.shape, [7]);
    assert_eq!(data.as_slice(), b"one\0\0\0\0fifteen");

    let empty = batch(&program, &[&["no", "one"], &["no", "two"]]).unwrap();
    let names: Vec<&str> = empty.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a", "b", "b_length", "b_mask"]);
    assert!(empty.iter().all(|(_, column)| column.rows() == 0));
}

#[test]
fn functions_of_samples_replace_add_and_drop_columns_and_declared_results_are_written_in_place() {
    let recipe = r#"[
        {"field": "a", "decode": "text"},
        {"field": "b", "decode": "text", "ops": [{"op": "map", "function": "m:f", "shape": [3], "dtype": "u8"}]},
        {"field": "c", "decode": "text"},
        {"op": "map", "function": "m:g", "fields": ["a", "c"], "outputs": ["c", "d"]}
    ]"#;
    let (program, told) = compile(recipe);
    let columns = batch(&program, &[&["1", "x", "2"], &["3", "y", "4"]]).unwrap();
    let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["b", "c", "d"]);
    let Column::Tensor { data, .. } = &columns[0].1 else { panic!("{columns:?}") };
    assert_eq!(data.as_slice(), b"b(xb(y");
    let Column::Text(texts) = &columns[1].1 else { panic!("{columns:?}") };
    assert_eq!(texts, &["c(1,2)", "c(3,4)"]);
    let Column::Text(texts) = &columns[2].1 else { panic!("{columns:?}") };
    assert_eq!(texts, &["d(1,2)", "d(3,4)"]);
    assert_eq!(told[1].calls.lock().unwrap()[0].0, ["a", "c"]);
}

#[test]
fn p035_an_error_of_a_function_names_sample_field_and_op() {
    let recipe =
        r#"[{"field": "a", "decode": "text", "name": "x", "ops": [{"op": "map", "function": "m:f"}]}]"#;
    let (program, _) = compile(recipe);
    let error = batch(&program, &[&["good"], &["bad"]]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Function);
    assert_eq!(error.facts().sample_id, Some(SampleId(1)));
    assert_eq!(error.facts().op.as_deref(), Some("map(m:f)"));
    assert_eq!(error.facts().field.as_deref(), Some("x"));
    assert!(error.message().contains("call `map(m:f)`: it is bad"), "{error}");
}

#[test]
fn chance_is_a_function_of_epoch_sample_and_place_alone_and_of_a_batch_of_its_samples() {
    let random = |name: &str| format!(r#"{{"name": "{name}", "random": true}}"#);
    let recipe = format!(
        r#"[{{"field": "a", "decode": "text", "ops": [{{"op": "filter", "function": {0}}},
            {{"op": "filter", "function": {0}}}, {{"op": "filter", "function": "m:plain"}}]}},
            {{"op": "map_batch", "function": {0}}}]"#,
        random("m:f")
    );
    let (program, told) = compile(&recipe);
    let prepare = |epoch, sample| {
        let mut value = None;
        let input = Input::Payload(Bytes::from_static(b"yes"));
        let context = context(epoch, sample);
        program.prepare(&context, &[input], &mut [Slot::Value(&mut value)], &mut program.scratch()).unwrap();
        told.iter()
            .map(|told| told.calls.lock().unwrap().last().and_then(|(_, key)| *key))
            .collect::<Vec<_>>()
    };
    let first = prepare(0, 5);
    assert!(first[0].is_some() && first[1].is_some() && first[2].is_none());
    assert_ne!(first[0], first[1], "another place in the recipe");
    for other in [prepare(1, 5), prepare(0, 6)] {
        assert_ne!(other[0], first[0]);
    }
    assert_eq!(prepare(0, 5)[..3], first[..3]);
    let of_batch = |ids: &[u64]| {
        let ids: Vec<SampleId> = ids.iter().copied().map(SampleId).collect();
        program.finish_batch((7, 0), &ids, Vec::new()).unwrap();
        told[3].calls.lock().unwrap().last().unwrap().1.unwrap()
    };
    assert_eq!(of_batch(&[1, 2, 3]), of_batch(&[1, 2, 3]));
    assert_ne!(of_batch(&[1, 2, 3]), of_batch(&[1, 3, 2]));
}

#[test]
fn what_does_not_fit_together_is_said_before_anything_is_called() {
    for (recipe, why) in [
        (
            r#"[{"field": "a", "decode": "image", "ops": [{"op": "map", "function": "m:f"}, {"op": "resize", "size": 8}]}]"#,
            "comes after a function",
        ),
        (r#"[{"field": "a", "decode": "text", "ops": [{"op": "pad_batch"}]}]"#, "works on images"),
        (
            r#"[{"field": "a", "decode": "text", "ops": [{"op": "map", "function": "m:f", "shape": [2], "dtype": "u8"},
                {"op": "pad_batch"}]}]"#,
            "of one size already",
        ),
        (
            r#"[{"field": "a", "decode": "text", "ops": [{"op": "map", "function": "m:f", "shape": [2]}]}]"#,
            "`shape` and `dtype` together",
        ),
        (
            r#"[{"field": "a", "decode": "text", "ops": [{"op": "map", "function": "f"}]}]"#,
            "not `module:name`",
        ),
        (
            r#"[{"field": "a", "decode": "text"}, {"op": "filter", "function": "m:f", "fields": ["b"]}]"#,
            "no column `b`",
        ),
        (
            r#"[{"field": "a", "decode": "npy", "ops": [{"op": "pad_batch"}]},
                {"op": "map", "function": "m:f", "fields": ["a"]}]"#,
            "put together when its batch is closed",
        ),
        (
            r#"[{"field": "a", "decode": "text"}, {"op": "map_batch", "function": "m:f"},
                {"op": "filter", "function": "m:f", "fields": ["a"]}]"#,
            "cannot follow what is of whole batches",
        ),
        (
            r#"[{"op": "map_batch", "function": "m:f"}, {"field": "a", "decode": "text"}]"#,
            "come after all columns",
        ),
    ] {
        let error = Recipe::from_json(recipe).unwrap_err();
        assert!(error.message().contains(why), "{error}");
    }
}
