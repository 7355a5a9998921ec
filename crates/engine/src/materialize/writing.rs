//! One writer at work: claims a chunk, takes its batches from the loader, writes its shard, and begins again.

use super::card::CARD;
use super::place::{Place, SAVED_RECIPE, Scratch};
use super::{MaterializePlan, Materialized};
use crate::batch::Batch;
use crate::config::OnError;
use crate::loader::{Loader, Next};
use crate::shard::{ShardWriter, ShardWriterOptions};
use forebay_core::cursor::Cursor;
use forebay_core::materialize::{Choice, Sharing, shard_name};
use forebay_core::portion::Portion;
use forebay_core::recipe::{Op, Recipe, SampleOp};
use forebay_core::{Error, Result};
use std::hash::{BuildHasher, Hasher};
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long one wait for a batch, or for other writers, lasts before everything else is looked at.
const SLICE: Duration = Duration::from_millis(50);

/// How often a writer with nothing to do looks at what the others do.
const LOOK: Duration = Duration::from_millis(500);

/// Makes the chunks that are missing, beside any other run that does. `watch` is told how far it is, many times a
/// second, and may end it by an error: what was committed stays.
pub fn run(
    loader: &mut Loader,
    plan: &MaterializePlan,
    watch: &mut dyn FnMut(&Materialized) -> Result<()>,
) -> Result<Materialized> {
    let outset = plan.outset();
    if outset.found == outset.shards {
        watch(&outset)?;
        // A writer that was killed behind its last shard left its notice.
        if plan.place.notices()?.iter().all(Place::has_ended) {
            plan.place.forget_all();
        }
        return Ok(outset);
    }
    // Equal for all who write here, so it does not matter whose is last.
    // The card comes first: without it a place that is not empty is somebody else's.
    plan.place.write(CARD, plan.card.to_bytes())?;
    plan.place.write(SAVED_RECIPE, saved_recipe(plan)?)?;
    let me = std::hash::RandomState::new().build_hasher().finish();
    let mut writer = Writer {
        loader,
        plan,
        me,
        scratch: plan.place.scratch(me)?,
        sharing: Sharing::new(me, outset.shards, plan.claim_timeout.as_millis() as u64),
        begun: Instant::now(),
        published: None,
        next_step: None,
        state: outset,
        watch,
    };
    let done = writer.work();
    writer.leave();
    done
}

fn saved_recipe(plan: &MaterializePlan) -> Result<Vec<u8>> {
    let object = serde_json::json!({ "recipe": plan.recipe() });
    let mut text = serde_json::to_vec_pretty(&object)
        .map_err(|cause| Error::internal("write recipe").with_source(cause))?;
    text.push(b'\n');
    Ok(text)
}

struct Writer<'a> {
    loader: &'a mut Loader,
    plan: &'a MaterializePlan,
    me: u64,
    scratch: Scratch,
    sharing: Sharing,
    begun: Instant,
    /// When the others were last told.
    published: Option<Instant>,
    /// The step of the epoch that the loader hands over next.
    next_step: Option<u64>,
    state: Materialized,
    watch: &'a mut dyn FnMut(&Materialized) -> Result<()>,
}

