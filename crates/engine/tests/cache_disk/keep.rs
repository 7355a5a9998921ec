//! What is held and read again, within which bytes.

use super::*;
use std::process::Command;

#[test]
fn what_is_kept_is_read_again_at_once_and_after_opening_again() {
    let dir = tempfile::tempdir().unwrap();
    let lengths = [0, 1, 63, 64, 65, 4095, 4096, 5000, 70_000, 131_072];
    let tier = DiskTier::open(dir.path(), LIMIT).unwrap();
    for (n, length) in lengths.iter().enumerate() {
        assert!(keep(&tier, n as u64, *length));
        assert!(keep(&tier, n as u64, *length), "what is held already is held");
        assert_eq!(tier.has(payload(n as u64, 0).id), Some(*length as u64));
    }
    let check = |tier: &DiskTier| {
        for (n, length) in lengths.iter().enumerate() {
            assert_eq!(read(tier, n as u64).unwrap(), made(n as u64, *length), "{length} bytes");
        }
        assert!(read(tier, 99).is_none() && tier.has(PayloadId(1)).is_none());
        assert_eq!(tier.held(0).len(), 4);
        let view = tier.view();
        assert_eq!((view.payloads, view.refused, view.damaged), (10, 0, 0));
        assert_eq!(view.bytes, lengths.iter().sum::<usize>() as u64);
    };
    check(&tier);
    assert!(tier.flush());
    check(&tier);
    drop(tier);
    check(&DiskTier::open(dir.path(), LIMIT).unwrap());
}

#[test]
fn p043_files_never_exceed_the_limit_with_mixed_sizes_and_the_limit_can_change() {
    let dir = tempfile::tempdir().unwrap();
    let tier = DiskTier::open(dir.path(), LIMIT).unwrap();
    let mut kept = 0;
    for n in 0..400 {
        let length = [10, 3000, 20_000, 70_000][n as usize % 4] + n as usize;
        kept += u64::from(keep(&tier, n, length));
        assert!(tier.flush());
        assert!(file_bytes(dir.path()) <= LIMIT);
    }
    let view = tier.view();
    assert!(kept > 40 && kept < 400 && view.payloads == kept && view.refused == 400 - kept);
    for limit in [LIMIT / 2, LIMIT / 3, LIMIT / 10] {
        let before: Vec<u64> = (0..400).filter(|n| tier.has(payload(*n, 0).id).is_some()).collect();
        tier.resize(limit).unwrap();
        assert!(file_bytes(dir.path()) <= limit, "{} at {limit}", file_bytes(dir.path()));
        let after: Vec<u64> = (0..400).filter(|n| tier.has(payload(*n, 0).id).is_some()).collect();
        assert_eq!(after, before[..after.len()], "the highest ranks went");
        assert!(!after.is_empty());
        for n in after {
            let length = [10, 3000, 20_000, 70_000][n as usize % 4] + n as usize;
            assert_eq!(read(&tier, n).unwrap(), made(n, length));
        }
    }
    tier.resize(LIMIT * 2).unwrap();
    assert!(keep(&tier, 1000, 900_000) && tier.flush());
    drop(tier);
    let tier = DiskTier::open(dir.path(), LIMIT / 4).unwrap();
    assert!(file_bytes(dir.path()) <= LIMIT / 4, "a smaller limit holds from the beginning");
    assert!(tier.has(payload(1000, 0).id).is_none() && tier.has(payload(0, 0).id).is_some());
}

#[test]
fn what_is_forgotten_makes_room() {
    let dir = tempfile::tempdir().unwrap();
    let options = DiskOptions { segment_bytes: Some(100_000), ..DiskOptions::new(LIMIT) };
    let tier = DiskTier::open_with(dir.path(), &options).unwrap();
    let mut held: Vec<u64> = (0..200).filter(|n| keep(&tier, *n, 9000)).collect();
    assert!(held.len() < 200);
    // Every third goes: no segment is mostly dead, so room comes back only because it is needed.
    let gone: Vec<u64> = held.iter().copied().filter(|n| n % 3 == 0).collect();
    let ids: Vec<PayloadId> = gone.iter().map(|n| payload(*n, 0).id).collect();
    tier.forget(&ids);
    held.retain(|n| n % 3 != 0);
    assert!(gone.iter().all(|n| read(&tier, *n).is_none()));
    for n in 1000..1000 + gone.len() as u64 {
        assert!(keep(&tier, n, 9000), "{n}");
        held.push(n);
    }
    assert!(!keep(&tier, 5000, 9000));
    assert!(tier.flush() && file_bytes(dir.path()) <= LIMIT);
    drop(tier);
    let tier = DiskTier::open(dir.path(), LIMIT).unwrap();
    assert_eq!(tier.view().payloads, held.len() as u64);
    for n in held {
        assert_eq!(read(&tier, n).unwrap(), made(n, 9000), "{n}");
    }
}

#[test]
fn a_payload_that_could_never_fit_is_refused_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let tier = DiskTier::open(dir.path(), LIMIT).unwrap();
    assert!(!keep(&tier, 1, LIMIT as usize));
    let most = LIMIT - DiskTier::fixed_cost() - DiskTier::cost(0);
    assert!(keep(&tier, 2, most as usize), "what the costs say fits");
    assert!(!keep(&tier, 3, 0));
    assert!(tier.flush() && file_bytes(dir.path()) <= LIMIT);
    assert_eq!((tier.view().payloads, tier.view().refused), (1, 2));
    assert_eq!(read(&tier, 2).unwrap(), made(2, most as usize));
}

