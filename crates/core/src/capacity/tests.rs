//! The example that hides its missing headroom, and what holds for every demand and every kind.

use super::*;
use proptest::prelude::*;

const TB: u64 = 1_000_000_000_000;

/// 100 TB for 16 accelerators that take 200 MB/s each.
fn example() -> Demand {
    Demand {
        dataset_bytes: 100 * TB,
        samples: 1_000_000_000,
        accelerators: 16,
        accelerator_bytes_per_second: 200_000_000,
        epochs: 1,
        headroom: 0.2,
        access: Access::Shards,
    }
}

fn kinds(catalog: &Catalog, drive: &str) -> (Drive, Instance) {
    (catalog.drive(drive).unwrap().clone(), catalog.instance("server-12").unwrap().clone())
}

#[test]
fn p072_sixteen_rotating_drives_give_exactly_what_is_asked_and_that_is_said() {
    let (catalog, demand) = (Catalog::typical(), example());
    let (drive, server) = kinds(&catalog, "hdd-8tb");
    assert_eq!(demand.bytes_per_second(), 3.2e9);
    let sixteen = judge(&demand, &drive, &server, 16);
    assert_eq!((sixteen.bytes_per_second, sixteen.headroom), (3.2e9, 0.0));
    assert_eq!((sixteen.verdict, sixteen.limit), (Verdict::NoHeadroom, DriveLimit::Bandwidth));
    assert_eq!((sixteen.capacity_bytes, sixteen.servers.count), (128e12, 2));
    // One file per sample: 20 MB/s each, enough for 1.6 accelerators.
    assert_eq!(sixteen.random_bytes_per_second / 200e6, 1.6);
    // Without any headroom asked for it is still none.
    let none = judge(&Demand { headroom: 0.0, ..demand }, &drive, &server, 16);
    assert_eq!(none.verdict, Verdict::NoHeadroom);
    let wanted = choose(&demand, &drive, &server);
    assert_eq!((wanted.count, wanted.headroom, wanted.verdict), (20, 0.25, Verdict::Enough));
}

#[test]
fn p072_flash_is_bought_for_its_capacity_and_gives_ninety_times_what_is_asked() {
    let (catalog, demand) = (Catalog::typical(), example());
    let (drive, server) = kinds(&catalog, "nvme-1tb");
    let choice = choose(&demand, &drive, &server);
    assert_eq!((choice.count, choice.limit), (100, DriveLimit::Capacity));
    assert_eq!(choice.bytes_per_second, 300e9);
    assert_eq!(choice.count as f64 * drive.price, 35_000.0);
    assert_eq!((choice.servers.count, choice.servers.limit), (9, ServerLimit::Slots));
    let files = choose(&Demand { access: Access::Files, ..demand }, &drive, &server);
    assert_eq!((files.count, files.bytes_per_second), (100, 300e9));
    let (drive, server) = kinds(&catalog, "hdd-8tb");
    let files = choose(&Demand { access: Access::Files, ..demand }, &drive, &server);
    assert_eq!((files.count, files.limit), (192, DriveLimit::Requests));
}

#[test]
fn drives_that_are_too_few_are_called_so() {
    let (catalog, demand) = (Catalog::typical(), example());
    let (drive, server) = kinds(&catalog, "hdd-8tb");
    assert_eq!(judge(&demand, &drive, &server, 12).verdict, Verdict::TooSmall);
    let slow = judge(&demand, &drive, &server, 13);
    assert_eq!((slow.verdict, slow.headroom < 0.0), (Verdict::TooSlow, true));
    assert!(slow.seconds > demand.epoch_seconds(), "the run takes as long as its drives");
    let (large, _) = kinds(&catalog, "hdd-20tb");
    let wanted = choose(&demand, &large, &server);
    assert_eq!((wanted.count, wanted.limit), (16, DriveLimit::Bandwidth));
}

#[test]
fn hours_of_machines_are_part_of_the_price() {
    let (_, demand) = (Catalog::typical(), Demand { epochs: 90, ..example() });
    let (drive, server) = kinds(&Catalog::typical(), "hdd-8tb");
    let rented = Instance { price: 0.0, price_per_hour: 2.0, ..server };
    let choice = choose(&demand, &drive, &rented);
    // 90 times 100 TB at 3.2 GB/s are 781.25 hours, for two machines.
    assert_eq!(choice.seconds / 3600.0, 781.25);
    assert_eq!(choice.price, 20.0 * 320.0 + 2.0 * 2.0 * 781.25);
}

#[test]
fn a_file_adds_kinds_and_replaces_those_of_the_same_name() {
    let text = "
        [[drive]]
        name = 'hdd-8tb'
        capacity_bytes = '8TB'
        read_bytes_per_second = '260MB'
        reads_per_second = 180
        price = 199.5
        [[link]]
        name = 'mine'
        bytes_per_second = 5_000_000_000
        [[instance]]
        name = 'rented'
        slots = 8
        link_bytes_per_second = '2.5GB'
        price_per_hour = 1.25
    ";
    let catalog = Catalog::typical().with(Catalog::from_toml(text).unwrap());
    assert_eq!(catalog.drives.len(), Catalog::typical().drives.len());
    assert_eq!(catalog.drive("hdd-8tb").unwrap().read_bytes_per_second, 260_000_000);
    assert_eq!(catalog.link("mine").unwrap().bytes_per_second, 5_000_000_000);
    assert_eq!(catalog.instance("rented").unwrap().price, 0.0);
    let error = catalog.drive("floppy").unwrap_err();
    assert!(error.report().contains("hdd-20tb"), "{}", error.report());
}

