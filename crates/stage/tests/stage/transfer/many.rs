//! As many entries as the environment says (`HAYASE_ENTRIES`; some ten thousand without): into packs and out
//! of them, each exactly once, in memory that the limits of transfers bound.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use hayase_layout::ByteCount;
use hayase_tier::{
    Action, Attributes, Capabilities, Entry, EntryKind, Key, ListRequest, ObjectMeta, Page,
    Precondition, Reader, TierError, Upload,
};

use super::*;

const USUAL: u64 = 30_000;

fn entries() -> u64 {
    std::env::var("HAYASE_ENTRIES").ok().and_then(|text| text.parse().ok()).unwrap_or(USUAL)
}

fn name(number: u64) -> String {
    format!("d{:06}/f{number:09}", number / 1000)
}

fn meta(number: u64) -> ObjectMeta {
    let mtime = SystemTime::UNIX_EPOCH + Duration::from_secs(number);
    ObjectMeta { size: ByteCount(0), mode: 0o644, mtime, identity: number }
}

fn refuse<T>(action: Action) -> Result<T, TierError> {
    Err(TierError::Unsupported { action, path: "numbers".into() })
}

/// Empty objects, named by their numbers.
#[derive(Debug)]
struct Numbers(u64);

struct Empty(ObjectMeta);

impl Reader for Empty {
    fn meta(&self) -> ObjectMeta {
        self.0
    }
    fn read_at(&self, _: u64, _: &mut [u8]) -> Result<usize, TierError> {
        Ok(0)
    }
}

impl Tier for Numbers {
    fn capabilities(&self) -> Capabilities {
        Capabilities::CORE
    }
    fn describe(&self) -> String {
        "numbers".into()
    }
    fn list(&self, request: &ListRequest) -> Result<Page, TierError> {
        if !request.prefix.is_empty() {
            return Ok(Page::default());
        }
        let first = request.after.as_deref().map_or(0, |after| number(after) + 1);
        let end = (first + request.bounded_limit() as u64).min(self.0);
        let entry = |number| Entry {
            name: name(number).into_bytes(),
            kind: EntryKind::Object(meta(number)),
        };
        let next = (end < self.0).then(|| name(end - 1).into_bytes());
        Ok(Page { entries: (first..end).map(entry).collect(), next })
    }
    fn stat(&self, key: &Key) -> Result<ObjectMeta, TierError> {
        Ok(meta(number(key.as_bytes())))
    }
    fn open(&self, key: &Key) -> Result<Box<dyn Reader>, TierError> {
        Ok(Box::new(Empty(self.stat(key)?)))
    }
    fn begin(&self, _: &Key, _: Attributes) -> Result<Box<dyn Upload>, TierError> {
        refuse(Action::Begin)
    }
    fn set_attributes(&self, _: &Key, _: Attributes) -> Result<(), TierError> {
        refuse(Action::SetAttributes)
    }
    fn delete(&self, _: &Key) -> Result<(), TierError> {
        refuse(Action::Delete)
    }
    fn sweep(&self, _: &[u8], _: SystemTime) -> Result<usize, TierError> {
        Ok(0)
    }
}

fn number(name: &[u8]) -> u64 {
    std::str::from_utf8(&name[name.len() - 9..]).unwrap().parse().unwrap()
}

/// Counts what is put, and keeps the sum of the numbers.
#[derive(Clone, Debug, Default)]
struct Sink(Arc<(AtomicU64, AtomicU64)>);

impl Tier for Sink {
    fn capabilities(&self) -> Capabilities {
        Capabilities::CORE
    }
    fn describe(&self) -> String {
        "a sink".into()
    }
    fn list(&self, _: &ListRequest) -> Result<Page, TierError> {
        Ok(Page::default())
    }
    fn stat(&self, key: &Key) -> Result<ObjectMeta, TierError> {
        Err(TierError::Missing { action: Action::Stat, path: key.to_string() })
    }
    fn open(&self, _: &Key) -> Result<Box<dyn Reader>, TierError> {
        refuse(Action::Open)
    }
    fn put(
        &self,
        key: &Key,
        attributes: Attributes,
        data: &[u8],
        _: Precondition,
    ) -> Result<ObjectMeta, TierError> {
        let meta = meta(number(key.as_bytes()));
        assert!(data.is_empty() && attributes.mtime == Some(meta.mtime));
        self.0.0.fetch_add(1, Ordering::Relaxed);
        self.0.1.fetch_add(meta.identity, Ordering::Relaxed);
        Ok(meta)
    }
    fn begin(&self, _: &Key, _: Attributes) -> Result<Box<dyn Upload>, TierError> {
        refuse(Action::Begin)
    }
    fn set_attributes(&self, _: &Key, _: Attributes) -> Result<(), TierError> {
        refuse(Action::SetAttributes)
    }
    fn delete(&self, _: &Key) -> Result<(), TierError> {
        refuse(Action::Delete)
    }
    fn sweep(&self, _: &[u8], _: SystemTime) -> Result<usize, TierError> {
        Ok(0)
    }
}

#[test]
fn many_entries_arrive_each_once() {
    let (count, store, sink) = (entries(), store(), Sink::default());
    let from = of(Numbers(count));
    let packing = packs(16 << 20, Compression::None, None);
    let out = copy_all(&from, &store, &packing);
    assert_eq!((out.found, out.copied), (count, count));
    let again = copy_all(&from, &store, &packing);
    assert_eq!((again.copied, again.kept, again.packs), (0, count, 0));
    let back = copy_all(&store, &of(sink.clone()), &Options::default());
    assert_eq!(back.copied, count);
    let (puts, sum) = (sink.0.0.load(Ordering::Relaxed), sink.0.1.load(Ordering::Relaxed));
    assert_eq!((puts, sum), (count, count * (count - 1) / 2));
}
