//! Size classes: which samples are of about one size, by lengths that the manifest knows.

use crate::manifest::{FieldKind, Manifest};
use crate::{Error, Result, SampleId};
use serde::{Deserialize, Serialize};

/// Most size classes.
pub const MAX_CLASSES: u32 = 1024;

/// How samples are classed by size.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SizeClasses {
    /// Where one class ends and the next begins.
    pub bounds: ClassBounds,
    /// The payload field whose length counts; `None` takes all payload fields of a sample together.
    pub field: Option<String>,
}

/// Where one class ends and the next begins.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClassBounds {
    /// This many classes that hold equal shares of all bytes. Padding is paid in bytes, so the few longest samples get
    /// classes of their own where quantiles of the number of samples would lump them together.
    Count(u32),
    /// First length in bytes of every class but the first, ascending.
    Bytes(Vec<u64>),
}

impl SizeClasses {
    /// What was asked for, one setting at a time: a field alone makes no classes.
    pub fn from_settings(bounds: Option<ClassBounds>, field: Option<String>) -> Result<Option<Self>> {
        match (bounds, field) {
            (None, None) => Ok(None),
            (None, Some(field)) => {
                Err(Error::invalid_config(format!("size_field is `{field}`, but there is no size_classes"))
                    .with_hint("give `size_classes` too, for example 8"))
            }
            (Some(bounds), field) => {
                let classes = Self { bounds, field };
                classes.check()?;
                Ok(Some(classes))
            }
        }
    }

    /// Checks the numbers.
    pub fn check(&self) -> Result<()> {
        let why = match &self.bounds {
            ClassBounds::Count(count) if !(1..=MAX_CLASSES).contains(count) => {
                format!("size_classes is {count}: give 1 to {MAX_CLASSES} classes")
            }
            ClassBounds::Bytes(bounds) if bounds.is_empty() || bounds.len() >= MAX_CLASSES as usize => {
                format!("size_classes has {} boundaries: give 1 to {}", bounds.len(), MAX_CLASSES - 1)
            }
            ClassBounds::Bytes(bounds) if bounds[0] == 0 || bounds.windows(2).any(|two| two[0] >= two[1]) => {
                format!("size_classes is {bounds:?}: boundaries are bytes above 0 that rise")
            }
            _ => return Ok(()),
        };
        Err(Error::invalid_config(why))
    }
}

/// Lengths of samples: bytes of their payloads, or numbers that the manifest has for them.
#[derive(Clone, Debug)]
pub struct Lengths {
    manifest: Manifest,
    field: Option<(usize, FieldKind)>,
}

impl Lengths {
    /// Lengths of one payload field, or of all together.
    pub fn new(manifest: &Manifest, field: Option<&str>) -> Result<Self> {
        let field = field.map(|name| {
            let index = manifest.field_index(name);
            index.filter(|index| manifest.fields()[*index].kind == FieldKind::Payload).ok_or_else(|| {
                let what = if index.is_some() { "it holds integers" } else { "there is no such field" };
                let payloads = manifest.fields().iter().filter(|field| field.kind == FieldKind::Payload);
                let known = payloads.map(|field| format!("`{}`", field.name)).collect::<Vec<_>>().join(", ");
                Error::invalid_config(format!("class samples by the size of `{name}`: {what}"))
                    .with_hint(format!("payload fields of this dataset are {known}"))
            })
        });
        let field = field.transpose()?.map(|index| (index, FieldKind::Payload));
        Ok(Self { manifest: manifest.clone(), field })
    }

    /// Lengths of one field: bytes of a payload, or what an integer field says. Of all payloads together without one.
    pub fn counted(manifest: &Manifest, field: Option<&str>) -> Result<Self> {
        let field = field.map(|name| {
            let index = manifest.field_index(name);
            index.map(|index| (index, manifest.fields()[index].kind)).ok_or_else(|| {
                let known: Vec<String> =
                    manifest.fields().iter().map(|field| format!("`{}`", field.name)).collect();
                Error::invalid_config(format!(
                    "cut batches by the length of `{name}`: there is no such field"
                ))
                .with_hint(format!("fields of this dataset are {}", known.join(", ")))
            })
        });
        Ok(Self { manifest: manifest.clone(), field: field.transpose()? })
    }

