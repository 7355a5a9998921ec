//! The walker against archives drawn by hand: every variant, every way to be cut, and arbitrary bytes.

use super::*;
use forebay_testkit::tar::{Entry, TarMaker};
use proptest::prelude::*;

fn names(tar: &[u8]) -> Vec<String> {
    walk(tar).unwrap().into_iter().map(|member| member.name).collect()
}

#[test]
fn links_directories_and_devices_are_stepped_over() {
    let tar = TarMaker::new()
        .file("a.jpg", b"one")
        .entry(Entry { name: b"dir/", kind: b'5', ..Entry::default() })
        .entry(Entry { name: b"link.jpg", kind: b'2', ..Entry::default() })
        .entry(Entry { name: b"hard.jpg", kind: b'1', stated_size: Some(99_999), ..Entry::default() })
        .entry(Entry { name: b"null.jpg", kind: b'3', ..Entry::default() })
        .entry(Entry { name: b"contiguous.jpg", kind: b'7', payload: b"two", ..Entry::default() })
        .entry(Entry { name: b"odd.jpg", kind: b'Z', payload: b"vendor data", ..Entry::default() })
        .entry(Entry { name: b"v7dir/", kind: 0, ..Entry::default() })
        .entry(Entry { name: b"v7.jpg", kind: 0, payload: b"three", ..Entry::default() })
        .finish();
    let members = walk(&tar).unwrap();
    let found: Vec<_> = members
        .iter()
        .map(|m| (m.name.as_str(), &tar[m.offset as usize..(m.offset + m.length) as usize]))
        .collect();
    assert_eq!(found, [("a.jpg", &b"one"[..]), ("contiguous.jpg", b"two"), ("v7.jpg", b"three")]);
}

#[test]
fn extension_headers_name_the_next_member_and_global_ones_all_later_members() {
    let long = format!("{}.jpg", "n".repeat(300));
    let tar = TarMaker::new()
        .entry(Entry { name: b"././@LongLink", kind: b'K', payload: b"some/target\0", ..Entry::default() })
        .entry(Entry {
            name: b"././@LongLink",
            kind: b'L',
            payload: format!("{long}\0").as_bytes(),
            ..Entry::default()
        })
        .file("short", b"x")
        .entry(Entry {
            name: b"pax",
            kind: b'x',
            payload: b"16 path=pax.jpg\n9 size=4\n",
            ..Entry::default()
        })
        .entry(Entry { name: b"other", payload: b"abcd", stated_size: Some(0), ..Entry::default() })
        .file("plain.jpg", b"y")
        .entry(Entry { name: b"pax", kind: b'g', payload: b"14 path=g.jpg\n", ..Entry::default() })
        .file("hidden.jpg", b"z")
        .entry(Entry { name: b"pax", kind: b'x', payload: b"8 path=\n", ..Entry::default() })
        .file("own.jpg", b"z")
        .finish();
    assert_eq!(names(&tar), [&long, "pax.jpg", "plain.jpg", "g.jpg", "own.jpg"]);
    assert_eq!(walk(&tar).unwrap()[1].length, 4);
}

#[test]
fn signed_checksums_of_old_writers_are_accepted() {
    let entry = Entry { name: b"caf\xe9.jpg", payload: b"x", signed_sum: true, ..Entry::default() };
    assert_eq!(names(&TarMaker::new().entry(entry).finish()), ["caf\\xe9.jpg"]);
}

#[test]
fn sparse_and_continued_members_are_refused_by_name() {
    for (kind, pax) in [(b'S', None), (b'M', None), (b'0', Some(&b"22 GNU.sparse.major=1\n"[..]))] {
        let mut maker = TarMaker::new();
        if let Some(records) = pax {
            maker = maker.entry(Entry { name: b"pax", kind: b'x', payload: records, ..Entry::default() });
        }
        let tar = maker.entry(Entry { name: b"holes.bin", kind, payload: b"x", ..Entry::default() }).finish();
        let error = walk(&tar).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert_eq!(error.facts().key.as_deref(), Some("holes.bin"));
    }
}

#[test]
fn p018_every_cut_is_found_except_one_exactly_between_members() {
    let tar = TarMaker::new().file("a.jpg", &[1; 700]).file("b.jpg", &[2; 10]).finish();
    let boundaries = [512 + 1024, 512 + 1024 + 1024];
    for cut in 0..tar.len() - 1024 {
        let result = walk(&tar[..cut]);
        if boundaries.contains(&cut) {
            assert_eq!(result.unwrap().len(), 1 + usize::from(cut == boundaries[1]));
        } else {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "cut at {cut}");
            assert!(error.facts().offset.is_some(), "cut at {cut}: {error}");
        }
    }
    let error = walk(&tar[..1000]).unwrap_err();
    assert_eq!(error.facts().key.as_deref(), Some("a.jpg"));
    assert!(error.to_string().contains("488 of 700"), "{error}");
}

