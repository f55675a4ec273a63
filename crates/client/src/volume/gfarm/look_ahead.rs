//! Names of a directory that are looked up one after the other: their attributes come together.
//!
//! A look at one name takes a request to the metadata server, and some hundred names with their attributes take hardly
//! more. So the third look within a second takes the first names of the whole directory, and four times as many when
//! half of them were asked for, or so many others that it costs no more than asking for those did. Where few of them are
//! of use before they are old, it rests, longer each time.
//! What this mount changes is never looked up in what was fetched before.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hayase_layout::InodeId;
use hayase_tier::gfarm_lane::Stat;
use hayase_wire::message::Name;

/// Older attributes are asked for. The kernel keeps what it is told for [`crate::limits::ATTR_TTL`] more.
pub(super) const AGE_MAX: Duration = Duration::from_millis(500);
/// So many looks in one directory within [`LOOKS_WITHIN`] are not the last ones.
const LOOKS_MIN: u32 = 3;
const LOOKS_WITHIN: Duration = Duration::from_secs(1);
/// Names that are fetched at once. The largest take some 6 MiB.
const WINDOW_MIN: usize = 256;
const WINDOW_MAX: usize = 16_384;
const WINDOW_GROWS: usize = 4;
/// Names that are fetched for less than a request for one costs.
const NAMES_PER_LOOK: usize = 16;
/// Directories that are known at once.
const DIRECTORIES_MAX: usize = 32;
/// How long nothing is fetched after little of it was of use.
const REST_MIN: Duration = Duration::from_secs(1);
const REST_MAX: Duration = Duration::from_secs(64);

#[derive(Debug, Default)]
pub(super) struct LookAhead(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    directories: HashMap<InodeId, Directory>,
    /// What is fetched while this goes on may be from before a change.
    changes: u64,
}

#[derive(Debug)]
struct Directory {
    /// Looks that asked, since then.
    looks: u32,
    since: Instant,
    window: usize,
    rest: Duration,
    rests_until: Instant,
    is_fetching: bool,
    fetched: Option<Fetched>,
}

#[derive(Debug)]
struct Fetched {
    at: Instant,
    /// Those that nobody asked for.
    stats: HashMap<Name, Stat>,
    count: usize,
    /// There may be more names.
    is_cut: bool,
    /// Looks at names that were not among them.
    misses: usize,
}

/// What a look does.
#[derive(Debug)]
pub(super) enum Look {
    /// This was fetched.
    Known(Stat),
    /// It asks for the name.
    Ask,
    /// It fetches the directory, and tells [`LookAhead::came`] what came.
    Fetch(Fetching),
}

/// A fetch that has begun.
#[derive(Debug)]
pub(super) struct Fetching {
    at: Instant,
    changes: u64,
    /// Names that it is worth at most.
    pub(super) window: usize,
}

impl Directory {
    fn new(now: Instant) -> Self {
        Self {
            looks: 0,
            since: now,
            window: WINDOW_MIN,
            rest: REST_MIN,
            rests_until: now,
            is_fetching: false,
            fetched: None,
        }
    }

    fn take(&mut self, name: &[u8], now: Instant) -> Option<Stat> {
        let fetched = self.fetched.as_mut()?;
        match now.saturating_duration_since(fetched.at) < AGE_MAX {
            true => fetched.stats.remove(name),
            false => None,
        }
    }

    /// A name was not among what was fetched: whether that is done with.
    fn judge(&mut self, now: Instant) {
        let Some(fetched) = &mut self.fetched else { return };
        if now.saturating_duration_since(fetched.at) >= AGE_MAX {
            self.end(now);
            return;
        }
        fetched.misses += 1;
        let is_wanted = fetched.is_of_use() || fetched.misses * NAMES_PER_LOOK >= fetched.count;
        if is_wanted && fetched.is_cut && self.window < WINDOW_MAX {
            self.window = (self.window * WINDOW_GROWS).min(WINDOW_MAX);
            self.fetched = None;
        }
    }

    /// What was fetched is done with; what comes of it.
    fn end(&mut self, now: Instant) {
        let Some(fetched) = self.fetched.take() else { return };
        if !fetched.is_of_use() {
            self.rests(now);
            return;
        }
        self.rest = REST_MIN;
    }

    fn rests(&mut self, now: Instant) {
        self.window = WINDOW_MIN;
        self.rests_until = now + self.rest;
        self.rest = (self.rest * 2).min(REST_MAX);
    }