#[test]
fn a_file_that_makes_no_sense_is_refused() {
    for (text, part) in [
        ("[[drive]]\nname = 'a'", "capacity_bytes"),
        ("[[disk]]\nname = 'a'", "disk"),
        ("[[link]]\nname = 'a'\nbytes_per_second = 0", "bytes_per_second is 0"),
        ("[[link]]\nname = ''\nbytes_per_second = 1", "name"),
        ("[[link]]\nname = 'a'\nbytes_per_second = 'fast'", "fast"),
        ("[[link]]\nname = 'a'\nbytes_per_second = 1\nprice = -1.0", "price"),
        ("[[link]]\nname = 'a'\nbytes_per_second = 1\nspeed = 1", "speed"),
        ("name", "read a catalog"),
    ] {
        let error = Catalog::from_toml(text).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::InvalidConfig);
        assert!(error.message().contains(part), "{part} is missing from {}", error.message());
    }
    let long = " ".repeat(MAX_CATALOG_BYTES + 1);
    assert!(Catalog::from_toml(&long).unwrap_err().message().contains("bytes"));
    let zero = Demand { accelerators: 0, headroom: f64::NAN, samples: u64::MAX, ..example() };
    let text = zero.check().unwrap_err().report();
    assert!(["accelerators", "headroom", "samples"].iter().all(|name| text.contains(name)), "{text}");
}

fn drawn() -> impl Strategy<Value = (Demand, Drive, Instance)> {
    let demand = (1u64..10_000 * TB, 1u64..1_000_000, 1u64..10_000, 1u64..10_000_000_000, 0.0f64..2.0);
    let drive = (1u64..100 * TB, 1u64..100_000_000_000, 1u64..10_000_000, 0.0f64..1e5);
    let server = (1u64..100, 1u64..100_000_000_000, 0.0f64..1e5, 0.0f64..100.0);
    (demand, drive, server, any::<bool>()).prop_map(|(demand, drive, server, files)| {
        let demand = Demand {
            dataset_bytes: demand.0,
            samples: (demand.0 / demand.1).max(1),
            accelerators: demand.2,
            accelerator_bytes_per_second: demand.3,
            epochs: 3,
            headroom: demand.4,
            access: if files { Access::Files } else { Access::Shards },
        };
        let drive = Drive {
            name: "drawn".into(),
            capacity_bytes: drive.0,
            read_bytes_per_second: drive.1,
            reads_per_second: drive.2,
            price: drive.3,
        };
        let server = Instance {
            name: "drawn".into(),
            slots: server.0,
            link_bytes_per_second: server.1,
            price: server.2,
            price_per_hour: server.3,
        };
        (demand, drive, server)
    })
}

proptest! {
    #[test]
    fn p072_what_is_chosen_is_enough_and_one_drive_less_is_not((demand, drive, server) in drawn()) {
        let choice = choose(&demand, &drive, &server);
        prop_assert!(matches!(choice.verdict, Verdict::Enough | Verdict::NoHeadroom), "{choice:?}");
        prop_assert!(choice.headroom >= demand.headroom - 1e-9);
        if choice.count > 1 && choice.count < 1_000_000_000 {
            let less = judge(&demand, &drive, &server, choice.count - 1);
            prop_assert!(less.verdict != Verdict::Enough || less.headroom < demand.headroom, "{less:?}");
        }
    }

    #[test]
    fn p072_faster_and_larger_drives_never_mean_more_of_them((demand, drive, server) in drawn(), factor in 1u64..8) {
        let count = |demand: &Demand, drive: &Drive| choose(demand, drive, &server).count;
        let now = count(&demand, &drive);
        let faster = Drive {
            read_bytes_per_second: drive.read_bytes_per_second * factor,
            reads_per_second: drive.reads_per_second * factor,
            ..drive.clone()
        };
        let larger = Drive { capacity_bytes: drive.capacity_bytes * factor, ..drive.clone() };
        prop_assert!(count(&demand, &faster) <= now && count(&demand, &larger) <= now);
        let more = Demand { accelerators: demand.accelerators * factor, ..demand };
        prop_assert!(count(&more, &drive) >= now);
        let [files, shards] = [Access::Files, Access::Shards].map(|access| Demand { access, ..demand });
        prop_assert!(count(&files, &drive) >= count(&shards, &drive));
    }

    #[test]
    fn more_drives_give_more_headroom_and_never_a_longer_run((demand, drive, server) in drawn(), count in 1u64..10_000) {
        let (few, more) = (judge(&demand, &drive, &server, count), judge(&demand, &drive, &server, count + 1));
        prop_assert!(more.headroom > few.headroom && more.seconds <= few.seconds);
        prop_assert!(few.seconds >= demand.epoch_seconds() * 3.0 * (1.0 - 1e-9));
        prop_assert!(few.servers.count * server.slots >= count);
    }

    #[test]
    fn no_text_makes_a_catalog_panic(text in "[\\[\\]a-z_= '\n0-9.TGB]{0,80}") {
        let _ = Catalog::from_toml(&text);
        let _ = Catalog::from_toml(&format!("[[drive]]\n{text}"));
    }
}
