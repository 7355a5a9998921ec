//! A tree of class folders into a manifest: one file, one sample; the first folder is its class.
//!
//! Classes are numbered by their names in order, as torchvision's `ImageFolder` numbers them.

use super::inventory::Inventory;
use super::options::field_name;
use forebay_core::manifest::{FieldKind, ManifestBuilder, Value};
use forebay_core::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};

/// Name of the field that holds the class.
const CLASS_FIELD: &str = "cls";

/// The manifest of a tree, and what the user should know about it.
pub(super) fn build(
    inventory: &Inventory,
    mut meta: serde_json::Value,
    notes: &mut Vec<String>,
    url: &str,
) -> Result<Vec<u8>> {
    let start = inventory.prefix.len();
    let class_of = |key: &str| key[start..].split_once('/').map(|(class, _)| class.to_string());
    let found: BTreeSet<String> =
        inventory.objects.iter().filter_map(|object| class_of(&object.key)).collect();
    if found.is_empty() {
        return Err(Error::not_found(format!(
            "open dataset `{url}` as a tree: no file lies in a class folder"
        ))
        .with_hint("a tree is `class/file.jpg`; set kind to `table` for a plain folder of files"));
    }
    refuse_empty_classes(inventory.others.iter().filter_map(|key| class_of(key)), &found, url)?;
    let names: Vec<&String> = found.iter().collect();
    let numbers: BTreeMap<&str, i64> =
        names.iter().zip(0..).map(|(name, number)| (name.as_str(), number)).collect();
    if let Some(meta) = meta.as_object_mut() {
        meta.insert("class_names".into(), serde_json::json!(names));
    }
    let mut builder = ManifestBuilder::new(Vec::new(), meta);
    let mut outside = 0;
    for object in &inventory.objects {
        let Some(class) = class_of(&object.key) else {
            outside += 1;
            continue;
        };
        builder.add_object(&object.key, object.size, object.stamp)?;
        let payload = builder.field(&field_name(&object.key), FieldKind::Payload)?;
        let label = builder.field(CLASS_FIELD, FieldKind::Int)?;
        let number = numbers.get(class.as_str()).copied().unwrap_or_default();
        let values = [
            (payload, Value::Payload { object: None, offset: 0, length: object.size }),
            (label, Value::Int(number)),
        ];
        builder.add_sample(&object.key, &values)?;
    }
    if outside > 0 {
        notes.push(format!("{outside} files lie beside the class folders and belong to no class: left out"));
    }
    builder.finish()
}

/// A class folder without samples would silently shift the numbers of all later classes.
fn refuse_empty_classes(
    folders: impl Iterator<Item = String>,
    found: &BTreeSet<String>,
    url: &str,
) -> Result<()> {
    let empty: BTreeSet<String> = folders.filter(|class| !found.contains(class)).collect();
    if empty.is_empty() {
        return Ok(());
    }
    let named: Vec<_> = empty.iter().take(20).map(|class| format!("`{class}`")).collect();
    let message = format!(
        "open dataset `{url}` as a tree: {} of {} class folders hold no sample: {}",
        empty.len(),
        empty.len() + found.len(),
        named.join(", ")
    );
    Err(Error::invalid_config(message).with_hint(
        "move them away, or set extensions so that their files count; ignoring them would renumber the classes",
    ))
}
