//! The view of an open file and the individual pointer in it: what one process reads and writes next.
//!
//! Setting a view moves the pointer to its start, so the two change together.
//! Source: MPI 4.1, sections 14.3 and 14.4.3.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{
    datatype::Parsed,
    view::{Datarep, FileView, Recent},
};

/// See the module.
#[derive(Debug)]
pub(crate) struct Cursor(Mutex<State>);

#[derive(Debug)]
struct State {
    view: Arc<FileView>,
    /// For when they are set again.
    recent: Recent,
    /// In bytes of the view's stream.
    position: u64,
}

impl Cursor {
    /// Of a file that is opened.
    pub(crate) fn new() -> Self {
        let view = Arc::new(FileView::of_bytes());
        Self(Mutex::new(State { view, recent: Recent::default(), position: 0 }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The view at this moment.
    pub(crate) fn view(&self) -> Arc<FileView> {
        Arc::clone(&self.state().view)
    }

    /// The view, and where the pointer is, in etypes.
    pub(crate) fn position(&self) -> (Arc<FileView>, u64) {
        let state = self.state();
        (Arc::clone(&state.view), state.position / state.view.etype_size)
    }

    /// Moves the pointer; in bytes of the view's stream.
    pub(crate) fn set_position(&self, stream: u64) {
        self.state().position = stream;
    }

    /// The view, and where the pointer was, in bytes; it advances by `len`.
    pub(crate) fn advance(&self, len: u64) -> (Arc<FileView>, u64) {
        self.locked(|view, position| (Arc::clone(view), advance(position, len)))
    }

    /// Takes back a part of what the pointer has advanced by.
    pub(crate) fn give_back(&self, len: u64) {
        let mut state = self.state();
        state.position = state.position.saturating_sub(len);
    }

    /// Runs with the view and the pointer, in bytes; nobody else moves it meanwhile.
    pub(crate) fn locked<T>(&self, run: impl FnOnce(&Arc<FileView>, &mut u64) -> T) -> T {
        let State { view, position, .. } = &mut *self.state();
        run(view, position)
    }

    /// From here on; the pointer is at its start.
    pub(crate) fn set_view(&self, view: Arc<FileView>) {
        let mut state = self.state();
        state.view = view;
        state.position = 0;
    }

    /// A view that was set lately by the same arguments ([`Recent::find`]).
    pub(crate) fn recent_view(
        &self,
        displacement: i64,
        parsed: (&Arc<Parsed>, &Arc<Parsed>),
        datarep: Datarep,
    ) -> Option<Arc<FileView>> {
        self.state().recent.find(displacement, parsed, datarep)
    }

    /// For when it is set again.
    pub(crate) fn keep_view(&self, view: &Arc<FileView>) {
        self.state().recent.keep(view);
    }
}

/// Where the pointer was.
pub(crate) fn advance(position: &mut u64, len: u64) -> u64 {
    let before = *position;
    *position = before.saturating_add(len);
    before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pointer_begins_with_its_view() {
        let cursor = Cursor::new();
        assert_eq!(cursor.advance(12).1, 0);
        cursor.give_back(4);
        assert_eq!(cursor.position().1, 8);
        cursor.set_view(Arc::new(FileView { etype_size: 4, ..FileView::of_bytes() }));
        assert_eq!(cursor.position().1, 0);
        cursor.set_position(8);
        assert_eq!(cursor.position().1, 2, "in etypes");
        cursor.give_back(9);
        assert_eq!(cursor.position().1, 0);
    }
}
