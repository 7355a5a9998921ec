//! Values of one page, by their encoding: numbers side by side, or bytes with their places.

use super::packed::{self, Bits, cut_off, deltas, hybrid};
use super::page::MAX_PAGE_BYTES;
use super::schema::Stored;
use forebay_core::{Error, Result};
use std::ops::Range;
use std::sync::Arc;

/// Values in order.
#[derive(Debug, Default)]
pub(super) struct Values {
    data: Vec<u8>,
    /// Where each lies; `None` when all have `size` bytes.
    places: Option<Vec<Range<u32>>>,
    size: usize,
}

impl Values {
    pub(super) fn len(&self) -> usize {
        self.places.as_ref().map_or(self.data.len().checked_div(self.size).unwrap_or(0), Vec::len)
    }

    pub(super) fn get(&self, number: usize) -> Option<&[u8]> {
        if let Some(places) = &self.places {
            let place = places.get(number)?;
            return self.data.get(place.start as usize..place.end as usize);
        }
        let start = number.checked_mul(self.size)?;
        self.data.get(start..start + self.size)
    }

    fn fixed(size: usize, data: Vec<u8>) -> Self {
        Self { data, places: None, size }
    }
}

/// Values of a page, which may stand in the dictionary.
#[derive(Debug)]
pub(super) struct PageValues {
    values: Arc<Values>,
    numbers: Option<Vec<u32>>,
}

impl PageValues {
    pub(super) fn len(&self) -> usize {
        self.numbers.as_ref().map_or(self.values.len(), Vec::len)
    }

    pub(super) fn get(&self, number: usize) -> Result<&[u8]> {
        let place = match &self.numbers {
            Some(numbers) => numbers.get(number).copied().map(|number| number as usize),
            None => Some(number),
        };
        place
            .and_then(|place| self.values.get(place))
            .ok_or_else(|| Error::corrupt("a value is not in the dictionary, or missing"))
    }
}

/// Bytes of each stored value; `None` when they vary.
fn size_of(stored: Stored) -> Option<usize> {
    match stored {
        Stored::Boolean => Some(1),
        Stored::Int32 | Stored::Float => Some(4),
        Stored::Int64 | Stored::Double => Some(8),
        Stored::Int96 => Some(12),
        Stored::Fixed(size) => Some(size as usize),
        Stored::Bytes => None,
    }
}

/// `count` values of a page, nulls left out.
pub(super) fn read(
    encoding: i64,
    stored: Stored,
    bytes: &[u8],
    count: usize,
    dictionary: Option<&Arc<Values>>,
) -> Result<PageValues> {
    if let 2 | 8 = encoding {
        let values =
            dictionary.ok_or_else(|| Error::corrupt("a page needs a dictionary, and there is none"))?;
        let mut numbers = Vec::new();
        if count > 0 {
            let (width, packed) = bytes.split_first().ok_or_else(cut_off)?;
            hybrid(packed, u32::from(*width), count, &mut numbers)?;
        }
        return Ok(PageValues { values: Arc::clone(values), numbers: Some(numbers) });
    }
    let values = match encoding {
        0 => plain(stored, bytes, count)?,
        3 if stored == Stored::Boolean => {
            let packed = bytes.get(4..).ok_or_else(cut_off)?;
            let mut flags = Vec::new();
            hybrid(packed, 1, count, &mut flags)?;
            Values::fixed(1, flags.into_iter().map(|flag| flag as u8).collect())
        }
        5 => differences(stored, bytes, count)?,
        6 if stored == Stored::Bytes => {
            let mut lengths = Vec::new();
            let at = deltas(bytes, count, &mut lengths)?;
            laid_out(&lengths, &bytes[at..])?
        }
        7 => grown(stored, bytes, count)?,
        9 => streams(stored, bytes, count)?,
        other => return Err(Error::unsupported(format!("its values have encoding {other}"))),
    };
    if values.len() < count {
        return Err(cut_off());
    }
    Ok(PageValues { values: Arc::new(values), numbers: None })
}

