//! Recipes are built and kept as plain data in Python; here they are checked, normalised and named.

use crate::error::raise;
use forebay_core::recipe::Recipe;
use pyo3::prelude::*;

/// Reads a recipe from JSON or TOML text and returns its canonical JSON and its fingerprint.
///
/// All faults of the recipe are reported in one error.
#[pyfunction]
#[pyo3(signature = (text, *, toml = false))]
pub(crate) fn read_recipe(py: Python<'_>, text: &str, toml: bool) -> PyResult<(String, String)> {
    let recipe = if toml { Recipe::from_toml(text) } else { Recipe::from_json(text) };
    let recipe = recipe.map_err(|error| raise(py, &error))?;
    Ok((recipe.to_json(), recipe.fingerprint()))
}

/// The recipe as TOML text.
#[pyfunction]
pub(crate) fn recipe_to_toml(py: Python<'_>, json: &str) -> PyResult<String> {
    Recipe::from_json(json).and_then(|recipe| recipe.to_toml()).map_err(|error| raise(py, &error))
}
