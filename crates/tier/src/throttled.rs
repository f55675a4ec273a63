//! A tier that is as slow as it is told to be: bytes per second, and a pause before each call.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use hayase_layout::ByteCount;

use crate::decorated_tree::decorate_tree;
use crate::{
    Action, Attributes, Capabilities, Key, ListRequest, Location, ObjectMeta, Page, PartSums,
    PieceSink, Precondition, Reader, Tier, TierError, Traffic, Tree, Upload, XattrChanges, Xattrs,
};

/// How slow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    /// Bytes per second of all reads and writes together; `None`: no bound.
    pub bytes_per_second: Option<ByteCount>,
    /// Before each call that asks the tier.
    pub latency: Duration,
}

/// Where time comes from and how it passes, so that tests need not wait.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Now.
    fn now(&self) -> Instant;
    /// Lets time pass.
    fn sleep(&self, time: Duration);
}

/// The machine's own clock.
#[derive(Debug)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant::now()
    }
    fn sleep(&self, time: Duration) {
        thread::sleep(time);
    }
}

/// Bytes may run ahead of the pace by what this time allows, so that small calls are not each delayed.
const BURST: Duration = Duration::from_millis(50);

/// A tier behind a bound on bandwidth, and with latency. Calls wait beside each other, so that latency does
/// not add up over threads; bytes do.
#[derive(Clone, Debug)]
pub struct Throttled<T> {
    tier: T,
    meter: Arc<Meter>,
}

#[derive(Debug)]
struct Meter {
    pace: Pace,
    clock: Arc<dyn Clock>,
    /// When everything that was asked for so far will have been paid.
    paid: Mutex<Option<Instant>>,
}

impl Meter {
    fn call(&self) {
        if !self.pace.latency.is_zero() {
            self.clock.sleep(self.pace.latency);
        }
    }

    fn bytes(&self, count: usize) {
        let Some(rate) = self.pace.bytes_per_second else { return };
        let cost = Duration::from_secs_f64(count as f64 / rate.get().max(1) as f64);
        let now = self.clock.now();
        let wait = {
            let mut paid = self.paid.lock().unwrap_or_else(PoisonError::into_inner);
            let from = paid.map_or(now, |paid| paid.max(now));
            let until = from + cost;
            *paid = Some(until);
            until.saturating_duration_since(now + BURST)
        };
        if !wait.is_zero() {
            self.clock.sleep(wait);
        }
    }
}

impl<T: Tier> Throttled<T> {
    /// Slows `tier` down. Clones share the bandwidth.
    pub fn new(tier: T, pace: Pace) -> Self {
        Self::with_clock(tier, pace, Arc::new(SystemClock))
    }

    /// The same with another clock.
    pub fn with_clock(tier: T, pace: Pace, clock: Arc<dyn Clock>) -> Self {
        Self { tier, meter: Arc::new(Meter { pace, clock, paid: Mutex::new(None) }) }
    }

    fn around<R>(
        &self,
        _: Action,
        _: &Key,
        call: impl FnOnce() -> Result<R, TierError>,
    ) -> Result<R, TierError> {
        self.meter.call();
        call()
    }

    fn reader(&self, inner: Box<dyn Reader>) -> Box<dyn Reader> {
        Box::new(ThrottledReader { inner, meter: Arc::clone(&self.meter) })
    }
}

decorate_tree!(Throttled);

impl<T: Tier> Tier for Throttled<T> {
    /// Not those that would let bytes pass by.
    fn capabilities(&self) -> Capabilities {
        Capabilities { local_descriptor: false, resumes: false, ..self.tier.capabilities() }
    }
    fn describe(&self) -> String {
        let rate = self.meter.pace.bytes_per_second;
        let rate = rate.map(|rate| format!(", {rate} per second")).unwrap_or_default();
        format!("{}{rate}, {:?} per call", self.tier.describe(), self.meter.pace.latency)
    }
    fn endpoint(&self) -> Option<String> {
        self.tier.endpoint()
    }
    fn traffic(&self) -> Traffic {
        self.tier.traffic()
    }
    fn upload_memory(&self, size: u64) -> u64 {
        self.tier.upload_memory(size)
    }
    fn list(&self, request: &ListRequest) -> Result<Page, TierError> {
        self.meter.call();
        self.tier.list(request)
    }
    fn stat(&self, key: &Key) -> Result<ObjectMeta, TierError> {
        self.meter.call();
        self.tier.stat(key)
    }
    fn stat_as_written(&self, key: &Key) -> Result<ObjectMeta, TierError> {
        self.meter.call();
        self.tier.stat_as_written(key)
    }
    fn open(&self, key: &Key) -> Result<Box<dyn Reader>, TierError> {
        self.meter.call();
        self.tier.open(key).map(|inner| self.reader(inner))
    }
    fn open_listed(&self, key: &Key, meta: ObjectMeta) -> Result<Box<dyn Reader>, TierError> {
        self.meter.call();
        self.tier.open_listed(key, meta).map(|inner| self.reader(inner))
    }
    fn put(
        &self,
        key: &Key,
        attributes: Attributes,
        data: &[u8],
        precondition: Precondition,
    ) -> Result<ObjectMeta, TierError> {
        self.meter.call();
        self.meter.bytes(data.len());
        self.tier.put(key, attributes, data, precondition)
    }
    fn begin(&self, key: &Key, attributes: Attributes) -> Result<Box<dyn Upload>, TierError> {
        self.meter.call();
        let inner = self.tier.begin(key, attributes)?;
        Ok(Box::new(ThrottledUpload { inner, meter: Arc::clone(&self.meter) }))
    }
    fn set_attributes(&self, key: &Key, attributes: Attributes) -> Result<(), TierError> {
        self.meter.call();
        self.tier.set_attributes(key, attributes)
    }
    fn user_xattrs(&self, key: &Key) -> Result<Xattrs, TierError> {
        self.meter.call();
        self.tier.user_xattrs(key)
    }
    fn root_xattrs(&self) -> Result<Xattrs, TierError> {
        self.tier.root_xattrs()
    }
    fn change_user_xattrs(&self, key: &Key, changes: &XattrChanges) -> Result<(), TierError> {
        self.meter.call();
        self.tier.change_user_xattrs(key, changes)
    }
    fn delete(&self, key: &Key) -> Result<(), TierError> {
        self.meter.call();
        self.tier.delete(key)
    }
    fn delete_version(&self, key: &Key, identity: u64) -> Result<(), TierError> {
        self.meter.call();
        self.tier.delete_version(key, identity)
    }
    fn rename(&self, from: &Key, to: &Key) -> Result<(), TierError> {
        self.meter.call();
        self.tier.rename(from, to)
    }
    fn rename_version(
        &self,
        from: (&Key, u64),
        to: (&Key, Option<u64>),
    ) -> Result<ObjectMeta, TierError> {
        self.meter.call();
        self.tier.rename_version(from, to)
    }
    fn locations(&self, key: &Key) -> Result<Vec<Location>, TierError> {
        self.meter.call();
        self.tier.locations(key)
    }
    fn tree(&self) -> Option<&dyn Tree> {
        self.tier.tree().map(|_| self as &dyn Tree)
    }
    fn sweep(&self, prefix: &[u8], before: SystemTime) -> Result<usize, TierError> {
        self.meter.call();
        self.tier.sweep(prefix, before)
    }
    fn sweep_own(&self, directory: &[u8]) -> Result<usize, TierError> {
        self.meter.call();
        self.tier.sweep_own(directory)
    }
}

