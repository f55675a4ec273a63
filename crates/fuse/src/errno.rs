//! From refusals to what the kernel understands.

use fuser::Errno;
use hayase_wire::message::Refused;

/// The errno of a refusal; its words go to the log.
pub(crate) fn errno(refused: &Refused) -> Errno {
    match &refused.why {
        Some(why) if refused.errno == libc::EIO => tracing::warn!(errno = refused.errno, "{why}"),
        Some(why) => tracing::debug!(errno = refused.errno, "{why}"),
        None => {}
    }
    Errno::from_i32(refused.errno)
}
