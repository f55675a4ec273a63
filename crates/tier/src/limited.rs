//! A bound on how much is asked of a tier at once: beyond it, callers wait for their turn.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::SystemTime;

use crate::decorated_tree::decorate_tree;
use crate::{
    Action, Attributes, Capabilities, Key, ListRequest, Location, ObjectMeta, Page, PartSums,
    PieceSink, Precondition, Reader, Tier, TierError, Traffic, Tree, Upload, XattrChanges, Xattrs,
};

/// A tier of which at most so many calls run at once, those on its readers and uploads included.
///
/// An open reader or upload that is not being called takes no turn, so holding many of them can not stop
/// others. Turns are given in no order.
#[derive(Clone, Debug)]
pub struct Limited<T> {
    tier: T,
    turns: Arc<Turns>,
}

#[derive(Debug)]
struct Turns {
    max: usize,
    taken: Mutex<usize>,
    freed: Condvar,
}

impl Turns {
    fn take(&self) -> Turn<'_> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        while *taken >= self.max {
            taken = self.freed.wait(taken).unwrap_or_else(PoisonError::into_inner);
        }
        *taken += 1;
        Turn(self)
    }
}

/// Given back when dropped, also by a call that panics.
struct Turn<'a>(&'a Turns);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.taken.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.freed.notify_one();
    }
}

impl<T: Tier> Limited<T> {
    /// At most `calls` at once (at least one). Clones share the bound.
    pub fn new(tier: T, calls: usize) -> Self {
        let (max, taken) = (calls.max(1), Mutex::new(0));
        Self { tier, turns: Arc::new(Turns { max, taken, freed: Condvar::new() }) }
    }

    fn around<R>(
        &self,
        _: Action,
        _: &Key,
        call: impl FnOnce() -> Result<R, TierError>,
    ) -> Result<R, TierError> {
        let _turn = self.turns.take();
        call()
    }

    fn reader(&self, inner: Box<dyn Reader>) -> Box<dyn Reader> {
        Box::new(LimitedReader { inner, turns: Arc::clone(&self.turns) })
    }
}

decorate_tree!(Limited);

impl<T: Tier> Tier for Limited<T> {
    /// Parts come by no way of their own.
    fn capabilities(&self) -> Capabilities {
        Capabilities { resumes: false, ..self.tier.capabilities() }
    }
    fn describe(&self) -> String {
        format!("{}, at most {} calls at once", self.tier.describe(), self.turns.max)
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
        let _turn = self.turns.take();
        self.tier.list(request)
    }
    fn stat(&self, key: &Key) -> Result<ObjectMeta, TierError> {
        let _turn = self.turns.take();
        self.tier.stat(key)
    }
    fn stat_as_written(&self, key: &Key) -> Result<ObjectMeta, TierError> {
        let _turn = self.turns.take();
        self.tier.stat_as_written(key)
    }
    fn open(&self, key: &Key) -> Result<Box<dyn Reader>, TierError> {
        let _turn = self.turns.take();
        self.tier.open(key).map(|inner| self.reader(inner))
    }
    fn open_listed(&self, key: &Key, meta: ObjectMeta) -> Result<Box<dyn Reader>, TierError> {
        let _turn = self.turns.take();
        self.tier.open_listed(key, meta).map(|inner| self.reader(inner))
    }
    fn put(
        &self,
        key: &Key,
        attributes: Attributes,
        data: &[u8],
        precondition: Precondition,
    ) -> Result<ObjectMeta, TierError> {
        let _turn = self.turns.take();
        self.tier.put(key, attributes, data, precondition)
    }
    fn begin(&self, key: &Key, attributes: Attributes) -> Result<Box<dyn Upload>, TierError> {
        let _turn = self.turns.take();
        let inner = Some(self.tier.begin(key, attributes)?);
        Ok(Box::new(LimitedUpload { inner, turns: Arc::clone(&self.turns) }))
    }
    fn set_attributes(&self, key: &Key, attributes: Attributes) -> Result<(), TierError> {
        let _turn = self.turns.take();
        self.tier.set_attributes(key, attributes)
    }
    fn user_xattrs(&self, key: &Key) -> Result<Xattrs, TierError> {
        let _turn = self.turns.take();
        self.tier.user_xattrs(key)
    }
    fn root_xattrs(&self) -> Result<Xattrs, TierError> {
        self.tier.root_xattrs()
    }
    fn change_user_xattrs(&self, key: &Key, changes: &XattrChanges) -> Result<(), TierError> {
        let _turn = self.turns.take();
        self.tier.change_user_xattrs(key, changes)
    }
    fn delete(&self, key: &Key) -> Result<(), TierError> {
        let _turn = self.turns.take();
        self.tier.delete(key)
    }
    fn delete_version(&self, key: &Key, identity: u64) -> Result<(), TierError> {
        let _turn = self.turns.take();
        self.tier.delete_version(key, identity)
    }
    fn rename(&self, from: &Key, to: &Key) -> Result<(), TierError> {
        let _turn = self.turns.take();
        self.tier.rename(from, to)
    }
    fn rename_version(
        &self,
        from: (&Key, u64),
        to: (&Key, Option<u64>),
    ) -> Result<ObjectMeta, TierError> {
        let _turn = self.turns.take();
        self.tier.rename_version(from, to)
    }
    fn locations(&self, key: &Key) -> Result<Vec<Location>, TierError> {
        let _turn = self.turns.take();
        self.tier.locations(key)
    }
    fn tree(&self) -> Option<&dyn Tree> {
        self.tier.tree().map(|_| self as &dyn Tree)
    }
    fn sweep(&self, prefix: &[u8], before: SystemTime) -> Result<usize, TierError> {
        let _turn = self.turns.take();
        self.tier.sweep(prefix, before)
    }
    fn sweep_own(&self, directory: &[u8]) -> Result<usize, TierError> {
        let _turn = self.turns.take();
        self.tier.sweep_own(directory)
    }
}

