//! What a recipe that packs documents means for the order: how they are dealt to batches before any is read.

use super::{LoaderConfig, OnError};
use crate::inputs::token_bytes;
use forebay_core::manifest::Manifest;
use forebay_core::plan::batching::Batching;
use forebay_core::plan::batching::packing::Packing;
use forebay_core::recipe::{FieldRecipe, Recipe};
use forebay_core::{Error, Result};

impl LoaderConfig {
    /// These settings for a recipe that packs, with `batch_size` rows in a batch; unchanged for others, and where others
    /// settled it.
    pub(crate) fn packed(mut self, recipe: &Recipe, manifest: &Manifest) -> Result<Self> {
        let mut packing = recipe.fields.iter().filter_map(|field| field.pack().map(|pack| (field, pack)));
        let Some((field, pack)) = packing.next() else { return Ok(self) };
        if self.batching.as_ref().is_some_and(|batching| batching.pack.is_some()) {
            return Ok(self);
        }
        let refused = |why: &str| Err(Error::invalid_config(format!("pack `{}`: {why}", field.field)));
        if packing.next().is_some() {
            return refused("two columns pack; documents are dealt to batches by one of them");
        }
        if self.batching.is_some() {
            return refused("bucket or batch_bytes cut batches too; leave one out");
        }
        if self.on_error == OnError::Substitute {
            return refused("a substitute may be too long for its row; set on_error to `raise` or `skip`");
        }
        let (length_field, token_bytes) = token_bytes(manifest, field)?;
        let rows = self.consumer.batch_size;
        self.batching = Some(Batching {
            length_field: Some(length_field),
            pack: Some(Packing {
                rows,
                length: pack.length,
                fit: pack.fit,
                look_ahead: pack.look_ahead.into(),
                long: pack.long,
                token_bytes,
                extra: field.tokens_of(0),
                most: most(field),
            }),
            ..Batching::default()
        });
        self.consumer.batch_size = rows.saturating_mul(pack.documents.into());
        Ok(self)
    }

    /// Rows of every batch, when documents are packed into them.
    pub(crate) fn packed_rows(&self) -> Option<u64> {
        Some(self.batching.as_ref()?.pack.as_ref()?.rows)
    }
}

/// Most tokens that ops leave of a document.
fn most(field: &FieldRecipe) -> u64 {
    field.tokens_of(u64::MAX >> 1)
}
