//! Where a sample was received: every batch that had it, or should have had it.

use super::Fate;
use super::check::odd_rows;
use super::history::Stream;
use super::walk::Walk;
use crate::plan::Sampler;
use crate::{Result, SampleId};
use serde::Serialize;

/// A row of a batch in which a sample was planned or stood in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sighting {
    /// The epoch.
    pub epoch: u64,
    /// The step of the job, counted from the first run of the ledger over all restarts.
    pub step: u64,
    /// The rank.
    pub rank: u64,
    /// Number of ranks.
    pub world_size: u64,
    /// Number of the run, from 1.
    pub run: u64,
    /// The position in the plan.
    pub position: u64,
    /// Whether it counts; otherwise a later run began before it.
    pub counts: bool,
    /// Whether it only filled a batch.
    pub padding: bool,
    /// What became of it instead: `skipped`, `filtered` or `substituted`.
    pub absent: Option<&'static str>,
    /// The sample that it stood in for.
    pub instead_of: Option<u64>,
}

impl Stream {
    /// Every batch that a sample was planned in or stood in for another, in the order of epochs and steps.
    pub fn find(&self, sampler: &Sampler, sample: SampleId) -> Result<Vec<Sighting>> {
        let walk = Walk::new(self, Some(sampler))?;
        let mut found = Vec::new();
        for epoch in walk.epochs() {
            let plan = sampler.plan(epoch);
            let position = plan.position_of(sample);
            let once = !plan.is_empty() && plan.position_of(plan.at(0)).is_some();
            walk.visit(epoch, |visit| {
                let mut next_odd = odd_rows(visit).iter().peekable();
                for (row, place) in visit.places.iter().enumerate() {
                    let fate = next_odd.next_if(|odd| odd.row == row as u64).map(|odd| odd.fate);
                    let planned = if once {
                        position == Some(place.position)
                    } else {
                        plan.at(place.position) == sample
                    };
                    let stands_in = fate == Some(Fate::Substituted(sample));
                    if !planned && !stands_in {
                        continue;
                    }
                    let absent = fate.filter(|_| !stands_in).map(|fate| match fate {
                        Fate::Skipped => "skipped",
                        Fate::Filtered => "filtered",
                        Fate::Substituted(_) => "substituted",
                    });
                    found.push(Sighting {
                        epoch,
                        step: visit.global_step(),
                        rank: visit.part.head.rank,
                        world_size: visit.part.head.world_size,
                        run: visit.run as u64 + 1,
                        position: place.position,
                        counts: if place.padding {
                            visit.batch_counts()
                        } else {
                            visit.counts(place.position)
                        },
                        padding: place.padding,
                        absent,
                        instead_of: (stands_in && !planned).then(|| plan.at(place.position).0),
                    });
                }
                Ok(())
            })?;
        }
        found.sort_by_key(|sighting| (sighting.epoch, sighting.run, sighting.step, sighting.rank));
        Ok(found)
    }
}
