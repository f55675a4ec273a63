//! One lock per key, made when it is wanted and forgotten when nobody holds or waits for it.
//!
//! Used for names (renames hold two, in key order) and for inodes whose opens or size change in
//! several steps. Fair: waiters go on in the order in which they came.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::Hash;
use std::rc::Rc;

use tokio::sync::{Mutex, OwnedMutexGuard};

/// The table of locks.
pub(crate) struct KeyedLock<K> {
    locks: Rc<RefCell<HashMap<K, std::sync::Arc<Mutex<()>>>>>,
}

impl<K: Clone + Eq + Hash> KeyedLock<K> {
    pub(crate) fn new() -> Self {
        Self { locks: Rc::default() }
    }

    /// Waits until `key` is free and holds it until the guard is dropped.
    pub(crate) async fn lock(&self, key: K) -> KeyGuard<K> {
        let lock = self.locks.borrow_mut().entry(key.clone()).or_default().clone();
        let held = lock.lock_owned().await;
        KeyGuard { locks: Rc::clone(&self.locks), key, held: Some(held) }
    }

    /// Whether somebody holds `key`: readers that must not wait for nothing ask first.
    pub(crate) fn is_locked(&self, key: &K) -> bool {
        self.locks.borrow().contains_key(key)
    }
}

impl<K: Clone + Eq + Hash> Default for KeyedLock<K> {
    fn default() -> Self {
        Self::new()
    }
}

/// Holds one key.
pub(crate) struct KeyGuard<K: Eq + Hash> {
    locks: Rc<RefCell<HashMap<K, std::sync::Arc<Mutex<()>>>>>,
    key: K,
    held: Option<OwnedMutexGuard<()>>,
}

impl<K: Eq + Hash> Drop for KeyGuard<K> {
    fn drop(&mut self) {
        self.held = None;
        let mut locks = self.locks.borrow_mut();
        if locks.get(&self.key).is_some_and(|lock| std::sync::Arc::strong_count(lock) == 1) {
            locks.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn a_key_is_held_by_one_and_forgotten_by_all() {
        let locks = KeyedLock::new();
        let first = locks.lock("a").await;
        let other = locks.lock("b").await;
        let waiter = locks.lock("a");
        tokio::pin!(waiter);
        let early = tokio::time::timeout(std::time::Duration::from_millis(5), &mut waiter).await;
        assert!(early.is_err(), "the key was free while it was held");
        drop(first);
        let second = waiter.await;
        assert!(locks.is_locked(&"a") && locks.is_locked(&"b"));
        drop((second, other));
        assert!(!locks.is_locked(&"a") && !locks.is_locked(&"b"));
    }
}
