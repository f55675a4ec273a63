//! Small writes of one file that lie one behind the other, gathered until they are worth a request.
//!
//! Here: which writes are taken, when the home is asked for room, when what was gathered must go; pure.
//! Not here: messages and locks ([`crate::volume::area`]), who may gather at all (the home).
//! Invariant: the window is one run of bytes; whatever is written beside it goes after it.
//! Source: `docs/design/001-coherence.md`, "Small writes"; LLIO (paper 003) 4.2.4.

use std::time::Instant;

use hayase_wire::message::Room;

use crate::limits::{
    GATHER_AFTER, GATHER_AFTER_MAX, GATHER_KEEP, GATHER_MIN, GATHER_WAIT, GATHER_WRITE_MAX,
};

/// What to do with a write, or with the first of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Send it.
    Through,
    /// Ask the home to keep room from there on, or from the end of the file on; then plan again.
    Ask(Option<u64>),
    /// Hand on what was gathered; then plan again.
    HandOn,
    /// So many of its bytes are taken.
    Take(usize),
}

/// Bytes that were taken and not handed on.
#[derive(Debug)]
pub struct Window {
    /// Where the first of them belongs.
    pub start: u64,
    /// They.
    pub bytes: Vec<u8>,
    /// For so many is room at the home.
    room: usize,
    /// The length of the file when the window began, if nothing was under way that may have moved it.
    size: Option<u64>,
    /// When the last was taken.
    pub written: Instant,
    /// They are to be handed on then at the latest.
    pub due: Instant,
    /// When the home first did not take them.
    refused: Option<Instant>,
    writes: u32,
}

impl Window {
    /// Whether all that room was kept for is used.
    pub fn is_full(&self) -> bool {
        self.bytes.len() == self.room
    }

    /// Whether the home did not take them: nothing is added to them any more.
    pub fn is_refused(&self) -> bool {
        self.refused.is_some()
    }

    /// Where the last of them ends.
    pub fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Whether that is the end of the file.
    fn is_at_end(&self) -> bool {
        self.size.is_some_and(|size| self.end() >= size)
    }

    fn was_worth_it(&self) -> bool {
        self.bytes.len() >= self.room / 2
    }
}

/// One file's writes, as its mount sees them.
#[derive(Debug)]
pub struct Gathered {
    window: Option<Window>,
    /// Where the last small write ended.
    next: u64,
    /// How many came one behind the other.
    run: u32,
    /// How many small appends came without another write in between.
    appends: u32,
    /// So many must, before the home is asked: more where gathering brought little.
    needed: u32,
    /// The most bytes of one window; windows of writes with a place end at multiples of it.
    window_max: usize,
}

impl Gathered {
    /// Nothing was written yet. Windows of at most `window_max` bytes.
    pub fn new(window_max: usize) -> Self {
        Self { window: None, next: 0, run: 0, appends: 0, needed: GATHER_AFTER, window_max }
    }

    /// What to do with `len` bytes at `offset`.
    pub fn plan(&mut self, offset: u64, len: usize) -> Plan {
        if let Some(window) = &self.window {
            return Self::plan_beside(window, offset, len);
        }
        self.appends = 0;
        let is_small = len <= GATHER_WRITE_MAX;
        let follows = is_small && offset == self.next && self.run > 0;
        self.run = if follows { self.run.saturating_add(1) } else { u32::from(is_small) };
        self.next = offset.saturating_add(len as u64);
        let room = self.window_max - (offset % self.window_max as u64) as usize;
        match self.run > self.needed && room >= GATHER_MIN {
            true => Plan::Ask(Some(offset)),
            false => Plan::Through,
        }
    }

    /// What to do with `len` bytes that belong at the end of the file, all of them together.
    pub fn plan_append(&mut self, len: usize) -> Plan {
        let is_small = len <= GATHER_WRITE_MAX;
        if let Some(window) = &self.window {
            let fits = is_small && window.bytes.len() + len <= window.room;
            let fits = fits && !window.is_refused();
            return if fits && window.is_at_end() { Plan::Take(len) } else { Plan::HandOn };
        }
        self.run = 0;
        self.appends = if is_small { self.appends.saturating_add(1) } else { 0 };
        if self.appends > self.needed { Plan::Ask(None) } else { Plan::Through }
    }

    /// Taken is what begins in the window or at its end, as far as there is room; what it covers is replaced.
    fn plan_beside(window: &Window, offset: u64, len: usize) -> Plan {
        let begins = offset.checked_sub(window.start).filter(|at| *at <= window.bytes.len() as u64);
        match begins {
            _ if window.is_refused() => Plan::HandOn,
            Some(at) if len <= GATHER_WRITE_MAX && (at as usize) < window.room => {
                Plan::Take(len.min(window.room - at as usize))
            }
            _ => Plan::HandOn,
        }
    }