struct ThrottledReader {
    inner: Box<dyn Reader>,
    meter: Arc<Meter>,
}

impl Reader for ThrottledReader {
    fn meta(&self) -> ObjectMeta {
        self.inner.meta()
    }
    fn attributes(&self) -> Result<Attributes, TierError> {
        self.inner.attributes()
    }
    fn is_link(&self) -> Result<bool, TierError> {
        self.inner.is_link()
    }
    fn part_sums(&self) -> Option<PartSums> {
        self.inner.part_sums()
    }
    fn crc32c(&self) -> Result<Option<u32>, TierError> {
        self.inner.crc32c()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, TierError> {
        self.meter.call();
        let count = self.inner.read_at(offset, buffer)?;
        self.meter.bytes(count);
        Ok(count)
    }
    fn read_part(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, TierError> {
        self.meter.call();
        let count = self.inner.read_part(offset, buffer)?;
        self.meter.bytes(count);
        Ok(count)
    }
    fn read_pieces(
        &self,
        offset: u64,
        len: u64,
        buffer: &mut [u8],
        sink: &mut PieceSink<'_>,
    ) -> Result<(), TierError> {
        self.meter.call();
        self.inner.read_pieces(offset, len, buffer, &mut |at, piece| {
            self.meter.bytes(piece.len());
            sink(at, piece)
        })
    }
}

struct ThrottledUpload {
    inner: Box<dyn Upload>,
    meter: Arc<Meter>,
}

impl Upload for ThrottledUpload {
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), TierError> {
        self.meter.bytes(data.len());
        self.inner.write_at(offset, data)
    }
    fn set_user_xattrs(&mut self, xattrs: &Xattrs) -> Result<(), TierError> {
        self.meter.call();
        self.inner.set_user_xattrs(xattrs)
    }
    fn commit(self: Box<Self>, precondition: Precondition) -> Result<ObjectMeta, TierError> {
        self.meter.call();
        self.inner.commit(precondition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Memory;

    /// Time that passes only by sleeping.
    #[derive(Debug)]
    struct Simulated(Instant, Mutex<Duration>);

    impl Clock for Simulated {
        fn now(&self) -> Instant {
            self.0 + *self.1.lock().unwrap()
        }
        fn sleep(&self, time: Duration) {
            *self.1.lock().unwrap() += time;
        }
    }

    fn simulated() -> Arc<Simulated> {
        Arc::new(Simulated(Instant::now(), Mutex::default()))
    }

    #[test]
    fn bytes_take_the_time_that_the_pace_says() {
        let clock = simulated();
        let pace = Pace {
            bytes_per_second: Some(ByteCount(1_000_000)),
            latency: Duration::from_millis(5),
        };
        let tier = Throttled::with_clock(Memory::new(), pace, clock.clone());
        let key = Key::new("k").unwrap();
        for _ in 0..10 {
            tier.put(&key, Attributes::default(), &[1; 100_000], Precondition::Any).unwrap();
        }
        let elapsed = *clock.1.lock().unwrap();
        // A million bytes at a million per second; what may run ahead is 50 ms.
        assert!((950..=1000).contains(&elapsed.as_millis()), "{elapsed:?}");
        let reader = tier.open(&key).unwrap();
        assert_eq!(reader.read_at(0, &mut [0; 200_000]).unwrap(), 100_000);
        let elapsed = *clock.1.lock().unwrap();
        assert!((1050..=1110).contains(&elapsed.as_millis()), "{elapsed:?}");
    }

    #[test]
    fn calls_take_the_latency_and_no_more() {
        let clock = simulated();
        let pace = Pace { bytes_per_second: None, latency: Duration::from_millis(7) };
        let tier = Throttled::with_clock(Memory::new(), pace, clock.clone());
        assert!(tier.stat(&Key::new("k").unwrap()).is_err());
        tier.list(&ListRequest::all("")).unwrap();
        assert_eq!(*clock.1.lock().unwrap(), Duration::from_millis(14));
    }
}
