//! Packing: documents dealt to batches of so many rows of one length, before any of them is read.
//!
//! Inside a batch one rule says which tokens stand in which row ([`Rows`]): pieces follow each other, and a piece that
//! does not fit what is left of a row begins the next one. The walk decides which documents a batch has, and in which
//! order, so that this rule needs no more rows than there are. `greedy` takes them as they come. `best` puts each into
//! the fullest row that has room, then lists row by row: what began a row fitted no row before it, nor will it when
//! the rule asks again, so the rule finds the same rows. Fewer or shorter documents than planned never need more rows.

use super::Cuts;
use super::walk::Walked;
use crate::SampleId;
use crate::plan::Plan;
use crate::plan::rounds::Lengths;
use crate::recipe::tokens::{Fit, Long};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::Arc;

/// How documents are packed, and how many tokens each has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Packing {
    /// Rows of a batch.
    pub rows: u64,
    /// Tokens of a row.
    pub length: u64,
    /// Which document goes into which row.
    pub fit: Fit,
    /// Documents that are looked at for one that fits.
    pub look_ahead: u64,
    /// What becomes of documents longer than a row.
    pub long: Long,
    /// Bytes of a stored token.
    pub token_bytes: u64,
    /// Tokens that are added to every document.
    pub extra: u64,
    /// Most tokens that are left of a document.
    pub most: u64,
}

impl Packing {
    /// Checks the numbers.
    pub(super) fn check(&self) -> Result<()> {
        let numbers = [self.rows, self.length, self.look_ahead, self.token_bytes, self.most];
        if numbers.contains(&0) || self.rows.checked_mul(self.length).is_none_or(|tokens| tokens > 1 << 40) {
            return Err(Error::invalid_config(
                "pack: rows, lengths and look-ahead are at least 1, of 2^40 tokens",
            ));
        }
        Ok(())
    }

    /// Whether documents stand elsewhere than beneath.
    pub(super) fn moves(&self) -> bool {
        self.fit == Fit::Best || self.long == Long::Drop
    }

    /// Tokens of a document that find no row though nobody asked to leave them out.
    fn cut_off(&self, tokens: u64) -> u64 {
        if self.long == Long::Split { tokens.saturating_sub(self.rows * self.length) } else { 0 }
    }

    /// Tokens of a document that are packed.
    fn tokens(&self, lengths: &Lengths, sample: SampleId) -> u64 {
        (lengths.of(sample) / self.token_bytes).saturating_add(self.extra).min(self.most)
    }
}

/// Where a run of a document's tokens stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Number of the document in the batch.
    pub document: usize,
    /// The first of its tokens.
    pub from: u64,
    /// The row.
    pub row: u64,
    /// Place in the row.
    pub at: u64,
    /// Number of tokens.
    pub length: u64,
}

/// Rows that are being filled.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    count: u64,
    length: u64,
    long: Long,
    /// Rows that were begun, and what is left of the last.
    begun: u64,
    left: u64,
}

impl Rows {
    /// So many empty rows.
    pub fn new(rows: u64, length: u64, long: Long) -> Self {
        Self { count: rows, length: length.max(1), long, begun: 0, left: 0 }
    }

    /// Rows that were begun.
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// Where a document goes; what finds no row is left out.
    pub fn add(&mut self, document: usize, tokens: u64) -> Vec<Piece> {
        let mut pieces = Vec::new();
        self.place(tokens, |from, row, at, length| pieces.push(Piece { document, from, row, at, length }));
        pieces
    }

    /// Whether all of a document finds room; it is placed if so.
    fn takes(&mut self, tokens: u64) -> bool {
        let mut trial = *self;
        let whole = if self.long == Long::Split { tokens } else { tokens.min(self.length) };
        let fits = trial.place(tokens, |_, _, _, _| {}) == whole;
        if fits {
            *self = trial;
        }
        fits
    }

    /// Places what has room and gives how many tokens that were.
    fn place(&mut self, tokens: u64, mut put: impl FnMut(u64, u64, u64, u64)) -> u64 {
        let tokens = if self.long == Long::Split { tokens } else { tokens.min(self.length) };
        let mut from = 0;
        while from < tokens {
            let piece = (tokens - from).min(self.length);
            if piece > self.left {
                if self.begun == self.count {
                    break;
                }
                (self.begun, self.left) = (self.begun + 1, self.length);
            }
            put(from, self.begun - 1, self.length - self.left, piece);
            self.left -= piece;
            from += piece;
        }
        from
    }
}

