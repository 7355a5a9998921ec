//! The messages and how each looks as bytes. Nothing here touches a socket.

use super::fields::{Fields, PAYLOAD, corrupt, put_list, put_payload, put_tier, put_view};
use super::{MAX_BODY, MAX_PAYLOADS, MAX_TAIL};
use bytes::{BufMut, BytesMut};
use forebay_core::cache::{Capacity, PayloadId, Place};
use forebay_core::{ErrorKind, Result};
use forebay_engine::cache::{KeeperView, Payload, Tier};

/// Longest text of a refusal, in bytes.
const MAX_TEXT: usize = 1024;

/// What a server says about one payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Whoever asked is the one to fetch it.
    Absent,
    /// Another client is fetching it; who reads it waits for that one.
    Coming,
    /// It can be read.
    Near {
        /// Where it probably is.
        tier: Tier,
        /// Payloads with the same number are best read together.
        together: u32,
    },
    /// It lies in memory that the client may map.
    Slab {
        /// Number of the slab.
        slab: u32,
        /// Where in it.
        offset: u64,
    },
}

/// One message. The first nine, `Ask` and `Await` are asked by clients, the others are a server's answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Where are these? Answered by `Answers`.
    Look(Vec<Payload>),
    /// Send these. Each is answered by `Bytes` or `Missing`, in any order.
    Read(Vec<Payload>),
    /// Take this payload; its bytes follow when the place keeps it. Answered by `Done`.
    Keep(Payload, Place),
    /// This payload will not come. Not answered.
    GiveUp(Payload),
    /// Which payloads of this dataset are held? Answered by one or more `Names`.
    Held(u64),
    /// Let go of these. Answered by `Done`.
    Forget(Vec<PayloadId>),
    /// Hold as much as this. Answered by `Done` or `Refused`.
    Resize(Capacity),
    /// What is held? Answered by `Done`.
    View,
    /// Which slabs are there? Answered by `SlabList`.
    Slabs,
    /// One answer per payload of a `Look`.
    Answers {
        /// Changes whenever a slab went: see `Slabs`.
        slabs: u64,
        /// In the order of the question.
        answers: Vec<Answer>,
    },
    /// A payload of a `Read`; its bytes follow.
    Bytes {
        /// Which of the payloads asked for.
        index: u32,
        /// Where it was.
        tier: Tier,
        /// How many bytes follow.
        length: u64,
    },
    /// A payload of a `Read` that is not here: the asker is the one to fetch it.
    Missing(u32),
    /// It is done; this is what is held now.
    Done(KeeperView),
    /// It was not done.
    Refused(ErrorKind, String),
    /// Payloads held.
    Names {
        /// Their names.
        names: Vec<PayloadId>,
        /// Whether another message follows.
        more: bool,
    },
    /// Slabs that are there.
    SlabList {
        /// As in `Answers`.
        version: u64,
        /// Their numbers.
        slabs: Vec<u32>,
    },
    /// A peer asks for these. Each is answered at once by `Bytes`, `Coming` or `Missing`, in any order.
    Ask(Vec<Payload>),
    /// A peer waits for these, which were `Coming`. Each is answered by `Bytes` or `Missing`, in any order.
    Await(Vec<Payload>),
    /// A payload of an `Ask` that another one is fetching.
    Coming(u32),
}

/// The kinds of messages by the number they have on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "they are described where their fields are")]
pub enum Kind {
    Look = 1,
    Read,
    Keep,
    GiveUp,
    Held,
    Forget,
    Resize,
    View,
    Slabs,
    Answers,
    Bytes,
    Missing,
    Done,
    Refused,
    Names,
    SlabList,
    Ask,
    Await,
    Coming,
}

