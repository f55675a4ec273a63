//! A network and a store to tune for, in simulated time: round trip, limits per connection and together, a store
//! that refuses above a number of requests a second, a change in the middle.
//!
//! Streams move parts of files, one after the other; each request waits for the round trip, then its bytes share
//! the line. Parts are cut when a file begins, and what all streams hold is bounded, as in a transfer.
//! A tuner sees only what a transfer sees: bytes on the line, and parts that have arrived.

mod streams_only;
mod with_parts;

use std::collections::VecDeque;

use super::{EPOCH, PartSize, PartTimes, Sample, Streams, Tuner};
use crate::limits::{PARTS_BYTES_MIN, PIECE_BYTES};
use crate::plan::{chosen_part_bytes, part_bytes, parts};

const MB: f64 = 1e6;

/// What a refused request waits before it is tried again, seconds.
const PAUSE: f64 = 0.1;

/// What lies between us and the storage.
#[derive(Clone, Copy, Debug)]
struct Network {
    /// Seconds.
    round_trip: f64,
    /// Bytes per second of one connection, and of all.
    connection: f64,
    total: f64,
    /// Requests per second that are answered; what comes above is refused.
    requests: f64,
}

/// One stream's request.
#[derive(Clone, Copy, Debug)]
struct Request {
    bytes: u64,
    /// Bytes that are to come.
    left: f64,
    /// Seconds until they begin to, or until it is tried again.
    wait: f64,
    is_refused: bool,
    begin: f64,
}

/// What has happened so far.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    /// On the line; a tuner sees what has arrived.
    moved: f64,
    arrived: u64,
    parts: u64,
    refused: u64,
    seconds: f64,
    /// The most that all streams held.
    held_max: u64,
}

/// Streams at work.
struct World {
    network: Network,
    file_bytes: u64,
    memory: u64,
    clock: f64,
    /// Requests that the store answers now without a pause.
    credit: f64,
    noise: u64,
    working: Vec<Request>,
    /// Parts of the file that has begun.
    queue: VecDeque<u64>,
    counted: Counted,
}

impl World {
    fn new(network: Network, file_bytes: u64, memory: u64, seed: u64) -> Self {
        Self {
            network,
            file_bytes,
            memory,
            clock: 0.0,
            credit: (network.requests * PAUSE).max(1.0),
            noise: seed,
            working: Vec::new(),
            queue: VecDeque::new(),
            counted: Counted::default(),
        }
    }

    /// From -1 to 1, the same for the same seed.
    fn noise(&mut self) -> f64 {
        self.noise = next_noise(self.noise);
        between_ones(self.noise)
    }

    /// Goes on for `seconds` with so many streams; files that begin have parts as `cut` says of their size.
    fn run(&mut self, seconds: f64, streams: usize, cut: impl Fn(u64) -> u64) {
        let end = self.clock + seconds;
        while self.clock < end {
            self.begin(streams, &cut);
            let step = self.next_event().min(end - self.clock).max(1e-6);
            self.advance(step);
        }
    }

    fn begin(&mut self, streams: usize, cut: &impl Fn(u64) -> u64) {
        while self.working.len() < streams {
            if self.queue.is_empty() {
                let part = cut(self.file_bytes);
                self.queue = parts(self.file_bytes, part).map(|(_, len)| len).collect();
            }
            let bytes = self.queue[0];
            let held = |bytes: u64| bytes + PIECE_BYTES as u64;
            let now: u64 = self.working.iter().map(|request| held(request.bytes)).sum();
            if now + held(bytes) > self.memory && !self.working.is_empty() {
                return;
            }
            self.counted.held_max = self.counted.held_max.max(now + held(bytes));
            self.queue.pop_front();
            let left = bytes as f64 * (1.0 + 0.02 * self.noise());
            let begin = self.clock;
            let request = Request { bytes, left, wait: 0.0, is_refused: true, begin };
            let asked = self.ask(request);
            self.working.push(asked);
        }
    }

