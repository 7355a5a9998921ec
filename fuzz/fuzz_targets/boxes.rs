//! Annotations: what is read has as many keypoints everywhere and coordinates that are numbers, and the same document in
//! another form of boxes is read too or not by its numbers alone.
#![no_main]

use forebay_core::recipe::BoxFormat;
use forebay_ops::decode::boxes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|payload: &[u8]| {
    for format in [BoxFormat::Xyxy, BoxFormat::Xywh, BoxFormat::Cxcywh] {
        let Ok(annotations) = boxes::decode(payload, format) else { continue };
        assert!(annotations.len() <= boxes::MAX_BOXES);
        let points = annotations.first().map_or(0, |one| one.keypoints.len());
        for one in &annotations {
            assert_eq!(one.keypoints.len(), points);
            assert!(one.bounds.iter().chain(one.keypoints.iter().flatten()).all(|value| value.is_finite()));
            let _ = forebay_ops::track::bounds(&[], [640.0, 480.0], one.bounds);
        }
    }
});
