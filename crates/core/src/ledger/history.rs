//! Sections of all ranks and restarts, put in order.
//!
//! A *stream* is all that was read of one dataset in one order: a train loader and an eval loader may share a folder.
//! Where the weights of a mix changed on the way, the order is the last one: a change never reaches back. A
//! *run* of a stream is what its ranks received from one common start. Sections belong to one run when they follow each
//! other in time and agree in where they begin, the number of ranks, the batch size, and what the launcher calls this
//! start of the job. A rank that begins there once more, after its last batch, was restarted: its earlier section is
//! abandoned as a whole. Two that run at the same time both count: processes that all take themselves for rank 0.
//!
//! Runs are ordered by time, so clocks of machines must differ by less than a restart takes.

use super::{Section, SectionHead};
use serde_json::Value;

/// What was received of one dataset in one order.
#[derive(Clone, Debug)]
pub struct Stream {
    pub(super) runs: Vec<Run>,
}

/// What ranks received from one common start.
#[derive(Clone, Debug)]
pub(super) struct Run {
    /// One for each rank that is known, by rank; more when several processes were the same rank at once.
    pub(super) sections: Vec<Section>,
    /// Earlier ones from the same start, of ranks that were restarted.
    pub(super) abandoned: Vec<Section>,
}

impl Run {
    /// The head of the rank that began first; what it says of the run holds for all.
    pub(super) fn head(&self) -> &SectionHead {
        &self.sections[0].head
    }
}

/// Sorts sections into streams, and those of each stream into runs.
pub fn streams(sections: impl IntoIterator<Item = Section>) -> Vec<Stream> {
    // A section without a batch was cut off behind its head: nothing was received, and nothing superseded.
    let received = |section: &Section| section.epochs.iter().any(|batches| !batches.is_empty());
    let mut sections: Vec<Section> = sections.into_iter().filter(received).collect();
    // Stable: sections of one file stay in their order.
    sections.sort_by_key(|section| section.head.started_micros);
    let mut streams: Vec<Stream> = Vec::new();
    for section in sections {
        match streams.iter_mut().find(|stream| is_of(stream.head(), &section.head)) {
            Some(stream) => stream.add(section),
            None => streams.push(Stream { runs: vec![Run { sections: vec![section], abandoned: vec![] }] }),
        }
    }
    for run in streams.iter_mut().flat_map(|stream| &mut stream.runs) {
        run.sections.sort_by_key(|section| section.head.rank);
    }
    streams
}

impl Stream {
    /// What holds for all of it: the head of its first section.
    pub fn head(&self) -> &SectionHead {
        self.runs[0].head()
    }

    /// Version of the dataset.
    pub fn dataset(&self) -> &str {
        &self.head().dataset
    }

    /// All that decides which sample stands at which position.
    pub fn order(&self) -> &Value {
        &self.runs.last().unwrap_or(&self.runs[0]).head().order
    }

    fn add(&mut self, section: Section) {
        let Some(run) = self.runs.last_mut().filter(|run| is_joined(run.head(), &section.head)) else {
            self.runs.push(Run { sections: vec![section], abandoned: vec![] });
            return;
        };
        let gone = |known: &mut Section| {
            known.head.rank == section.head.rank && known.ended_micros() < section.head.started_micros
        };
        run.abandoned.extend(run.sections.extract_if(.., gone));
        run.sections.push(section);
    }
}

/// Whether two sections read the same dataset in the same order.
fn is_of(one: &SectionHead, other: &SectionHead) -> bool {
    (&one.dataset, one.positions, one.samples, one.is_cut)
        == (&other.dataset, other.positions, other.samples, other.is_cut)
        && is_same_order(&one.order, &other.order)
}

/// Whether two orders differ in nothing but changes of weights on the way.
fn is_same_order(one: &Value, other: &Value) -> bool {
    let lasting = |order: &Value| {
        let mut order = order.clone();
        order.as_object_mut().and_then(|order| order.remove("mix_changes"));
        order
    };
    one == other || lasting(one) == lasting(other)
}

/// Whether two sections that follow each other began together.
fn is_joined(one: &SectionHead, other: &SectionHead) -> bool {
    let split = |head: &SectionHead| (head.world_size, head.batch_size, head.last_batch, head.lists_places);
    one.job == other.job && split(one) == split(other) && one.cursor.is_same_split(&other.cursor)
}
