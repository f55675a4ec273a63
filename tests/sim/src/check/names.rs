//! Names of one directory: each is bound to one inode or to none.

use std::collections::BTreeMap;

use super::linear::Specification;

/// Empty at first.
pub(crate) struct Names;

/// What a name is bound to: an inode, or one that nobody has been told of (by the number of its call).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Bound {
    To(u64),
    Untold(u64),
}

/// A call with what it answered; `Untold` parts when it was not answered.
#[derive(Clone, Debug)]
pub(crate) enum NamesStep {
    /// `None`: the name was there.
    Create { name: u8, made: Option<Bound> },
    /// `None`: no such name.
    Lookup { name: u8, found: Option<u64> },
    /// `None`: no such name.
    Unlink { name: u8, was: Option<u64> },
    /// Removed if it was there; nobody knows what.
    UnlinkUntold { name: u8 },
    /// `None`: no such name.
    Rename { from: u8, to: u8, moved: Option<(u64, Option<u64>)> },
    /// Moved if it was there.
    RenameUntold { from: u8, to: u8 },
}

type State = BTreeMap<u8, Bound>;

/// The state with `name` known to be bound to what was seen, if it can be.
fn seen(state: &State, name: u8, ino: Option<u64>) -> Option<State> {
    match (state.get(&name), ino) {
        (None, None) => Some(state.clone()),
        (Some(Bound::To(bound)), Some(ino)) if *bound == ino => Some(state.clone()),
        (Some(Bound::Untold(_)), Some(ino)) if !state.values().any(|b| *b == Bound::To(ino)) => {
            let mut told = state.clone();
            told.insert(name, Bound::To(ino));
            Some(told)
        }
        _ => None,
    }
}

impl Specification for Names {
    type State = State;
    type Step = NamesStep;

    fn begin(&self) -> State {
        State::new()
    }

    fn after(&self, state: &State, step: &NamesStep) -> Option<State> {
        match *step {
            NamesStep::Create { name, made: None } => {
                state.contains_key(&name).then(|| state.clone())
            }
            NamesStep::Create { name, made: Some(made) } => {
                let mut after = state.clone();
                match (after.get(&name), made) {
                    (None, _) => drop(after.insert(name, made)),
                    // Refused, and nobody was told.
                    (Some(_), Bound::Untold(_)) => {}
                    (Some(_), Bound::To(_)) => return None,
                }
                Some(after)
            }
            NamesStep::Lookup { name, found } => seen(state, name, found),
            NamesStep::Unlink { name, was } => {
                let mut after = seen(state, name, was)?;
                after.remove(&name);
                Some(after)
            }
            NamesStep::UnlinkUntold { name } => {
                let mut after = state.clone();
                after.remove(&name);
                Some(after)
            }
            NamesStep::Rename { from, to, moved } => {
                let Some((moved, replaced)) = moved else { return seen(state, from, None) };
                let state = seen(&seen(state, from, Some(moved))?, to, replaced)?;
                Some(renamed(&state, from, to))
            }
            NamesStep::RenameUntold { from, to } => Some(renamed(state, from, to)),
        }
    }
}

fn renamed(state: &State, from: u8, to: u8) -> State {
    let mut after = state.clone();
    if let Some(bound) = after.remove(&from) {
        after.insert(to, bound);
    }
    after
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::linear::{Call, Verdict, judge};

    fn in_turn(steps: &[NamesStep]) -> bool {
        let calls = (0..).zip(steps).map(|(at, step): (u64, _)| Call {
            begin: 2 * at,
            end: Some(2 * at + 1),
            is_optional: false,
            step: step.clone(),
        });
        judge(&Names, &calls.collect::<Vec<_>>()) == Verdict::Explained
    }

    #[test]
    fn a_rename_takes_the_name_along() {
        let create = NamesStep::Create { name: 1, made: Some(Bound::To(9)) };
        let rename = NamesStep::Rename { from: 1, to: 2, moved: Some((9, None)) };
        let lookup = |name, found| NamesStep::Lookup { name, found };
        assert!(in_turn(&[create.clone(), rename.clone(), lookup(1, None), lookup(2, Some(9))]));
        assert!(!in_turn(&[create.clone(), rename.clone(), lookup(1, Some(9))]));
        assert!(!in_turn(&[create, rename, lookup(2, None)]));
    }

    #[test]
    fn two_may_not_make_one_name() {
        let create = |ino| NamesStep::Create { name: 1, made: Some(Bound::To(ino)) };
        assert!(!in_turn(&[create(1), create(2)]));
        assert!(in_turn(&[create(1), NamesStep::Create { name: 1, made: None }]));
    }

    #[test]
    fn what_was_not_told_is_learned_by_looking() {
        let create = NamesStep::Create { name: 1, made: Some(Bound::Untold(0)) };
        let lookup = |found| NamesStep::Lookup { name: 1, found };
        assert!(in_turn(&[create.clone(), lookup(Some(5)), lookup(Some(5))]));
        assert!(!in_turn(&[create, lookup(Some(5)), lookup(Some(6))]));
    }
}
