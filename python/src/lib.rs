//! The native module of the forebay Python package: `forebay._native`.
//!
//! A binding here converts, lets go of the interpreter, calls the engine, converts back. Decisions live in the
//! crates below; words, defaults and checks of arguments live in the Python package above. One file per thing exposed:
//! [`dataset`], [`loader`] with its [`settings`], [`analyze`], [`materialize`], [`recipe`], [`buffer`] (memory that arrays look
//! at), [`payloads`], [`function`] (a recipe's own), [`service`], [`error`]; [`runtime`] is the only place that waits.
#![expect(clippy::needless_pass_by_value, reason = "PyO3 hands arguments over by value")]

mod analyze;
mod batch;
mod buffer;
mod cli;
mod dataset;
mod error;
mod function;
mod loader;
mod materialize;
mod payloads;
mod ranks;
mod recipe;
mod runtime;
mod service;
mod settings;

use forebay_store::large::LargeBlocks;
use pyo3::prelude::*;

/// Of what this module allocates; Python's own objects and other libraries are not touched.
#[global_allocator]
static ALLOCATOR: LargeBlocks = LargeBlocks::new();

/// The native parts of Forebay. Use `forebay` instead.
#[pymodule(gil_used = false)]
mod _native {
    #[pymodule_export]
    use crate::analyze::analyze;
    #[pymodule_export]
    use crate::buffer::Memory;
    #[pymodule_export]
    use crate::cli::run_cli;
    #[pymodule_export]
    use crate::dataset::{Dataset, join, mix, open, synthetic};
    #[pymodule_export]
    use crate::loader::{Loader, available_threads, merge_cursors, parse_bytes, start_of};
    #[pymodule_export]
    use crate::materialize::materialize;
    #[pymodule_export]
    use crate::payloads::Payloads;
    #[pymodule_export]
    use crate::recipe::{read_recipe, recipe_to_toml};
    #[pymodule_export]
    use crate::service::{Dispatcher, make_credentials};

    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        forebay_ops::function::lend(Box::new(crate::function::Imports));
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("DEBUG_BUILD", cfg!(debug_assertions))
    }
}
