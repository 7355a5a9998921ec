//! The bytes of a ledger file: a mark, then records that follow each other without gaps.
//!
//! ```text
//! file    "FBLEDGR1" record*
//! record  length (varint) · body · check (4 bytes, little-endian)
//! body    1 · head of a section, as JSON
//!         2                                                               the next epoch begins
//!         3 · rows' check (4) · milliseconds since the record before      the next batch, as planned
//!         4 · rows' check (4) · milliseconds · places · odd rows          the next batch
//! places  count · first, then differences of neighbours, signed
//! odd     count · (rows since the last odd one · 0 skipped | 1 filtered | 2 substituted · sample id)*
//! ```
//!
//! A check covers its body and the check before it, so that no record can be lost, moved or changed unseen. A file is
//! only added to. What a process left unfinished when it was killed is the end of the file and is passed over.

use super::{Details, Fate, OddRow, Received, Section, SectionHead};
use crate::{Error, Result, SampleId};
use xxhash_rust::xxh3::xxh3_64_with_seed;

const MAGIC: &[u8; 8] = b"FBLEDGR1";

/// Largest record: a batch of a million rows in arrival order, many of them odd.
pub const MAX_RECORD_BYTES: usize = 16 << 20;

const HEAD: u8 = 1;
const EPOCH: u8 = 2;
const PLANNED: u8 = 3;
const DETAILED: u8 = 4;

/// Makes the bytes of one file, in the order in which they are asked for.
#[derive(Clone, Debug)]
pub struct Encoder {
    last_check: u32,
    is_new: bool,
}

impl Default for Encoder {
    fn default() -> Self {
        Self { last_check: 0, is_new: true }
    }
}

impl Encoder {
    /// A section begins.
    pub fn head(&mut self, head: &SectionHead) -> Result<Vec<u8>> {
        let mut body = vec![HEAD];
        serde_json::to_writer(&mut body, head)
            .map_err(|cause| Error::internal("write ledger: a head").with_source(cause))?;
        self.record(&body)
    }

    /// The next epoch begins, from its start.
    pub fn epoch(&mut self) -> Result<Vec<u8>> {
        self.record(&[EPOCH])
    }

    /// A batch was received.
    pub fn received(&mut self, batch: &Received) -> Result<Vec<u8>> {
        let mut body = vec![if batch.more.is_some() { DETAILED } else { PLANNED }];
        body.extend(batch.check.to_le_bytes());
        put(&mut body, batch.millis.into());
        if let Some(more) = &batch.more {
            put(&mut body, more.locals.len() as u64);
            let mut last = 0;
            for local in &more.locals {
                put(&mut body, zigzag(local.wrapping_sub(last)));
                last = *local;
            }
            put(&mut body, more.odd.len() as u64);
            let mut last = 0;
            for odd in &more.odd {
                put(&mut body, odd.row.wrapping_sub(last));
                last = odd.row;
                match odd.fate {
                    Fate::Skipped => body.push(0),
                    Fate::Filtered => body.push(1),
                    Fate::Substituted(id) => {
                        body.push(2);
                        put(&mut body, id.0);
                    }
                }
            }
        }
        self.record(&body)
    }

    fn record(&mut self, body: &[u8]) -> Result<Vec<u8>> {
        if body.len() > MAX_RECORD_BYTES {
            let why = format!("write ledger: a record has {} bytes, at most 16 MiB are allowed", body.len());
            return Err(Error::exhausted(why));
        }
        let mut bytes = if self.is_new { MAGIC.to_vec() } else { Vec::new() };
        self.is_new = false;
        put(&mut bytes, body.len() as u64);
        bytes.extend(body);
        self.last_check = chained(self.last_check, body);
        bytes.extend(self.last_check.to_le_bytes());
        Ok(bytes)
    }
}

/// What a file holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parsed {
    /// Its sections, in order.
    pub sections: Vec<Section>,
    /// Bytes of all whole records.
    pub whole_bytes: u64,
    /// Why reading ended before the end of the file, when it was not only cut off inside a record.
    pub damage: Option<String>,
}

