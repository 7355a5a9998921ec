//! Samples read whole: every field that a sample has, for whoever copies, packs or shows it.
//!
//! Names found when a dataset was indexed do not count here. A record that describes itself tells all its fields, so that
//! one that only a late record has is not lost.

use super::dataset::{Dataset, FieldValue};
use crate::inputs::{in_record, records_of};
use bytes::Bytes;
use forebay_core::manifest::{FieldKind, Location};
use forebay_core::{Error, Facts, Result, SampleId};
use forebay_ops::Input;
use forebay_ops::record::{Format, RecordSpec, tfrecord};
use forebay_store::ByteRange;

impl Dataset {
    /// Every field of one sample, in the manifest's order; records as the fields inside of them, whatever their names.
    pub async fn read_sample(&self, sample: SampleId) -> Result<Vec<(String, FieldValue)>> {
        self.read_whole(sample, false).await
    }

    /// As [`Self::read_sample`], for a copy as TFRecord: records of TFRecord stay as they are ([`FieldValue::Record`]).
    pub async fn read_for_tfrecord(&self, sample: SampleId) -> Result<Vec<(String, FieldValue)>> {
        self.read_whole(sample, true).await
    }

    /// What samples cannot give although it is stored, and why: columns of pickles, and others that are refused.
    pub fn left_out(&self) -> Result<Vec<Error>> {
        let records = records_of(self.manifest())?;
        let refused = |(_, spec): &(usize, RecordSpec)| {
            spec.columns.iter().filter_map(|column| spec.refusal(&column.name)).collect::<Vec<_>>()
        };
        Ok(records.iter().flat_map(refused).collect())
    }

    async fn read_whole(&self, sample: SampleId, records_stay: bool) -> Result<Vec<(String, FieldValue)>> {
        let manifest = self.manifest();
        if sample.0 >= manifest.len() {
            let message =
                format!("read sample {sample} of `{}`: it has {} samples", self.url(), manifest.len());
            return Err(Error::not_found(message));
        }
        let mut values = Vec::new();
        let records = records_of(manifest)?;
        for (field, info) in manifest.fields().iter().enumerate() {
            if info.kind == FieldKind::Int {
                let value = manifest.int(sample, field);
                values.extend(value.map(|value| (info.name.clone(), FieldValue::Int(value))));
                continue;
            }
            let Some(location) = manifest.location(sample, field) else { continue };
            let bytes = self.read_field(sample, field, ByteRange::Full).await?;
            let Some((_, spec)) = records.iter().find(|(record, _)| *record == field) else {
                values.push((info.name.clone(), FieldValue::Payload(bytes)));
                continue;
            };
            let inside = fields_of(spec, &bytes, records_stay);
            values.extend(inside.map_err(|error| self.at_fault(error, sample, location))?);
        }
        Ok(values)
    }

    fn at_fault(&self, error: Error, sample: SampleId, location: Location) -> Error {
        let key = self.manifest().key(sample);
        let object = self.store().url(&self.manifest().object(location.object).key);
        let error = in_record(error, location).while_doing(format_args!("read sample `{key}`"));
        error.with_facts(Facts {
            sample_id: Some(sample),
            key: Some(key),
            object: Some(object),
            ..Facts::default()
        })
    }
}

/// What a record gives.
fn fields_of(spec: &RecordSpec, record: &Bytes, records_stay: bool) -> Result<Vec<(String, FieldValue)>> {
    if records_stay && spec.format == Format::Tfrecord {
        return Ok(vec![(tfrecord::FIELD.to_owned(), FieldValue::Record(tfrecord::payload(record)?))]);
    }
    let mut values = Vec::new();
    for (name, taken) in spec.take_every(record)? {
        let value = match taken.plain() {
            Ok(Input::Payload(bytes)) => FieldValue::Payload(bytes),
            Ok(Input::Int(value)) => FieldValue::Int(value),
            Ok(Input::Pixels(_) | Input::Frames(_) | Input::Missing) => continue,
            Err(error) => return Err(error.while_doing(format_args!("take field `{name}`"))),
        };
        values.push((name, value));
    }
    Ok(values)
}
