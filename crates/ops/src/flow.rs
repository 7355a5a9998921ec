//! Which functions a recipe calls, when, and where values wait meanwhile.
//!
//! Columns are made one after the other, each followed by its own functions, so that a filter that says no saves the work
//! for the columns after it. Then come functions of whole samples, then those of whole batches. A column that no
//! function looks at never comes by here: it is written into its row at once.

use crate::buffer::BufferPool;
use crate::function::{Call, FUNCTION_STREAM, Function, FunctionKey, Named};
use crate::mixing::Mixer;
use crate::value::{Following, Output, OutputKind, Padding, SampleContext, Slot, Tensor, Value};
use forebay_core::recipe::{self, FieldRecipe, Op, Recipe, SampleOp};
use forebay_core::rng::fold;
use forebay_core::tensor::TensorSpec;
use forebay_core::{Error, Facts, Result, SampleId};
use std::sync::Arc;

/// The functions of a recipe, ready to be called.
pub(crate) struct Flow {
    /// Of each native column.
    homes: Vec<Home>,
    /// After each native column.
    after: Vec<Vec<Step>>,
    /// After all of them.
    last: Vec<Step>,
    /// With whole batches.
    batches: Vec<OfBatch>,
    /// Places that end in which slot.
    ends: Vec<(usize, usize)>,
    places: usize,
}

/// Where a native column goes.
#[derive(Clone)]
pub(crate) enum Home {
    /// Straight into the slot of an output.
    Slot(usize),
    /// Held for functions, and of this kind.
    Held(OutputKind),
}

struct Step {
    function: Arc<dyn Function>,
    /// `map(module:name)`.
    label: String,
    /// Number among all functions of the recipe.
    number: u64,
    random: bool,
    bare: bool,
    filters: bool,
    names: Vec<String>,
    inputs: Vec<usize>,
    output_names: Vec<String>,
    /// Places, and the slot that one is written into when nobody looks at it afterwards.
    outputs: Vec<(usize, Option<usize>)>,
    spec: Option<TensorSpec>,
}

/// What is done to whole batches.
enum OfBatch {
    Call(Step),
    Mix(Mixer),
}

/// A flow in the making: which columns there are by now.
struct Planning<'a> {
    functions: &'a [Arc<dyn Function>],
    /// Functions that were planned.
    planned: u64,
    /// Of every place.
    names: Vec<String>,
    /// What is there; nothing where a function took it and did not give it back.
    alive: Vec<Option<OutputKind>>,
    /// Whether a function looks at a native column.
    touched: Vec<bool>,
}

impl Planning<'_> {
    /// A step without inputs and outputs.
    fn step(&mut self, op: &str, function: &recipe::Function) -> Result<Step> {
        let called = usize::try_from(self.planned).ok().and_then(|number| self.functions.get(number));
        let called = called.ok_or_else(|| Error::internal("a function of a recipe is missing"))?;
        self.planned += 1;
        Ok(Step {
            function: Arc::clone(called),
            label: format!("{op}({})", function.name),
            number: self.planned - 1,
            random: function.random,
            bare: false,
            filters: false,
            names: Vec::new(),
            inputs: Vec::new(),
            output_names: Vec::new(),
            outputs: Vec::new(),
            spec: None,
        })
    }

    /// A function of one column.
    fn column(
        &mut self,
        place: usize,
        field: &FieldRecipe,
        op: &Op,
        function: &recipe::Function,
    ) -> Result<Step> {
        let step = self.step(op.name(), function)?;
        self.touched[place] = true;
        let names = vec![self.names[place].clone()];
        let step = Step { bare: true, inputs: vec![place], names, ..step };
        let Op::Map { shape, dtype, .. } = op else { return Ok(Step { filters: true, ..step }) };
        let spec = shape.clone().zip(*dtype).map(|(shape, dtype)| TensorSpec { dtype, shape });
        let free = || match (Padding::of(field), Following::of(field)) {
            (Some(padding), _) => OutputKind::Padded(padding),
            (None, Some(following)) => OutputKind::Ragged(following),
            (None, None) => OutputKind::Any,
        };
        self.alive[place] = Some(spec.clone().map_or_else(free, OutputKind::Tensor));
        Ok(Step { output_names: step.names.clone(), outputs: vec![(place, None)], spec, ..step })
    }

    /// A function of whole samples, or of batches.
    fn sample(&mut self, op: &SampleOp) -> Result<Step> {
        let function =
            op.function().ok_or_else(|| Error::internal("a native op is planned as a function"))?;
        let step = self.step(op.name(), function)?;
        let (SampleOp::Map { fields, .. } | SampleOp::Filter { fields, .. }) = op else { return Ok(step) };
        let mut inputs = Vec::with_capacity(fields.len());
        for name in fields {
            let place = self.place(name).filter(|place| self.alive[*place].is_some());
            let place = place.ok_or_else(|| Error::internal("a recipe gives a function no such column"))?;
            if let Some(touched) = self.touched.get_mut(place) {
                *touched = true;
            }
            inputs.push(place);
        }
        let filters = matches!(op, SampleOp::Filter { .. });
        if !filters {
            for place in &inputs {
                self.alive[*place] = None;
            }
        }
        let mut outputs = Vec::with_capacity(op.outputs().len());
        for name in op.outputs() {
            // A column that is given back stays where it was; another one comes last.
            let place = self.place(name).unwrap_or_else(|| {
                self.names.push(name.clone());
                self.alive.push(None);
                self.names.len() - 1
            });
            self.alive[place] = Some(OutputKind::Any);
            outputs.push((place, None));
        }
        Ok(Step {
            filters,
            inputs,
            outputs,
            names: fields.clone(),
            output_names: op.outputs().to_vec(),
            ..step
        })
    }

    fn place(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|known| known == name)
    }
}