    /// The home keeps this room. `knows_end`: nothing is under way that may move the end of the file. `bytes`: memory,
    /// empty.
    pub fn begin(&mut self, room: Room, knows_end: bool, bytes: Vec<u8>, now: Instant) {
        let Room { offset, len, size } = room;
        let (room, size) = (len as usize, knows_end.then_some(size));
        self.window = Some(Window {
            start: offset,
            bytes,
            room,
            size,
            written: now,
            due: now + GATHER_WAIT,
            refused: None,
            writes: 0,
        });
    }

    /// The home did not; the next writes are sent.
    pub fn refused(&mut self) {
        self.brought_little();
    }

    /// Takes `data`, of which [`Gathered::plan`] has said that it fits.
    pub fn take(&mut self, offset: u64, data: &[u8], now: Instant) {
        let Some(window) = &mut self.window else {
            return debug_assert!(false, "there is a window");
        };
        let at = (offset - window.start) as usize;
        let covered = data.len().min(window.bytes.len() - at);
        window.bytes[at..at + covered].copy_from_slice(&data[..covered]);
        window.bytes.extend_from_slice(&data[covered..]);
        window.written = now;
        window.writes += 1;
        self.next = window.start + window.bytes.len() as u64;
    }

    /// The home did not take what was gathered. It is tried again a little later, or by who next wants it handed on;
    /// false when that has gone on for long enough.
    pub fn put_off(&mut self, now: Instant) -> bool {
        let Some(window) = &mut self.window else { return false };
        let first = *window.refused.get_or_insert(now);
        window.due = now + GATHER_WAIT;
        now.saturating_duration_since(first) < GATHER_KEEP
    }

    /// What was gathered was handed on, or is lost. What follows it is gathered again, unless it was too little to be
    /// worth it.
    pub fn end(&mut self) -> Option<Window> {
        let window = self.window.take()?;
        if window.was_worth_it() {
            // The next small write asks at once.
            (self.needed, self.run, self.appends) = (GATHER_AFTER, GATHER_AFTER, GATHER_AFTER);
        } else if window.writes < GATHER_AFTER {
            self.brought_little();
        } else {
            (self.needed, self.run, self.appends) = (GATHER_AFTER, 0, 0);
        }
        Some(window)
    }

    fn brought_little(&mut self) {
        self.needed = (2 * self.needed).min(GATHER_AFTER_MAX);
        (self.run, self.appends) = (0, 0);
    }