/// Rows of one batch that belong together: those of a long document and what is behind it, or one.
struct Bin {
    left: u64,
    members: Vec<u32>,
}

/// A walk in the making.
struct Dealt {
    order: Vec<u32>,
    starts: Vec<u64>,
    cut_off: u64,
}

impl Dealt {
    fn new(order: Vec<u32>) -> Self {
        Self { order, starts: vec![0], cut_off: 0 }
    }

    fn close(&mut self, documents: u64) {
        let end = self.starts.last().copied().unwrap_or(0) + documents;
        self.starts.push(end);
    }

    fn finish(mut self, mut left_out: Vec<u32>) -> Walked {
        // The last batch holds what was left; no document beyond it could have filled it.
        let full = (self.starts.len() as u64).saturating_sub(2);
        let count = left_out.len() as u64;
        self.order.append(&mut left_out);
        let cuts = Cuts { starts: self.starts, full, left_out: count, cut_off: self.cut_off };
        Walked { order: self.order, cuts: Arc::new(cuts) }
    }
}

/// The batches of an epoch, of at most `most` documents each.
pub(super) fn walk(packing: &Packing, lengths: &Lengths, most: u64, plan: &Plan) -> Walked {
    match packing.fit {
        Fit::Greedy => greedy(packing, lengths, most, plan),
        Fit::Best => best(packing, lengths, most, plan),
    }
}

fn greedy(packing: &Packing, lengths: &Lengths, most: u64, plan: &Plan) -> Walked {
    let empty = Rows::new(packing.rows, packing.length, packing.long);
    let (mut rows, mut documents) = (empty, 0);
    let mut dealt = Dealt::new(Vec::new());
    let mut left_out = Vec::new();
    for position in 0..plan.len() {
        let tokens = packing.tokens(lengths, plan.at(position));
        if packing.long == Long::Drop && tokens > packing.length {
            left_out.push(position as u32);
            continue;
        }
        dealt.cut_off = dealt.cut_off.saturating_add(packing.cut_off(tokens));
        if documents == most || !rows.takes(tokens) {
            if documents > 0 {
                dealt.close(documents);
            }
            (rows, documents) = (empty, 0);
            // One that fits no batch has one of its own, as far as that goes.
            rows.place(tokens, |_, _, _, _| {});
        }
        if packing.moves() {
            dealt.order.push(position as u32);
        }
        documents += 1;
    }
    if documents > 0 {
        dealt.close(documents);
    }
    dealt.finish(left_out)
}

fn best(packing: &Packing, lengths: &Lengths, most: u64, plan: &Plan) -> Walked {
    let mut dealt = Dealt::new(Vec::with_capacity(plan.len() as usize));
    let (mut waiting, mut left_out): (VecDeque<(u32, u64)>, Vec<u32>) = (VecDeque::new(), Vec::new());
    let mut next = 0;
    loop {
        while (waiting.len() as u64) < packing.look_ahead && next < plan.len() {
            let tokens = packing.tokens(lengths, plan.at(next));
            if packing.long == Long::Drop && tokens > packing.length {
                left_out.push(next as u32);
            } else {
                dealt.cut_off = dealt.cut_off.saturating_add(packing.cut_off(tokens));
                waiting.push_back((next as u32, tokens));
            }
            next += 1;
        }
        if waiting.is_empty() {
            return dealt.finish(left_out);
        }
        let (mut bins, mut begun, mut documents) = (Vec::<Bin>::new(), 0, 0);
        let mut stay = VecDeque::with_capacity(waiting.len());
        for (position, tokens) in waiting.drain(..) {
            let tokens = if packing.long == Long::Split { tokens } else { tokens.min(packing.length) };
            let room = bins.iter_mut().filter(|bin| bin.left >= tokens);
            let rows = tokens.div_ceil(packing.length).max(1);
            if documents == most {
                stay.push_back((position, tokens));
            } else if let Some(bin) = room.min_by_key(|bin| bin.left) {
                bin.left -= tokens;
                bin.members.push(position);
                documents += 1;
            } else if begun + rows <= packing.rows || bins.is_empty() {
                // What is beyond the last row of a batch is no room for others.
                let there = if rows > packing.rows { 0 } else { rows * packing.length };
                let left = there.saturating_sub(tokens);
                bins.push(Bin { left, members: vec![position] });
                begun += rows;
                documents += 1;
            } else {
                stay.push_back((position, tokens));
            }
        }
        waiting = stay;
        for bin in bins {
            dealt.order.extend(bin.members);
        }
        dealt.close(documents);
    }
}

#[cfg(test)]
#[path = "packing_tests.rs"]
mod tests;
