//! The number of streams alone, with units of one size (small files, packs): rates by formula, with noise.

use super::{MB, between_ones, next_noise};
use crate::limits::STREAMS_AUTO_MAX;
use crate::tuner::streams::StreamTuner;
use crate::tuner::{EPOCH, Sample};

/// Most streams of the sweep and of the tuner.
const STREAMS_MAX: usize = 256;

/// What lies between us and the storage.
#[derive(Clone, Copy, Debug)]
struct Network {
    round_trip: f64,
    /// Bytes per second of one connection, and of all.
    connection: f64,
    total: f64,
    /// Requests per second that are answered; what comes above is refused.
    requests: f64,
    /// Bytes of one request.
    unit: f64,
}

impl Network {
    /// Bytes, answers and refusals per second of so many streams.
    fn rates(self, streams: usize) -> (f64, f64, f64) {
        let n = streams as f64;
        let share = self.connection.min(self.total / n);
        let asked = n / (self.round_trip + self.unit / share + 1e-4);
        let refused = (asked - self.requests).max(0.0);
        // A refused request costs the store something too: the more, the less it answers.
        let answered =
            (asked.min(self.requests) - 0.3 * refused).max(self.requests.min(asked) / 2.0);
        (answered * self.unit, answered, refused)
    }

    /// Streams that ask for as much as is answered.
    fn streams_that_ask(self) -> f64 {
        self.requests * (self.round_trip + self.unit / self.connection)
    }

    fn best(self) -> f64 {
        let rates = (1..=STREAMS_MAX).map(|streams| self.rates(streams).0);
        rates.fold(0.0, f64::max)
    }
}

/// Runs a tuner through phases of a network; the part of the best of a sweep that it reaches in each
/// phase, from 3 s after its begin on, and the refused part of all requests there.
fn run(phases: &[(Network, f64)], seed: u64) -> Vec<(f64, f64)> {
    let mut tuner = StreamTuner::new(4, STREAMS_MAX);
    let mut noise = seed;
    let mut results = Vec::new();
    for &(network, seconds) in phases {
        let (mut clock, mut bytes, mut measured) = (0.0, 0.0, 0.0);
        let (mut answered, mut refused) = (0.0, 0.0);
        while clock < seconds {
            let (rate, answers, refusals) = network.rates(tuner.streams());
            let mut epoch = EPOCH.as_secs_f64();
            while 2.0 * (answers * epoch).floor() < tuner.streams() as f64 && epoch < 1.0 {
                epoch += 0.05;
            }
            // Two per cent of noise, the same for the same seed.
            noise = next_noise(noise);
            let factor = 1.0 + between_ones(noise) * 0.02;
            if clock >= 3.0 {
                bytes += rate * epoch;
                measured += epoch;
                answered += answers * epoch;
                refused += refusals * epoch;
            }
            clock += epoch;
            tuner.observe(Sample {
                seconds: epoch,
                bytes: (rate * epoch * factor) as u64,
                answered: (answers * epoch).round() as u64,
                refused: (refusals * epoch).round() as u64,
                ..Sample::default()
            });
        }
        let part = bytes / measured / network.best();
        results.push((part, refused / (answered + refused).max(1.0)));
    }
    results
}

fn network(round_trip_ms: f64, unit_mb: f64) -> Network {
    Network {
        round_trip: round_trip_ms / 1e3,
        connection: 90.0 * MB,
        total: 1000.0 * MB,
        requests: 1e9,
        unit: unit_mb * MB,
    }
}

#[track_caller]
fn check(name: &str, phases: &[Network]) {
    for seed in 1..=20 {
        let timed: Vec<_> = phases.iter().map(|&network| (network, 12.0)).collect();
        for (phase, (part, refused)) in run(&timed, seed).into_iter().enumerate() {
            assert!(part >= 0.95, "{name}, seed {seed}, phase {phase}: {part:.3} of the best");
            // Of few streams one may be refused: less than one can not be taken back.
            let refused_max = if phases[phase].streams_that_ask() < 8.0 { 0.17 } else { 0.1 };
            assert!(
                refused <= refused_max,
                "{name}, seed {seed}, phase {phase}: {refused:.3} refused"
            );
        }
    }
}

