//! Writes a small manifest with every kind of column: the seed of the `manifest` target.

use forebay_core::Result;
use forebay_core::manifest::{FieldInfo, FieldKind, ManifestBuilder, Value};

fn main() -> Result<()> {
    let field = |name: &str, kind| FieldInfo { name: name.to_owned(), kind };
    let fields = vec![field("jpg", FieldKind::Payload), field("cls", FieldKind::Int)];
    let mut builder = ManifestBuilder::new(fields, serde_json::json!({"kind": "tar"}));
    for shard in 0..3u64 {
        builder.add_object(&format!("train-{shard:03}.tar"), 10_000, shard)?;
        for sample in 0..20 {
            let image =
                Value::Payload { object: None, offset: 512 + sample * 300, length: 100 + sample * sample };
            let label = Value::Int(sample as i64 - 3);
            let values: &[_] = if sample % 7 == 0 { &[(0, image)] } else { &[(0, image), (1, label)] };
            builder.add_sample(&format!("{shard}/{sample:05}"), values)?;
        }
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/seeds/manifest/small");
    std::fs::write(path, builder.finish()?)
        .map_err(|cause| forebay_core::Error::io(format!("write `{path}`"), cause))
}
