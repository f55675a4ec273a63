//! Every state that a small model can reach, each looked at once.
//!
//! Breadth first, so that the story of a violation is as short as there is one. States are remembered
//! by a hash of 128 bits.

use std::collections::{HashSet, VecDeque};
use std::fmt::Debug;
use std::hash::{Hash, Hasher};

/// States and steps between them.
pub(crate) trait Model {
    type State: Clone + Hash + Debug;
    type Step: Clone + Debug;

    /// Where it begins.
    fn begin(&self) -> Self::State;
    /// All that can happen next. None: it is over.
    fn steps(&self, state: &Self::State) -> Vec<Self::Step>;
    /// What comes of it.
    ///
    /// # Errors
    /// When the step shows what must not be.
    fn after(&self, state: &Self::State, step: &Self::Step) -> Result<Self::State, String>;
    /// What must be true of each state; `is_over`: nothing can happen any more.
    ///
    /// # Errors
    /// When it is not.
    fn check(&self, state: &Self::State, is_over: bool) -> Result<(), String>;
}

/// What was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Explored {
    pub(crate) states: usize,
    /// States in which nothing can happen any more.
    pub(crate) ends: usize,
}

/// Looks at all states.
///
/// # Errors
/// With the steps to the first violation.
///
/// # Panics
/// When there are more than `states_max`.
pub(crate) fn explore<M: Model>(model: &M, states_max: usize) -> Result<Explored, String> {
    let (mut seen, mut queue) = (HashSet::new(), VecDeque::new());
    // How each state was reached: from which, by which step.
    let mut stories: Vec<Option<(usize, M::Step)>> = vec![None];
    let mut ends = 0;
    let begin = model.begin();
    let mut fingerprints = Fingerprints::default();
    seen.insert(fingerprints.of(&begin));
    queue.push_back((0, begin));
    while let Some((at, state)) = queue.pop_front() {
        let steps = model.steps(&state);
        ends += usize::from(steps.is_empty());
        model
            .check(&state, steps.is_empty())
            .map_err(|what| told(&what, &stories, at, None, &state))?;
        for step in steps {
            let after = model
                .after(&state, &step)
                .map_err(|what| told(&what, &stories, at, Some(&step), &state))?;
            if seen.insert(fingerprints.of(&after)) {
                assert!(seen.len() <= states_max, "more than {states_max} states");
                stories.push(Some((at, step)));
                queue.push_back((stories.len() - 1, after));
            }
        }
    }
    Ok(Explored { states: seen.len(), ends })
}

/// Makes hashes of states: gathers the bytes of a state first, since tests are not optimized and the hash function is.
#[derive(Default)]
struct Fingerprints {
    bytes: Vec<u8>,
}

impl Fingerprints {
    fn of(&mut self, state: &impl Hash) -> [u8; 16] {
        self.bytes.clear();
        state.hash(self);
        let hash = blake3::hash(&self.bytes);
        let (half, _) = hash.as_bytes().split_at(16);
        half.try_into().expect("a hash has 32 bytes")
    }
}

impl Hasher for Fingerprints {
    fn write(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn finish(&self) -> u64 {
        unreachable!("the hash is made of the bytes")
    }
}

fn told<T: Debug>(
    what: &str,
    stories: &[Option<(usize, T)>],
    mut at: usize,
    last: Option<&T>,
    state: &impl Debug,
) -> String {
    let mut steps: Vec<_> = last.map(|step| format!("{step:?}")).into_iter().collect();
    while let Some((before, step)) = &stories[at] {
        steps.push(format!("{step:?}"));
        at = *before;
    }
    steps.reverse();
    format!("{what}\nafter\n  {}\nin {state:?}", steps.join("\n  "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two counters up to 3 that must not both be at their end.
    struct Pair {
        checked: bool,
    }

    impl Model for Pair {
        type State = (u8, u8);
        type Step = bool;

        fn begin(&self) -> Self::State {
            (0, 0)
        }

        fn steps(&self, (one, other): &Self::State) -> Vec<bool> {
            [(*one < 3).then_some(true), (*other < 3).then_some(false)]
                .into_iter()
                .flatten()
                .collect()
        }

        fn after(&self, (one, other): &Self::State, step: &bool) -> Result<Self::State, String> {
            Ok((one + u8::from(*step), other + u8::from(!*step)))
        }

        fn check(&self, state: &Self::State, _is_over: bool) -> Result<(), String> {
            match self.checked && *state == (3, 3) {
                true => Err("both".to_owned()),
                false => Ok(()),
            }
        }
    }

    #[test]
    fn all_states_are_seen_and_a_violation_is_told_with_its_steps() {
        let explored = explore(&Pair { checked: false }, 100);
        assert_eq!(explored, Ok(Explored { states: 16, ends: 1 }));
        let told = explore(&Pair { checked: true }, 100).unwrap_err();
        assert_eq!(told.lines().filter(|line| line.starts_with("  ")).count(), 6, "{told}");
    }
}
