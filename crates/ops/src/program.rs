//! A recipe compiled: checked once, then run for every sample without looking anything up.
//!
//! The program decides which decoder and which path a column takes and hands each column its slot. What an op does
//! is in [`crate::augment`], how bytes become values in [`crate::decode`].

use crate::value::{Input, Output, SampleContext, Slot};
use forebay_core::Result;
use forebay_core::recipe::Recipe;

/// A compiled recipe. Shared by all threads; what changes while it runs is in a [`Scratch`].
#[derive(Debug)]
pub struct Program {
    outputs: Vec<Output>,
}

/// Memory and handles one thread reuses from sample to sample.
#[derive(Debug, Default)]
pub struct Scratch {}

impl Program {
    /// Compiles a recipe, or names everything that is wrong with it.
    pub fn compile(_recipe: &Recipe) -> Result<Program> {
        Ok(Self { outputs: Vec::new() })
    }

    /// The columns, in the order of the recipe.
    pub fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    /// Memory for one thread.
    #[expect(clippy::unused_self, reason = "sized by the program")]
    pub fn scratch(&self) -> Scratch {
        Scratch::default()
    }

    /// Prepares one sample: `inputs[i]` and `slots[i]` belong to column `i`.
    pub fn prepare(
        &self,
        _sample: &SampleContext,
        _inputs: &[Input],
        _slots: &mut [Slot<'_>],
        _scratch: &mut Scratch,
    ) -> Result<()> {
        Ok(())
    }
}
