//! What a directory asks for its new files.

use serde::{Deserialize, Serialize};

use crate::ByteCount;

/// Stripe new files below a directory over several servers (`hayase layout set`), inherited by
/// its new subdirectories. Without a policy a new file is `Whole` on its creator's node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StripePolicy {
    /// Bytes dealt to one server before the next one's turn; a multiple of 4 KiB, 4 KiB to 1 GiB.
    pub stripe: ByteCount,
    /// How many servers; 0 means all of the job.
    pub width: u16,
}