impl Kind {
    /// Every kind, in the order of their numbers.
    pub const ALL: [Self; 19] = [
        Self::Look,
        Self::Read,
        Self::Keep,
        Self::GiveUp,
        Self::Held,
        Self::Forget,
        Self::Resize,
        Self::View,
        Self::Slabs,
        Self::Answers,
        Self::Bytes,
        Self::Missing,
        Self::Done,
        Self::Refused,
        Self::Names,
        Self::SlabList,
        Self::Ask,
        Self::Await,
        Self::Coming,
    ];
}

impl Message {
    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Look(_) => Kind::Look,
            Self::Read(_) => Kind::Read,
            Self::Keep(..) => Kind::Keep,
            Self::GiveUp(_) => Kind::GiveUp,
            Self::Held(_) => Kind::Held,
            Self::Forget(_) => Kind::Forget,
            Self::Resize(_) => Kind::Resize,
            Self::View => Kind::View,
            Self::Slabs => Kind::Slabs,
            Self::Answers { .. } => Kind::Answers,
            Self::Bytes { .. } => Kind::Bytes,
            Self::Missing(_) => Kind::Missing,
            Self::Done(_) => Kind::Done,
            Self::Refused(..) => Kind::Refused,
            Self::Names { .. } => Kind::Names,
            Self::SlabList { .. } => Kind::SlabList,
            Self::Ask(_) => Kind::Ask,
            Self::Await(_) => Kind::Await,
            Self::Coming(_) => Kind::Coming,
        }
    }

    /// Bytes of a payload that follow the body.
    pub fn tail(&self) -> u64 {
        match self {
            Self::Keep(payload, place) if place.is_kept() => payload.length,
            Self::Bytes { length, .. } => *length,
            _ => 0,
        }
    }

    /// The whole frame but for the payload.
    pub fn encode(&self, request: u64) -> BytesMut {
        let mut frame = BytesMut::with_capacity(64);
        frame.put_u32_le(0);
        frame.put_u8(self.kind() as u8);
        frame.put_u64_le(request);
        match self {
            Self::Look(payloads) | Self::Read(payloads) | Self::Ask(payloads) | Self::Await(payloads) => {
                put_list(&mut frame, payloads, put_payload);
            }
            Self::Keep(payload, place) => {
                put_payload(&mut frame, payload);
                frame.put_u8(u8::from(place.memory) | u8::from(place.disk) << 1);
            }
            Self::GiveUp(payload) => put_payload(&mut frame, payload),
            Self::Held(group) => frame.put_u64_le(*group),
            Self::Forget(names) => put_list(&mut frame, names, |frame, name| frame.put_u128_le(name.0)),
            Self::Resize(capacity) => {
                frame.put_u64_le(capacity.memory);
                frame.put_u64_le(capacity.disk);
            }
            Self::View | Self::Slabs => {}
            Self::Answers { slabs, answers } => {
                frame.put_u64_le(*slabs);
                put_list(&mut frame, answers, put_answer);
            }
            Self::Bytes { index, tier, length } => {
                frame.put_u32_le(*index);
                put_tier(&mut frame, *tier);
                frame.put_u64_le(*length);
            }
            Self::Missing(index) | Self::Coming(index) => frame.put_u32_le(*index),
            Self::Done(view) => put_view(&mut frame, view),
            Self::Refused(kind, text) => {
                frame.put_u8(ErrorKind::ALL.iter().position(|other| other == kind).unwrap_or(0) as u8);
                frame.put_slice(&text.as_bytes()[..text.len().min(MAX_TEXT)]);
            }
            Self::Names { names, more } => {
                frame.put_u8(u8::from(*more));
                put_list(&mut frame, names, |frame, name| frame.put_u128_le(name.0));
            }
            Self::SlabList { version, slabs } => {
                frame.put_u64_le(*version);
                put_list(&mut frame, slabs, |frame, slab| frame.put_u32_le(*slab));
            }
        }
        let length = (frame.len() - 4) as u32;
        frame[..4].copy_from_slice(&length.to_le_bytes());
        frame
    }

    /// The number of the request and the message from a body, without its length. Any bytes are welcome.
    pub fn decode(body: &[u8]) -> Result<(u64, Self)> {
        if body.len() > MAX_BODY {
            return Err(corrupt("it is longer than messages may be"));
        }
        let mut fields = Fields(body);
        let kind = fields.u8()?;
        let kind = Kind::ALL.into_iter().find(|known| *known as u8 == kind);
        let request = fields.u64()?;
        let message = match kind.ok_or_else(|| corrupt("its kind is not known"))? {
            Kind::Look => Self::Look(asked(&mut fields)?),
            Kind::Read => Self::Read(asked(&mut fields)?),
            Kind::Keep => {
                let payload = fields.payload()?;
                let place = fields.u8()?;
                if place > 3 {
                    return Err(corrupt("no such place"));
                }
                Self::Keep(payload, Place { memory: place & 1 != 0, disk: place & 2 != 0 })
            }
            Kind::GiveUp => Self::GiveUp(fields.payload()?),
            Kind::Held => Self::Held(fields.u64()?),
            Kind::Forget => Self::Forget(fields.list(16, Fields::name)?),
            Kind::Resize => Self::Resize(Capacity { memory: fields.u64()?, disk: fields.u64()? }),
            Kind::View => Self::View,
            Kind::Slabs => Self::Slabs,
            Kind::Answers => Self::Answers { slabs: fields.u64()?, answers: fields.list(1, answer)? },
            Kind::Bytes => Self::Bytes { index: fields.u32()?, tier: fields.tier()?, length: fields.u64()? },
            Kind::Missing => Self::Missing(fields.u32()?),
            Kind::Done => Self::Done(fields.view()?),
            Kind::Refused => {
                let kind = fields.u8()? as usize;
                let kind = ErrorKind::ALL.get(kind).ok_or_else(|| corrupt("no such kind of error"))?;
                let text = fields.rest();
                let text = &text[..text.len().min(MAX_TEXT)];
                Self::Refused(*kind, String::from_utf8_lossy(text).into_owned())
            }
            Kind::Names => {
                let more = fields.flag()?;
                Self::Names { names: fields.list(16, Fields::name)?, more }
            }
            Kind::Ask => Self::Ask(asked(&mut fields)?),
            Kind::Await => Self::Await(asked(&mut fields)?),
            Kind::Coming => Self::Coming(fields.u32()?),
            Kind::SlabList => Self::SlabList { version: fields.u64()?, slabs: fields.list(4, Fields::u32)? },
        };
        fields.end()?;
        if message.tail() > MAX_TAIL {
            return Err(corrupt("its payload is larger than payloads may be"));
        }
        Ok((request, message))
    }
}