/// Values as they are; those that vary have their length before them.
pub(super) fn plain(stored: Stored, bytes: &[u8], count: usize) -> Result<Values> {
    if stored == Stored::Boolean {
        if bytes.len() < count.div_ceil(8) {
            return Err(cut_off());
        }
        let mut bits = Bits::new(bytes);
        return Ok(Values::fixed(1, (0..count).map(|_| bits.take(1) as u8).collect()));
    }
    if let Some(size) = size_of(stored) {
        let length = size.checked_mul(count).ok_or_else(cut_off)?;
        return Ok(Values::fixed(size, bytes.get(..length).ok_or_else(cut_off)?.to_vec()));
    }
    if count > bytes.len() / 4 {
        return Err(cut_off());
    }
    let (mut places, mut at) = (Vec::with_capacity(count), 0usize);
    for _ in 0..count {
        let head = bytes.get(at..).and_then(<[u8]>::first_chunk).ok_or_else(cut_off)?;
        let start = at + 4;
        let end = start.checked_add(u32::from_le_bytes(*head) as usize).filter(|end| *end <= bytes.len());
        at = end.ok_or_else(cut_off)?;
        places.push(start as u32..at as u32);
    }
    Ok(Values { data: bytes[..at].to_vec(), places: Some(places), size: 0 })
}

fn differences(stored: Stored, bytes: &[u8], count: usize) -> Result<Values> {
    let mut found = Vec::new();
    deltas(bytes, count, &mut found)?;
    Ok(match stored {
        Stored::Int32 => {
            Values::fixed(4, found.iter().flat_map(|value| (*value as i32).to_le_bytes()).collect())
        }
        Stored::Int64 => Values::fixed(8, found.iter().flat_map(|value| value.to_le_bytes()).collect()),
        _ => return Err(Error::corrupt("values that are no integers are told as differences")),
    })
}

/// Bytes one after the other, whose lengths are known.
fn laid_out(lengths: &[i64], bytes: &[u8]) -> Result<Values> {
    let (mut places, mut at) = (Vec::with_capacity(lengths.len()), 0usize);
    for length in lengths {
        let end = usize::try_from(*length).ok().and_then(|length| at.checked_add(length));
        let end = end.filter(|end| *end <= bytes.len()).ok_or_else(cut_off)?;
        places.push(at as u32..end as u32);
        at = end;
    }
    Ok(Values { data: bytes[..at].to_vec(), places: Some(places), size: 0 })
}

/// Bytes that begin like the value before, for as long as is told.
fn grown(stored: Stored, bytes: &[u8], count: usize) -> Result<Values> {
    let (mut shared, mut own) = (Vec::new(), Vec::new());
    let at = deltas(bytes, count, &mut shared)?;
    let more = deltas(&bytes[at..], count, &mut own)?;
    let ends = laid_out(&own, &bytes[at + more..])?;
    if shared.len() != own.len() {
        return Err(Error::corrupt("it tells more beginnings than ends of values"));
    }
    let (mut data, mut places, mut last) = (Vec::<u8>::new(), Vec::with_capacity(own.len()), 0..0);
    for (number, shared) in shared.iter().enumerate() {
        let end = ends.get(number).ok_or_else(cut_off)?;
        let shared = usize::try_from(*shared).ok().filter(|shared| *shared <= last.len());
        let shared =
            shared.ok_or_else(|| Error::corrupt("a value shares more than the one before it has"))?;
        let start = data.len();
        if start + shared + end.len() > MAX_PAGE_BYTES {
            return Err(Error::exhausted(format!("its values take more than {MAX_PAGE_BYTES} bytes")));
        }
        data.extend_from_within(last.start..last.start + shared);
        data.extend_from_slice(end);
        last = start..data.len();
        places.push(last.start as u32..last.end as u32);
    }
    match size_of(stored) {
        None => Ok(Values { data, places: Some(places), size: 0 }),
        Some(size) if places.iter().all(|place| place.len() == size) => Ok(Values::fixed(size, data)),
        Some(size) => Err(Error::corrupt(format!("values of {size} bytes have other lengths"))),
    }
}

/// Numbers whose first bytes come first, then all second bytes, and so on.
fn streams(stored: Stored, bytes: &[u8], count: usize) -> Result<Values> {
    let size = size_of(stored)
        .filter(|_| stored != Stored::Boolean)
        .ok_or_else(|| Error::corrupt("values that are no numbers are split by bytes"))?;
    let length =
        size.checked_mul(count).filter(|length| *length <= bytes.len()).ok_or_else(packed::cut_off)?;
    let mut data = vec![0; length];
    for (byte, stream) in bytes[..length].chunks_exact(count.max(1)).enumerate() {
        for (number, value) in stream.iter().enumerate() {
            data[number * size + byte] = *value;
        }
    }
    Ok(Values::fixed(size, data))
}
