//! The memory of a session's slots, as its server gets it.
#![expect(unsafe_code, reason = "memory that this process shares with its server")]

use std::os::fd::BorrowedFd;
#[cfg(test)]
use std::os::fd::OwnedFd;

use hayase_wire::Arena;

/// What goes to the server with the first message of a connection, and to nobody else.
pub(super) fn for_server(arena: &Arena) -> BorrowedFd<'_> {
    // SAFETY: a server uses a slot from the request that names it to the answer. Meanwhile the connection that owns the
    // slot waits for that answer, and borrows the slot only before and after. Where none comes in `CALL_WAIT`, which is
    // longer than any deadline of a server, that server counts as gone.
    unsafe { arena.descriptor() }
}

/// As a server has it that answers on another thread of this process.
#[cfg(test)]
pub(super) fn of_session_for_tests(memory: OwnedFd, slots: u32) -> Arena {
    // SAFETY: it borrows a slot only between a request and its answer.
    unsafe { Arena::open(memory, slots) }.expect("the arena of a session")
}
