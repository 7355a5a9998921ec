//! A tokenizer's file and a text: tokens or an error. Bytes: whether special tokens are added, the text, a zero, the file.
#![no_main]

use bytes::Bytes;
use forebay_core::recipe::tokens::Tokenize;
use forebay_core::recipe::{MixNoise, Recipe};
use forebay_core::{Error, Result, SampleId};
use forebay_ops::{Assets, Input, Program, SampleContext, Slot};
use libfuzzer_sys::fuzz_target;

/// Brings one file.
struct File(Bytes);

impl Assets for File {
    fn tokenizer(&self, _: &Tokenize) -> Result<Bytes> {
        Ok(self.0.clone())
    }

    fn noise(&self, _: &MixNoise) -> Result<Vec<(String, Bytes)>> {
        Err(Error::internal("there is no noise here"))
    }
}

fuzz_target!(
    // Panics of the crate that reads the file are caught and become errors; those of ours still end the run.
    init: std::panic::set_hook(Box::new(|_| {})),
    |bytes: &[u8]| {
        let Some((special, rest)) = bytes.split_first() else { return };
        let Some(end) = rest.iter().position(|byte| *byte == 0) else { return };
        let (text, file) = (Bytes::copy_from_slice(&rest[..end]), &rest[end + 1..]);
        let program = program(special % 2 == 1);
        if program.equip(&File(Bytes::copy_from_slice(file))).is_err() {
            return;
        }
        let context = SampleContext { seed: 0, epoch: 0, sample_id: SampleId(0) };
        let mut row = None;
        let slots = &mut [Slot::Value(&mut row)];
        let made = program.prepare(&context, &[Input::Payload(text)], slots, &mut program.scratch());
        assert!(made.is_err() || row.is_some());
    }
);

fn program(special: bool) -> Program {
    let op = serde_json::json!({
        "op": "tokenize", "file": "tokenizer.json", "sha256": "0".repeat(64), "add_special_tokens": special,
    });
    let recipe = serde_json::json!([{"field": "txt", "decode": {"kind": "text"}, "ops": [op]}]);
    let recipe = Recipe::from_value(recipe).expect("a recipe");
    Program::compile(&recipe).expect("a program")
}