#[test]
fn an_archive_behind_the_end_mark_is_reported_not_read() {
    let mut tar = TarMaker::new().file("a.jpg", b"x").finish();
    let end = tar.len() as u64;
    tar.truncate(tar.len() - 512);
    tar.extend(TarMaker::new().file("b.jpg", b"y").finish());
    let mut walker = Walker::new(tar.len() as u64, Limits::default());
    let mut seen = 0;
    while let Some(range) = walker.wants().unwrap() {
        seen += usize::from(walker.give(&tar[range.start as usize..range.end as usize]).unwrap().is_some());
    }
    assert_eq!(seen, 1);
    assert_eq!(walker.end(), WalkEnd { marked: true, trailing: Some(end - 512) });
}

#[test]
fn p079_names_that_climb_or_are_absolute_are_keys_like_any_other() {
    let tar = TarMaker::new()
        .file("../../../etc/passwd.jpg", b"x")
        .file("/home/user/.ssh/id.jpg", b"x")
        .entry(Entry { name: b"a\nb;rm -rf $HOME.jpg", payload: b"x", ..Entry::default() })
        .finish();
    assert_eq!(names(&tar), ["../../../etc/passwd.jpg", "/home/user/.ssh/id.jpg", "a\nb;rm -rf $HOME.jpg"]);
}

#[test]
fn p079_huge_sizes_and_long_names_are_refused_without_allocating_for_them() {
    let huge = Entry { name: b"a.jpg", stated_size: Some(0o777_7777_7777), ..Entry::default() };
    assert_eq!(walk(&TarMaker::new().entry(huge).finish()).unwrap_err().kind(), ErrorKind::Corrupt);
    let beyond = Entry { name: b"a.jpg", stated_size: Some(u64::MAX >> 1), ..Entry::default() };
    assert_eq!(walk(&TarMaker::new().entry(beyond).finish()).unwrap_err().kind(), ErrorKind::Corrupt);
    for kind in [b'L', b'x', b'g', b'K'] {
        let extension = Entry { name: b"x", kind, stated_size: Some(1 << 33), ..Entry::default() };
        assert_eq!(walk(&TarMaker::new().entry(extension).finish()).unwrap_err().kind(), ErrorKind::Corrupt);
    }
    let name = "n".repeat(70_000);
    let record = format!("{} path={name}\n", 70_000 + 12);
    let tar = TarMaker::new()
        .entry(Entry { name: b"pax", kind: b'x', payload: record.as_bytes(), ..Entry::default() })
        .file("a.jpg", b"x")
        .finish();
    assert!(walk(&tar).unwrap_err().to_string().contains("name of 70000 bytes"));
}

#[test]
fn p079_entries_are_counted_against_a_limit() {
    let mut maker = TarMaker::new();
    for _ in 0..10 {
        maker = maker.entry(Entry { name: b"d/", kind: b'5', ..Entry::default() });
    }
    let tar = maker.finish();
    let mut walker = Walker::new(tar.len() as u64, Limits { members: 9, ..Limits::default() });
    let error = loop {
        let range = walker.wants().unwrap().unwrap();
        if let Err(error) = walker.give(&tar[range.start as usize..range.end as usize]) {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::Exhausted);
}

proptest! {
    #[test]
    fn p079_arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..4096)) {
        let _ = walk(&bytes);
    }

    /// Headers with good checksums reach deeper than noise does.
    #[test]
    fn p079_mangled_archives_never_panic(
        edits in proptest::collection::vec((0usize..6144, any::<u8>()), 1..8), kinds in "[07LKxgSMZ15]{6}", resum: bool
    ) {
        let mut maker = TarMaker::new();
        for kind in kinds.bytes() {
            maker = maker.entry(Entry { name: b"a.jpg", kind, payload: b"12 path=b.x\n", ..Entry::default() });
        }
        let mut tar = maker.finish();
        for (at, byte) in edits {
            let at = at % tar.len();
            tar[at] = byte;
            if resum {
                forebay_testkit::tar::fix_sum(&mut tar[at / 512 * 512..][..512]);
            }
        }
        if let Ok(members) = walk(&tar) {
            for member in members {
                prop_assert!(member.offset + member.length <= tar.len() as u64);
            }
        }
    }
}