    /// Counts a look; whether it is one of many.
    fn is_one_of_many(&mut self, now: Instant) -> bool {
        if now.saturating_duration_since(self.since) > LOOKS_WITHIN {
            (self.since, self.looks) = (now, 0);
        }
        self.looks += 1;
        self.looks >= LOOKS_MIN
    }
}

impl Fetched {
    fn is_of_use(&self) -> bool {
        2 * (self.count - self.stats.len()) >= self.count
    }
}

impl LookAhead {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `name` is looked up in `dir`.
    pub(super) fn look(&self, dir: InodeId, name: &[u8]) -> Look {
        self.look_at(dir, name, Instant::now())
    }

    fn look_at(&self, dir: InodeId, name: &[u8], now: Instant) -> Look {
        let mut table = self.lock();
        let changes = table.changes;
        let Some(directory) = table.directory(dir, now) else { return Look::Ask };
        if let Some(stat) = directory.take(name, now) {
            return Look::Known(stat);
        }
        directory.judge(now);
        let is_one_of_many = directory.is_one_of_many(now);
        let may_fetch =
            directory.fetched.is_none() && !directory.is_fetching && directory.rests_until <= now;
        if !is_one_of_many || !may_fetch {
            return Look::Ask;
        }
        directory.is_fetching = true;
        Look::Fetch(Fetching { at: now, changes, window: directory.window })
    }

    /// The first names of `dir`, or none when it could not be read; the attributes of `name` among them.
    pub(super) fn came(
        &self,
        dir: InodeId,
        name: &[u8],
        fetching: &Fetching,
        names: Vec<(Vec<u8>, Stat)>,
    ) -> Option<Stat> {
        let count = names.len();
        let mut stats: HashMap<Name, Stat> = names.into_iter().collect();
        let found = stats.remove(name);
        let mut table = self.lock();
        let is_true = table.changes == fetching.changes;
        if let Some(directory) = table.directories.get_mut(&dir) {
            directory.is_fetching = false;
            let is_cut = count >= fetching.window;
            match is_true && count > 0 {
                true => {
                    let at = fetching.at;
                    directory.fetched = Some(Fetched { at, stats, count, is_cut, misses: 0 });
                }
                false => directory.rests(fetching.at),
            }
        }
        found
    }

    /// What was asked for in `dir` is not there: who makes names looks for each of them first, and would find little
    /// of use in a listing.
    pub(super) fn missed(&self, dir: InodeId) {
        if let Some(directory) = self.lock().directories.get_mut(&dir) {
            directory.looks = directory.looks.saturating_sub(1);
        }
    }

    /// This mount changed names or attributes, or met something else than it was told.
    pub(super) fn changed(&self) {
        let mut table = self.lock();
        table.changes += 1;
        let now = Instant::now();
        table.directories.values_mut().for_each(|directory| directory.end(now));
    }
}

impl Table {
    fn directory(&mut self, dir: InodeId, now: Instant) -> Option<&mut Directory> {
        if self.directories.len() >= DIRECTORIES_MAX && !self.directories.contains_key(&dir) {
            self.directories.retain(|_, known| {
                let is_idle = now.saturating_duration_since(known.since) > LOOKS_WITHIN;
                known.is_fetching || !is_idle
            });
            if self.directories.len() >= DIRECTORIES_MAX {
                return None;
            }
        }
        Some(self.directories.entry(dir).or_insert_with(|| Directory::new(now)))
    }
}

#[cfg(test)]
mod tests {
    use hayase_tier::gfarm_lane::Kind;

    use super::super::fake;
    use super::*;

    const DIR: InodeId = InodeId(7);

    fn stat(ino: u64) -> Stat {
        fake::stat(ino, Kind::File)
    }

    fn name(number: usize) -> Vec<u8> {
        format!("f{number}").into_bytes()
    }