fn asked(fields: &mut Fields<'_>) -> Result<Vec<Payload>> {
    let payloads = fields.list(PAYLOAD, Fields::payload)?;
    if payloads.len() > MAX_PAYLOADS {
        return Err(corrupt("it asks for more payloads than one message may"));
    }
    Ok(payloads)
}

fn answer(fields: &mut Fields<'_>) -> Result<Answer> {
    match fields.u8()? {
        0 => Ok(Answer::Absent),
        1 => Ok(Answer::Coming),
        2 => Ok(Answer::Near { tier: fields.tier()?, together: fields.u32()? }),
        3 => Ok(Answer::Slab { slab: fields.u32()?, offset: fields.u64()? }),
        _ => Err(corrupt("no such answer")),
    }
}

fn put_answer(frame: &mut BytesMut, answer: &Answer) {
    match answer {
        Answer::Absent => frame.put_u8(0),
        Answer::Coming => frame.put_u8(1),
        Answer::Near { tier, together } => {
            frame.put_u8(2);
            put_tier(frame, *tier);
            frame.put_u32_le(*together);
        }
        Answer::Slab { slab, offset } => {
            frame.put_u8(3);
            frame.put_u32_le(*slab);
            frame.put_u64_le(*offset);
        }
    }
}

#[cfg(test)]
mod tests;
