//! The split collective call of an open file that has begun and not ended: at most one at a time.
//!
//! Source: MPI 4.1, section 14.4.6.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Which call has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Split {
    ReadAtAll,
    ReadAll,
    ReadOrdered,
    WriteAtAll,
    WriteAll,
    WriteOrdered,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct SplitCall(Mutex<Option<(Split, u64)>>);

impl SplitCall {
    /// Which one has begun.
    pub(crate) fn begun(&self) -> Option<Split> {
        self.state().map(|(split, _)| split)
    }

    /// One has, and moved this number of bytes.
    pub(crate) fn begin(&self, split: Split, bytes: u64) {
        *self.state() = Some((split, bytes));
    }

    /// How many bytes it moved; `None` when it has not begun.
    pub(crate) fn end(&self, split: Split) -> Option<u64> {
        self.state().take_if(|(begun, _)| *begun == split).map(|(_, bytes)| bytes)
    }

    fn state(&self) -> MutexGuard<'_, Option<(Split, u64)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_ended_by_its_own_second_half() {
        let call = SplitCall::default();
        assert_eq!(call.end(Split::ReadAll), None);
        call.begin(Split::ReadAll, 7);
        assert_eq!(call.begun(), Some(Split::ReadAll));
        assert_eq!(call.end(Split::WriteAll), None);
        assert_eq!(call.end(Split::ReadAll), Some(7));
        assert_eq!(call.begun(), None);
    }
}
