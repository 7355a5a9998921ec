//! Who waits for which answer of a server, and what becomes of answers that nobody takes.

use super::link::Link;
use crate::wire::{Answer, Message};
use bytes::Bytes;
use forebay_core::cache::PayloadId;
use forebay_core::{Error, Result};
use forebay_engine::cache::{KeeperView, Payload, Tier};
use std::collections::HashMap;
use std::sync::{Mutex, Weak};
use tokio::sync::oneshot;

/// A payload that was read, or nothing.
pub(crate) type Found = Option<(Bytes, Tier)>;

/// What a peer says of a payload it was asked for.
#[derive(Clone, Debug)]
pub(crate) enum Asked {
    Here(Bytes),
    /// Another one fetches it.
    Coming,
    /// The asker is the one to fetch it.
    Missing,
}

/// Who waits for which answer. `None` when the connection has ended.
#[derive(Debug)]
pub(super) struct Waiting(pub(super) Mutex<Option<HashMap<u64, Wait>>>);

#[derive(Debug)]
pub(super) enum Wait {
    Look(Unclaimed<Option<Answer>>, oneshot::Sender<(u64, Unclaimed<Option<Answer>>)>),
    Read(Unclaimed<Option<Found>>, usize, oneshot::Sender<Unclaimed<Option<Found>>>),
    Ask(Unclaimed<Option<Asked>>, usize, oneshot::Sender<Unclaimed<Option<Asked>>>),
    Done(oneshot::Sender<Result<KeeperView>>),
    Names(Vec<PayloadId>, oneshot::Sender<Vec<PayloadId>>),
    Slabs(oneshot::Sender<(u64, Vec<u32>)>),
}

/// Answers to payloads that nobody has taken yet.
#[derive(Debug)]
pub(crate) struct Unclaimed<T: IsMine> {
    link: Weak<Link>,
    payloads: Vec<Payload>,
    answers: Vec<T>,
}

/// Whether an answer makes the asker the one to fetch.
pub(crate) trait IsMine {
    fn is_mine(&self) -> bool;
}

impl IsMine for Option<Answer> {
    fn is_mine(&self) -> bool {
        *self == Some(Answer::Absent)
    }
}

impl IsMine for Option<Found> {
    fn is_mine(&self) -> bool {
        matches!(self, Some(None))
    }
}

impl IsMine for Option<Asked> {
    fn is_mine(&self) -> bool {
        matches!(self, Some(Asked::Missing))
    }
}

impl<T> Unclaimed<Option<T>>
where
    Option<T>: IsMine,
{
    /// Notes what came for a payload, and how many bytes; `None` when that makes no sense.
    fn put(&mut self, index: usize, answer: T, length: Option<u64>) -> Option<()> {
        let payload = self.payloads.get(index)?;
        if length.is_some_and(|length| length != payload.length) {
            return None;
        }
        let place = self.answers.get_mut(index).filter(|place| place.is_none())?;
        *place = Some(answer);
        Some(())
    }
}

impl<T: IsMine + Default> Unclaimed<T> {
    pub(super) fn new(link: Weak<Link>, payloads: Vec<Payload>) -> Self {
        let answers = payloads.iter().map(|_| T::default()).collect();
        Self { link, payloads, answers }
    }

    pub(crate) fn answers(&self) -> &[T] {
        &self.answers
    }

    /// Takes the answers: from now on what has to be fetched is the taker's.
    pub(crate) fn take(mut self) -> Vec<T> {
        std::mem::take(&mut self.answers)
    }
}

impl<T: IsMine> Drop for Unclaimed<T> {
    fn drop(&mut self) {
        if let Some(link) = self.link.upgrade() {
            for (payload, _) in self.payloads.iter().zip(&self.answers).filter(|(_, answer)| answer.is_mine())
            {
                link.give_up(*payload);
            }
        }
    }
}

/// What an answer brought.
pub(super) enum Settled {
    /// More answers to this request are to come.
    More(Wait),
    /// Tells the asker; done without the lock, since an asker who is gone gives claims up.
    Done(Box<dyn FnOnce() + Send>),
}

/// Puts an answer where it belongs; `None` when it makes no sense there.
pub(super) fn settle(wait: Wait, message: Message, tail: Bytes) -> Option<Settled> {
    #[expect(clippy::unnecessary_wraps, reason = "it is what the arms return")]
    fn done(finish: impl FnOnce() + Send + 'static) -> Option<Settled> {
        Some(Settled::Done(Box::new(finish)))
    }
    match (wait, message) {
        (Wait::Look(mut unclaimed, reply), Message::Answers { slabs, answers }) => {
            if answers.len() != unclaimed.payloads.len() {
                return None;
            }
            unclaimed.answers = answers.into_iter().map(Some).collect();
            done(move || drop(reply.send((slabs, unclaimed))))
        }
        (Wait::Read(mut unclaimed, left, reply), message) => {
            let (index, found) = match message {
                Message::Bytes { index, tier, .. } => (index as usize, Some((tail, tier))),
                Message::Missing(index) => (index as usize, None),
                _ => return None,
            };
            let length = found.as_ref().map(|(bytes, _)| bytes.len() as u64);
            unclaimed.put(index, found, length)?;
            match left {
                0 | 1 => done(move || drop(reply.send(unclaimed))),
                _ => Some(Settled::More(Wait::Read(unclaimed, left - 1, reply))),
            }
        }
        (Wait::Ask(mut unclaimed, left, reply), message) => {
            let (index, asked, length) = match message {
                Message::Bytes { index, .. } => (index, Asked::Here(tail.clone()), Some(tail.len() as u64)),
                Message::Coming(index) => (index, Asked::Coming, None),
                Message::Missing(index) => (index, Asked::Missing, None),
                _ => return None,
            };
            unclaimed.put(index as usize, asked, length)?;
            match left {
                0 | 1 => done(move || drop(reply.send(unclaimed))),
                _ => Some(Settled::More(Wait::Ask(unclaimed, left - 1, reply))),
            }
        }
        (Wait::Done(reply), Message::Done(view)) => done(move || drop(reply.send(Ok(view)))),
        (Wait::Done(reply), Message::Refused(kind, text)) => {
            let error = Error::new(kind, format!("ask the shared cache: {text}"));
            done(move || drop(reply.send(Err(error))))
        }
        (Wait::Names(mut names, reply), Message::Names { names: part, more }) => {
            names.extend(part);
            if more {
                Some(Settled::More(Wait::Names(names, reply)))
            } else {
                done(move || drop(reply.send(names)))
            }
        }
        (Wait::Slabs(reply), Message::SlabList { version, slabs }) => {
            done(move || drop(reply.send((version, slabs))))
        }
        _ => None,
    }
}
