//! Functions of the user's own language in a recipe: what they are called, and what is done to whole samples with them.
//!
//! A recipe stays plain data: a function stands there by the name under which it can be imported, with a fingerprint of
//! its source, so that a changed function is a changed recipe. Who calls it is decided where recipes are run.

use super::{Cutmix, FieldRecipe, Mixup, MixupOrCutmix, Op, Recipe};
use serde::{Deserialize, Serialize};

/// A function, by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Form")]
pub struct Function {
    /// `module:name`, from which it is imported where it was not given as an object.
    pub name: String,
    /// Fingerprint of its source, in hex; empty when nobody looked.
    pub source: String,
    /// Whether it is given a generator as its second argument, so that its result differs between epochs.
    pub random: bool,
}

/// A function as it may be written: its name alone, or with what is known of it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Form {
    Name(String),
    Known(Known),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Known {
    name: String,
    #[serde(default)]
    source: String,
    #[serde(default)]
    random: bool,
}

impl From<Form> for Function {
    fn from(form: Form) -> Self {
        match form {
            Form::Name(name) => Self { name, source: String::new(), random: false },
            Form::Known(Known { name, source, random }) => Self { name, source, random },
        }
    }
}

/// What is done to whole samples once their columns are made, or to whole batches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum SampleOp {
    /// Replaces columns by others: a dict of values in, a dict of values out.
    Map {
        /// What is called.
        function: Function,
        /// Columns it is given; they are gone afterwards unless it gives them back.
        fields: Vec<String>,
        /// Columns it gives; those it was given when there are none.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        outputs: Vec<String>,
    },
    /// Leaves out samples for which the function does not say yes.
    Filter {
        /// What is called.
        function: Function,
        /// Columns it is given.
        fields: Vec<String>,
    },
    /// Replaces the columns of a whole batch.
    MapBatch {
        /// What is called.
        function: Function,
    },
    /// Blends every image of a batch with another one, and their labels.
    Mixup(Mixup),
    /// Puts a box of another image into every image of a batch, and mixes their labels.
    Cutmix(Cutmix),
    /// One of the two, drawn for each batch.
    MixupOrCutmix(MixupOrCutmix),
}

impl SampleOp {
    /// The op's name in recipes and errors.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Map { .. } => "map",
            Self::Filter { .. } => "filter",
            Self::MapBatch { .. } => "map_batch",
            Self::Mixup(_) => "mixup",
            Self::Cutmix(_) => "cutmix",
            Self::MixupOrCutmix(_) => "mixup_or_cutmix",
        }
    }

    /// What it calls, when it is one of the user's functions.
    pub fn function(&self) -> Option<&Function> {
        match self {
            Self::Map { function, .. } | Self::Filter { function, .. } | Self::MapBatch { function } => {
                Some(function)
            }
            Self::Mixup(_) | Self::Cutmix(_) | Self::MixupOrCutmix(_) => None,
        }
    }

    /// Columns that it gives, when it gives any.
    pub fn outputs(&self) -> &[String] {
        match self {
            Self::Map { fields, outputs, .. } if outputs.is_empty() => fields,
            Self::Map { outputs, .. } => outputs,
            _ => &[],
        }
    }
}

impl Op {
    /// The function that it calls, if it is one of the user's.
    pub fn function(&self) -> Option<&Function> {
        match self {
            Self::Map { function, .. } | Self::Filter { function } => Some(function),
            _ => None,
        }
    }
}

impl FieldRecipe {
    /// The column without functions: what is done natively, before any of them is called.
    #[must_use]
    pub fn native(&self) -> Self {
        // What a function made is put together then, not what it was given.
        let maps = self.ops.iter().any(|op| matches!(op, Op::Map { .. }));
        let stays = |op: &&Op| op.function().is_none() && !(maps && op.closes_batch());
        Self { ops: self.ops.iter().filter(stays).cloned().collect(), ..self.clone() }
    }
}

impl Recipe {
    /// The recipe without functions.
    #[must_use]
    pub fn native(&self) -> Self {
        Self { fields: self.fields.iter().map(FieldRecipe::native).collect(), ops: Vec::new() }
    }

    /// Every function in the order in which they are called: those of columns, of samples, of batches.
    pub fn functions(&self) -> impl Iterator<Item = &Function> {
        let of_columns = self.fields.iter().flat_map(|field| &field.ops).filter_map(Op::function);
        of_columns.chain(self.ops.iter().filter_map(SampleOp::function))
    }
}
