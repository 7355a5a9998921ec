//! Figures in the text of Prometheus: any text is read within its limits, and what is read has a name and a number.
#![no_main]

use forebay_core::metrics::{MAX_FIGURES, read};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let figures = read(text);
    assert!(figures.len() <= MAX_FIGURES);
    assert!(figures.iter().all(|figure| !figure.name.is_empty() && !figure.value.is_nan()));
});
