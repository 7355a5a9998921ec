//! Who takes part in which cache: nodes say so again and again, and one that is silent for too long has left.
//!
//! Nothing of this is in the journal. A dispatcher that started again hears of all members within one time-out, and says
//! that it cannot know of everybody before: until then nodes add to what they know and take nobody out.

use super::words::check_text;
use super::{Dispatcher, JobName, Reply, Settings};
use crate::{Error, Result};
use std::collections::BTreeMap;

/// Most nodes of one cache: owners are found by asking each of them.
const MAX_NODES: usize = 4096;

/// Most processes of one node that take part.
const MAX_PROCESSES: usize = 1024;

/// Caches by name.
#[derive(Clone, Debug)]
pub(super) struct Caches {
    /// When this was begun: whoever was not heard of since may still be there.
    since: u64,
    caches: BTreeMap<JobName, Nodes>,
}

/// Nodes by address; several processes of a host speak for one, by a number of their own, and when each was heard of.
type Nodes = BTreeMap<String, BTreeMap<u64, u64>>;

impl Caches {
    pub(super) fn new(now: u64) -> Self {
        Self { since: now, caches: BTreeMap::new() }
    }

    /// Takes out who was silent for too long.
    pub(super) fn lapse(&mut self, settings: &Settings, now: u64) {
        for nodes in self.caches.values_mut() {
            for processes in nodes.values_mut() {
                processes.retain(|_, heard| now.saturating_sub(*heard) <= settings.worker_timeout_ms);
            }
            nodes.retain(|_, processes| !processes.is_empty());
        }
        self.caches.retain(|_, nodes| !nodes.is_empty());
    }
}

impl Dispatcher {
    /// A node takes part, or still does.
    pub(super) fn join_cache(
        &mut self,
        now: u64,
        cache: &JobName,
        address: String,
        process: u64,
    ) -> Result<Reply> {
        check_text("address", &address)?;
        let caches = &mut self.caches;
        caches.lapse(&self.settings, now);
        let exhausted = |what: &str, most: usize| {
            Err(Error::exhausted(format!("join cache `{cache}`: there are {most} {what} already")))
        };
        if !caches.caches.contains_key(cache) && caches.caches.len() >= self.settings.max_jobs {
            return exhausted("caches", self.settings.max_jobs);
        }
        let nodes = caches.caches.entry(cache.clone()).or_default();
        if !nodes.contains_key(&address) && nodes.len() >= MAX_NODES {
            return exhausted("nodes", MAX_NODES);
        }
        let processes = nodes.entry(address).or_default();
        if !processes.contains_key(&process) && processes.len() >= MAX_PROCESSES {
            return exhausted("processes of this node", MAX_PROCESSES);
        }
        processes.insert(process, now);
        Ok(Reply::CacheMembers {
            addresses: nodes.keys().cloned().collect(),
            complete: now.saturating_sub(caches.since) > self.settings.worker_timeout_ms,
            timeout_ms: self.settings.worker_timeout_ms,
        })
    }

    /// A process of a node leaves; the node has left with the last of them.
    pub(super) fn leave_cache(&mut self, cache: &JobName, address: &str, process: u64) -> Reply {
        if let Some(nodes) = self.caches.caches.get_mut(cache)
            && let Some(processes) = nodes.get_mut(address)
        {
            processes.remove(&process);
            if processes.is_empty() {
                nodes.remove(address);
            }
        }
        Reply::Done
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Command, State};
    use super::*;

    fn join(machine: &mut Dispatcher, now: u64, address: &str, process: u64) -> (Vec<String>, bool) {
        let cache = JobName::new("cache").unwrap();
        let command = Command::JoinCache { cache, address: address.into(), process };
        match machine.apply(now, command).unwrap() {
            (Reply::CacheMembers { addresses, complete, .. }, events) if events.is_empty() => {
                (addresses, complete)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn p047_members_join_are_heard_of_and_lapse() {
        let mut machine = Dispatcher::new(State::default(), Settings::default(), 0);
        assert_eq!(join(&mut machine, 0, "b:1", 1), (vec!["b:1".to_owned()], false));
        assert_eq!(join(&mut machine, 1000, "a:1", 2).0, ["a:1", "b:1"]);
        assert_eq!(join(&mut machine, 10_000, "a:1", 2), (vec!["a:1".to_owned(), "b:1".to_owned()], false));
        // The other one was silent for longer than it may be; now everybody there is has been heard of.
        assert_eq!(join(&mut machine, 10_001, "a:1", 2), (vec!["a:1".to_owned()], true));
        assert_eq!(join(&mut machine, 10_002, "b:1", 1).0, ["a:1", "b:1"]);
    }

    #[test]
    fn p047_a_node_leaves_with_the_last_of_its_processes() {
        let mut machine = Dispatcher::new(State::default(), Settings::default(), 0);
        join(&mut machine, 0, "a:1", 1);
        join(&mut machine, 0, "a:1", 2);
        join(&mut machine, 0, "b:1", 3);
        for (process, left) in [(1, vec!["a:1", "b:1"]), (7, vec!["a:1", "b:1"]), (2, vec!["b:1"])] {
            let cache = JobName::new("cache").unwrap();
            machine.apply(1, Command::LeaveCache { cache, address: "a:1".into(), process }).unwrap();
            assert_eq!(join(&mut machine, 1, "b:1", 3).0, left);
        }
    }

    #[test]
    fn a_cache_has_so_many_members_and_no_more() {
        let settings = Settings { max_jobs: 1, ..Settings::default() };
        let mut machine = Dispatcher::new(State::default(), settings, 0);
        for process in 0..MAX_PROCESSES as u64 {
            join(&mut machine, 0, "a:1", process);
        }
        let mut refused = |cache: &str, address: &str| {
            let cache = JobName::new(cache).unwrap();
            let command = Command::JoinCache { cache, address: address.into(), process: u64::MAX };
            machine.apply(0, command).unwrap_err().kind()
        };
        assert_eq!(refused("cache", "a:1"), crate::ErrorKind::Exhausted);
        assert_eq!(refused("another", "a:1"), crate::ErrorKind::Exhausted);
        assert_eq!(refused("cache", "a\n:1"), crate::ErrorKind::InvalidConfig);
    }
}
