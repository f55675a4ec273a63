//! One file of one program: what may be there after a power cut.
//!
//! Checks: bytes and name as of the last answered fsync(2), or later ones: a rename that was not synced leaves the
//! file under one of its two names. Not: that what was never synced is there or gone, nor in which order later
//! changes reach the storage.

use std::collections::BTreeMap;

/// What its program did and was told.
pub(crate) struct Synced {
    /// That of the last fsync(2), and those that renames gave it since; the last is the one that it has.
    names: Vec<String>,
    blocks: BTreeMap<u64, Block>,
    /// Once, under the first of these names.
    is_synced: bool,
}

#[derive(Default)]
struct Block {
    /// As of the last fsync(2); 0 before the first write.
    durable: u64,
    /// Written since.
    since: Vec<u64>,
}

impl Synced {
    pub(crate) fn new(name: String) -> Self {
        Self { names: vec![name], blocks: BTreeMap::new(), is_synced: false }
    }

    pub(crate) fn name(&self) -> &str {
        self.names.last().expect("it has one from the beginning")
    }

    /// One of these it has after a power cut, if it [is synced](Self::is_synced).
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// A write begins.
    pub(crate) fn writes(&mut self, block: u64, value: u64) {
        self.blocks.entry(block).or_default().since.push(value);
    }

    /// A rename begins.
    pub(crate) fn renames(&mut self, to: String) {
        self.names.push(to);
    }

    /// An fsync(2) was answered.
    pub(crate) fn synced(&mut self) {
        self.is_synced = true;
        self.names.drain(..self.names.len() - 1);
        for block in self.blocks.values_mut() {
            block.durable = block.since.pop().unwrap_or(block.durable);
            block.since.clear();
        }
    }

    /// Whether it must be there after a power cut.
    pub(crate) fn is_synced(&self) -> bool {
        self.is_synced
    }

    /// Whether some bytes of a block are durable: else its part may have been lost, which is told.
    pub(crate) fn has_durable(&self, block: u64) -> bool {
        self.blocks.get(&block).is_some_and(|block| block.durable != 0)
    }

    /// Whether a block may hold this after a power cut; 0 is what nobody wrote.
    pub(crate) fn check(&self, block: u64, value: u64) -> Result<(), String> {
        let Some(known) = self.blocks.get(&block) else {
            return if value == 0 { Ok(()) } else { Err(format!("{value}, never written")) };
        };
        match known.durable == value || known.since.contains(&value) {
            true => Ok(()),
            false => Err(format!("{value}; synced was {}, then {:?}", known.durable, known.since)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_synced_is_there_or_something_later() {
        let mut file = Synced::new("a".into());
        assert!(!file.is_synced());
        file.writes(0, 1);
        file.writes(0, 2);
        file.synced();
        file.writes(0, 3);
        let check = |value, expected: bool| assert_eq!(file.check(0, value).is_ok(), expected);
        check(0, false);
        check(1, false);
        check(2, true);
        check(3, true);
        assert!(file.check(1, 0).is_ok() && file.check(1, 9).is_err());
    }

    #[test]
    fn a_rename_that_was_not_synced_leaves_one_of_two_names() {
        let mut file = Synced::new("a".into());
        assert!(!file.is_synced());
        file.synced();
        file.renames("b".into());
        file.renames("c".into());
        assert!(file.is_synced());
        assert_eq!((file.name(), file.names().len()), ("c", 3));
        file.synced();
        assert_eq!(file.names(), ["c"]);
    }
}
