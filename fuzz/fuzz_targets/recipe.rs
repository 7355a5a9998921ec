//! Recipes: what is accepted survives the round trip with its fingerprint, and compiles or says why not.
#![no_main]

use forebay_core::recipe::Recipe;
use forebay_ops::Program;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(recipe) = Recipe::from_toml(text) {
        let _ = Program::compile(&recipe);
    }
    let Ok(recipe) = Recipe::from_json(text) else { return };
    let again = Recipe::from_json(&recipe.to_json()).expect("what was written is read");
    assert_eq!(again.fingerprint(), recipe.fingerprint());
    let _ = Program::compile(&recipe);
});
