//! The memory of a process's slots, as its server gets it.
#![expect(unsafe_code, reason = "memory that two share")]

use std::os::fd::BorrowedFd;

use hayase_wire::Arena;

/// With the first message.
pub(super) fn of(arena: &Arena) -> BorrowedFd<'_> {
    // SAFETY: tests borrow a slot before a request and after its answer, the server in between.
    unsafe { arena.descriptor() }
}