impl Flow {
    /// The flow of a checked recipe whose columns natively are of `kinds`, and its columns at the end.
    pub(crate) fn new(
        recipe: &Recipe,
        kinds: Vec<OutputKind>,
        functions: &[Arc<dyn Function>],
    ) -> Result<(Self, Vec<Output>)> {
        let mut planning = Planning {
            functions,
            planned: 0,
            names: recipe.fields.iter().map(|field| field.output_name().to_owned()).collect(),
            alive: kinds.iter().cloned().map(Some).collect(),
            touched: vec![false; kinds.len()],
        };
        let mut after: Vec<Vec<Step>> = Vec::with_capacity(kinds.len());
        for (place, field) in recipe.fields.iter().enumerate() {
            let called = field.ops.iter().filter_map(|op| op.function().map(|function| (op, function)));
            let steps = called.map(|(op, function)| planning.column(place, field, op, function));
            after.push(steps.collect::<Result<_>>()?);
        }
        let (mut last, mut batches) = (Vec::new(), Vec::new());
        for op in &recipe.ops {
            if let Some(mixer) = Mixer::of(recipe, op) {
                batches.push(OfBatch::Mix(mixer));
                continue;
            }
            let step = planning.sample(op)?;
            if op.is_of_batches() { batches.push(OfBatch::Call(step)) } else { last.push(step) }
        }
        let Planning { names, alive, touched, .. } = planning;
        let there = alive.into_iter().enumerate().filter_map(|(place, kind)| Some((place, kind?)));
        let (mut ends, mut outputs) = (Vec::new(), Vec::new());
        for (place, kind) in there {
            ends.push((place, outputs.len()));
            outputs.push(Output { name: names[place].clone(), kind });
        }
        let slot_of = |place: usize| ends.iter().find(|(end, _)| *end == place).map(|(_, slot)| *slot);
        let home = |(place, kind): (usize, OutputKind)| match slot_of(place) {
            Some(slot) if !touched[place] => Home::Slot(slot),
            _ => Home::Held(kind),
        };
        let homes = kinds.into_iter().enumerate().map(home).collect();
        // Whoever is the last to look at a place writes it where it stays.
        let mut seen = vec![false; names.len()];
        let steps: Vec<&mut Step> = after.iter_mut().flatten().chain(&mut last).collect();
        for step in steps.into_iter().rev() {
            for (place, slot) in &mut step.outputs {
                *slot = slot_of(*place).filter(|_| !seen[*place]);
            }
            let looked_at = step.inputs.iter().chain(step.outputs.iter().map(|(place, _)| place));
            looked_at.for_each(|place| seen[*place] = true);
        }
        Ok((Self { homes, after, last, batches, ends, places: names.len() }, outputs))
    }

    /// Whether no function is called.
    pub(crate) fn is_empty(&self) -> bool {
        self.last.is_empty() && self.batches.is_empty() && self.after.iter().all(Vec::is_empty)
    }

    /// Whether anything is done to whole batches.
    pub(crate) fn has_batch_functions(&self) -> bool {
        !self.batches.is_empty()
    }

    /// Where a native column goes.
    pub(crate) fn home(&self, column: usize) -> &Home {
        &self.homes[column]
    }

    /// Values that wait for functions; none yet.
    pub(crate) fn held(&self) -> Vec<Option<Value>> {
        (0..self.places).map(|_| None).collect()
    }