#[test]
fn reads_beside_compaction_are_right() {
    let dir = tempfile::tempdir().unwrap();
    let options = DiskOptions { segment_bytes: Some(60_000), ..DiskOptions::new(LIMIT) };
    let tier = DiskTier::open_with(dir.path(), &options).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..2u64 {
            let (tier, done) = (&tier, &done);
            scope.spawn(move || {
                for step in 0.. {
                    let n = (step * 7 + reader * 3) % 120;
                    if let Some(bytes) = read(tier, n) {
                        assert_eq!(bytes, made(n, 7000 + n as usize));
                    }
                    if done.load(std::sync::atomic::Ordering::Relaxed) {
                        return;
                    }
                }
            });
        }
        for round in 0..40u64 {
            for n in 0..120 {
                keep(&tier, n, 7000 + n as usize);
            }
            let gone: Vec<_> = (0..120).filter(|n| (n + round) % 3 != 0).map(|n| payload(n, 0).id).collect();
            tier.forget(&gone);
            if round % 8 == 0 {
                tier.resize(LIMIT / 4).unwrap();
                tier.resize(LIMIT).unwrap();
            }
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!((0..120).all(|n| keep(&tier, n, 7000 + n as usize)));
    assert!((0..120).all(|n| read(&tier, n).unwrap() == made(n, 7000 + n as usize)));
    assert_eq!(tier.view().damaged, 0);
}

/// Keeps payloads until one is refused and looks at what is left.
fn fill_until_full(dir: &Path, tier: DiskTier) {
    let admitted = (0..2000u64)
        .filter(|n| {
            // Its thread may be behind; by now it has met the end of the disk.
            if *n == 1000 {
                tier.flush();
            }
            keep(&tier, *n, 5000 + *n as usize)
        })
        .count();
    assert!(admitted < 2000 && !tier.flush() && tier.detail().full);
    let served = |tier: &DiskTier| {
        let read = (0..2000u64).filter_map(|n| Some((n, read(tier, n)?)));
        read.inspect(|(n, bytes)| assert_eq!(bytes, &made(*n, 5000 + *n as usize))).count() as u64
    };
    let count = served(&tier);
    assert!(count > 3 && count == tier.view().payloads && tier.view().damaged == 0);
    assert_eq!(tier.view().refused, 2000 - count);
    assert!(!keep(&tier, 5000, 1), "not tried again in this run");
    tier.forget(&[payload(0, 0).id]);
    assert!(tier.has(payload(0, 0).id).is_none());
    drop(tier);
    assert!(served(&DiskTier::open(dir, 100 << 20).unwrap()) >= count - 1);
}

#[test]
fn a_full_disk_is_a_smaller_cache() {
    for room in [0, 63, 64, 100_000, 123_456] {
        let dir = tempfile::tempdir().unwrap();
        let options = DiskOptions { full_after: Some(room), ..DiskOptions::new(100 << 20) };
        let tier = DiskTier::open_with(dir.path(), &options).unwrap();
        if room < 5000 {
            for n in 0..20 {
                keep(&tier, n, 5000);
            }
            assert!(!tier.flush());
            assert_eq!((tier.view().payloads, tier.view().refused), (0, 20));
        } else {
            fill_until_full(dir.path(), tier);
        }
    }
}

#[test]
fn a_full_file_system_is_a_smaller_cache() {
    struct Mount(std::path::PathBuf);
    impl Drop for Mount {
        fn drop(&mut self) {
            drop(Command::new("umount").args(["-l"]).arg(&self.0).output());
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("small");
    std::fs::create_dir(&at).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "none"]).arg(&at).output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        // Only the administrator may mount; the test above has the same by another way.
        return;
    }
    let mount = Mount(at.clone());
    fill_until_full(&at, DiskTier::open(&at, 100 << 20).unwrap());
    drop(mount);
}

#[test]
fn names_of_others_in_the_directory_are_respected() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("index.fbi"), "somebody's").unwrap();
    assert_eq!(DiskTier::open(dir.path(), LIMIT).unwrap_err().kind(), ErrorKind::InvalidConfig);
    std::fs::remove_file(at("index.fbi")).unwrap();

    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("precious"), "precious").unwrap();
    std::os::unix::fs::symlink(outside.path().join("precious"), at("segment-00000001.fbs")).unwrap();
    std::fs::write(at("segment-00000002.fbs"), "somebody's").unwrap();
    std::fs::write(at("notes.txt"), "notes").unwrap();
    let tier = DiskTier::open(dir.path(), LIMIT).unwrap();
    assert!((0..100).all(|n| keep(&tier, n, 3000)));
    assert!(tier.flush());
    assert_eq!(DiskTier::clear(dir.path()).unwrap_err().kind(), ErrorKind::Unavailable, "a writer is there");
    drop(tier);
    let cleared = DiskTier::clear(dir.path()).unwrap();
    assert!(cleared.files > 3 && cleared.bytes > 300_000 && cleared.left == 3);
    assert_eq!(std::fs::read(outside.path().join("precious")).unwrap(), b"precious");
    assert_eq!(std::fs::read(at("segment-00000002.fbs")).unwrap(), b"somebody's");
    assert_eq!(std::fs::read(at("notes.txt")).unwrap(), b"notes");
    assert_eq!(DiskTier::clear(dir.path()).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn caches_of_a_newer_release_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("forebay-cache"), "forebay cache\nformat 2\nlimit 9\n").unwrap();
    for opened in [DiskTier::open(dir.path(), LIMIT), DiskTier::look(dir.path())] {
        assert_eq!(opened.unwrap_err().kind(), ErrorKind::Unsupported);
    }
    assert_eq!(DiskTier::clear(dir.path()).unwrap_err().kind(), ErrorKind::Unsupported);
}
