//! One file of one program: what may be there after a power cut.
//!
//! Checks: bytes and name as of the last answered fsync(2), or later ones. Not: that what was never
//! synced is there or gone, nor in which order later changes reach the storage. Not either: a file whose
//! rename was not synced. Its old name may be gone durably before its new one is there: fsync(2) after
//! the rename is needed, as the protocol page says.

use std::collections::BTreeMap;

/// What its program did and was told.
pub(crate) struct Synced {
    name: String,
    blocks: BTreeMap<u64, Block>,
    /// Since its last rename: it is there under this name.
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
        Self { name, blocks: BTreeMap::new(), is_synced: false }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// A write begins.
    pub(crate) fn writes(&mut self, block: u64, value: u64) {
        self.blocks.entry(block).or_default().since.push(value);
    }

    /// A rename begins.
    pub(crate) fn renames(&mut self, to: String) {
        self.name = to;
        self.is_synced = false;
    }

    /// An fsync(2) was answered.
    pub(crate) fn synced(&mut self) {
        self.is_synced = true;
        for block in self.blocks.values_mut() {
            block.durable = block.since.pop().unwrap_or(block.durable);
            block.since.clear();
        }
    }

    /// Whether it must be there after a power cut, under its name.
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
    fn a_rename_that_was_not_synced_is_not_promised() {
        let mut file = Synced::new("a".into());
        file.synced();
        assert!(file.is_synced());
        file.renames("b".into());
        assert!(!file.is_synced());
        file.synced();
        assert_eq!((file.is_synced(), file.name()), (true, "b"));
    }
}