    /// Calls what comes after a native column, or with `None` after all of them. False when the sample is left out.
    pub(crate) fn call(
        &self,
        column: Option<usize>,
        sample: &SampleContext,
        held: &mut [Option<Value>],
        slots: &mut [Slot<'_>],
    ) -> Result<bool> {
        for step in column.map_or(&self.last, |column| &self.after[column]) {
            let stays = step.call(sample, held, slots).map_err(|error| {
                let facts = Facts {
                    op: Some(step.label.clone()),
                    field: Some(step.names.join(",")),
                    sample_id: Some(sample.sample_id),
                    epoch: Some(sample.epoch),
                    ..Facts::default()
                };
                error.with_facts(facts).while_doing(format_args!("call `{}`", step.label))
            })?;
            if !stays {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Puts what was held to the end into its slots.
    pub(crate) fn settle(&self, held: &mut [Option<Value>], slots: &mut [Slot<'_>]) -> Result<()> {
        for (place, slot) in &self.ends {
            let Some(value) = held[*place].take() else { continue };
            match (&mut slots[*slot], value) {
                (Slot::Row(row), Value::Tensor(tensor)) if tensor.data.len() == row.len() => {
                    row.copy_from_slice(tensor.data.as_slice());
                }
                (Slot::Row(_), _) => return Err(Error::internal("a held value does not fit its row")),
                (Slot::Value(free), value) => **free = Some(value),
            }
        }
        Ok(())
    }

    /// Does what is done to batches. Functions are not called when filters left nothing of the batch.
    pub(crate) fn call_with_batch(
        &self,
        (seed, epoch): (u64, u64),
        ids: &[SampleId],
        mut columns: Named,
        pool: &BufferPool,
    ) -> Result<Named> {
        for step in &self.batches {
            let step = match step {
                OfBatch::Mix(mixer) => {
                    columns = mixer.run((seed, epoch), ids, columns, pool)?;
                    continue;
                }
                OfBatch::Call(_) if ids.is_empty() => continue,
                OfBatch::Call(step) => step,
            };
            // The same batch has the same draw on any number of ranks: it is told by its samples.
            let members = ids.iter().fold(ids.len() as u64, |folded, id| fold(&[folded, id.0]));
            let key = step.key(seed, epoch, members);
            columns = step.function.map_batch(&step.to_call(key), ids, columns).map_err(|error| {
                let facts = Facts { op: Some(step.label.clone()), epoch: Some(epoch), ..Facts::default() };
                error.with_facts(facts).while_doing(format_args!("call `{}`", step.label))
            })?;
        }
        Ok(columns)
    }
}

impl Step {
    fn key(&self, seed: u64, epoch: u64, of: u64) -> Option<FunctionKey> {
        self.random.then(|| [fold(&[seed, epoch, FUNCTION_STREAM, self.number]), of])
    }

    fn to_call(&self, key: Option<FunctionKey>) -> Call<'_> {
        let (inputs, outputs) = (&self.names, &self.output_names);
        Call { inputs, outputs, bare: self.bare, spec: self.spec.as_ref(), key }
    }

    fn call(
        &self,
        sample: &SampleContext,
        held: &mut [Option<Value>],
        slots: &mut [Slot<'_>],
    ) -> Result<bool> {
        let values: Option<Vec<Value>> = self.inputs.iter().map(|place| held[*place].take()).collect();
        let values = values.ok_or_else(|| Error::internal("a value that a function needs is not there"))?;
        let call = self.to_call(self.key(sample.seed, sample.epoch, sample.sample_id.0));
        if self.filters {
            let (stays, values) = self.function.keep(&call, values)?;
            self.inputs.iter().zip(values).for_each(|(place, value)| held[*place] = Some(value));
            return Ok(stays);
        }
        let mut made: Vec<Option<Value>> = self.outputs.iter().map(|_| None).collect();
        let mut targets: Vec<Slot<'_>> = made.iter_mut().map(Slot::Value).collect();
        if let ([(_, Some(slot))], [target]) = (self.outputs.as_slice(), targets.as_mut_slice()) {
            // The only result, and nobody else wants it: written where it stays.
            if let Some(Slot::Row(row)) = slots.get_mut(*slot) {
                *target = Slot::Row(row);
            }
        }
        self.function.map(&call, values, &mut targets)?;
        drop(targets);
        self.outputs.iter().zip(made).for_each(|((place, _), value)| held[*place] = value);
        Ok(true)
    }
}

/// Memory of its own for a native column that is held.
pub(crate) fn make_held(
    kind: &OutputKind,
    pool: &BufferPool,
    fill: impl FnOnce(&mut Slot<'_>) -> Result<()>,
) -> Result<Option<Value>> {
    if let OutputKind::Tensor(spec) = kind {
        let mut data = pool.take(spec.bytes());
        fill(&mut Slot::Row(data.as_mut_slice()))?;
        return Ok(Some(Value::Tensor(Tensor { spec: spec.clone(), data })));
    }
    let mut value = None;
    fill(&mut Slot::Value(&mut value))?;
    Ok(value)
}
