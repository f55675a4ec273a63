//! A file of a few values, one behind the other.

use super::linear::Specification;

/// Empty at first.
pub(crate) struct SmallFile;

/// A call on it. Places count values.
#[derive(Clone, Debug)]
pub(crate) enum SmallFileStep {
    Write {
        place: usize,
        value: u64,
    },
    /// With where it landed.
    Append {
        place: usize,
        value: u64,
    },
    AppendUntold(u64),
    /// With what it answered; 0 behind the end.
    Read {
        place: usize,
        value: u64,
    },
    /// The same, in values.
    Size(u64),
    Empty,
}

impl Specification for SmallFile {
    type State = Vec<u64>;
    type Step = SmallFileStep;

    fn begin(&self) -> Vec<u64> {
        Vec::new()
    }

    fn after(&self, state: &Vec<u64>, step: &SmallFileStep) -> Option<Vec<u64>> {
        let with = |place: usize, value| {
            let mut values = state.clone();
            values.resize(values.len().max(place + 1), 0);
            values[place] = value;
            Some(values)
        };
        let is_so = |so: bool| so.then(|| state.clone());
        match *step {
            SmallFileStep::Write { place, value } => with(place, value),
            SmallFileStep::Append { place, .. } if place != state.len() => None,
            SmallFileStep::Append { value, .. } | SmallFileStep::AppendUntold(value) => {
                with(state.len(), value)
            }
            SmallFileStep::Read { place, value } => {
                is_so(state.get(place).copied().unwrap_or(0) == value)
            }
            SmallFileStep::Size(values) => is_so(state.len() as u64 == values),
            SmallFileStep::Empty => Some(Vec::new()),
        }
    }
}
