use super::*;
use crate::stage::journal::Journal;

fn object(size: u64, stamp: u64) -> ObjectMeta {
    ObjectMeta { key: "a/b".into(), size, stamp }
}

fn begun(stamp: u64) -> (tempfile::TempDir, Place, Half) {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::new(folder.path()).unwrap();
    place.make().unwrap();
    let half = Half::open(&place, &object(10, stamp), 4).unwrap();
    half.put(1, b"4567").unwrap();
    (folder, place, half)
}

#[test]
fn p049_a_half_object_goes_on_only_while_its_source_is_the_same() {
    let (_folder, place, half) = begun(7);
    drop(half);
    assert_eq!(half_bytes(&place, &object(10, 7)).unwrap(), 4);
    assert_eq!(half_bytes(&place, &object(10, 8)).unwrap(), 0);
    assert_eq!(half_bytes(&place, &object(11, 7)).unwrap(), 0);
    // Another piece size is asked for; what was begun keeps its own.
    let half = Half::open(&place, &object(10, 7), 3).unwrap();
    assert_eq!((half.missing(), half.bytes(), half.range(2)), (vec![0, 2], 4, 8..10));
    let half = Half::open(&place, &object(10, 8), 4).unwrap();
    assert_eq!(half.missing(), [0, 1, 2]);
}

#[test]
fn p049_a_log_torn_anywhere_costs_pieces_and_never_adds_one() {
    let (_folder, place, half) = begun(7);
    half.put(2, b"89").unwrap();
    let path = log_path(&place, "a/b");
    let lines = fs::read(&path).unwrap();
    for torn in 0..lines.len() {
        fs::write(&path, &lines[..torn]).unwrap();
        let half = Half::open(&place, &object(10, 7), 4).unwrap();
        for piece in half.missing() {
            let at = half.range(piece);
            half.put(piece, &b"0123456789"[at.start as usize..at.end as usize]).unwrap();
        }
        assert!(half.seal().unwrap().is_some(), "cut at {torn}");
    }
}

#[test]
fn p049_what_reads_back_wrong_is_missing_again() {
    let (_folder, _, half) = begun(7);
    half.put(0, b"0123").unwrap();
    half.put(2, b"89").unwrap();
    half.file.write_all_at(b"x", 5).unwrap();
    assert_eq!(half.seal().unwrap(), None);
    assert_eq!(half.missing(), [1]);
    half.put(1, b"4567").unwrap();
    assert_eq!(half.seal().unwrap().unwrap().xxh3, hex(xxh3_128(b"0123456789")));
}

#[test]
fn p049_an_object_that_has_its_name_but_no_line_yet_is_not_fetched_again() {
    let (_folder, place, half) = begun(7);
    half.put(0, b"0123").unwrap();
    half.put(2, b"89").unwrap();
    let whole = half.seal().unwrap().unwrap();
    let log = fs::read(log_path(&place, "a/b")).unwrap();
    let journal = Journal::default().append(&place, "o").unwrap();
    half.publish(&whole, &journal, false).unwrap();
    assert_eq!(unnoted(&place, &object(10, 7)).unwrap(), None, "it is noted");
    // As if the process had ended behind the rename.
    let said = format!("{{\"whole\":\"{}\"}}\n", whole.xxh3);
    fs::write(log_path(&place, "a/b"), [log.as_slice(), said.as_bytes()].concat()).unwrap();
    assert_eq!(unnoted(&place, &object(10, 7)).unwrap(), Some(whole));
    assert_eq!(unnoted(&place, &object(10, 8)).unwrap(), None);
    fs::write(place.object("a/b"), b"0123456780").unwrap();
    assert_eq!(unnoted(&place, &object(10, 7)).unwrap(), None, "other bytes");
}