    /// A directory of `count` names, and what was asked for it.
    struct Asked<'a> {
        ahead: &'a LookAhead,
        count: usize,
        looks: usize,
        windows: Vec<usize>,
    }

    impl<'a> Asked<'a> {
        fn new(ahead: &'a LookAhead, count: usize) -> Self {
            Self { ahead, count, looks: 0, windows: Vec::new() }
        }

        fn look(&mut self, number: usize, now: Instant) {
            match self.ahead.look_at(DIR, &name(number), now) {
                Look::Known(stat) => assert_eq!(stat.ino, number as u64),
                Look::Ask => self.looks += 1,
                Look::Fetch(fetching) => {
                    let most = fetching.window.min(self.count);
                    let names = (0..most).map(|at| (name(at), stat(at as u64))).collect();
                    let found = self.ahead.came(DIR, &name(number), &fetching, names);
                    assert_eq!(
                        found.map(|stat| stat.ino),
                        (number < most).then_some(number as u64)
                    );
                    self.looks += usize::from(found.is_none());
                    self.windows.push(fetching.window);
                }
            }
        }
    }

    #[test]
    fn many_looks_are_few_requests() {
        let (ahead, now) = (LookAhead::default(), Instant::now());
        let mut asked = Asked::new(&ahead, 10_000);
        (0..10_000).for_each(|number| asked.look(number, now));
        assert_eq!((asked.looks, asked.windows), (2, vec![256, 1024, 4096, 16_384]));
    }

    #[test]
    fn names_in_another_order_than_that_of_the_directory() {
        let (ahead, now) = (LookAhead::default(), Instant::now());
        let mut asked = Asked::new(&ahead, 10_000);
        (0..10_000).for_each(|number| asked.look(number * 7919 % 10_000, now));
        assert!(asked.looks < 1000, "{} of 10,000 one by one", asked.looks);
    }

    #[test]
    fn what_was_told_is_asked_for_the_next_time() {
        let (ahead, now) = (LookAhead::default(), Instant::now());
        let mut asked = Asked::new(&ahead, 100);
        (0..100).for_each(|number| asked.look(number, now));
        assert_eq!((asked.looks, asked.windows.len()), (2, 1));
        asked.look(50, now);
        assert_eq!((asked.looks, asked.windows.len()), (3, 1));
    }

    #[test]
    fn what_is_old_is_asked_for() {
        let (ahead, now) = (LookAhead::default(), Instant::now());
        let mut asked = Asked::new(&ahead, 100);
        (0..60).for_each(|number| asked.look(number, now));
        assert_eq!((asked.looks, asked.windows.len()), (2, 1));
        (60..70).for_each(|number| asked.look(number, now + AGE_MAX));
        assert_eq!((asked.looks, asked.windows.len()), (2, 2), "it was of use");
    }

    #[test]
    fn where_it_is_of_no_use_it_rests() {
        let (ahead, mut now) = (LookAhead::default(), Instant::now());
        let mut asked = Asked::new(&ahead, 1000);
        for _ in 0..600 {
            (900..910).for_each(|number| asked.look(number, now));
            now += Duration::from_millis(200);
        }
        assert!(asked.windows.len() <= 24, "{} times in two minutes", asked.windows.len());
    }

    #[test]
    fn what_was_fetched_before_a_change_is_gone() {
        let (ahead, now) = (LookAhead::default(), Instant::now());
        let mut asked = Asked::new(&ahead, 100);
        (0..60).for_each(|number| asked.look(number, now));
        ahead.changed();
        let Look::Fetch(fetching) = ahead.look_at(DIR, b"f11", now) else {
            panic!("it is one of many, and the last fetch was of use")
        };
        assert!(matches!(ahead.look_at(DIR, b"f12", now), Look::Ask), "one fetches");
        ahead.changed();
        let names = vec![(name(11), stat(11)), (name(12), stat(12))];
        assert!(ahead.came(DIR, b"f11", &fetching, names).is_some(), "true during the look");
        assert!(matches!(ahead.look_at(DIR, b"f12", now), Look::Ask), "it rests");
    }

    #[test]
    fn between_changes_little_is_fetched() {
        let (ahead, now) = (LookAhead::default(), Instant::now());
        let mut asked = Asked::new(&ahead, 1000);
        for number in 0..1000 {
            asked.look(number, now);
            ahead.changed();
        }
        assert_eq!(asked.windows.len(), 1);
    }

    #[test]
    fn who_makes_names_fetches_nothing() {
        let (ahead, now) = (LookAhead::default(), Instant::now());
        for number in 0..100 {
            assert!(matches!(ahead.look_at(DIR, &name(number), now), Look::Ask));
            ahead.missed(DIR);
            ahead.changed();
        }
        let mut asked = Asked::new(&ahead, 100);
        (0..100).for_each(|number| asked.look(number, now));
        assert_eq!((asked.looks, asked.windows.len()), (2, 1));
    }

    #[test]
    fn few_directories_are_known() {
        let (ahead, now) = (LookAhead::default(), Instant::now());
        for dir in 0..1000 {
            ahead.look_at(InodeId(dir), b"f", now);
        }
        assert_eq!(ahead.lock().directories.len(), DIRECTORIES_MAX);
        ahead.look_at(InodeId(2000), b"f", now + 2 * LOOKS_WITHIN);
        assert_eq!(ahead.lock().directories.len(), 1);
    }
}