#[test]
fn it_comes_close_to_the_best_of_a_sweep() {
    for round_trip in [0.0, 5.0, 20.0, 80.0] {
        for unit in [0.016, 1.0, 8.0, 16.0] {
            check(&format!("{round_trip} ms, {unit} MB"), &[network(round_trip, unit)]);
        }
    }
}

#[test]
fn a_store_that_refuses_is_not_pressed() {
    // One stream asks 32 times a second: fewer than that no number of streams can do.
    for requests in [100.0, 300.0, 1000.0, 3500.0] {
        let limited = Network { requests, ..network(20.0, 1.0) };
        check(&format!("{requests} requests a second"), &[limited]);
    }
}

#[test]
fn a_change_is_followed() {
    let fast = network(5.0, 8.0);
    let far = Network { round_trip: 0.08, ..fast };
    let narrow = Network { total: 200.0 * MB, ..fast };
    let refusing = Network { requests: 60.0, ..fast };
    check("farther and back", &[fast, far, fast]);
    check("narrower and back", &[fast, narrow, fast]);
    check("refusing and not", &[fast, refusing, fast]);
}

#[test]
fn no_more_streams_than_are_of_use() {
    let mut tuner = StreamTuner::new(4, STREAMS_MAX);
    let network = network(0.0, 16.0);
    // Twelve connections of 90 MB/s fill 1000 MB/s.
    for _ in 0..400 {
        let (rate, answers, _) = network.rates(tuner.streams());
        let sample = Sample {
            seconds: 0.2,
            bytes: (rate * 0.2) as u64,
            answered: answers as u64,
            ..Sample::default()
        };
        tuner.observe(sample);
    }
    assert!((11..=18).contains(&tuner.streams()), "{}", tuner.streams());
}

#[test]
fn a_doubling_that_brings_nothing_is_taken_back() {
    let mut tuner = StreamTuner::new(4, STREAMS_MAX);
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push(tuner.streams());
        let bytes = tuner.streams().min(8) as u64 * 1_000_000;
        tuner.observe(Sample { seconds: 0.2, bytes, answered: 20, ..Sample::default() });
    }
    assert_eq!(seen, [4, 8, 16, 8]);
}

/// Mean rate of [`SETTLED`] epochs, after [`FOUND_BY`] of them, where more than `knee` streams bring nothing more; a
/// stream brings one.
fn settled(start: usize, knee: usize, noise_max: f64, seed: u64) -> f64 {
    const FOUND_BY: usize = 30;
    const SETTLED: usize = 60;
    let mut tuner = StreamTuner::new(start, STREAMS_AUTO_MAX);
    let (mut noise, mut sum) = (seed, 0.0);
    for epoch in 0..FOUND_BY + SETTLED {
        noise = next_noise(noise);
        let rate = tuner.streams().min(knee) as f64;
        if epoch >= FOUND_BY {
            sum += rate;
        }
        let bytes = rate * 1e6 * (1.0 + between_ones(noise) * noise_max);
        tuner.observe(Sample {
            seconds: 0.2,
            bytes: bytes as u64,
            answered: 40,
            ..Sample::default()
        });
    }
    sum / SETTLED as f64
}

#[test]
fn every_start_finds_every_knee() {
    for noise_max in [0.0, 0.01] {
        for start in 5..STREAMS_AUTO_MAX {
            for knee in 4..=STREAMS_AUTO_MAX {
                let part = settled(start, knee, noise_max, 7) / knee as f64;
                assert!(
                    part >= 0.95,
                    "from {start} streams to {knee}, noise of {noise_max}: {part:.3} of the best"
                );
            }
        }
    }
}

#[test]
fn an_idle_epoch_says_nothing() {
    let mut tuner = StreamTuner::new(4, STREAMS_MAX);
    let mut epoch = |bytes: u64, answered| {
        tuner.observe(Sample { seconds: 0.2, bytes, answered, ..Sample::default() });
        tuner.streams()
    };
    // Eight are enough; the tuner rests.
    let mut streams = 4;
    for _ in 0..4 {
        streams = epoch(streams.min(8) as u64 * 1_000_000, 20);
    }
    assert_eq!(streams, 8);
    assert_eq!(epoch(0, 0), 8);
    assert_eq!(epoch(8_000_000, 20), 8);
}
