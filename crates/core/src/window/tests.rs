use super::simulate::{Demand, Link, Simulation};
use super::*;

const GBIT: f64 = 1e9 / 8.0;
const ANY: WindowLimits = WindowLimits { max_bytes: u64::MAX, max_requests: 1 << 20, fixed_requests: None };

#[test]
fn explore() {
    for (rate, delay, size) in [
        (25.0, 0.1, 115e3),
        (1.0, 0.1, 115e3),
        (1.0, 0.005, 115e3),
        (0.01, 0.005, 115e3),
        (0.01, 0.3, 4096.0),
        (0.01, 0.005, 16e6),
        (25.0, 0.3, 16e6),
        (1.0, 0.1, 16e6),
        (10.0, 0.005, 115e3),
    ] {
        for variant in 0..5 {
            let mut link = Link::new(rate * GBIT, delay);
            match variant {
                1 => link.jitter = delay,
                2 => link.stall = (0.01, 1.0),
                3 => link.connection_rate = 0.02 * link.rate,
                4 => link.tick = 0.002,
                _ => {}
            }
            let pipe = link.rate * link.alone(size);
            let mut sim = Simulation::new(link.clone(), ANY, Demand::of(size));
            let t0 = std::time::Instant::now();
            let mut line = String::new();
            let end = (3.0_f64).max(20.0 * link.alone(size));
            for k in 1..=6 {
                let u = sim.run(end * f64::from(k) / 3.0) / link.achievable(size, 1 << 20);
                line += &format!(" {:.2}/{:.1}", u, sim.peak as f64 / pipe);
                sim.peak = 0;
            }
            let e = sim.window.estimate();
            println!(
                "{rate} Gb {delay} s {size} v{variant}: {line} est {:.2} {:.2} drains {} n {} pipe {:.1} {:?}",
                e.bytes_per_second / link.rate,
                e.delay.as_secs_f64() / link.alone(size),
                sim.window.drains,
                sim.answered,
                pipe / size,
                t0.elapsed()
            );
        }
    }
}
