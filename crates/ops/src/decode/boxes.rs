//! Annotations of an image in JSON: boxes, their labels and keypoints.
//!
//! Three forms are read: a list of annotations as COCO has them (`bbox`, `category_id`, `keypoints`), an object that has
//! such a list under `annotations`, and an object of parallel lists (`boxes`, `labels`, `keypoints`). Other keys are
//! passed over. Counts and coordinates are bounded; where boxes go is in [`crate::track`].

use forebay_core::recipe::BoxFormat;
use forebay_core::{Error, Result};
use serde::Deserialize;

/// Most annotations of one image.
pub const MAX_BOXES: usize = 1 << 16;
/// Most keypoints of one annotation.
pub const MAX_KEYPOINTS: usize = 1 << 12;
/// Most keypoints of one image: every annotation has as many as any other.
const MAX_POINTS: usize = 1 << 20;
/// Coordinates beyond this are no places of an image.
const FARTHEST: f64 = 1e9;

/// What is said of one thing in an image.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Annotation {
    /// Left, top, right, bottom.
    pub bounds: [f64; 4],
    /// What it is, when that is said.
    pub label: Option<i64>,
    /// `x`, `y` and visibility, 0 where there is none.
    pub keypoints: Vec<[f64; 3]>,
}

#[derive(Deserialize)]
struct Stored {
    bbox: [f64; 4],
    #[serde(alias = "label")]
    category_id: Option<i64>,
    #[serde(default)]
    keypoints: Vec<f64>,
}

#[derive(Deserialize)]
struct Document {
    annotations: Option<Vec<Stored>>,
    #[serde(default)]
    boxes: Vec<[f64; 4]>,
    labels: Option<Vec<i64>>,
    keypoints: Option<Vec<Vec<[f64; 3]>>>,
}

/// The annotations of a document whose boxes are stored as `format`. All have the same number of keypoints.
pub fn decode(payload: &[u8], format: BoxFormat) -> Result<Vec<Annotation>> {
    let first = payload.iter().find(|byte| !byte.is_ascii_whitespace());
    let mut annotations = if first == Some(&b'[') {
        each(read(payload)?, format)?
    } else {
        let document: Document = read(payload)?;
        match document.annotations {
            Some(stored) => each(stored, format)?,
            None => parallel(document, format)?,
        }
    };
    if annotations.len() > MAX_BOXES {
        return Err(refused(&format!("{} annotations are more than {MAX_BOXES}", annotations.len())));
    }
    let points = annotations.iter().map(|one| one.keypoints.len()).max().unwrap_or(0);
    if points > MAX_KEYPOINTS || points * annotations.len() > MAX_POINTS {
        return Err(refused(&format!(
            "{points} keypoints of {} annotations are too many",
            annotations.len()
        )));
    }
    for (at, one) in annotations.iter_mut().enumerate() {
        // Without keypoints is with none that can be seen.
        if one.keypoints.is_empty() {
            one.keypoints.resize(points, [0.0; 3]);
        }
        if one.keypoints.len() != points {
            let found = one.keypoints.len();
            return Err(refused(&format!("annotation {at} has {found} keypoints, others have {points}")));
        }
        let all = one.bounds.iter().chain(one.keypoints.iter().flatten());
        if all.into_iter().any(|value| !(-FARTHEST..=FARTHEST).contains(value)) {
            return Err(refused(&format!("annotation {at} has a coordinate beyond {FARTHEST}")));
        }
    }
    Ok(annotations)
}

fn read<'a, T: Deserialize<'a>>(payload: &'a [u8]) -> Result<T> {
    serde_json::from_slice(payload).map_err(|cause| {
        Error::corrupt("decode boxes: the document is none of the forms that are known")
            .with_source(cause)
            .with_hint(
                "a list of annotations with `bbox`, the same under `annotations`, or `boxes` with `labels`",
            )
    })
}

fn each(stored: Vec<Stored>, format: BoxFormat) -> Result<Vec<Annotation>> {
    let one = |stored: Stored| {
        let (points, rest) = stored.keypoints.as_chunks::<3>();
        if !rest.is_empty() {
            return Err(refused("`keypoints` holds not three numbers for each"));
        }
        let bounds = bounds(stored.bbox, format);
        Ok(Annotation { bounds, label: stored.category_id, keypoints: points.to_vec() })
    };
    stored.into_iter().map(one).collect()
}

