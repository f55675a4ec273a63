//! What mounts have gathered, while it is on its way into the parts of this home.
//!
//! Who did not answer a recall is waited for no longer; but what it handed on before goes into the part first.

use std::cell::RefCell;
use std::collections::HashMap;

use hayase_layout::InodeId;
use tokio::sync::Notify;

/// Counts it, by inode.
#[derive(Default)]
pub(crate) struct HandedOn {
    under_way: RefCell<HashMap<InodeId, usize>>,
    settled: Notify,
}

impl HandedOn {
    /// Counts until the result is dropped.
    pub(crate) fn begin(&self, ino: InodeId) -> OnItsWay<'_> {
        *self.under_way.borrow_mut().entry(ino).or_default() += 1;
        OnItsWay { of: self, ino }
    }

    /// Returns when nothing is on its way into the part of this inode.
    pub(crate) async fn until_settled(&self, ino: InodeId) {
        self.until_all_settled(&[ino]).await;
    }

    /// Returns when nothing is on its way into the parts of any of these inodes, all at one moment.
    pub(crate) async fn until_all_settled(&self, inos: &[InodeId]) {
        loop {
            let settled = self.settled.notified();
            let is_under_way = |ino: &InodeId| self.under_way.borrow().contains_key(ino);
            if !inos.iter().any(is_under_way) {
                return;
            }
            settled.await;
        }
    }
}

/// See [`HandedOn::begin`].
pub(crate) struct OnItsWay<'a> {
    of: &'a HandedOn,
    ino: InodeId,
}

impl Drop for OnItsWay<'_> {
    fn drop(&mut self) {
        let mut under_way = self.of.under_way.borrow_mut();
        let Some(count) = under_way.get_mut(&self.ino) else { return };
        *count -= 1;
        if *count == 0 {
            under_way.remove(&self.ino);
            drop(under_way);
            self.of.settled.notify_waiters();
        }
    }
}
