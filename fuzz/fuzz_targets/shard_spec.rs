//! Shard specs: expansion ends within its limits for any text, and globs match without going on for ever.
#![no_main]

use forebay_core::spec::{MAX_EXPANDED_BYTES, MAX_NAMES, expand, glob_match};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let (spec, key) = text.split_once('\n').unwrap_or((text, "train-000.tar"));
    let env = |name: &str| (name.len() < 3).then(|| format!("{name}{{a,b}}*"));
    if let Ok(patterns) = expand(spec, &env) {
        assert!(patterns.len() as u64 <= MAX_NAMES);
        assert!(patterns.iter().map(|pattern| pattern.text.len() as u64).sum::<u64>() <= MAX_EXPANDED_BYTES);
        for pattern in patterns.iter().take(16).filter(|pattern| pattern.is_glob) {
            glob_match(&pattern.text, key);
        }
    }
    glob_match(spec, key);
});