    /// The store answers it, or refuses it for a while.
    fn ask(&mut self, request: Request) -> Request {
        if self.credit >= 1.0 {
            self.credit -= 1.0;
            let wait = self.network.round_trip * (1.0 + 0.05 * self.noise()) + 1e-4;
            return Request { wait, is_refused: false, ..request };
        }
        self.counted.refused += 1;
        let wait = PAUSE * (1.0 + 0.5 * self.noise()) + self.network.round_trip;
        Request { wait, is_refused: true, ..request }
    }

    /// Bytes per second of each request whose bytes flow.
    fn share(&self) -> f64 {
        let flowing = self.working.iter().filter(|request| request.wait <= 0.0).count();
        self.network.connection.min(self.network.total / flowing.max(1) as f64)
    }

    fn next_event(&self) -> f64 {
        let share = self.share();
        let time = |request: &Request| match request.wait > 0.0 {
            true => request.wait,
            false => request.left / share,
        };
        self.working.iter().map(time).fold(f64::MAX, f64::min)
    }

    fn advance(&mut self, step: f64) {
        let share = self.share();
        self.clock += step;
        self.credit = (self.credit + step * self.network.requests)
            .min((self.network.requests * PAUSE).max(1.0));
        let mut requests = std::mem::take(&mut self.working);
        for request in &mut requests {
            if request.wait > 0.0 {
                request.wait -= step;
                if request.wait <= 1e-9 && request.is_refused {
                    *request = self.ask(*request);
                }
                continue;
            }
            request.left -= share * step;
            self.counted.moved += share * step;
            if request.left <= 1.0 {
                self.counted.arrived += request.bytes;
                self.counted.parts += 1;
                self.counted.seconds += self.clock - request.begin;
            }
        }
        requests.retain(|request| request.wait > 0.0 || request.left > 1.0);
        self.working = requests;
    }
}

/// The next state of a linear congruential generator (Knuth's MMIX).
fn next_noise(state: u64) -> u64 {
    state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)
}

/// From -1 to 1, of such a state.
fn between_ones(state: u64) -> f64 {
    (state >> 40) as f64 / (1u64 << 23) as f64 - 1.0
}

/// Runs a tuner for `seconds`; the world goes on where it was.
fn tuned(world: &mut World, tuner: &mut Tuner, seconds: f64) {
    let end = world.clock + seconds;
    while world.clock < end {
        let (begin, before) = (world.clock, world.counted);
        let bytes = tuner.part_bytes();
        loop {
            world.run(EPOCH.as_secs_f64(), tuner.streams(), |file| chosen_part_bytes(file, bytes));
            let ended = world.counted.parts - before.parts + world.counted.refused - before.refused;
            let elapsed = std::time::Duration::from_secs_f64(world.clock - begin + 1e-9);
            if tuner.is_enough(elapsed, ended) {
                break;
            }
        }
        let now = world.counted;
        let answered = now.parts - before.parts;
        let parts = PartTimes {
            count: answered,
            bytes: now.arrived - before.arrived,
            seconds: now.seconds - before.seconds,
            wait: (answered > 0).then_some(world.network.round_trip),
        };
        let is_large = world.file_bytes >= PARTS_BYTES_MIN;
        tuner.observe(Sample {
            seconds: world.clock - begin,
            bytes: (now.moved - before.moved) as u64,
            answered,
            refused: now.refused - before.refused,
            parts: if is_large { parts } else { PartTimes::default() },
        });
    }
}

/// Seconds that are left to find a setting, and those over which it is judged.
const TO_FIND: f64 = 3.0;
const JUDGED: f64 = 8.0;

/// Bytes per second after [`TO_FIND`], over [`JUDGED`], of whatever `run` does for so many seconds.
fn rate_after(world: &mut World, mut run: impl FnMut(&mut World, f64)) -> f64 {
    run(world, TO_FIND);
    let (begin, before) = (world.clock, world.counted.moved);
    run(world, JUDGED);
    (world.counted.moved - before) / (world.clock - begin)
}
