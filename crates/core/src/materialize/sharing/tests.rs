//! Writers against a store that shows every write to the reads after it, with steps in any order.

use super::*;
use proptest::prelude::*;

const TIMEOUT: u64 = 1_000;

/// A writer between two of its steps.
struct Writer {
    sharing: Sharing,
    at: Step,
    alive: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Step {
    Look,
    Choose,
    Publish(u64),
    LookAgain(u64),
    Confirm(u64),
    Make(u64, u32),
    Over,
}

#[derive(Default)]
struct Place {
    committed: Vec<u64>,
    notices: BTreeMap<u64, Notice>,
}

impl Writer {
    fn new(number: usize, chunks: u64) -> Self {
        let sharing = Sharing::new(10 + number as u64, chunks, TIMEOUT);
        Self { sharing, at: Step::Look, alive: true }
    }

    fn step(&mut self, now: u64, place: &mut Place, makes: u32) {
        let notices: Vec<Notice> = place.notices.values().cloned().collect();
        self.at = match self.at {
            Step::Look => {
                self.sharing.saw_notices(now, &notices);
                Step::Choose
            }
            Step::Choose => {
                self.sharing.saw_committed(place.committed.iter().copied());
                match self.sharing.choose(now) {
                    Choice::Claim(chunk) => Step::Publish(chunk),
                    Choice::Wait => Step::Look,
                    Choice::Done => Step::Over,
                }
            }
            Step::Publish(chunk) => {
                let notice = self.sharing.notice();
                assert_eq!(notice.claims, [chunk]);
                place.notices.insert(notice.writer, notice);
                Step::LookAgain(chunk)
            }
            Step::LookAgain(chunk) => {
                self.sharing.saw_notices(now, &notices);
                Step::Confirm(chunk)
            }
            Step::Confirm(chunk) => {
                self.sharing.saw_committed(place.committed.iter().copied());
                let kept = self.sharing.confirm(now);
                let notice = self.sharing.notice();
                place.notices.insert(notice.writer, notice);
                if kept { Step::Make(chunk, makes) } else { Step::Look }
            }
            Step::Make(chunk, 0) => {
                place.committed.push(chunk);
                self.sharing.commit();
                Step::Look
            }
            Step::Make(chunk, left) => {
                let notice = self.sharing.notice();
                place.notices.insert(notice.writer, notice);
                Step::Make(chunk, left - 1)
            }
            Step::Over => Step::Over,
        };
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn p064_writers_that_live_make_every_chunk_once(
        chunks in 1u64..40, writers in 1usize..6, order in proptest::collection::vec((0usize..6, 0u32..4), 6_000),
    ) {
        let mut place = Place::default();
        let mut all: Vec<Writer> = (0..writers).map(|number| Writer::new(number, chunks)).collect();
        // Nobody is silent for as long as the timeout.
        for (turn, (writer, makes)) in order.iter().enumerate() {
            let now = turn as u64 / 100;
            all[writer % writers].step(now, &mut place, *makes);
        }
        place.committed.sort_unstable();
        let expected: Vec<u64> = (0..chunks).collect();
        prop_assert_eq!(&place.committed, &expected);
    }

    #[test]
    fn p064_whatever_dies_every_chunk_is_made_in_the_end(
        chunks in 1u64..30, deaths in proptest::collection::vec((0usize..4, 0usize..600), 0..3),
        order in proptest::collection::vec(0usize..4, 1_200),
    ) {
        let mut place = Place::default();
        let mut all: Vec<Writer> = (0..4).map(|number| Writer::new(number, chunks)).collect();
        let survivor = (0..4).find(|writer| deaths.iter().all(|(dead, _)| dead != writer)).unwrap_or(3);
        for (turn, writer) in order.iter().enumerate() {
            for (dead, _) in deaths.iter().filter(|(dead, at)| *at <= turn && *dead != survivor) {
                all[*dead].alive = false;
            }
            if all[*writer].alive {
                all[*writer].step(turn as u64, &mut place, 2);
            }
        }
        // The others are silent from now on; the one that is left waits for them to lapse.
        for turn in 0..2_000u64 {
            all[survivor].step(1_200 + turn * 10, &mut place, 0);
        }
        let made: BTreeSet<u64> = place.committed.iter().copied().collect();
        prop_assert_eq!(made, (0..chunks).collect::<BTreeSet<u64>>());
        prop_assert!(all[survivor].at == Step::Over);
    }
}

#[test]
fn a_writer_alone_goes_from_the_first_chunk_to_the_last_and_leaves_out_what_is_there() {
    let mut place = Place { committed: vec![2, 3], ..Place::default() };
    let mut one = Writer::new(0, 6);
    while one.at != Step::Over {
        one.step(0, &mut place, 0);
    }
    assert_eq!(place.committed, [2, 3, 0, 1, 4, 5]);
}

#[test]
fn several_writers_take_stretches_of_their_own() {
    let mut place = Place::default();
    let mut all: Vec<Writer> = (0..4).map(|number| Writer::new(number, 400)).collect();
    let mut seeks = 0;
    for turn in 0..12_000u64 {
        for writer in &mut all {
            let (before, was) = (writer.sharing.last, writer.at);
            writer.step(turn / 100, &mut place, 1);
            if let (Step::Publish(_), Step::LookAgain(chunk)) = (was, writer.at) {
                seeks += u64::from(before.map(|last| last + 1) != Some(chunk));
            }
        }
    }
    assert_eq!(place.committed.len(), 400);
    assert!(seeks < 60, "{seeks} seeks for 400 chunks");
}

#[test]
fn a_lapsed_writer_is_known_by_a_beat_that_stands_still() {
    let mut sharing = Sharing::new(1, 1, TIMEOUT);
    let notice = Notice { writer: 2, beat: 7, claims: vec![0], ..Notice::default() };
    for now in [0, TIMEOUT - 1] {
        sharing.saw_notices(now, std::slice::from_ref(&notice));
        assert_eq!(sharing.choose(now), Choice::Wait);
    }
    let beaten = Notice { beat: 8, ..notice.clone() };
    sharing.saw_notices(TIMEOUT, std::slice::from_ref(&beaten));
    assert_eq!(sharing.choose(TIMEOUT), Choice::Wait);
    sharing.saw_notices(2 * TIMEOUT, std::slice::from_ref(&beaten));
    assert_eq!(sharing.lapsed(2 * TIMEOUT), [2]);
    assert_eq!(sharing.choose(2 * TIMEOUT), Choice::Claim(0));
    sharing.saw_notices(0, std::slice::from_ref(&notice));
    sharing.saw_end(2);
    assert_eq!(sharing.choose(0), Choice::Claim(0), "a process that ended need not be waited for");
}
