//! What goes wrong in a crowd, and how often it did.

use super::network::{Crowd, Node};
use forebay_core::dispatcher::{Command, WorkerId};

/// Kinds of faults, in the order in which they are counted.
pub(super) const FAULTS: [&str; 6] = ["kill", "restart", "partition", "delay", "duplicate", "reorder"];

/// How often each kind happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Broken(pub(super) [u64; FAULTS.len()]);

#[derive(Clone, Copy)]
pub(super) enum Fault {
    Kill,
    Restart,
    Partition,
    Delay,
    Duplicate,
    Reorder,
}

impl Broken {
    pub(super) fn count(&mut self, fault: Fault) {
        self.0[fault as usize] += 1;
    }
}

impl Crowd {
    /// Breaks something.
    pub(super) fn break_something(&mut self) {
        let size = self.cast.size;
        match self.rng.below(8) {
            0 => {
                // The dispatcher dies, and forgets what need not be on disk.
                self.broken.count(Fault::Kill);
                let time = self.rng.below(5000);
                self.kill_dispatcher(time);
            }
            1 => {
                // A rack is gone.
                self.broken.count(Fault::Kill);
                let first = self.rng.below(size.workers);
                for worker in (first..first + (size.workers / 25).max(2)).map(|worker| worker % size.workers)
                {
                    self.incarnations[worker as usize] = None;
                }
            }
            2 | 3 => {
                let down: Vec<u64> = (0..size.workers)
                    .filter(|worker| self.incarnations[*worker as usize].is_none())
                    .collect();
                for worker in down {
                    self.broken.count(Fault::Restart);
                    self.register(worker);
                }
            }
            4 => {
                let worker = WorkerId(1 + self.rng.below(size.workers));
                let _ = self.obey(Command::DrainWorker { worker });
            }
            5 => {
                // A switch cuts a fiftieth of the consumers off, for longer than they are waited for or not.
                let first = self.rng.below(size.consumers());
                let cut =
                    (first..first + (size.consumers() / 50).max(2)).map(|number| number % size.consumers());
                self.cut_off(cut.map(Node::Consumer).collect());
            }
            6 => {
                // And here workers.
                let first = self.rng.below(size.workers);
                let cut = (first..first + (size.workers / 25).max(2)).map(|worker| worker % size.workers);
                self.cut_off(cut.map(Node::Worker).collect());
            }
            _ => {
                // A process dies, and the launcher starts another one for its rank.
                self.broken.count(Fault::Kill);
                self.broken.count(Fault::Restart);
                let number = self.rng.below(size.consumers());
                self.attach(number);
            }
        }
    }

    fn cut_off(&mut self, nodes: Vec<Node>) {
        self.broken.count(Fault::Partition);
        let until = self.now + self.rng.below(60_000);
        self.cut.extend(nodes.into_iter().map(|node| (node, until)));
    }
}