impl Writer<'_> {
    fn work(&mut self) -> Result<Materialized> {
        loop {
            self.look()?;
            self.state.made_by_others =
                self.sharing.committed().saturating_sub(self.state.found + self.state.made);
            match self.sharing.choose(self.now()) {
                Choice::Done => {
                    (self.watch)(&self.state)?;
                    return Ok(self.state);
                }
                Choice::Wait => self.wait()?,
                Choice::Claim(chunk) => {
                    self.publish()?;
                    self.look()?;
                    if self.sharing.confirm(self.now()) {
                        self.make(chunk)?;
                        self.sharing.commit();
                        self.state.made += 1;
                    } else {
                        self.publish()?;
                    }
                }
            }
        }
    }

    fn place(&self) -> &Place {
        &self.plan.place
    }

    fn now(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    /// Looks at who else writes and then at what is there. What writers of this machine left that have ended is removed.
    fn look(&mut self) -> Result<()> {
        let notices = self.place().notices()?;
        self.sharing.saw_notices(self.now(), &notices);
        for notice in notices.iter().filter(|notice| notice.writer != self.me && Place::has_ended(notice)) {
            self.sharing.saw_end(notice.writer);
            self.place().forget(notice.writer);
        }
        // Behind the notices: a writer takes its claim back only after its shard is there.
        let committed = self.place().committed()?;
        self.sharing.saw_committed(committed);
        Ok(())
    }

    fn publish(&mut self) -> Result<()> {
        let notice = self.sharing.notice();
        self.place().publish(notice)?;
        self.published = Some(Instant::now());
        Ok(())
    }

    /// Tells the others in time that this one lives, and the caller how far it is.
    fn beat(&mut self) -> Result<()> {
        (self.watch)(&self.state)?;
        let due = self.plan.claim_timeout / 4;
        if self.published.is_none_or(|published| published.elapsed() >= due) {
            self.publish()?;
        }
        Ok(())
    }

    /// Others have what is left.
    fn wait(&mut self) -> Result<()> {
        let until = Instant::now() + LOOK;
        while Instant::now() < until {
            self.beat()?;
            std::thread::sleep(SLICE);
        }
        Ok(())
    }

    /// Makes one shard and gives it its name.
    fn make(&mut self, chunk: u64) -> Result<()> {
        let span = self.plan.chunks.span(chunk);
        let saved = self.state.saved;
        let made = self.write_shard(chunk, &span);
        let size = made.and_then(|path| self.place().commit(&path, chunk));
        if size.is_err() {
            self.state.saved = saved;
        }
        self.state.bytes += size?;
        Ok(())
    }

    fn write_shard(&mut self, chunk: u64, span: &Range<u64>) -> Result<PathBuf> {
        let batch_size = self.loader.config().consumer.batch_size;
        let first_step = span.start / batch_size;
        let steps = (span.end - span.start).div_ceil(batch_size);
        self.seek(first_step)?;
        let pattern = self.scratch.0.join("data-%06d.tar").display().to_string();
        let options = ShardWriterOptions {
            max_samples: u64::MAX,
            max_bytes: u64::MAX,
            first: chunk,
            overwrite: true,
            ..ShardWriterOptions::new(pattern)
        };
        let mut shard = ShardWriter::new(options)?;
        let mut position = span.start;
        for step in first_step..first_step + steps {
            let batch = self.take(step)?;
            let wanted = batch_size.min(span.end - step * batch_size);
            position = self.save(&mut shard, &batch, position, wanted)?;
            self.next_step = Some(step + 1);
        }
        // A batch has at least one row, so there is a shard.
        shard.finish().map_err(|error| self.place().full(error))?;
        Ok(self.scratch.0.join(shard_name(chunk)))
    }

    /// Brings the loader to a step of the epoch, unless it stands there.
    fn seek(&mut self, step: u64) -> Result<()> {
        if self.next_step == Some(step) {
            return Ok(());
        }
        let (epoch, consumer) = (self.plan.card.epoch, self.loader.config().consumer);
        let portion = Portion::new(self.loader.epoch_samples(), consumer, &Cursor::start_of(epoch))?;
        self.next_step = None;
        self.loader.seek(portion.cursor_after(epoch, step))?;
        self.loader.begin()
    }

    fn take(&mut self, step: u64) -> Result<Batch> {
        loop {
            self.beat()?;
            let missing = || {
                Error::unavailable(format!("materialize: batch {step} of the epoch was left out"))
                    .with_hint("take `via` with the visitation `exactly_once`")
            };
            match self.loader.next(SLICE)? {
                Next::Batch(batch) => return Ok(*batch),
                Next::Waiting if self.loader.stats().skipped_batches > 0 => return Err(missing()),
                Next::Waiting => {}
                Next::End => return Err(missing()),
            }
        }
    }

    /// Writes the rows of a batch and returns the position behind them.
    fn save(&mut self, shard: &mut ShardWriter, batch: &Batch, first: u64, wanted: u64) -> Result<u64> {
        let rows = batch.len() as u64;
        let may_lack = self.loader.config().on_error == OnError::Skip || filters(self.loader.recipe());
        if rows > wanted || (rows < wanted && !may_lack) {
            return Err(Error::internal(format!("materialize: a batch has {rows} rows, not {wanted}")));
        }
        for (row, id) in batch.ids.iter().enumerate() {
            let members = self.plan.members.row(batch, row)?;
            let fields: Vec<(&str, &[u8])> =
                members.iter().map(|(field, bytes)| (*field, bytes.as_slice())).collect();
            let added = shard.add(&format!("{:09}-{id}", first + row as u64), &fields);
            added.map_err(|error| self.place().full(error))?;
        }
        self.state.saved += rows;
        self.state.bad = self.loader.faults().len() as u64;
        Ok(first + rows)
    }

    /// Says good-bye; who does not hear it finds out by silence.
    fn leave(&mut self) {
        let notice = self.sharing.notice();
        let _ = self.plan.place.publish(forebay_core::materialize::Notice { claims: Vec::new(), ..notice });
        self.plan.place.forget(self.me);
        if self.sharing.live_writers(self.now()) == 0 {
            self.plan.place.forget_all();
        }
    }
}

/// Whether functions of the recipe leave samples out.
fn filters(recipe: &Recipe) -> bool {
    let of_columns = recipe.fields.iter().flat_map(|field| &field.ops);
    of_columns.into_iter().any(|op| matches!(op, Op::Filter { .. }))
        || recipe.ops.iter().any(|op| matches!(op, SampleOp::Filter { .. }))
}
