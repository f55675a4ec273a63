//! What mounts have gathered, while it is on its way: from this node to homes, or into the parts of this home.
//!
//! Who did not answer a recall is waited for no longer; but what it handed on before goes into the part first, and what
//! was kept for more of it is given back, before others are let at the file.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use hayase_layout::InodeId;
use tokio::sync::Notify;

/// Counts it, by inode.
#[derive(Default)]
pub(crate) struct HandedOn(Rc<UnderWay>);

#[derive(Default)]
struct UnderWay {
    counts: RefCell<HashMap<InodeId, usize>>,
    settled: Notify,
}

impl HandedOn {
    /// Counts until the result is dropped.
    pub(crate) fn begin(&self, ino: InodeId) -> OnItsWay {
        *self.0.counts.borrow_mut().entry(ino).or_default() += 1;
        OnItsWay { of: Rc::clone(&self.0), ino }
    }

    /// Nothing is on its way anywhere.
    pub(crate) fn is_idle(&self) -> bool {
        self.0.counts.borrow().is_empty()
    }

    /// Whether something of this inode is on its way.
    pub(crate) fn is_under_way(&self, ino: InodeId) -> bool {
        self.0.counts.borrow().contains_key(&ino)
    }

    /// Returns when nothing of this inode is on its way.
    pub(crate) async fn until_settled(&self, ino: InodeId) {
        self.until_all_settled(&[ino]).await;
    }

    /// Returns when nothing of any of these inodes is on its way, all at one moment.
    pub(crate) async fn until_all_settled(&self, inos: &[InodeId]) {
        loop {
            let settled = self.0.settled.notified();
            if !inos.iter().any(|ino| self.is_under_way(*ino)) {
                return;
            }
            settled.await;
        }
    }
}

/// See [`HandedOn::begin`].
pub(crate) struct OnItsWay {
    of: Rc<UnderWay>,
    ino: InodeId,
}

impl Drop for OnItsWay {
    fn drop(&mut self) {
        let mut counts = self.of.counts.borrow_mut();
        let Some(count) = counts.get_mut(&self.ino) else { return };
        *count -= 1;
        if *count == 0 {
            counts.remove(&self.ino);
            drop(counts);
            self.of.settled.notify_waiters();
        }
    }
}
