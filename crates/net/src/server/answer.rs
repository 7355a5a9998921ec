//! What to say about payloads: look, claim, look again, read, wait.

use super::connection::Caller;
use super::{Waited, Waiter};
use crate::claims::Verdict;
use crate::client::parts;
use crate::wire::{Answer, MAX_PAYLOADS, MAX_TAIL, Message};
use bytes::Bytes;
use forebay_core::cache::PayloadId;
use forebay_engine::cache::{Look, Payload, Tier};
use futures::future::join_all;
use std::collections::HashSet;
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Payloads that are read from the keeper by one call, in bytes.
const READ_BYTES: u64 = 8 << 20;

/// The number that all payloads have which are read by a request of this connection.
const TOGETHER: u32 = 0;

/// One answer per payload; what is absent is claimed by whoever asks first.
pub(super) async fn look(caller: &Caller, payloads: &[Payload]) -> Vec<Answer> {
    let mut answers = known(caller, payloads).await;
    let absent: Vec<usize> = (0..answers.len()).filter(|at| answers[*at] == Answer::Absent).collect();
    if absent.is_empty() {
        return answers;
    }
    let mut claimed = Vec::new();
    {
        let mut claims = caller.shared.claims();
        let now = caller.shared.now();
        let mut names: HashSet<PayloadId> = HashSet::new();
        for at in absent {
            let name = payloads[at].id;
            // One that is asked for twice is fetched twice: the second must not wait for what the first may do later.
            if !names.insert(name) {
                continue;
            }
            match claims.ask(name, caller.client, now) {
                Verdict::Fetch => claimed.push(at),
                Verdict::Wait(_) => answers[at] = Answer::Coming,
            }
        }
    }
    // Between the first look and the claim it may have been kept: then nobody needs to fetch it.
    let again: Vec<Payload> = claimed.iter().map(|at| payloads[*at]).collect();
    for (at, answer) in claimed.into_iter().zip(known(caller, &again).await) {
        if answer != Answer::Absent {
            caller.shared.end_claim(payloads[at].id);
            answers[at] = answer;
        }
    }
    answers
}

/// What slabs and keeper know.
async fn known(caller: &Caller, payloads: &[Payload]) -> Vec<Answer> {
    let slabs = caller.shared.slabs.as_ref();
    let found = |payload: &Payload| slabs.and_then(|slabs| slabs.find(payload));
    let mut answers: Vec<Option<Answer>> = payloads
        .iter()
        .map(|payload| found(payload).map(|(slab, offset)| Answer::Slab { slab, offset }))
        .collect();
    let others: Vec<Payload> = payloads
        .iter()
        .zip(&answers)
        .filter(|(_, answer)| answer.is_none())
        .map(|(payload, _)| *payload)
        .collect();
    let mut looks =
        if others.is_empty() { Vec::new() } else { caller.shared.keeper.look(&others).await }.into_iter();
    for answer in answers.iter_mut().filter(|answer| answer.is_none()) {
        *answer = looks.next().map(|look| match look {
            Look::Here(_) => Answer::Near { tier: Tier::Memory, together: TOGETHER },
            Look::Near { tier, together } => Answer::Near { tier, together: together.unwrap_or(TOGETHER) },
            Look::Coming => Answer::Coming,
            Look::Absent => Answer::Absent,
        });
    }
    answers.into_iter().map(|answer| answer.unwrap_or(Answer::Absent)).collect()
}

/// Sends the payloads as they are found.
pub(super) async fn read(caller: &Caller, request: u64, payloads: &[Payload]) {
    let mut from = 0;
    let mut waiting = Vec::new();
    for part in parts(payloads, READ_BYTES, MAX_PAYLOADS) {
        let group = from..from + part.len();
        let bytes = part.iter().fold(0u64, |sum, payload| sum.saturating_add(payload.length));
        let room = caller.room(bytes).await.map(Arc::new);
        let found = caller.shared.keeper.read(part).await;
        let mut found = found.into_iter();
        for index in group.clone() {
            match found.next().flatten() {
                Some((bytes, tier)) if fits(&payloads[index], &bytes) => {
                    let message =
                        Message::Bytes { index: index as u32, tier, length: payloads[index].length };
                    caller.send(request, message, bytes, room.clone()).await;
                }
                _ if caller.may_wait() => waiting.push(index),
                _ => caller.say(request, Message::Missing(index as u32)).await,
            }
        }
        from = group.end;
    }
    // No room is held while waiting.
    join_all(waiting.into_iter().map(|index| wait(caller, request, index, payloads[index]))).await;
}

