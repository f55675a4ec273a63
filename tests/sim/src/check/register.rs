//! A place that holds one value: a block of a file.

use super::linear::Specification;

/// Holds 0 at first.
pub(crate) struct Register;

/// A call on it.
#[derive(Clone, Debug)]
pub(crate) enum RegisterStep {
    Write(u64),
    /// With what it answered.
    Read(u64),
}

impl Specification for Register {
    type State = u64;
    type Step = RegisterStep;

    fn begin(&self) -> u64 {
        0
    }

    fn after(&self, state: &u64, step: &RegisterStep) -> Option<u64> {
        match step {
            RegisterStep::Write(value) => Some(*value),
            RegisterStep::Read(value) => (value == state).then_some(*state),
        }
    }
}