/// Reads a file. What follows the last whole record is passed over; a file that was never a ledger is an error.
pub fn parse(bytes: &[u8]) -> Result<Parsed> {
    let mut parsed = Parsed::default();
    let Some(mut rest) = bytes.strip_prefix(MAGIC) else {
        // Killed while it wrote the mark.
        if MAGIC.starts_with(bytes) {
            return Ok(parsed);
        }
        return Err(Error::corrupt("read ledger: it does not begin as one does"));
    };
    let mut last_check = 0;
    loop {
        parsed.whole_bytes = (bytes.len() - rest.len()) as u64;
        let mut at = rest;
        let Some(length) = take(&mut at) else { return Ok(parsed) };
        if !(1..=MAX_RECORD_BYTES as u64).contains(&length) {
            parsed.damage = Some(format!("a record of {length} bytes"));
            return Ok(parsed);
        }
        let Some((body, after)) = at.split_at_checked(length as usize) else { return Ok(parsed) };
        let Some((check, after)) = after.split_first_chunk::<4>() else { return Ok(parsed) };
        let wanted = chained(last_check, body);
        if u32::from_le_bytes(*check) != wanted {
            parsed.damage = Some("a record whose check does not fit".to_owned());
            return Ok(parsed);
        }
        // A head that this release cannot read is worth an error: the file is sound.
        let body_is_read = match body.split_first() {
            Some((&HEAD, json)) => {
                parsed
                    .sections
                    .push(Section { head: SectionHead::from_json(json)?, epochs: vec![Vec::new()] });
                true
            }
            Some((&EPOCH, [])) => {
                parsed.sections.last_mut().map(|section| section.epochs.push(Vec::new())).is_some()
            }
            Some((&kind @ (PLANNED | DETAILED), body)) => {
                let batches = parsed.sections.last_mut().and_then(|section| section.epochs.last_mut());
                let batch = read_batch(body, kind == DETAILED);
                batches.zip(batch).map(|(batches, batch)| batches.push(batch)).is_some()
            }
            _ => false,
        };
        if !body_is_read {
            parsed.damage = Some("a record that means nothing".to_owned());
            return Ok(parsed);
        }
        (last_check, rest) = (wanted, after);
    }
}

fn read_batch(body: &[u8], detailed: bool) -> Option<Received> {
    let (check, mut rest) = body.split_first_chunk::<4>()?;
    let check = u32::from_le_bytes(*check);
    let millis = u32::try_from(take(&mut rest)?).ok()?;
    let mut more = Details::default();
    if detailed {
        // Every place and every odd row takes a byte or more, so that no count can ask for more than is there.
        let mut last = 0u64;
        for _ in 0..counted(&mut rest)? {
            last = last.wrapping_add(unzigzag(take(&mut rest)?));
            more.locals.push(last);
        }
        let mut last = 0u64;
        for number in 0..counted(&mut rest)? {
            let step = take(&mut rest)?;
            // Rows ascend.
            if step == 0 && number > 0 {
                return None;
            }
            last = last.checked_add(step)?;
            let (fate, after) = rest.split_first()?;
            rest = after;
            let fate = match fate {
                0 => Fate::Skipped,
                1 => Fate::Filtered,
                2 => Fate::Substituted(SampleId(take(&mut rest)?)),
                _ => return None,
            };
            more.odd.push(OddRow { row: last, fate });
        }
    }
    rest.is_empty().then(|| Received { check, millis, more: detailed.then(|| Box::new(more)) })
}

fn counted(rest: &mut &[u8]) -> Option<u64> {
    take(rest).filter(|count| *count <= rest.len() as u64)
}

fn chained(last: u32, body: &[u8]) -> u32 {
    xxh3_64_with_seed(body, u64::from(last)) as u32
}

fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// A number of at most ten bytes; `None` when it is cut off or longer.
fn take(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for (index, byte) in rest.iter().enumerate().take(10) {
        number |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            *rest = &rest[index + 1..];
            return Some(number);
        }
    }
    None
}

/// Small differences of either sign as small numbers.
fn zigzag(difference: u64) -> u64 {
    let signed = difference as i64;
    ((signed << 1) ^ (signed >> 63)) as u64
}

fn unzigzag(number: u64) -> u64 {
    (number >> 1) ^ (number & 1).wrapping_neg()
}
