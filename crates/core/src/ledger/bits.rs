//! A set of numbers below a bound, a bit each.

use crate::{Error, Result};

/// Which of `0..len` are in it.
#[derive(Clone, Debug)]
pub(super) struct Bits {
    words: Vec<u64>,
    len: u64,
}

impl Bits {
    pub(super) fn new(len: u64) -> Result<Self> {
        let mut words = Vec::new();
        let count = len.div_ceil(64) as usize;
        words.try_reserve_exact(count).map_err(|cause| {
            Error::exhausted(format!("check ledger: no memory for {len} positions")).with_source(cause)
        })?;
        words.resize(count, 0);
        Ok(Self { words, len })
    }

    pub(super) fn has(&self, number: u64) -> bool {
        number < self.len && self.words[(number / 64) as usize] >> (number % 64) & 1 == 1
    }

    /// Puts a number in; whether it was new. Numbers beyond the bound are passed over.
    pub(super) fn put(&mut self, number: u64) -> bool {
        if number >= self.len {
            return false;
        }
        let (word, bit) = (&mut self.words[(number / 64) as usize], 1 << (number % 64));
        let new = *word & bit == 0;
        *word |= bit;
        new
    }
}
