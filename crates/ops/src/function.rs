//! Functions that a recipe names and this crate cannot run: what is asked of whoever can.
//!
//! The words here are those between a program and an interpreter: values go in, values or a yes come out. Which
//! function is called when, and where its results go, is in [`crate::flow`]. Which functions may be called at all is for
//! whoever starts the process to say: see [`Functions`].

use crate::collate::Column;
use crate::value::{Slot, Value};
use forebay_core::recipe::Recipe;
use forebay_core::tensor::TensorSpec;
use forebay_core::{Error, ErrorKind, Result, SampleId};
use std::fmt;
use std::sync::{Arc, OnceLock};

/// Keeps the chance of functions apart from that of native ops.
pub(crate) const FUNCTION_STREAM: u64 = u64::MAX - 1;

/// Seeds the generator that a function is given: equal for equal seed, epoch, sample (or batch) and function.
pub type FunctionKey = [u64; 2];

/// Columns by name.
pub type Named = Vec<(String, Column)>;

/// A function of the user's.
pub trait Function: Send + Sync {
    /// Makes the values of `call.outputs` out of those of `call.inputs`. Every slot is filled afterwards.
    fn map(&self, call: &Call<'_>, values: Vec<Value>, slots: &mut [Slot<'_>]) -> Result<()>;

    /// Whether the sample stays. The values are given back as they were.
    fn keep(&self, call: &Call<'_>, values: Vec<Value>) -> Result<(bool, Vec<Value>)>;

    /// Makes the columns of a batch of these samples out of others.
    fn map_batch(&self, call: &Call<'_>, ids: &[SampleId], columns: Named) -> Result<Named>;
}

/// One call.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// Names of the columns that it is given.
    pub inputs: &'a [String],
    /// Names of the columns that it gives.
    pub outputs: &'a [String],
    /// Whether it is given a value and gives one, rather than values by name.
    pub bare: bool,
    /// What its only output must be, when that was said.
    pub spec: Option<&'a TensorSpec>,
    /// For its generator, when it takes one.
    pub key: Option<FunctionKey>,
}

/// Finds functions by name.
pub trait Interpreter: Send + Sync {
    /// The functions of a recipe, in the order of [`Recipe::functions`].
    fn find(&self, recipe: &Recipe) -> Result<Vec<Arc<dyn Function>>>;
}

static INTERPRETER: OnceLock<Box<dyn Interpreter>> = OnceLock::new();

/// Lends this process an interpreter, for functions that are [allowed](Functions::Allowed) by name. The first one stays.
pub fn lend(interpreter: Box<dyn Interpreter>) {
    let _ = INTERPRETER.set(interpreter);
}

/// What a recipe may call. A recipe is data, perhaps of somebody else: it never calls what is not here.
#[derive(Clone, Default)]
pub enum Functions {
    /// Nothing.
    #[default]
    None,
    /// These, in the order of [`Recipe::functions`].
    Given(Vec<Arc<dyn Function>>),
    /// What this process's interpreter finds under these names, which whoever started the process listed.
    Allowed(Arc<[String]>),
}

impl Functions {
    /// The functions of a recipe, in order. Nothing is imported unless all of them may be called.
    pub fn of(&self, recipe: &Recipe) -> Result<Vec<Arc<dyn Function>>> {
        let Some(first) = recipe.functions().next() else { return Ok(Vec::new()) };
        let allowed = match self {
            Self::Given(functions) => return Ok(functions.clone()),
            Self::None => {
                let why = format!("call `{}`: a recipe names functions, it does not bring them", first.name);
                return Err(Error::unsupported(why).with_hint("give the function to a loader in Python"));
            }
            Self::Allowed(allowed) => allowed,
        };
        if let Some(other) = recipe.functions().find(|function| !allowed.contains(&function.name)) {
            let name = &other.name;
            return Err(Error::new(
                ErrorKind::Denied,
                format!("call `{name}`: this process was not told that it may"),
            )
            .with_hint(format!("start it with `--functions {name}`, if you trust that function")));
        }
        match INTERPRETER.get() {
            Some(interpreter) => interpreter.find(recipe),
            None => Err(Error::unsupported(format!("call `{}`: this process has no Python", first.name))
                .with_hint("start it from the Python package: `python -m forebay ...`")),
        }
    }
}

impl fmt::Debug for Functions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Given(functions) => write!(f, "Given({})", functions.len()),
            Self::Allowed(names) => f.debug_tuple("Allowed").field(names).finish(),
        }
    }
}

/// Stands in for functions where a program is only looked at.
pub(crate) struct Uncalled;

impl Function for Uncalled {
    fn map(&self, _: &Call<'_>, _: Vec<Value>, _: &mut [Slot<'_>]) -> Result<()> {
        Err(uncalled())
    }

    fn keep(&self, _: &Call<'_>, _: Vec<Value>) -> Result<(bool, Vec<Value>)> {
        Err(uncalled())
    }

    fn map_batch(&self, _: &Call<'_>, _: &[SampleId], _: Named) -> Result<Named> {
        Err(uncalled())
    }
}

fn uncalled() -> Error {
    Error::internal("a program that is only looked at was run")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe(function: &str) -> Recipe {
        let text = format!(
            r#"[{{"field": "a", "decode": "text", "ops": [{{"op": "map", "function": "{function}"}}]}}]"#
        );
        Recipe::from_json(&text).unwrap()
    }

    #[test]
    fn p035_a_recipe_from_elsewhere_calls_nothing_that_was_not_allowed_by_name() {
        let allowed = Functions::Allowed(["mine.ops:f".to_owned()].into());
        for (functions, function, kind) in [
            (Functions::None, "mine.ops:f", ErrorKind::Unsupported),
            (allowed.clone(), "os:system", ErrorKind::Denied),
            (allowed.clone(), "mine.ops:f.g", ErrorKind::Denied),
            (allowed.clone(), "mine.ops:g", ErrorKind::Denied),
            // It may, but there is nobody here who could.
            (allowed, "mine.ops:f", ErrorKind::Unsupported),
        ] {
            let error = functions.of(&recipe(function)).err().unwrap();
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.message().contains(function), "{error}");
        }
        let plain = Recipe::from_json(r#"[{"field": "a", "decode": "text"}]"#).unwrap();
        assert!(Functions::None.of(&plain).unwrap().is_empty());
    }
}
