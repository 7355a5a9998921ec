//! `forebay order`: how well a shuffle mixes, before a run is spent on it.

use super::{Context, Done, count, counted, size};
use crate::args::OrderPlan;
use forebay_core::manifest::{FieldKind, Manifest};
use forebay_core::plan::figures::{MixingFigures, NEAR, Storage};
use forebay_core::plan::{BlockShuffle, Sampler, Shuffle};
use forebay_core::{Error, Result, SampleId};
use forebay_engine::LoaderConfig;
use serde_json::json;

/// The field of classes that is taken when none is named.
const CLASS_FIELD: &str = "cls";
/// Positions that are looked at: a second or so, whatever the dataset.
const LOOKED_AT: u64 = 1 << 19;
/// A batch from fewer than this share of the shards that chance would give is poorly mixed.
const POOR_SHARDS: f64 = 0.5;
/// Nor may so much more of it be of the wrong classes than by chance.
const POOR_IMBALANCE: f64 = 0.1;
/// Largest group that is suggested.
const MAX_GROUP_BLOCKS: u64 = 1 << 16;

pub(super) fn run(plan: &OrderPlan, context: &Context) -> Result<Done> {
    let dataset = context.open(&plan.data)?;
    let manifest = dataset.manifest();
    let config = plan.loader.config(&dataset)?;
    config.check()?;
    let class_field = class_field(plan, manifest)?;
    let object_of = |sample: SampleId| manifest.object_of(sample);
    let class_of = class_field.map(|field| move |sample: SampleId| manifest.int(sample, field));
    let storage = Storage {
        object_of: &object_of,
        class_of: class_of.as_ref().map(|class_of| class_of as &dyn Fn(SampleId) -> Option<i64>),
        samples: manifest.len(),
    };
    let batch_size = config.consumer.batch_size.min(manifest.len()).max(1);
    let measure = |sampler: &Sampler| {
        context.interrupt.check()?;
        MixingFigures::measure(&sampler.plan(plan.epoch), &storage, batch_size, LOOKED_AT)
    };
    let figures = measure(&config.sampler(manifest)?)?;
    let chance = measure(&Sampler::new(manifest, Shuffle::Full, config.seed)?)?;
    let better = match config.shuffle {
        Shuffle::Block(settings) if config.mix.is_none() && is_poor(&figures, &chance) => {
            larger_group(&config, settings, manifest, &chance, &measure)?
        }
        _ => None,
    };

    let report = &context.report;
    report.fact(
        "dataset",
        format_args!(
            "{}: {} in {}",
            dataset.url(),
            counted(manifest.len(), "sample"),
            counted(manifest.object_count().into(), "object")
        ),
    );
    report.fact("order", order_text(config.shuffle));
    report.fact(
        "looked at",
        format_args!("{} batches of {} in epoch {}", count(figures.batches), batch_size, plan.epoch),
    );
    report.line(format_args!("{:<34} {:>12} {:>16}", "", "this order", "full permutation"));
    let row = |name: &str, this: f64, full: f64, digits: usize| {
        report.line(format_args!("{name:<34} {this:>12.digits$} {full:>16.digits$}"));
    };
    row("mean displacement, of all samples", figures.displacement, chance.displacement, 3);
    row("neighbours that stay neighbours", figures.neighbours, chance.neighbours, 4);
    row("shards a batch", figures.shards_per_batch, chance.shards_per_batch, 1);
    row(&format!("pairs within {NEAR} places, a batch"), figures.near_pairs, chance.near_pairs, 1);
    if let (Some(this), Some(full)) = (figures.class_imbalance, chance.class_imbalance) {
        row("classes out of balance, a batch", this, full, 3);
    }
    let suggestion = suggestion(&config, &figures, &chance, better);
    if let Some(text) = &suggestion {
        report.line(text);
    }
    Ok(Done::with(json!({
        "url": dataset.url(),
        "version": manifest.version(),
        "shuffle": config.shuffle,
        "seed": config.seed,
        "epoch": plan.epoch,
        "batch_size": batch_size,
        "classes_of": class_field.map(|field| &manifest.fields()[field].name),
        "figures": figures,
        "full": chance,
        "poor": is_poor(&figures, &chance),
        "group_blocks": better,
        "suggestion": suggestion,
    })))
}

/// The field whose numbers are classes. Labels that are payloads are not read: this looks at the manifest alone.
fn class_field(plan: &OrderPlan, manifest: &Manifest) -> Result<Option<usize>> {
    let name = plan.by.as_deref().unwrap_or(CLASS_FIELD);
    let field = manifest.field_index(name).filter(|field| manifest.fields()[*field].kind == FieldKind::Int);
    match (field, &plan.by) {
        (None, Some(name)) => Err(Error::invalid_config(format!(
            "look at an order by `{name}`: no field of that name has numbers in the manifest"
        ))
        .with_hint("leave `--by` out to look at places alone")),
        _ => Ok(field),
    }
}

fn is_poor(figures: &MixingFigures, chance: &MixingFigures) -> bool {
    let skewed = figures.class_imbalance.zip(chance.class_imbalance);
    figures.shards_per_batch < POOR_SHARDS * chance.shards_per_batch
        || skewed.is_some_and(|(this, full)| this > full + POOR_IMBALANCE)
}

/// The smallest larger group that mixes well, in powers of two.
fn larger_group(
    config: &LoaderConfig,
    settings: BlockShuffle,
    manifest: &Manifest,
    chance: &MixingFigures,
    measure: &dyn Fn(&Sampler) -> Result<MixingFigures>,
) -> Result<Option<u64>> {
    let mut group_blocks = settings.group_blocks;
    while group_blocks < MAX_GROUP_BLOCKS {
        group_blocks = group_blocks.saturating_mul(2);
        let shuffle = Shuffle::Block(BlockShuffle { group_blocks, ..settings });
        let larger = LoaderConfig { shuffle, ..config.clone() };
        if !is_poor(&measure(&larger.sampler(manifest)?)?, chance) {
            return Ok(Some(group_blocks));
        }
    }
    Ok(None)
}

fn suggestion(
    config: &LoaderConfig,
    figures: &MixingFigures,
    chance: &MixingFigures,
    better: Option<u64>,
) -> Option<String> {
    if !is_poor(figures, chance) {
        return None;
    }
    Some(match (config.shuffle, better) {
        (Shuffle::Block(settings), Some(group_blocks)) => {
            let memory = settings.block_bytes.saturating_mul(group_blocks);
            format!(
                "poorly mixed: `group_blocks={group_blocks}` mixes well and holds {} a group; or pack with `forebay pack --shuffle`",
                size(memory)
            )
        }
        (Shuffle::Sequential, _) => "not mixed at all: set `shuffle`".to_owned(),
        _ => "poorly mixed: use `shuffle=\"full\"`, or pack with `forebay pack --shuffle`".to_owned(),
    })
}

fn order_text(shuffle: Shuffle) -> String {
    match shuffle {
        Shuffle::Sequential => "as stored".to_owned(),
        Shuffle::Full => "full".to_owned(),
        Shuffle::Block(BlockShuffle { block_bytes, group_blocks }) => {
            format!("block, {} in a group of {group_blocks}", size(block_bytes))
        }
        Shuffle::Resample { .. } => "resample".to_owned(),
    }
}
