//! What was used lately: decoded inodes, and what names stand for.
//!
//! Here: a map of two generations: when the young one is full it becomes the old one, and what is
//! used again moves back. Constant time, bounded, no list of uses.
//! Not here: who may put something in (only a commit or a read of the store).

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

/// Values of one generation; twice as many at most are kept (of inodes about 300 B each, of names
/// 150 B).
pub(super) const GENERATION_MAX: usize = 8 * 1024;

/// See the module header.
pub(super) struct Recent<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
}

impl<K: Hash + Eq, V> Recent<K, V> {
    /// An empty cache.
    pub(super) fn new() -> Self {
        Self { young: HashMap::new(), old: HashMap::new() }
    }

    /// The value, if it is here.
    pub(super) fn get<Q>(&mut self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        if let Some((key, value)) = self.old.remove_entry(key) {
            self.put(key, value);
        }
        self.young.get(key)
    }

    /// Keeps `value`, in the place of what was known before.
    pub(super) fn put(&mut self, key: K, value: V) {
        if self.young.len() >= GENERATION_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        self.old.remove(&key);
        self.young.insert(key, value);
    }

    /// Forgets one value.
    pub(super) fn remove<Q>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.young.remove(key);
        self.old.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_bounded_and_keeps_what_is_used() {
        let mut cache = Recent::new();
        cache.put(1, "first");
        for key in 2..100_000 {
            cache.put(key, "other");
            if key % 1000 == 0 {
                assert!(cache.get(&1).is_some(), "used often, so kept");
            }
            assert!(cache.young.len() + cache.old.len() <= 2 * GENERATION_MAX);
        }
        assert!(cache.get(&2).is_none(), "not used, so forgotten");
        cache.remove(&1);
        assert!(cache.get(&1).is_none());
    }

    #[test]
    fn the_last_value_counts_in_both_generations() {
        let mut cache = Recent::new();
        cache.put(1, "before");
        (2..GENERATION_MAX + 3).for_each(|key| cache.put(key, "other"));
        cache.put(1, "after");
        assert_eq!(cache.get(&1), Some(&"after"));
        cache.remove(&1);
        assert!(cache.get(&1).is_none());
    }
}
