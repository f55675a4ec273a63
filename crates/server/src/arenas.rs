//! The arenas of this node's processes, as their server has them.
#![expect(unsafe_code, reason = "memory that a process shares with its server")]

use std::os::fd::OwnedFd;

use hayase_wire::{Arena, ArenaError};

/// The arena that a process brought with its first message.
pub(crate) fn of_process(memory: OwnedFd, slots: u32) -> Result<Arena, ArenaError> {
    // SAFETY: the socket lets in processes of the job's owner only, which run our client (a mount, or what is linked
    // with it). It leaves a slot alone from the request that names the slot to the answer, and no slot is borrowed here
    // before or after that: an answer waits for all that have the slot (`crate::lent`). A process brings one
    // arena, which is opened once.
    unsafe { Arena::open(memory, slots) }
}
