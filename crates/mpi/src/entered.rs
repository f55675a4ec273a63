//! Whose call it is: one that the program makes, or one that the MPI library makes itself while it works on another.
//!
//! Here: a mark of this thread. Not here: what happens at the entry of a call (`crate::exports`).

use std::cell::Cell;

/// The program called us, not the library itself; ends when it is dropped.
pub(crate) struct Entered(());

thread_local! {
    // Without a destructor: threads may end after MPI has.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

impl Entered {
    /// `None` where the library makes the call.
    pub(crate) fn new() -> Option<Self> {
        (!IS_INSIDE.replace(true)).then(|| Self(()))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        IS_INSIDE.set(false);
    }
}

/// Runs code of the program (an error handler), whose calls are the program's.
pub(crate) fn outside<T>(run: impl FnOnce() -> T) -> T {
    let was_inside = IS_INSIDE.replace(false);
    let answer = run();
    IS_INSIDE.set(was_inside);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_outer_call_is_the_programs() {
        let outer = Entered::new();
        assert!(outer.is_some());
        assert!(Entered::new().is_none(), "the library calls");
        assert!(outside(|| Entered::new().is_some()), "a handler of the program calls");
        assert!(Entered::new().is_none(), "the library calls after its handler has returned");
        drop(outer);
        assert!(Entered::new().is_some());
    }
}
