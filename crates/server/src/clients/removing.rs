//! Directories that a mount's kernel keeps locked while this server removes a name there.

use std::cell::RefCell;
use std::collections::HashMap;

use hayase_layout::InodeId;

/// In which directories names are being removed, for a kernel that keeps them locked until it has the answer.
#[derive(Default)]
pub(crate) struct RemovingIn(RefCell<HashMap<InodeId, u32>>);

impl RemovingIn {
    pub(crate) fn has(&self, dir: InodeId) -> bool {
        self.0.borrow().contains_key(&dir)
    }

    pub(crate) fn begin(&self, dir: InodeId) {
        *self.0.borrow_mut().entry(dir).or_default() += 1;
    }

    pub(crate) fn end(&self, dir: InodeId) {
        let mut removing = self.0.borrow_mut();
        if let Some(count) = removing.get_mut(&dir) {
            *count -= 1;
            if *count == 0 {
                removing.remove(&dir);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_locked_until_its_last_removal_was_told() {
        let (removing, dir) = (RemovingIn::default(), InodeId(7));
        removing.begin(dir);
        removing.begin(dir);
        removing.end(dir);
        assert!(removing.has(dir) && !removing.has(InodeId::ROOT));
        removing.end(dir);
        assert!(!removing.has(dir));
    }
}