    /// Length of one sample; 0 when it lacks the field, or says that it is less.
    pub fn of(&self, sample: SampleId) -> u64 {
        match self.field {
            None => self.manifest.sample_bytes(sample),
            Some((field, FieldKind::Payload)) => {
                self.manifest.location(sample, field).map_or(0, |location| location.length)
            }
            Some((field, FieldKind::Int)) => {
                self.manifest.int(sample, field).map_or(0, |value| value.max(0) as u64)
            }
        }
    }
}

/// The samples of every class: four bytes a sample.
#[derive(Debug)]
pub(super) struct Classes {
    lengths: Lengths,
    /// First length of every class but the first.
    bounds: Vec<u64>,
    /// Samples grouped by class, ascending inside a class.
    ids: Vec<u32>,
    /// Where each class begins in `ids`, and the end.
    firsts: Vec<usize>,
}

impl Classes {
    pub(super) fn new(manifest: &Manifest, settings: &SizeClasses) -> Result<Self> {
        settings.check()?;
        let lengths = Lengths::new(manifest, settings.field.as_deref())?;
        if manifest.len() > u64::from(u32::MAX) {
            return Err(Error::unsupported(format!(
                "class samples by size: the dataset has {} samples, more than 2^32",
                manifest.len()
            )));
        }
        let bounds = match &settings.bounds {
            ClassBounds::Bytes(bounds) => bounds.clone(),
            ClassBounds::Count(count) => equal_bytes(&lengths, manifest.len(), *count),
        };
        let mut classes = Self { lengths, bounds, ids: vec![0; manifest.len() as usize], firsts: Vec::new() };
        let mut firsts = vec![0usize; classes.bounds.len() + 2];
        for sample in 0..manifest.len() {
            firsts[classes.class_of(SampleId(sample)) + 1] += 1;
        }
        for class in 1..firsts.len() {
            firsts[class] += firsts[class - 1];
        }
        let mut next = firsts.clone();
        for sample in 0..manifest.len() {
            let slot = &mut next[classes.class_of(SampleId(sample))];
            classes.ids[*slot] = sample as u32;
            *slot += 1;
        }
        classes.firsts = firsts;
        Ok(classes)
    }

    /// Number of classes, those without samples included.
    pub(super) fn len(&self) -> usize {
        self.bounds.len() + 1
    }

    /// Samples of a class.
    pub(super) fn samples(&self, class: usize) -> u64 {
        (self.firsts[class + 1] - self.firsts[class]) as u64
    }

    /// The sample with this number inside its class.
    pub(super) fn sample(&self, class: usize, index: u64) -> u32 {
        self.ids[self.firsts[class] + index as usize]
    }

    /// Class of a sample and its number there; `None` when there is no such sample.
    pub(super) fn find(&self, sample: u64) -> Option<(usize, u64)> {
        let id = u32::try_from(sample).ok()?;
        let class = self.class_of(SampleId(sample));
        let index = self.ids[self.firsts[class]..self.firsts[class + 1]].binary_search(&id).ok()?;
        Some((class, index as u64))
    }

    pub(super) fn class_of(&self, sample: SampleId) -> usize {
        let length = self.lengths.of(sample);
        self.bounds.partition_point(|first| *first <= length)
    }

    pub(super) fn length(&self, sample: u64) -> u64 {
        self.lengths.of(SampleId(sample))
    }
}

/// Boundaries of `count` classes with about equal shares of all bytes. Fewer come out when many lengths are equal.
fn equal_bytes(lengths: &Lengths, samples: u64, count: u32) -> Vec<u64> {
    let mut sorted: Vec<u64> = (0..samples).map(|sample| lengths.of(SampleId(sample))).collect();
    sorted.sort_unstable();
    let total: u128 = sorted.iter().map(|length| u128::from(*length)).sum();
    let smallest = sorted.first().copied().unwrap_or(0);
    let (mut bounds, mut before) = (Vec::new(), 0u128);
    let mut number = 1;
    for length in sorted {
        before += u128::from(length);
        // The sample that reaches a share begins the next class; one that reaches several begins one.
        while number < count && before * u128::from(count) >= total * u128::from(number) {
            if length > bounds.last().copied().unwrap_or(smallest) {
                bounds.push(length);
            }
            number += 1;
        }
    }
    bounds
}
