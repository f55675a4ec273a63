//! A tier that fails as it is told to: for tests of everybody who uses one.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use crate::decorated_tree::decorate_tree;
use crate::{
    Action, Attributes, Capabilities, Key, ListRequest, Location, ObjectMeta, Page, PartPieces,
    PartSums, PartsUpload, PieceSink, Precondition, Reader, Tier, TierError, Traffic, Tree, Upload,
    UploadOf, XattrChanges, Xattrs,
};

/// A moment at which a fault may be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Before the tier below is asked.
    Begun(Action),
    /// After it did what was asked: a fault now is an answer that got lost.
    Done(Action),
}

/// What to fail with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The tier does not answer now.
    Unavailable,
    /// EIO.
    Io,
    /// No space.
    Full,
    /// No quota.
    Quota,
    /// EACCES.
    Denied,
}

impl Fault {
    fn error(self, action: Action, path: String) -> TierError {
        match self {
            Self::Unavailable => {
                let source = io::Error::new(io::ErrorKind::TimedOut, "a fault that was asked for");
                TierError::Unavailable { action, path, source }
            }
            Self::Io => TierError::Io {
                action,
                path,
                source: io::Error::other("a fault that was asked for"),
            },
            Self::Full => TierError::Full { action, path },
            Self::Quota => TierError::Quota { action, path },
            Self::Denied => {
                let source = io::Error::from(io::ErrorKind::PermissionDenied);
                TierError::Denied { action, path, source }
            }
        }
    }
}

type Plan = dyn Fn(Call) -> Option<Fault> + Send + Sync;

/// A tier whose calls fail where the plan says so. Clones share the plan.
///
/// With a plan that never fails it passes the suite; with one that fails, the contract still holds: an
/// error before the call leaves all as it was, and one after a commit is `Unavailable` or `Io`, which
/// says that either version may be there (see [`crate::tier`]).
#[derive(Clone)]
pub struct Flaky<T> {
    tier: T,
    plan: Arc<Plan>,
}

impl<T: fmt::Debug> fmt::Debug for Flaky<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flaky").field("tier", &self.tier).finish_non_exhaustive()
    }
}

impl<T: Tier> Flaky<T> {
    /// Asks `plan` before and after each call; it may count, draw lots from a seed, or wait.
    pub fn new(tier: T, plan: impl Fn(Call) -> Option<Fault> + Send + Sync + 'static) -> Self {
        Self { tier, plan: Arc::new(plan) }
    }

    fn run<R>(
        &self,
        action: Action,
        path: &dyn fmt::Display,
        call: impl FnOnce() -> Result<R, TierError>,
    ) -> Result<R, TierError> {
        run(&*self.plan, action, path, call)
    }

    fn around<R>(
        &self,
        action: Action,
        key: &Key,
        call: impl FnOnce() -> Result<R, TierError>,
    ) -> Result<R, TierError> {
        self.run(action, key, call)
    }

    fn reader(&self, key: &Key, inner: Box<dyn Reader>) -> Box<dyn Reader> {
        Box::new(FlakyReader { inner, key: key.clone(), plan: Arc::clone(&self.plan) })
    }

    fn parts(&self, key: &Key, inner: Box<dyn PartsUpload>) -> Box<dyn PartsUpload> {
        Box::new(FlakyParts { inner, key: key.clone(), plan: Arc::clone(&self.plan) })
    }
}

fn run<R>(
    plan: &Plan,
    action: Action,
    path: &dyn fmt::Display,
    call: impl FnOnce() -> Result<R, TierError>,
) -> Result<R, TierError> {
    let before = plan(Call::Begun(action));
    let answer = match before {
        Some(fault) => Err(fault.error(action, path.to_string())),
        None => call(),
    };
    match plan(Call::Done(action)) {
        Some(fault) => answer.and_then(|_| Err(fault.error(action, path.to_string()))),
        None => answer,
    }
}

decorate_tree!(Flaky);

