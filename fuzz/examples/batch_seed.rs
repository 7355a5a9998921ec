//! Writes streams of messages and batches with every kind of column: the seeds of the `batch_wire` target.

use forebay_core::feed::{BatchName, FeedId, Run};
use forebay_core::tensor::{Dtype, TensorSpec};
use forebay_core::{Error, Result, SampleId};
use forebay_engine::{Batch, Fault};
use forebay_net::service::message::{Attach, Late, Packing, ToWorker};
use forebay_net::service::{Sending, Times};
use forebay_ops::{Buffer, Column, Tensor};

fn tensor(shape: &[usize]) -> Tensor {
    let spec = TensorSpec { dtype: Dtype::U8, shape: shape.to_vec() };
    Tensor { data: Buffer::alone(spec.bytes()), spec }
}

fn main() -> Result<()> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/seeds/batch_wire");
    let fail = |cause| Error::io(format!("write to `{folder}`"), cause);
    std::fs::create_dir_all(folder).map_err(fail)?;
    let sending = |name: &str| {
        let file = std::fs::File::create(format!("{folder}/{name}")).map_err(fail)?;
        Ok::<_, Error>(Sending::over(file, "a file"))
    };
    let all = tensor(&[3, 8]);
    let batch = Batch {
        epoch: 1,
        step: 0,
        ids: (0..3).map(SampleId).collect(),
        padding: vec![false, false, true],
        columns: vec![
            ("x".into(), Column::Tensor { spec: tensor(&[8]).spec, rows: 3, data: all.data }),
            ("y".into(), Column::Tensors((0..3).map(|row| tensor(&[row, 2])).collect())),
            ("b".into(), Column::Bytes(vec!["one".into(), "".into(), "three".into()])),
            ("t".into(), Column::Text(vec!["a".into(), "ä".into(), String::new()])),
            ("j".into(), Column::Json(vec!["1".into(), "{}".into(), "[]".into()])),
        ],
        faults: vec![Fault {
            sample_id: SampleId(7),
            key: "k".into(),
            epoch: 1,
            error: Error::corrupt("decode `k`: it is cut"),
            substitute: Some(SampleId(8)),
        }],
    };
    for (name, packing) in [("plain", Packing::None), ("lz4", Packing::Lz4), ("zstd", Packing::Zstd)] {
        sending(name)?.send_batch(1, &batch, Times::default(), packing)?;
    }
    let name = BatchName { epoch: 2, runs: vec![Run { first: 5, len: 3, padding: false }] };
    let mut said = sending("messages")?;
    said.send(&ToWorker::Attach(Attach {
        job: "job".into(),
        rank: 0,
        world_size: 2,
        feed: FeedId(77),
        spec: "{}".into(),
        packings: vec![Packing::Auto],
        late: Late::Wait,
    }))?;
    said.send(&ToWorker::Plan { names: vec![name.clone(); 2] })?;
    said.send(&ToWorker::Take { request: 1, name })?;
    said.send(&ToWorker::Release { memory: vec![1, 2] })
}
