//! A tier that breaks when it is told to: for the tests of faults and of continuing.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::SystemTime;

use hayase_tier::{
    Action, Attributes, Capabilities, Key, ListRequest, ObjectMeta, Page, Precondition, Reader,
    Tier, TierError, Traffic, Tree, Upload,
};

/// What happens at a commit or read.
type Hook = dyn Fn(&Key) -> Result<(), TierError> + Send + Sync;

/// What becomes of bytes that were read from an offset on.
type Damage = dyn Fn(&Key, u64, &mut [u8]) + Send + Sync;

/// Another tier behind hooks.
#[derive(Clone)]
pub(crate) struct Broken {
    inner: Arc<dyn Tier>,
    on_commit: Arc<Hook>,
    on_read: Arc<Hook>,
    damage: Arc<Damage>,
    /// Requests that were told to slow down, as a tier of requests counts them.
    pub(crate) throttled: Arc<AtomicU64>,
}

impl std::fmt::Debug for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Broken({:?})", self.inner)
    }
}

impl Broken {
    /// Breaks never.
    pub(crate) fn new(inner: impl Tier + 'static) -> Self {
        let fine: Arc<Hook> = Arc::new(|_| Ok(()));
        let (inner, throttled) = (Arc::new(inner), Arc::default());
        let damage: Arc<Damage> = Arc::new(|_, _, _| ());
        Self { inner, on_commit: Arc::clone(&fine), on_read: fine, damage, throttled }
    }

    /// Is full after `commits` commits, beside that which says that packs are begun.
    pub(crate) fn full_after(self, commits: i64) -> Self {
        let left = AtomicI64::new(commits);
        let is_begin = |key: &Key| key.as_bytes() == b".hayase-packs/begun";
        let on_commit = move |key: &Key| match left.fetch_sub(1, Ordering::Relaxed) {
            _ if is_begin(key) => {
                left.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            1.. => Ok(()),
            _ => Err(TierError::Full { action: Action::Commit, path: key.to_string() }),
        };
        Self { on_commit: Arc::new(on_commit), ..self }
    }

    /// Calls `hook` before each commit.
    pub(crate) fn on_commit(
        self,
        hook: impl Fn(&Key) -> Result<(), TierError> + Send + Sync + 'static,
    ) -> Self {
        Self { on_commit: Arc::new(hook), ..self }
    }

    /// Calls `hook` after each read.
    pub(crate) fn on_read(
        self,
        hook: impl Fn(&Key) -> Result<(), TierError> + Send + Sync + 'static,
    ) -> Self {
        Self { on_read: Arc::new(hook), ..self }
    }

    /// Lets `damage` change what is read.
    pub(crate) fn damaged_by(
        self,
        damage: impl Fn(&Key, u64, &mut [u8]) + Send + Sync + 'static,
    ) -> Self {
        Self { damage: Arc::new(damage), ..self }
    }
}

struct BrokenUpload {
    inner: Box<dyn Upload>,
    key: Key,
    hook: Arc<Hook>,
}

impl Upload for BrokenUpload {
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), TierError> {
        self.inner.write_at(offset, data)
    }
    fn commit(self: Box<Self>, precondition: Precondition) -> Result<ObjectMeta, TierError> {
        (self.hook)(&self.key)?;
        self.inner.commit(precondition)
    }
}

struct BrokenReader {
    inner: Box<dyn Reader>,
    key: Key,
    hook: Arc<Hook>,
    damage: Arc<Damage>,
}

impl Reader for BrokenReader {
    fn meta(&self) -> ObjectMeta {
        self.inner.meta()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, TierError> {
        let count = self.inner.read_at(offset, buffer)?;
        (self.damage)(&self.key, offset, &mut buffer[..count]);
        (self.hook)(&self.key)?;
        Ok(count)
    }
}

impl Tier for Broken {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }
    fn describe(&self) -> String {
        self.inner.describe()
    }
    fn traffic(&self) -> Traffic {
        Traffic { throttled: self.throttled.load(Ordering::Relaxed), ..Traffic::default() }
    }
    fn list(&self, request: &ListRequest) -> Result<Page, TierError> {
        self.inner.list(request)
    }
    fn stat(&self, key: &Key) -> Result<ObjectMeta, TierError> {
        self.inner.stat(key)
    }
    fn open(&self, key: &Key) -> Result<Box<dyn Reader>, TierError> {
        let (inner, key) = (self.inner.open(key)?, key.clone());
        let (hook, damage) = (Arc::clone(&self.on_read), Arc::clone(&self.damage));
        Ok(Box::new(BrokenReader { inner, key, hook, damage }))
    }
    fn begin(&self, key: &Key, attributes: Attributes) -> Result<Box<dyn Upload>, TierError> {
        let (inner, key) = (self.inner.begin(key, attributes)?, key.clone());
        Ok(Box::new(BrokenUpload { inner, key, hook: Arc::clone(&self.on_commit) }))
    }
    fn set_attributes(&self, key: &Key, attributes: Attributes) -> Result<(), TierError> {
        self.inner.set_attributes(key, attributes)
    }
    fn delete(&self, key: &Key) -> Result<(), TierError> {
        self.inner.delete(key)
    }
    fn tree(&self) -> Option<&dyn Tree> {
        self.inner.tree()
    }
    fn sweep(&self, prefix: &[u8], before: SystemTime) -> Result<usize, TierError> {
        self.inner.sweep(prefix, before)
    }
}
