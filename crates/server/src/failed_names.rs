//! What becomes of a server whose names could not be written: it ends at once, and answers nothing that it can not keep.
//!
//! Faults: the disk under the names is full, or answers EIO. Whether the change is there is known only after the names
//! have been opened again, so the server ends as if it were killed, which everybody is prepared for. Where the disk was
//! full, what was answered before is there: its supervisor starts it again. Otherwise it may be gone, and the server
//! stays away ([`NAMES_LOST`]): its node is declared lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hayase_store::{Batch, MetaError, MetaStore, Pair};

/// Exit status of a server whose disk was full (EX_TEMPFAIL of sysexits.h).
pub const NAMES_FULL: u8 = 75;
/// Exit status of a server that may have lost names that it had answered for (EX_IOERR of sysexits.h): it is not to be
/// started again.
pub const NAMES_LOST: u8 = 74;

/// Ends the process with this status, whatever its threads do.
pub type Exit = fn(u8) -> !;

/// A store that ends the server when a write fails, before anybody hears of it, once it serves.
pub(crate) struct EndingStore {
    store: Arc<dyn MetaStore>,
    serves: Arc<AtomicBool>,
    exit: Exit,
}

impl EndingStore {
    pub(crate) fn new(store: Arc<dyn MetaStore>, serves: Arc<AtomicBool>, exit: Exit) -> Self {
        Self { store, serves, exit }
    }

    fn expect(&self, written: Result<(), MetaError>) -> Result<(), MetaError> {
        let Err(error @ MetaError::Failed { is_whole, .. }) = &written else { return written };
        // A start fails with the error.
        if !self.serves.load(Ordering::Acquire) {
            return written;
        }
        let why = std::error::Error::source(error).map(|it| format!(": {it}")).unwrap_or_default();
        let status = if *is_whole { NAMES_FULL } else { NAMES_LOST };
        let then = if *is_whole { "is started again" } else { "is not: names may be lost" };
        tracing::error!("{error}{why}: the server ends, and {then}");
        (self.exit)(status)
    }
}

impl MetaStore for EndingStore {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, MetaError> {
        self.store.get(key)
    }

    fn scan(&self, prefix: &[u8], from: &[u8], limit: usize) -> Result<Vec<Pair>, MetaError> {
        self.store.scan(prefix, from, limit)
    }

    fn commit(&self, batch: Batch) -> Result<(), MetaError> {
        self.expect(self.store.commit(batch))
    }

    fn sync(&self) -> Result<(), MetaError> {
        self.expect(self.store.sync())
    }

    fn is_behind(&self) -> bool {
        self.store.is_behind()
    }

    fn catch_up(&self) -> Result<(), MetaError> {
        self.expect(self.store.catch_up())
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use hayase_store::MemoryStore;
    use rustix::io::Errno;

    use super::*;
    use crate::serve_error::ServeError;

    /// Fails as it is told.
    struct Failing(fn() -> MetaError);

    impl MetaStore for Failing {
        fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, MetaError> {
            MemoryStore::default().get(key)
        }
        fn scan(&self, prefix: &[u8], from: &[u8], limit: usize) -> Result<Vec<Pair>, MetaError> {
            MemoryStore::default().scan(prefix, from, limit)
        }
        fn commit(&self, _: Batch) -> Result<(), MetaError> {
            Err((self.0)())
        }
        fn sync(&self) -> Result<(), MetaError> {
            Err((self.0)())
        }
    }

    /// In place of the end of the process.
    fn ended(status: u8) -> ! {
        std::panic::panic_any(status)
    }

    fn failed(is_whole: bool, errno: Errno) -> MetaError {
        MetaError::Failed { action: "change", path: "names".into(), is_whole, source: errno.into() }
    }

    fn store(error: fn() -> MetaError, serves: bool) -> EndingStore {
        EndingStore::new(Arc::new(Failing(error)), Arc::new(AtomicBool::new(serves)), ended)
    }

    #[test]
    fn a_failed_write_of_names_is_answered_to_nobody() {
        let cases: [(fn() -> MetaError, u8); 2] = [
            (|| failed(false, Errno::IO), NAMES_LOST),
            (|| failed(true, Errno::NOSPC), NAMES_FULL),
        ];
        for (error, status) in cases {
            let store = store(error, true);
            let ends: [&dyn Fn() -> Result<(), MetaError>; 2] =
                [&|| store.commit(Batch::new()), &|| store.sync()];
            for end in ends {
                let end = catch_unwind(AssertUnwindSafe(end)).expect_err("it ends");
                assert_eq!(end.downcast_ref(), Some(&status));
            }
        }
    }

    #[test]
    fn an_error_of_storage_at_a_restart_is_not_taken_for_a_kill() {
        let server = hayase_layout::ServerId(1);
        let read =
            |errno: Errno| MetaError::Io { action: "open", path: "n".into(), source: errno.into() };
        let is_lost = |source| ServeError::Meta { server, source }.may_have_lost_names();
        assert!(is_lost(read(Errno::IO)) && is_lost(failed(false, Errno::IO)));
        assert!(!is_lost(read(Errno::NOSPC)) && !is_lost(failed(true, Errno::NOSPC)));
        assert!(!ServeError::Lost { server }.may_have_lost_names());
        // Nor for a disk that will have room: what could not be written back is gone.
        let synced = ServeError::Meta { server, source: failed(false, Errno::NOSPC) };
        assert!(synced.may_have_lost_names() && !synced.is_full());
    }

    #[test]
    fn what_was_not_begun_is_answered() {
        let refused = || MetaError::Full { path: "names".into(), source: Errno::DQUOT.into() };
        let error = store(refused, true).commit(Batch::new()).unwrap_err();
        assert_eq!((error.errno(), error.is_full()), (Errno::DQUOT.raw_os_error(), true));
    }

    #[test]
    fn a_start_fails_with_the_error() {
        let error = store(|| failed(true, Errno::DQUOT), false).commit(Batch::new()).unwrap_err();
        assert!(error.is_full(), "{error}");
    }
}
