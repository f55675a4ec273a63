//! The memory of a mount's slots, as its server sees it: mapped once more, as if they were two processes.
#![expect(unsafe_code, reason = "memory that two share")]

use hayase_wire::Arena;

/// For one life of the server.
pub(super) fn for_server(arena: &Arena) -> Arena {
    // SAFETY: one thread runs both. The mount borrows a slot before its request and after the answer, the server in between;
    // where a server ends in between, all that it had is dropped with it.
    unsafe {
        let memory = arena.descriptor().try_clone_to_owned().expect("a descriptor");
        Arena::open(memory, arena.slots()).expect("the same memory")
    }
}