/// Answers a peer at once: bytes, that it is coming, or that the peer is the one to fetch it.
pub(super) async fn ask(caller: &Caller, request: u64, payloads: &[Payload]) {
    let looks = caller.shared.keeper.look(payloads).await;
    let mut looks = looks.into_iter();
    let mut near = Vec::new();
    for (index, payload) in payloads.iter().enumerate() {
        match looks.next().unwrap_or(Look::Absent) {
            Look::Here(bytes) if fits(payload, &bytes) => {
                answer(caller, request, index, Some((bytes, Tier::Memory))).await;
            }
            Look::Here(_) => caller.say(request, Message::Missing(index as u32)).await,
            Look::Near { .. } => near.push(index),
            Look::Coming => caller.say(request, Message::Coming(index as u32)).await,
            Look::Absent => {
                let verdict = caller.shared.claims().ask(payload.id, caller.client, caller.shared.now());
                let message = match verdict {
                    Verdict::Fetch => {
                        caller.shared.promise(*payload);
                        Message::Missing(index as u32)
                    }
                    Verdict::Wait(_) => {
                        // Another peer was told so: the claim that the look made is nobody's.
                        caller.shared.keeper.give_up(*payload);
                        Message::Coming(index as u32)
                    }
                };
                caller.say(request, message).await;
            }
        }
    }
    let wanted: Vec<Payload> = near.iter().map(|index| payloads[*index]).collect();
    let mut places = near.into_iter();
    for part in parts(&wanted, READ_BYTES, MAX_PAYLOADS) {
        let found = caller.shared.keeper.read(part).await;
        for (index, found) in places.by_ref().take(part.len()).zip(found) {
            let found = found.filter(|(bytes, _)| fits(&payloads[index], bytes));
            answer(caller, request, index, found).await;
        }
    }
}

/// Waits for payloads that others fetch, each by itself.
pub(super) async fn wait_for_all(caller: &Caller, request: u64, payloads: &[Payload]) {
    let each = payloads.iter().enumerate();
    join_all(each.map(|(index, payload)| wait_for(caller, request, index, *payload))).await;
}

/// Waits for a payload that another peer, or a process of this node, fetches; or hands the fetch to this one.
async fn wait_for(caller: &Caller, request: u64, index: usize, payload: Payload) {
    let shared = &caller.shared;
    let (told, hears) = oneshot::channel();
    let waiter = Waiter { name: payload.id, client: caller.client, told };
    let verdict = shared.claims().wait(payload.id, caller.client, waiter, shared.now());
    let found = match verdict {
        Verdict::Wait(_) => match timeout(shared.options.claim_time, hears).await {
            Ok(Ok(Waited::LookAgain)) => read_in_time(caller, payload).await,
            // Told to fetch it, or not told anything for so long that the store is faster.
            Ok(_) | Err(_) => None,
        },
        // No peer fetches it, so one of this node does. The keeper waits for that one.
        Verdict::Fetch => match read_in_time(caller, payload).await {
            Some(found) => Some(found),
            None => match shared.keeper.look(&[payload]).await.pop() {
                Some(Look::Absent) | None => {
                    shared.promise(payload);
                    return caller.say(request, Message::Missing(index as u32)).await;
                }
                Some(Look::Here(bytes)) if fits(&payload, &bytes) => Some((bytes, Tier::Memory)),
                Some(Look::Near { .. }) => read_in_time(caller, payload).await,
                Some(_) => None,
            },
        },
    };
    if matches!(verdict, Verdict::Fetch) {
        shared.end_claim(payload.id);
    }
    answer(caller, request, index, found).await;
}

fn fits(payload: &Payload, bytes: &Bytes) -> bool {
    bytes.len() as u64 == payload.length && payload.length <= MAX_TAIL
}

/// Waits for a payload that another client fetches, or hands the fetch to this one.
async fn wait(caller: &Caller, request: u64, index: usize, payload: Payload) {
    let shared = &caller.shared;
    let (told, mut hears) = oneshot::channel();
    let waiter = Waiter { name: payload.id, client: caller.client, told };
    let verdict = shared.claims().wait(payload.id, caller.client, waiter, shared.now());
    let mut found = read_one(caller, payload).await;
    let mut end = match verdict {
        Verdict::Fetch => {
            // As with looks: it may have come between the read and the claim.
            if found.is_some() {
                shared.end_claim(payload.id);
            }
            return answer(caller, request, index, found).await;
        }
        Verdict::Wait(end) => shared.epoch + end,
    };
    while found.is_none() {
        match tokio::time::timeout_at(end, &mut hears).await {
            Ok(Ok(Waited::LookAgain)) => {
                found = read_one(caller, payload).await;
                break;
            }
            Ok(_) => break,
            Err(_) => {
                let (next, until) = shared.claims().expire(payload.id, shared.now());
                shared.hand_on(next);
                // Without a claim we have been told already.
                end = until.map_or_else(tokio::time::Instant::now, |until| shared.epoch + until);
            }
        }
    }
    answer(caller, request, index, found).await;
}

async fn read_one(caller: &Caller, payload: Payload) -> Option<(Bytes, Tier)> {
    let found = caller.shared.keeper.read(&[payload]).await.into_iter().next().flatten();
    found.filter(|(bytes, _)| fits(&payload, bytes))
}

/// As [`read_one`], where the keeper waits for somebody else: not for ever.
async fn read_in_time(caller: &Caller, payload: Payload) -> Option<(Bytes, Tier)> {
    timeout(caller.shared.options.claim_time, read_one(caller, payload)).await.ok().flatten()
}

async fn answer(caller: &Caller, request: u64, index: usize, found: Option<(Bytes, Tier)>) {
    match found {
        Some((bytes, tier)) => {
            let room = caller.room(bytes.len() as u64).await.map(Arc::new);
            let message = Message::Bytes { index: index as u32, tier, length: bytes.len() as u64 };
            caller.send(request, message, bytes, room).await;
        }
        None => caller.say(request, Message::Missing(index as u32)).await,
    }
}