impl<T: Tier> Tier for Flaky<T> {
    fn capabilities(&self) -> Capabilities {
        self.tier.capabilities()
    }
    fn describe(&self) -> String {
        format!("{}, failing at times", self.tier.describe())
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
        let prefix = String::from_utf8_lossy(&request.prefix);
        self.run(Action::List, &prefix, || self.tier.list(request))
    }
    fn stat(&self, key: &Key) -> Result<ObjectMeta, TierError> {
        self.run(Action::Stat, key, || self.tier.stat(key))
    }
    fn stat_as_written(&self, key: &Key) -> Result<ObjectMeta, TierError> {
        self.run(Action::Stat, key, || self.tier.stat_as_written(key))
    }
    fn open(&self, key: &Key) -> Result<Box<dyn Reader>, TierError> {
        let reader = self.run(Action::Open, key, || self.tier.open(key))?;
        Ok(self.reader(key, reader))
    }
    fn open_listed(&self, key: &Key, meta: ObjectMeta) -> Result<Box<dyn Reader>, TierError> {
        let reader = self.run(Action::Open, key, || self.tier.open_listed(key, meta))?;
        Ok(self.reader(key, reader))
    }
    fn put(
        &self,
        key: &Key,
        attributes: Attributes,
        data: &[u8],
        precondition: Precondition,
    ) -> Result<ObjectMeta, TierError> {
        self.run(Action::Commit, key, || self.tier.put(key, attributes, data, precondition))
    }
    fn begin(&self, key: &Key, attributes: Attributes) -> Result<Box<dyn Upload>, TierError> {
        let inner = self.run(Action::Begin, key, || self.tier.begin(key, attributes))?;
        Ok(Box::new(FlakyUpload { inner, key: key.clone(), plan: Arc::clone(&self.plan) }))
    }
    fn begin_parts(
        &self,
        key: &Key,
        attributes: Attributes,
        sizes: (u64, u64),
    ) -> Result<Option<Box<dyn PartsUpload>>, TierError> {
        let begin = || self.tier.begin_parts(key, attributes, sizes);
        Ok(self.run(Action::Begin, key, begin)?.map(|inner| self.parts(key, inner)))
    }
    fn resume_parts(
        &self,
        key: &Key,
        attributes: Attributes,
        of: UploadOf,
    ) -> Result<Option<Box<dyn PartsUpload>>, TierError> {
        let resume = || self.tier.resume_parts(key, attributes, of);
        Ok(self.run(Action::Begin, key, resume)?.map(|inner| self.parts(key, inner)))
    }
    fn unfinished_part_bytes(&self, key: &Key, size: u64) -> Option<u64> {
        self.tier.unfinished_part_bytes(key, size)
    }
    fn set_attributes(&self, key: &Key, attributes: Attributes) -> Result<(), TierError> {
        self.run(Action::SetAttributes, key, || self.tier.set_attributes(key, attributes))
    }
    fn user_xattrs(&self, key: &Key) -> Result<Xattrs, TierError> {
        self.run(Action::Xattrs, key, || self.tier.user_xattrs(key))
    }
    fn root_xattrs(&self) -> Result<Xattrs, TierError> {
        self.tier.root_xattrs()
    }
    fn change_user_xattrs(&self, key: &Key, changes: &XattrChanges) -> Result<(), TierError> {
        self.run(Action::SetXattrs, key, || self.tier.change_user_xattrs(key, changes))
    }
    fn delete(&self, key: &Key) -> Result<(), TierError> {
        self.run(Action::Delete, key, || self.tier.delete(key))
    }
    fn delete_version(&self, key: &Key, identity: u64) -> Result<(), TierError> {
        self.run(Action::Delete, key, || self.tier.delete_version(key, identity))
    }
    fn rename(&self, from: &Key, to: &Key) -> Result<(), TierError> {
        self.run(Action::Rename, from, || self.tier.rename(from, to))
    }
    fn rename_version(
        &self,
        from: (&Key, u64),
        to: (&Key, Option<u64>),
    ) -> Result<ObjectMeta, TierError> {
        self.run(Action::Rename, from.0, || self.tier.rename_version(from, to))
    }
    fn locations(&self, key: &Key) -> Result<Vec<Location>, TierError> {
        self.run(Action::Locate, key, || self.tier.locations(key))
    }
    fn tree(&self) -> Option<&dyn Tree> {
        self.tier.tree().map(|_| self as &dyn Tree)
    }
    fn sweep(&self, prefix: &[u8], before: SystemTime) -> Result<usize, TierError> {
        let shown = String::from_utf8_lossy(prefix);
        self.run(Action::Sweep, &shown, || self.tier.sweep(prefix, before))
    }
    fn sweep_own(&self, directory: &[u8]) -> Result<usize, TierError> {
        let shown = String::from_utf8_lossy(directory);
        self.run(Action::Sweep, &shown, || self.tier.sweep_own(directory))
    }
}

struct FlakyReader {
    inner: Box<dyn Reader>,
    key: Key,
    plan: Arc<Plan>,
}

