//! How a prepared sample lies in a shard, and the recipe that brings it back as it was.
//!
//! A column becomes a member `KEY.NAME.ENDING`: tensors as `npy`, labels as decimal text, texts, JSON documents and
//! payloads as they are. The recipe that is saved beside the shards reads each of them back without any op, so what
//! comes out has the bytes, element types, shapes and column names that went in.

use crate::batch::Batch;
use forebay_core::recipe::{Decode, FieldRecipe, Op, Recipe};
use forebay_core::tensor::{Dtype, Layout, TensorSpec};
use forebay_core::{Error, Result};
use forebay_ops::decode::label;
use forebay_ops::{Column, OutputKind, Program, npy};

/// The members of every sample, in the order of the recipe.
#[derive(Debug)]
pub(super) struct Members(Vec<Member>);

#[derive(Debug)]
struct Member {
    column: String,
    /// The member's name behind the sample's key.
    field: String,
    how: How,
    /// Element type, when the recipe fixes it.
    dtype: Option<Dtype>,
    /// Shape, when the recipe fixes it.
    shape: Option<Vec<usize>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Npy,
    Label,
    Text,
    Json,
    Bytes,
}

impl How {
    fn ending(self) -> &'static str {
        match self {
            Self::Npy => "npy",
            Self::Label => "cls",
            Self::Text => "txt",
            Self::Json => "json",
            Self::Bytes => "bin",
        }
    }
}

impl Members {
    /// The members that samples of this recipe have.
    pub(super) fn of(recipe: &Recipe) -> Result<Self> {
        let program = Program::outline(recipe)?;
        if let Some(op) = recipe.ops.iter().find(|op| op.is_of_batches()) {
            let why = format!("materialize: `{}` is of whole batches, and samples are saved", op.name());
            return Err(Error::unsupported(why).with_hint("leave it to the recipe that reads what was saved"));
        }
        let mut members: Vec<Member> = Vec::with_capacity(recipe.fields.len());
        for output in program.outputs() {
            let field = recipe.fields.iter().find(|field| field.output_name() == output.name);
            let decode = field.filter(|field| !field.ops.iter().any(|op| matches!(op, Op::Map { .. })));
            let how = match (decode.map(|field| &field.decode), &output.kind) {
                (_, OutputKind::Any) => {
                    let why =
                        format!("materialize column `{}`: what its function gives is not said", output.name);
                    return Err(Error::unsupported(why).with_hint("give `shape` and `dtype` with `map`"));
                }
                (Some(Decode::Label {}), _) => How::Label,
                (_, OutputKind::Tensor(_) | OutputKind::Tensors) => How::Npy,
                (_, OutputKind::Padded(_) | OutputKind::Ragged(_) | OutputKind::Tokens(_)) => {
                    let op = field.and_then(|field| field.ops.last()).map_or("pad_batch", Op::name);
                    let why = format!("materialize column `{}`: `{op}` is of whole batches", output.name);
                    return Err(Error::invalid_config(why).with_hint("leave it to the reader's recipe"));
                }
                (_, OutputKind::Text) => How::Text,
                (_, OutputKind::Json) => How::Json,
                (_, OutputKind::Bytes) => How::Bytes,
            };
            let (dtype, shape) = match &output.kind {
                OutputKind::Tensor(spec) => (Some(spec.dtype), Some(spec.shape.clone())),
                _ => (decode.and_then(FieldRecipe::output_dtype), None),
            };
            let name = member_name(&output.name);
            let taken = |field: &str| members.iter().any(|other| other.field == field);
            let mut member = format!("{name}.{}", how.ending());
            for number in 2.. {
                if !taken(&member) {
                    break;
                }
                member = format!("{name}_{number}.{}", how.ending());
            }
            members.push(Member { column: output.name.clone(), field: member, how, dtype, shape });
        }
        Ok(Self(members))
    }

    /// What reads the shards back.
    pub(super) fn recipe(&self) -> Recipe {
        let field = |member: &Member| {
            let decode = match member.how {
                How::Npy => Decode::Npy { shape: member.shape.clone() },
                How::Label => Decode::Label {},
                How::Text => Decode::Text {},
                How::Json => Decode::Json {},
                How::Bytes => Decode::Bytes {},
            };
            FieldRecipe {
                field: member.field.clone(),
                name: Some(member.column.clone()),
                decode,
                ops: Vec::new(),
                dtype: member.dtype,
                layout: Layout::default(),
                follow: None,
            }
        };
        Recipe { fields: self.0.iter().map(field).collect(), ops: Vec::new() }
    }

    /// One row of a batch as members: name and bytes.
    pub(super) fn row(&self, batch: &Batch, row: usize) -> Result<Vec<(&str, Vec<u8>)>> {
        let mut row_members = Vec::with_capacity(self.0.len());
        for (member, (name, column)) in self.0.iter().zip(&batch.columns) {
            let bytes = member.bytes(column, row).ok_or_else(|| {
                Error::internal(format!("save column `{name}`: it is not what the recipe says"))
            })?;
            row_members.push((member.field.as_str(), bytes));
        }
        Ok(row_members)
    }
}

impl Member {
    fn bytes(&self, column: &Column, row: usize) -> Option<Vec<u8>> {
        match column {
            Column::Tensor { spec, data, .. } => {
                let bytes = spec.bytes();
                let elements = data.as_slice().get(row * bytes..(row + 1) * bytes)?;
                if self.how == How::Label {
                    return Some(label::read(spec.dtype, elements)?.to_string().into_bytes());
                }
                array(spec, elements)
            }
            Column::Tensors(tensors) => {
                tensors.get(row).and_then(|one| array(&one.spec, one.data.as_slice()))
            }
            Column::Bytes(rows) => rows.get(row).map(|payload| payload.to_vec()),
            Column::Text(rows) | Column::Json(rows) => rows.get(row).map(|text| text.clone().into_bytes()),
            // Refused before anything was prepared.
            Column::Ragged(_) => None,
        }
    }
}

fn array(spec: &TensorSpec, elements: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(128 + elements.len());
    npy::write(&mut bytes, spec.dtype, &spec.shape, elements).ok()?;
    Some(bytes)
}

/// A column's name as a part of a member's: lower case, as readers take members, and nothing that leads elsewhere.
fn member_name(column: &str) -> String {
    let safe = |c: char| {
        if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') { c.to_ascii_lowercase() } else { '_' }
    };
    let name: String = column.chars().take(100).map(safe).collect();
    if name.is_empty() { "column".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_any_name_get_members_of_their_own() {
        let recipe = Recipe::from_json(
            r#"[{"field": "a", "name": "A/b", "decode": "bytes"}, {"field": "b", "name": "a_B", "decode": "bytes"},
                {"field": "c", "name": "a b", "decode": "text"}, {"field": "d", "name": "é", "decode": "label"}]"#,
        );
        let members = Members::of(&recipe.unwrap()).unwrap();
        let fields: Vec<&str> = members.0.iter().map(|member| member.field.as_str()).collect();
        assert_eq!(fields, ["a_b.bin", "a_b_2.bin", "a_b.txt", "_.cls"]);
        let back = members.recipe();
        assert!(back.check().is_empty(), "{:?}", back.check());
        let names: Vec<&str> = back.fields.iter().map(FieldRecipe::output_name).collect();
        assert_eq!(names, ["A/b", "a_B", "a b", "é"]);
    }
}