    /// What is gathered now.
    pub fn window(&self) -> Option<&Window> {
        self.window.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const WINDOW: usize = 1 << 20;

    /// A file whose home says yes or no to each question.
    struct File {
        gathered: Gathered,
        bytes: Vec<u8>,
        asked: u32,
        sent: u32,
    }

    impl File {
        fn new() -> Self {
            Self { gathered: Gathered::new(WINDOW), bytes: Vec::new(), asked: 0, sent: 0 }
        }

        fn put(&mut self, offset: u64, data: &[u8]) {
            let (start, end) = (offset as usize, offset as usize + data.len());
            self.bytes.resize(self.bytes.len().max(end), 0);
            self.bytes[start..end].copy_from_slice(data);
            self.sent += 1;
        }

        fn hand_on(&mut self) {
            if let Some(window) = self.gathered.end() {
                assert!(window.bytes.len() <= window.room && !window.bytes.is_empty());
                self.put(window.start, &window.bytes);
            }
        }

        /// As the home would; `None` at the end.
        fn ask(&mut self, at: Option<u64>, agrees: bool) {
            self.asked += 1;
            let size = self.bytes.len() as u64;
            let offset = at.unwrap_or(size);
            let len = WINDOW as u64 - at.map_or(0, |at| at % WINDOW as u64);
            let room = Room { offset, len: len as u32, size };
            match agrees {
                true => self.gathered.begin(room, true, Vec::new(), Instant::now()),
                false => self.gathered.refused(),
            }
        }

        fn append(&mut self, data: &[u8], agrees: bool) {
            loop {
                match self.gathered.plan_append(data.len()) {
                    Plan::Through => return self.put(self.bytes.len() as u64, data),
                    Plan::HandOn => self.hand_on(),
                    Plan::Ask(at) => self.ask(at, agrees),
                    Plan::Take(len) => {
                        assert_eq!(len, data.len(), "an append stays together");
                        let end = self.gathered.window().expect("it takes them").end();
                        return self.gathered.take(end, data, Instant::now());
                    }
                }
            }
        }

        fn write(&mut self, mut offset: u64, mut data: &[u8], agrees: bool) {
            while !data.is_empty() {
                match self.gathered.plan(offset, data.len()) {
                    Plan::Through => {
                        self.put(offset, data);
                        data = &[];
                    }
                    Plan::HandOn => self.hand_on(),
                    Plan::Ask(at) => self.ask(at, agrees),
                    Plan::Take(len) => {
                        self.gathered.take(offset, &data[..len], Instant::now());
                        (offset, data) = (offset + len as u64, &data[len..]);
                        if self.gathered.window().is_some_and(Window::is_full) {
                            self.hand_on();
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn small_writes_one_behind_the_other_become_one_request_for_each_window() {
        let mut file = File::new();
        for at in 0..3 * 256 {
            file.write(at * 4096, &[7; 4096], true);
        }
        assert_eq!(file.asked, 3);
        assert_eq!(file.sent, GATHER_AFTER + 3);
        assert!(file.gathered.window().is_none(), "the last window is full");
        assert_eq!(file.bytes, vec![7; 3 * WINDOW]);
    }

    #[test]
    fn appends_become_few_requests_and_stay_together() {
        let mut file = File::new();
        (0..3000).for_each(|at| file.append(&[at as u8; 1000], true));
        file.hand_on();
        assert_eq!(file.asked, 3);
        assert_eq!(file.sent, GATHER_AFTER + 3);
        let records = file.bytes.chunks(1000).enumerate();
        assert!(records.into_iter().all(|(at, record)| record == [at as u8; 1000]));
    }

    #[test]
    fn large_writes_and_scattered_ones_are_never_gathered() {
        let mut file = File::new();
        for at in 0..100 {
            file.write(at * (GATHER_WRITE_MAX as u64 + 1), &[1; GATHER_WRITE_MAX + 1], true);
            file.write((at * 7919) % 100 * 4096, &[2; 512], true);
        }
        assert_eq!(file.asked, 0);
    }

    #[test]
    fn what_the_home_does_not_take_is_kept_as_it_is_for_a_while() {
        let mut file = File::new();
        (0..10).for_each(|at| file.write(at * 100, &[3; 100], true));
        let (first, kept) = (Instant::now(), file.gathered.window().expect("some").bytes.clone());
        for seconds in [0, 1, 29] {
            let now = first + Duration::from_secs(seconds);
            assert!(file.gathered.put_off(now), "{seconds} s");
            assert_eq!(file.gathered.plan(1000, 100), Plan::HandOn);
            assert_eq!(file.gathered.plan(0, 100), Plan::HandOn);
            assert_eq!(file.gathered.plan_append(100), Plan::HandOn);
            let window = file.gathered.window().expect("it is kept");
            assert_eq!((&window.bytes, window.due), (&kept, now + GATHER_WAIT));
        }
        assert!(!file.gathered.put_off(first + GATHER_KEEP));
        assert!(file.gathered.end().is_some() && !file.gathered.put_off(first));
    }

    #[test]
    fn who_is_refused_or_interrupted_asks_less_and_less() {
        for agrees in [false, true] {
            let mut file = File::new();
            for at in 0..1000 {
                file.write(at * 100, &[3; 100], agrees);
                file.hand_on(); // Somebody looks after each write.
            }
            assert!((5..12).contains(&file.asked), "{agrees}: asked {} times", file.asked);
        }
    }

    proptest! {
        /// Beside a plain file.
        #[test]
        fn the_bytes_are_those_that_were_written(
            steps in prop::collection::vec((0..8_u8, any::<u16>(), 1..200_000_usize, any::<u8>(), any::<bool>()), 1..200),
        ) {
            let (mut file, mut plain, mut next) = (File::new(), Vec::<u8>::new(), 0_u64);
            for (kind, place, len, byte, agrees) in steps {
                let (offset, len) = match kind {
                    6 | 7 => {
                        let record = vec![byte; len % 3000 + 1];
                        plain.extend_from_slice(&record);
                        file.append(&record, agrees);
                        continue;
                    }
                    0 => (u64::from(place) * 11, len),
                    1 => (next.saturating_sub(u64::from(place) % 5000), len % 5000 + 1),
                    5 => {
                        file.hand_on();
                        continue;
                    }
                    _ => (next, len % 9000 + 1),
                };
                let data = vec![byte; len];
                next = offset + len as u64;
                plain.resize(plain.len().max(next as usize), 0);
                plain[offset as usize..next as usize].copy_from_slice(&data);
                file.write(offset, &data, agrees);
            }
            file.hand_on();
            prop_assert!(file.bytes == plain);
        }
    }
}
