//! Services in virtual time, a second a step: someone obeys the machine and starts or stops workers a little later.

use super::*;
use crate::rng::Rng;
use proptest::prelude::*;

/// A service as a scaler sees it.
struct Service {
    /// Samples a second that consumers take when data is free, and that one worker gives.
    demand: f64,
    each: f64,
    /// What the store gives at most.
    link: f64,
    /// How far measurements are off, as a share.
    noise: f64,
    workers: u64,
    /// Seconds until a worker that was asked for is there.
    starts: u64,
    /// Samples that come at once, and those of the next batch that are made already.
    batch: f64,
    begun: f64,
    /// Seconds until a worker that is there gives anything.
    warms: u64,
    /// Workers that were there before the last change, and when that was.
    before: (u64, u64),
    /// Workers that were asked for, and when they are there.
    coming: Option<(u64, u64)>,
    rng: Rng,
    /// Numbers of workers that were there, by second.
    history: Vec<u64>,
}

impl Service {
    fn new(demand: f64, each: f64, workers: u64) -> Self {
        Self {
            demand,
            each,
            link: f64::INFINITY,
            noise: 0.0,
            batch: 0.0,
            begun: 0.0,
            workers,
            starts: 3,
            warms: 0,
            before: (workers, 0),
            coming: None,
            rng: Rng::keyed(7, 0x5CA, 0),
            history: Vec::new(),
        }
    }

    fn measured(&mut self) -> Seen {
        let mut off = |value: f64| value * (1.0 + self.rng.uniform(-self.noise, self.noise));
        // Who is just able to serve makes somebody wait now and then; who has plenty does not.
        let (before, since) = self.before;
        let is_warm = self.history.len() as u64 >= since + self.warms;
        let working = if is_warm { self.workers } else { self.workers.min(before) };
        let able = off((working as f64 * self.each).min(self.link));
        let mut supply = able.min(self.demand);
        if self.batch > 0.0 {
            let made = self.begun + supply;
            self.begun = made % self.batch;
            supply = made - self.begun;
        }
        let waiting = (1.0 - supply / self.demand).max(0.0);
        Seen { workers: self.workers, demand: off(self.demand), supply: off(supply), waiting }
    }

    /// Lets time pass; the last answer.
    fn run(&mut self, scaler: &mut Scaler, seconds: u64) -> Wanted {
        let mut last = Wanted::default();
        for _ in 0..seconds {
            let now = self.history.len() as u64;
            if let Some((workers, at)) = self.coming
                && at <= now
            {
                self.before = (self.workers, now);
                (self.workers, self.coming) = (workers, None);
            }
            let measured = self.measured();
            last = scaler.observe(now * 1000, measured);
            if last.workers == self.workers {
                self.coming = None;
            } else if self.coming.is_none_or(|(workers, _)| workers != last.workers) {
                self.coming = Some((last.workers, now + self.starts));
            }
            self.history.push(self.workers);
        }
        last
    }

    /// How often the number of workers changed in the last so many seconds.
    fn changes(&self, seconds: usize) -> usize {
        let lately = &self.history[self.history.len().saturating_sub(seconds)..];
        lately.windows(2).filter(|pair| pair[0] != pair[1]).count()
    }
}

#[test]
fn p065_a_step_of_10_ms_and_workers_of_25_a_second_settle_at_4_and_go_down_to_2_for_20_ms() {
    for (start, noise, seconds) in
        [(1, 0.0, 60), (1, 0.05, 60), (2, 0.03, 60), (4, 0.0, 60), (9, 0.03, 60), (40, 0.0, 180)]
    {
        let mut scaler = Scaler::new(ScaleSettings::default());
        let mut service = Service { noise, ..Service::new(100.0, 25.0, start) };
        // A batch of one sample every 10 ms. From far too many it halves until it knows what one gives.
        service.run(&mut scaler, seconds);
        assert!((3..=5).contains(&service.workers), "{start} workers, noise {noise}: {:?}", service.history);
        service.demand = 50.0;
        service.run(&mut scaler, 60);
        assert_eq!(service.workers, 2, "{start} workers, noise {noise}: {:?}", service.history);
    }
}

#[test]
fn p065_what_is_measured_while_workers_start_does_not_make_them_seem_slow() {
    for (start, warms) in [(1, 2), (1, 4), (2, 3)] {
        let mut scaler = Scaler::new(ScaleSettings::default());
        let mut service = Service { warms, ..Service::new(90.0, 25.0, start) };
        let wanted = service.run(&mut scaler, 60);
        assert_eq!(service.workers, 4, "{start} workers: {:?}", service.history);
        assert!(wanted.worker_rate > 24.9, "{wanted:?}");
        service.demand = 49.0;
        service.run(&mut scaler, 60);
        assert_eq!(service.workers, 2, "{start} workers: {:?}", service.history);
    }
}

#[test]
fn p065_few_batches_in_a_second_are_enough_to_see_what_workers_give() {
    for (start, warms) in [(1, 0), (1, 3), (2, 1), (3, 0)] {
        let mut scaler = Scaler::new(ScaleSettings::default());
        // Two and a half batches of each worker in a second.
        let mut service = Service { batch: 10.0, warms, noise: 0.02, ..Service::new(97.0, 25.0, start) };
        service.run(&mut scaler, 90);
        assert!((4..=5).contains(&service.workers), "{start} workers: {:?}", service.history);
    }
}

