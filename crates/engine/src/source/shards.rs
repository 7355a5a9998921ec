//! Tar shards into a manifest: many indexed at once, added in the order of the spec.

use super::inventory::Inventory;
use super::locate::is_packed;
use super::options::{OpenOptions, Progress};
use crate::shard::{GroupedSample, Grouper, HeaderReads, Limits, Walker, walk_object};
use forebay_core::manifest::{FieldKind, ManifestBuilder, Value};
use forebay_core::{Error, Result};
use forebay_store::{GunzipOptions, GunzipStore, ObjectMeta, Store};
use futures::{StreamExt, TryStreamExt, stream};
use std::sync::Arc;

/// What one shard holds.
struct ShardIndex {
    object: ObjectMeta,
    samples: Vec<GroupedSample>,
}

/// Indexes every shard of the inventory.
pub(super) async fn build(
    store: &dyn Store,
    inventory: &Inventory,
    options: &OpenOptions,
    meta: serde_json::Value,
) -> Result<Vec<u8>> {
    let mut builder = ManifestBuilder::new(Vec::new(), meta);
    let mut progress = Progress { objects_total: inventory.objects.len() as u64, ..Progress::default() };
    options.report(progress);
    let shards = stream::iter(&inventory.objects).map(|object| index(store, object));
    let mut shards = shards.buffered(options.parallel.max(1));
    while let Some(shard) = shards.try_next().await? {
        builder.add_object(&shard.object.key, shard.object.size, shard.object.stamp)?;
        for sample in &shard.samples {
            progress.bytes += add(&mut builder, sample)?;
        }
        progress.objects_done += 1;
        progress.samples += shard.samples.len() as u64;
        options.report(progress);
    }
    if builder.is_empty() {
        let first = inventory.objects.first().map(|object| store.url(&object.key)).unwrap_or_default();
        return Err(Error::not_found(format!(
            "index {} shards: no member has an extension",
            inventory.objects.len()
        ))
        .with_hint(format!("members are named `key.field`, for example `0001.jpg`; look into `{first}`")));
    }
    builder.finish()
}

/// The store through which shards are read: compressed ones are presented as what they hold.
pub(super) fn reading_store<'a>(
    store: &Arc<dyn Store>,
    mut keys: impl Iterator<Item = &'a str>,
) -> Arc<dyn Store> {
    if keys.any(is_packed) {
        Arc::new(GunzipStore::new(Arc::clone(store), GunzipOptions::default()))
    } else {
        Arc::clone(store)
    }
}

/// The shard as the reading store sees it: a compressed one has the size of what it holds.
pub(super) async fn expanded(store: &dyn Store, object: &ObjectMeta) -> Result<ObjectMeta> {
    if is_packed(&object.key) {
        let seen = store.head(&object.key).await?;
        return Ok(ObjectMeta { stamp: object.stamp, ..seen });
    }
    Ok(object.clone())
}

/// How headers are read: over a network a request costs more than the payloads it passes by.
pub(super) fn header_reads(store: &dyn Store) -> HeaderReads {
    if store.is_remote() {
        HeaderReads { smallest: 4 << 20, largest: 16 << 20 }
    } else {
        HeaderReads::default()
    }
}

async fn index(store: &dyn Store, object: &ObjectMeta) -> Result<ShardIndex> {
    let object = expanded(store, object).await?;
    let (mut grouper, mut samples) = (Grouper::default(), Vec::new());
    let mut walker = Walker::new(object.size, Limits::default());
    walk_object(store, &object.key, &mut walker, header_reads(store), |member| {
        samples.extend(grouper.add(&member)?);
        Ok(())
    })
    .await?;
    samples.extend(grouper.finish());
    Ok(ShardIndex { object, samples })
}

pub(super) fn add(builder: &mut ManifestBuilder, sample: &GroupedSample) -> Result<u64> {
    let mut values = Vec::with_capacity(sample.fields.len());
    for field in &sample.fields {
        let index = builder.field(&field.name, FieldKind::Payload)?;
        values.push((index, Value::Payload { object: None, offset: field.offset, length: field.length }));
    }
    builder.add_sample(&sample.key, &values)?;
    Ok(sample.fields.iter().map(|field| field.length).sum())
}