impl Reader for FlakyReader {
    fn meta(&self) -> ObjectMeta {
        self.inner.meta()
    }
    fn attributes(&self) -> Result<Attributes, TierError> {
        run(&*self.plan, Action::Stat, &self.key, || self.inner.attributes())
    }
    fn is_link(&self) -> Result<bool, TierError> {
        run(&*self.plan, Action::Stat, &self.key, || self.inner.is_link())
    }
    fn part_sums(&self) -> Option<PartSums> {
        self.inner.part_sums()
    }
    fn crc32c(&self) -> Result<Option<u32>, TierError> {
        run(&*self.plan, Action::Stat, &self.key, || self.inner.crc32c())
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, TierError> {
        run(&*self.plan, Action::Read, &self.key, || self.inner.read_at(offset, buffer))
    }
    fn read_part(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, TierError> {
        run(&*self.plan, Action::Read, &self.key, || self.inner.read_part(offset, buffer))
    }
    fn read_pieces(
        &self,
        offset: u64,
        len: u64,
        buffer: &mut [u8],
        sink: &mut PieceSink<'_>,
    ) -> Result<(), TierError> {
        let read = || self.inner.read_pieces(offset, len, buffer, sink);
        run(&*self.plan, Action::Read, &self.key, read)
    }
    fn local_descriptor(&self) -> Option<Result<std::os::fd::OwnedFd, TierError>> {
        self.inner.local_descriptor()
    }
}

struct FlakyUpload {
    inner: Box<dyn Upload>,
    key: Key,
    plan: Arc<Plan>,
}

impl Upload for FlakyUpload {
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), TierError> {
        let Self { inner, key, plan } = self;
        run(&**plan, Action::Write, key, || inner.write_at(offset, data))
    }
    fn set_user_xattrs(&mut self, xattrs: &Xattrs) -> Result<(), TierError> {
        let Self { inner, key, plan } = self;
        run(&**plan, Action::SetXattrs, key, || inner.set_user_xattrs(xattrs))
    }
    fn commit(self: Box<Self>, precondition: Precondition) -> Result<ObjectMeta, TierError> {
        let Self { inner, key, plan } = *self;
        run(&*plan, Action::Commit, &key, || inner.commit(precondition))
    }
}

struct FlakyParts {
    inner: Box<dyn PartsUpload>,
    key: Key,
    plan: Arc<Plan>,
}

impl PartsUpload for FlakyParts {
    fn read_kept(&self, number: u32, buffer: &mut Vec<u8>) -> bool {
        self.inner.read_kept(number, buffer)
    }
    fn is_kept(&self, number: u32, data: &[u8]) -> bool {
        self.inner.is_kept(number, data)
    }
    fn discard(self: Box<Self>) {
        self.inner.discard();
    }
    fn put_part(&self, number: u32, data: &[u8]) -> Result<(), TierError> {
        run(&*self.plan, Action::Write, &self.key, || self.inner.put_part(number, data))
    }
    fn begin_part(&self, number: u32) -> Option<Box<dyn PartPieces + '_>> {
        let inner = self.inner.begin_part(number)?;
        Some(Box::new(FlakyPieces { inner, key: &self.key, plan: &*self.plan }))
    }
    fn commit(self: Box<Self>, precondition: Precondition) -> Result<ObjectMeta, TierError> {
        let Self { inner, key, plan } = *self;
        run(&*plan, Action::Commit, &key, || inner.commit(precondition))
    }
}

struct FlakyPieces<'a> {
    inner: Box<dyn PartPieces + 'a>,
    key: &'a Key,
    plan: &'a Plan,
}

impl PartPieces for FlakyPieces<'_> {
    fn put(&mut self, data: &[u8]) -> Result<(), TierError> {
        self.inner.put(data)
    }
    fn end(self: Box<Self>) -> Result<(), TierError> {
        let Self { inner, key, plan } = *self;
        run(plan, Action::Write, key, || inner.end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Memory;

    #[test]
    fn a_fault_before_leaves_all_as_it_was_and_one_after_loses_the_answer_only() {
        let key = Key::new("k").unwrap();
        let put = |tier: &dyn Tier, bytes: &[u8]| {
            tier.put(&key, Attributes::default(), bytes, Precondition::Any)
        };
        let check = |when: fn(Action) -> Call, fault: Fault, expected: &[u8]| {
            let memory = Memory::new();
            put(&memory, b"old").unwrap();
            let failing = when(Action::Commit);
            let tier = Flaky::new(memory.clone(), move |call| (call == failing).then_some(fault));
            let error = put(&tier, b"newer").unwrap_err();
            assert!(error.to_string().contains('k'), "{error}");
            let mut seen = vec![0; 9];
            let count = memory.open(&key).unwrap().read_at(0, &mut seen).unwrap();
            assert_eq!(&seen[..count], expected);
            error.errno()
        };
        assert_eq!(check(Call::Begun, Fault::Full, b"old"), 28);
        assert_eq!(check(Call::Begun, Fault::Quota, b"old"), 122);
        assert_eq!(check(Call::Begun, Fault::Denied, b"old"), 13);
        assert_eq!(check(Call::Done, Fault::Io, b"newer"), 5);
        assert_eq!(check(Call::Done, Fault::Unavailable, b"newer"), 5);
    }

    #[test]
    fn reads_fail_where_told() {
        let key = Key::new("k").unwrap();
        let reads = |call| (call == Call::Begun(Action::Read)).then_some(Fault::Io);
        let tier = Flaky::new(Memory::new(), reads);
        tier.put(&key, Attributes::default(), b"x", Precondition::Any).unwrap();
        let reader = tier.open(&key).unwrap();
        assert!(matches!(reader.read_at(0, &mut [0]), Err(TierError::Io { .. })));
    }
}
