//! `verify` names every fault with its place and does not stop at the first.
#![expect(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

use forebay_core::Error;
use forebay_engine::source::OpenOptions;
use forebay_engine::source::verify::{Check, Finding, FindingKind, VerifyOptions, VerifyReport, verify};
use forebay_testkit::made::Made;
use forebay_testkit::tar::{TarMaker, tar_with};
use futures::executor::block_on;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Payloads that say `bad` cannot be decoded.
fn check() -> Check {
    Arc::new(|field, bytes| {
        if bytes == b"bad" { Err(Error::corrupt(format!("decode `{field}`: nonsense"))) } else { Ok(()) }
    })
}

fn run(path: &Path, check: Option<Check>) -> VerifyReport {
    let told = Mutex::new(Vec::<Finding>::new());
    let found = |finding: &Finding| told.lock().unwrap().push(finding.clone());
    let spec = [path.display().to_string()];
    let report = block_on(verify(&spec, &OpenOptions::default(), &VerifyOptions { check }, &found)).unwrap();
    assert_eq!(told.into_inner().unwrap(), report.findings, "the callback is told what the report holds");
    assert_eq!(report.errors + report.warnings, report.findings.len() as u64);
    report
}

fn kinds(report: &VerifyReport) -> Vec<FindingKind> {
    report.findings.iter().map(|finding| finding.kind).collect()
}

#[test]
fn sound_shards_have_no_findings() {
    let folder = tempfile::tempdir().unwrap();
    Made::default().shards(folder.path(), 3);
    let report = run(folder.path(), Some(check()));
    assert_eq!(report.findings, []);
    assert_eq!((report.objects, report.samples, report.checked), (3, 24, 48));
}

#[test]
fn every_fault_of_every_shard_is_named_with_shard_member_and_offset() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, bytes: Vec<u8>| fs::write(folder.path().join(name), bytes).unwrap();
    let whole =
        tar_with(&[("1.jpg", b"ok"), ("2.jpg", b"bad"), ("3.jpg", b""), ("4.jpg", b"x"), ("4.JPG", b"y")]);
    put("a.tar", whole);
    put("b.tar", tar_with(&[("10.jpg", b"ok"), ("11.jpg", &[1; 2000])])[..2500].to_vec());
    let mut damaged = tar_with(&[("20.jpg", b"ok"), ("21.jpg", b"ok")]);
    damaged[1024] ^= 1;
    put("c.tar", damaged);
    put("d.tar", tar_with(&[("1.jpg", b"ok"), ("30.jpg", b"ok"), ("31.jpg", b"ok"), ("30.jpg", b"ok")]));
    put("e.tar", TarMaker::new().file("40.jpg", b"ok").unfinished());
    let mut glued = tar_with(&[("50.jpg", b"ok")]);
    glued.truncate(glued.len() - 512);
    glued.extend(tar_with(&[("51.jpg", b"lost")]));
    put("f.tar", glued);
    put("g.tar", Vec::new());
    let report = run(folder.path(), Some(check()));
    let wanted = [
        FindingKind::EmptyPayload,
        FindingKind::DuplicateField,
        FindingKind::BadPayload,
        FindingKind::BadShard,
        FindingKind::BadShard,
        FindingKind::DuplicateKey,
        FindingKind::DuplicateKey,
        FindingKind::NoEndMark,
        FindingKind::TrailingBytes,
        FindingKind::BadShard,
    ];
    assert_eq!(kinds(&report), wanted);
    let place = |at: usize| {
        let finding: &Finding = &report.findings[at];
        let object = finding.object.rsplit('/').next().unwrap();
        (object, finding.member.as_deref(), finding.offset)
    };
    assert_eq!(place(0), ("a.tar", Some("3.jpg"), Some(2048)));
    assert_eq!(place(1), ("a.tar", Some("4.JPG"), Some(3584)));
    assert_eq!(place(2), ("a.tar", Some("2.jpg"), Some(1024)));
    assert_eq!(place(3), ("b.tar", Some("11.jpg"), Some(1024)));
    assert_eq!(place(4), ("c.tar", None, Some(1024)));
    assert_eq!(place(5), ("d.tar", Some("1"), Some(0)));
    assert!(report.findings[5].message.contains("a.tar"), "the other shard is named");
    assert_eq!(place(6), ("d.tar", Some("30"), Some(3072)));
    assert_eq!(place(7).0, "e.tar");
    assert_eq!(place(8), ("f.tar", None, Some(1536)));
    assert_eq!(place(9), ("g.tar", None, Some(0)));
    assert_eq!((report.errors, report.warnings, report.objects), (5, 5, 7));
}

#[test]
fn files_of_a_tree_are_tried_one_by_one() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in [("a/1.jpg", &b"ok"[..]), ("a/2.jpg", b""), ("b/3.jpg", b"bad")] {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    let report = run(folder.path(), Some(check()));
    assert_eq!(kinds(&report), [FindingKind::EmptyPayload, FindingKind::BadPayload]);
    assert!(report.findings[1].object.ends_with("b/3.jpg"));
    assert_eq!(
        run(folder.path(), None).findings.len(),
        1,
        "without a check only headers and sizes are looked at"
    );
}