fn parallel(document: Document, format: BoxFormat) -> Result<Vec<Annotation>> {
    let Document { boxes, labels, keypoints, .. } = document;
    for (name, count) in
        [("labels", labels.as_ref().map(Vec::len)), ("keypoints", keypoints.as_ref().map(Vec::len))]
    {
        if let Some(count) = count.filter(|count| *count != boxes.len()) {
            return Err(refused(&format!("there are {} `boxes` and {count} `{name}`", boxes.len())));
        }
    }
    let mut labels = labels.unwrap_or_default().into_iter();
    let mut keypoints = keypoints.unwrap_or_default().into_iter();
    let one = |stored| Annotation {
        bounds: bounds(stored, format),
        label: labels.next(),
        keypoints: keypoints.next().unwrap_or_default(),
    };
    Ok(boxes.into_iter().map(one).collect())
}

/// Left, top, right, bottom.
fn bounds([a, b, c, d]: [f64; 4], format: BoxFormat) -> [f64; 4] {
    match format {
        BoxFormat::Xyxy => [a, b, c, d],
        BoxFormat::Xywh => [a, b, a + c, b + d],
        BoxFormat::Cxcywh => [a - 0.5 * c, b - 0.5 * d, a + 0.5 * c, b + 0.5 * d],
    }
}

fn refused(why: &str) -> Error {
    Error::corrupt(format!("decode boxes: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_forms_say_the_same() {
        let coco = r#"[{"id": 7, "bbox": [1, 2, 3, 4], "category_id": 5, "keypoints": [1, 2, 2, 0, 0, 0],
            "segmentation": [[1, 2, 3]], "iscrowd": 0}, {"bbox": [0.5, 0, 1e1, 2], "category_id": 6}]"#;
        let under = format!(r#" {{"image": 9, "annotations": {coco}}}"#);
        let parallel = r#"{"boxes": [[1, 2, 3, 4], [0.5, 0, 10, 2]], "labels": [5, 6],
            "keypoints": [[[1, 2, 2], [0, 0, 0]], [[0, 0, 0], [0, 0, 0]]]}"#;
        let expected = [
            Annotation {
                bounds: [1.0, 2.0, 4.0, 6.0],
                label: Some(5),
                keypoints: vec![[1.0, 2.0, 2.0], [0.0; 3]],
            },
            Annotation { bounds: [0.5, 0.0, 10.5, 2.0], label: Some(6), keypoints: vec![[0.0; 3]; 2] },
        ];
        for text in [coco, &under, parallel] {
            assert_eq!(decode(text.as_bytes(), BoxFormat::Xywh).unwrap(), expected, "{text}");
        }
        assert_eq!(decode(b"[]", BoxFormat::Xyxy).unwrap(), []);
        assert_eq!(decode(b"{}", BoxFormat::Xyxy).unwrap(), []);
        let middle = decode(br#"{"boxes": [[5, 5, 4, 2]]}"#, BoxFormat::Cxcywh).unwrap();
        assert_eq!(middle[0].bounds, [3.0, 4.0, 7.0, 6.0]);
    }

    #[test]
    fn hostile_documents_are_refused_with_the_reason() {
        for (text, why) in [
            ("", "none of the forms"),
            ("7", "none of the forms"),
            (r#"[{"bbox": [1, 2, 3]}]"#, "none of the forms"),
            (r#"[{"category_id": 1}]"#, "none of the forms"),
            (r#"[{"bbox": [1, 2, 3, 1e400]}]"#, "none of the forms"),
            (r#"[{"bbox": [1, 2, 3, 1e10]}]"#, "coordinate beyond"),
            (r#"[{"bbox": [1, 2, 3, 4], "keypoints": [1, 2]}]"#, "three numbers"),
            (
                r#"[{"bbox": [1, 2, 3, 4], "keypoints": [1, 2, 1]}, {"bbox": [1, 2, 3, 4], "keypoints": [1, 2, 1, 1, 2, 1]}]"#,
                "annotation 0 has 1 keypoints",
            ),
            (r#"{"boxes": [[1, 2, 3, 4]], "labels": []}"#, "1 `boxes` and 0 `labels`"),
        ] {
            let error = decode(text.as_bytes(), BoxFormat::Xyxy).unwrap_err();
            assert_eq!(error.kind(), forebay_core::ErrorKind::Corrupt);
            assert!(error.message().contains(why), "{error}");
        }
        let many = format!("[{}]", vec![r#"{"bbox":[1,2,3,4]}"#; MAX_BOXES + 1].join(","));
        assert!(decode(many.as_bytes(), BoxFormat::Xyxy).is_err());
        let deep = "[".repeat(1 << 20);
        assert!(decode(deep.as_bytes(), BoxFormat::Xyxy).is_err());
    }
}
