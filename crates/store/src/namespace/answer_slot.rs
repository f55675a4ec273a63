//! Where an answer that is given again is kept, as the keys of the store and the operations name it.

/// Where the last answer to one sequence of requests is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AnswerSlot {
    /// Who asks.
    pub process: u64,
    /// In which of its sequences.
    pub slot: u32,
}
