//! What becomes of the bytes of a node's areas when it is taken down.

/// What becomes of the bytes of a node's areas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// They stay.
    Keep,
    /// They go when the tier has what it should have.
    Remove,
    /// They go.
    Discard,
}

impl Fate {
    pub(super) fn of(keep: bool, discard: bool) -> Self {
        match (keep, discard) {
            (true, _) => Self::Keep,
            (false, true) => Self::Discard,
            (false, false) => Self::Remove,
        }
    }
}
