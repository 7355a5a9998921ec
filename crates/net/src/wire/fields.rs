//! Fields of a body, read one after the other and never beyond its end.

use bytes::{BufMut, BytesMut};
use forebay_core::cache::{PayloadId, Rank};
use forebay_core::{Error, Result};
use forebay_engine::cache::{KeeperView, Payload, Tier, TierView};

/// Bytes of a [`Payload`].
pub(super) const PAYLOAD: usize = 40;

pub(super) fn corrupt(why: &str) -> Error {
    Error::corrupt(format!("read a message of a shared cache: {why}"))
}

/// What is left of a body.
#[derive(Debug)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk().ok_or_else(|| corrupt("it ends inside a field"))?;
        self.0 = rest;
        Ok(*first)
    }

    pub(super) fn u8(&mut self) -> Result<u8> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(super) fn flag(&mut self) -> Result<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(corrupt("a flag is neither set nor clear")),
        }
    }

    pub(super) fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(super) fn name(&mut self) -> Result<PayloadId> {
        Ok(PayloadId(u128::from_le_bytes(self.array()?)))
    }

    pub(super) fn payload(&mut self) -> Result<Payload> {
        Ok(Payload { id: self.name()?, rank: Rank(self.u64()?), length: self.u64()?, group: self.u64()? })
    }

    pub(super) fn tier(&mut self) -> Result<Tier> {
        match self.u8()? {
            0 => Ok(Tier::Memory),
            1 => Ok(Tier::Disk),
            2 => Ok(Tier::Peer),
            _ => Err(corrupt("no such tier")),
        }
    }

    pub(super) fn view(&mut self) -> Result<KeeperView> {
        Ok(KeeperView { memory: self.tier_view()?, disk: self.tier_view()?, ..KeeperView::default() })
    }

    fn tier_view(&mut self) -> Result<TierView> {
        Ok(TierView {
            limit: self.u64()?,
            bytes: self.u64()?,
            payloads: self.u64()?,
            refused: self.u64()?,
            damaged: self.u64()?,
            hits: self.u64()?,
            oldest: self.time()?,
            newest: self.time()?,
        })
    }

    /// A time in seconds since 1970; 0 is none.
    fn time(&mut self) -> Result<Option<u32>> {
        Ok(Some(self.u32()?).filter(|seconds| *seconds > 0))
    }

    /// A list whose parts take at least `least` bytes each: so many must be there before room is made for them.
    pub(super) fn list<T>(&mut self, least: usize, part: impl Fn(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let count = self.u32()? as usize;
        if count.checked_mul(least).is_none_or(|bytes| bytes > self.0.len()) {
            return Err(corrupt("a list is longer than the message"));
        }
        (0..count).map(|_| part(self)).collect()
    }

    pub(super) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    pub(super) fn end(self) -> Result<()> {
        if self.0.is_empty() { Ok(()) } else { Err(corrupt("bytes are left behind its last field")) }
    }
}

pub(super) fn put_payload(body: &mut BytesMut, payload: &Payload) {
    body.put_u128_le(payload.id.0);
    body.put_u64_le(payload.rank.0);
    body.put_u64_le(payload.length);
    body.put_u64_le(payload.group);
}

pub(super) fn put_list<T>(body: &mut BytesMut, list: &[T], put: impl Fn(&mut BytesMut, &T)) {
    body.put_u32_le(list.len() as u32);
    for part in list {
        put(body, part);
    }
}

pub(super) fn put_tier(body: &mut BytesMut, tier: Tier) {
    body.put_u8(match tier {
        Tier::Memory => 0,
        Tier::Disk => 1,
        Tier::Peer => 2,
    });
}

pub(super) fn put_view(body: &mut BytesMut, view: &KeeperView) {
    for tier in [&view.memory, &view.disk] {
        for number in [tier.limit, tier.bytes, tier.payloads, tier.refused, tier.damaged, tier.hits] {
            body.put_u64_le(number);
        }
        for time in [tier.oldest, tier.newest] {
            body.put_u32_le(time.unwrap_or_default());
        }
    }
}
