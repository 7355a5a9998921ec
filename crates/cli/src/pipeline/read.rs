//! Reads values out of a table one by one and remembers every fault and every name that nobody asked for.

use forebay_core::size::parse_bytes;
use serde_json::{Map, Value};

/// A table that is being read. A fault of a value is noted and the value counts as not given.
pub(super) struct Table<'a> {
    name: &'static str,
    values: Map<String, Value>,
    known: Vec<&'static str>,
    faults: &'a mut Vec<String>,
}

impl<'a> Table<'a> {
    pub(super) fn new(name: &'static str, values: Map<String, Value>, faults: &'a mut Vec<String>) -> Self {
        Self { name, values, known: Vec::new(), faults }
    }

    /// The value under `key`, when it is there and sound.
    pub(super) fn take<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&Value) -> Result<T, String>,
    ) -> Option<T> {
        self.known.push(key);
        let value = self.values.remove(key)?;
        read(&value).map_err(|why| self.fault(key, &why)).ok()
    }

    /// As [`Self::take`], where a word such as `"auto"` or `"none"` is as good as no value.
    pub(super) fn take_or<T>(
        &mut self,
        word: &str,
        key: &'static str,
        read: impl FnOnce(&Value) -> Result<T, String>,
    ) -> Option<T> {
        self.take(key, |value| if value == word { Ok(None) } else { read(value).map(Some) }).flatten()
    }

    pub(super) fn fault(&mut self, key: &str, why: &str) {
        self.faults.push(format!("{}.{key}: {why}", self.name));
    }

    /// How many faults were noted so far.
    pub(super) fn fault_count(&self) -> usize {
        self.faults.len()
    }

    /// Whatever is left has a name that means nothing.
    pub(super) fn end(self) {
        for key in self.values.keys() {
            let known = self.known.join(", ");
            self.faults.push(format!("{}.{key}: there is no such setting; known are {known}", self.name));
        }
    }
}

pub(super) fn text(value: &Value) -> Result<String, String> {
    value.as_str().map(str::to_owned).ok_or_else(|| format!("{value} is not text"))
}

pub(super) fn list_of_text(value: &Value) -> Result<Vec<String>, String> {
    match value {
        Value::Array(values) if !values.is_empty() => values.iter().map(text).collect(),
        Value::Array(_) => Err("the list is empty".into()),
        value => Ok(vec![text(value)?]),
    }
}

pub(super) fn truth(value: &Value) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| format!("{value} is not true or false"))
}

pub(super) fn whole(least: u64, most: u64) -> impl Fn(&Value) -> Result<u64, String> {
    move |value| match value.as_u64() {
        Some(number) if (least..=most).contains(&number) => Ok(number),
        _ if most == u64::MAX => Err(format!("{value} is not a whole number of at least {least}")),
        _ => Err(format!("{value} is not a whole number in {least}..={most}")),
    }
}

/// A number above 0.
pub(super) fn positive(value: &Value) -> Result<f64, String> {
    let number = value.as_f64().filter(|number| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| format!("{value} is not a number above 0"))
}

/// A number of bytes, or text with a unit.
pub(super) fn bytes(value: &Value) -> Result<u64, String> {
    let bytes = match value {
        Value::String(text) => parse_bytes(text).map_err(|error| error.message().to_owned())?,
        value => value.as_u64().ok_or_else(|| format!("{value} is not a size such as \"1GiB\""))?,
    };
    if bytes == 0 { Err("it is 0 bytes".into()) } else { Ok(bytes) }
}

/// The value that a word stands for.
pub(super) fn word<T: Copy>(words: &[(&str, T)]) -> impl Fn(&Value) -> Result<T, String> {
    move |value| {
        let found = value.as_str().and_then(|word| words.iter().find(|(known, _)| *known == word));
        found.map(|(_, meaning)| *meaning).ok_or_else(|| {
            let known: Vec<String> = words.iter().map(|(known, _)| format!("\"{known}\"")).collect();
            format!("{value} is not one of {}", known.join(", "))
        })
    }
}
