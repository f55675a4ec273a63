//! One file of one program: what may be there after a power cut.
//!
//! Checks: bytes and name as of the last answered fsync(2), or later ones. Not: that what was never
//! synced is there or gone, nor in which order later changes reach the storage.

use std::collections::BTreeMap;

/// What its program did and was told.
pub(crate) struct Synced {
    /// Names that it may have after a power cut, oldest first; the last is its name now.
    names: Vec<String>,
    blocks: BTreeMap<u64, Block>,
    /// Synced at least once: it is there.
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
        self.names.last().expect("it always has one")
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
        let now = self.names.pop();
        self.names = now.into_iter().collect();
        for block in self.blocks.values_mut() {
            block.durable = block.since.pop().unwrap_or(block.durable);
            block.since.clear();
        }
    }

    /// Where it may be after a power cut; `None` when it may be nowhere.
    pub(crate) fn names_after_power_cut(&self) -> Option<Vec<String>> {
        self.is_synced.then(|| self.names.clone())
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
        assert_eq!(file.names_after_power_cut(), None);
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
    fn a_rename_that_was_not_synced_may_be_forgotten() {
        let mut file = Synced::new("a".into());
        file.synced();
        file.renames("b".into());
        assert_eq!(file.names_after_power_cut(), Some(vec!["a".into(), "b".into()]));
        file.synced();
        assert_eq!(file.names_after_power_cut(), Some(vec!["b".into()]));
    }
}