struct LimitedReader {
    inner: Box<dyn Reader>,
    turns: Arc<Turns>,
}

impl Reader for LimitedReader {
    fn meta(&self) -> ObjectMeta {
        self.inner.meta()
    }
    fn attributes(&self) -> Result<Attributes, TierError> {
        let _turn = self.turns.take();
        self.inner.attributes()
    }
    fn is_link(&self) -> Result<bool, TierError> {
        let _turn = self.turns.take();
        self.inner.is_link()
    }
    fn part_sums(&self) -> Option<PartSums> {
        self.inner.part_sums()
    }
    fn crc32c(&self) -> Result<Option<u32>, TierError> {
        let _turn = self.turns.take();
        self.inner.crc32c()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, TierError> {
        let _turn = self.turns.take();
        self.inner.read_at(offset, buffer)
    }
    fn read_part(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, TierError> {
        let _turn = self.turns.take();
        self.inner.read_part(offset, buffer)
    }
    fn read_pieces(
        &self,
        offset: u64,
        len: u64,
        buffer: &mut [u8],
        sink: &mut PieceSink<'_>,
    ) -> Result<(), TierError> {
        let _turn = self.turns.take();
        self.inner.read_pieces(offset, len, buffer, sink)
    }
    fn local_descriptor(&self) -> Option<Result<std::os::fd::OwnedFd, TierError>> {
        self.inner.local_descriptor()
    }
}

struct LimitedUpload {
    /// `None` once committed.
    inner: Option<Box<dyn Upload>>,
    turns: Arc<Turns>,
}

impl Upload for LimitedUpload {
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), TierError> {
        let _turn = self.turns.take();
        self.inner.as_mut().expect("an upload is committed once").write_at(offset, data)
    }
    fn set_user_xattrs(&mut self, xattrs: &Xattrs) -> Result<(), TierError> {
        let _turn = self.turns.take();
        self.inner.as_mut().expect("an upload is committed once").set_user_xattrs(xattrs)
    }
    fn commit(mut self: Box<Self>, precondition: Precondition) -> Result<ObjectMeta, TierError> {
        let _turn = self.turns.take();
        self.inner.take().expect("an upload is committed once").commit(precondition)
    }
}

impl Drop for LimitedUpload {
    fn drop(&mut self) {
        // Giving up is a call as well.
        if let Some(inner) = self.inner.take() {
            let _turn = self.turns.take();
            drop(inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;
    use crate::Memory;
    use crate::flaky::{Call, Flaky};

    #[test]
    fn never_more_calls_than_allowed_run_at_once() {
        let (inside, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (now, peak) = (Arc::clone(&inside), Arc::clone(&most));
        // A fault plan that fails nothing is a place to look in from.
        let watched = Flaky::new(Memory::new(), move |call| {
            if let Call::Begun(_) = call {
                peak.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                thread::yield_now();
            } else {
                now.fetch_sub(1, Ordering::SeqCst);
            }
            None
        });
        let tier = Limited::new(watched, 3);
        let key = Key::new("k").unwrap();
        tier.put(&key, Attributes::default(), &[1; 100], Precondition::Any).unwrap();
        let readers: Vec<_> = (0..10).map(|_| tier.open(&key).unwrap()).collect();
        thread::scope(|scope| {
            for reader in &readers {
                let (tier, key) = (&tier, &key);
                scope.spawn(move || {
                    for _ in 0..50 {
                        reader.read_at(0, &mut [0; 10]).unwrap();
                        tier.stat(key).unwrap();
                    }
                });
            }
        });
        let most = most.load(Ordering::SeqCst);
        assert!((1..=3).contains(&most), "{most} at once");
        assert_eq!(inside.load(Ordering::SeqCst), 0);
    }
}