#[test]
fn p065_workers_that_were_slow_once_are_not_taken_for_slow_for_ever() {
    let mut scaler = Scaler::new(ScaleSettings::default());
    // While others have the machine, four are needed for what three give otherwise.
    let mut service = Service::new(70.0, 22.0, 1);
    service.run(&mut scaler, 100);
    assert_eq!(service.workers, 4, "{:?}", service.history);
    (service.each, service.demand) = (25.0, 49.0);
    service.run(&mut scaler, 60);
    assert_eq!(service.workers, 2, "{:?}", service.history);
    // As slow again, two are not enough. It comes back once, and that is all for a long time.
    service.each = 22.0;
    service.run(&mut scaler, 30);
    assert_eq!(service.workers, 3, "{:?}", service.history);
    service.run(&mut scaler, 500);
    assert_eq!(service.changes(500), 0, "{:?}", service.history);
}

#[test]
fn more_workers_are_not_asked_for_when_a_link_gives_no_more() {
    let mut scaler = Scaler::new(ScaleSettings::default());
    let mut service = Service { link: 60.0, ..Service::new(200.0, 25.0, 1) };
    let wanted = service.run(&mut scaler, 300);
    assert_eq!(wanted.why, Why::LinkBound, "{wanted:?}");
    assert!((2..=3).contains(&service.workers), "{:?}", service.history);
    assert_eq!(service.changes(200), 0, "{:?}", service.history);
    // The link is better now: it notices when it tries again.
    service.link = f64::INFINITY;
    service.run(&mut scaler, 900);
    assert!((8..=9).contains(&service.workers), "{:?}", &service.history[300..]);
}

#[test]
fn the_number_stays_within_its_bounds_and_says_so() {
    let settings = ScaleSettings { least_workers: 2, most_workers: 5, ..ScaleSettings::default() };
    let mut scaler = Scaler::new(settings);
    let mut service = Service::new(1000.0, 25.0, 2);
    let wanted = service.run(&mut scaler, 120);
    assert_eq!((wanted.workers, wanted.why), (5, Why::AtMost));
    service.demand = 1.0;
    let wanted = service.run(&mut scaler, 120);
    assert_eq!((wanted.workers, service.workers), (2, 2));
}

#[test]
fn nobody_who_reads_and_nobody_who_works_are_no_reason_for_anything() {
    let mut scaler = Scaler::new(ScaleSettings::default());
    let seen = |workers| Seen { workers, ..Seen::default() };
    let wanted = scaler.observe(0, seen(3));
    assert_eq!((wanted.workers, wanted.why), (3, Why::Idle));
    assert_eq!(scaler.observe(1000, seen(0)).workers, 1, "a service has at least one");
    assert_eq!(scaler.observe(599_000, seen(3)).workers, 3, "a pause");
    assert_eq!(scaler.observe(600_000, seen(3)).workers, 1, "a long one");
}

proptest! {
    #[test]
    fn p065_it_settles_near_what_is_needed_and_stays_there(
        each in 1.0..200.0f64,
        needed in 1.0..30.0f64,
        start in 1..4u64,
        starts in 1..6u64,
        noise in 0.0..0.04f64,
        seed in any::<u64>(),
    ) {
        let mut scaler = Scaler::new(ScaleSettings::default());
        let rng = Rng::keyed(seed, 1, 1);
        let mut service =
            Service { noise, starts, rng, ..Service::new(each * needed, each, start) };
        service.run(&mut scaler, 180);
        let (least, most) = ((needed * 0.9).floor() as u64, (needed * 1.05).ceil() as u64 + 1);
        prop_assert!(
            (least..=most).contains(&service.workers), "{needed} needed: {:?}", service.history
        );
        // Now and then it tries whether fewer would do, and each time waits longer before it tries again.
        service.run(&mut scaler, 600);
        prop_assert!(service.changes(600) <= 4, "{needed} needed: {:?}", &service.history[180..]);
        service.run(&mut scaler, 6000);
        prop_assert!(service.changes(6000) <= 20, "{needed} needed: {} changes", service.changes(6000));
    }

    #[test]
    fn a_link_is_not_answered_with_workers(
        each in 1.0..100.0f64,
        link in 1.0..10.0f64,
        more in 1.5..20.0f64,
        noise in 0.0..0.03f64,
        seed in any::<u64>(),
    ) {
        let mut scaler = Scaler::new(ScaleSettings::default());
        let rng = Rng::keyed(seed, 1, 2);
        let demand = each * link * more;
        let mut service = Service { link: each * link, noise, rng, ..Service::new(demand, each, 1) };
        service.run(&mut scaler, 400);
        // Each step at most doubles, and the last one is taken back.
        let most = service.history.iter().max().copied().unwrap_or_default();
        prop_assert!(most as f64 <= 4.0 * link + 2.0, "{link} are of use: {:?}", service.history);
        prop_assert!(service.workers as f64 <= 2.0 * link + 1.0, "{link} are of use: {:?}", service.history);
        prop_assert!(service.changes(150) == 0, "{:?}", service.history);
    }

    #[test]
    fn whatever_is_measured_the_answer_is_within_its_bounds(
        measured in proptest::collection::vec(
            (0..200u64, 0.0..1e6f64, 0.0..1e6f64, 0.0..1.0f64), 1..60,
        ),
        least in 0..5u64,
        most in 5..50u64,
    ) {
        let settings = ScaleSettings { least_workers: least, most_workers: most, ..ScaleSettings::default() };
        let mut scaler = Scaler::new(settings);
        for (step, (workers, demand, supply, waiting)) in measured.into_iter().enumerate() {
            let wanted = scaler.observe(step as u64 * 1000, Seen { workers, demand, supply, waiting });
            prop_assert!((least..=most).contains(&wanted.workers), "{wanted:?}");
        }
    }
}
