//! The id of a container, which its mark and the headers of its indexes bear.

use std::fmt;

use crate::directory::random;

/// Stays with a container wherever it is moved: 128 random bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContainerId(pub [u8; 16]);

impl ContainerId {
    pub(crate) fn random() -> Self {
        let (high, low) = (random().to_le_bytes(), random().to_le_bytes());
        Self(std::array::from_fn(|at| if at < 8 { high[at] } else { low[at - 8] }))
    }
}

impl fmt::Display for ContainerId {
    /// 32 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
