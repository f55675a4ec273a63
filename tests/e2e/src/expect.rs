//! Saying what was expected of a call.

use std::fmt::{Debug, Display, Formatter};
use std::time::{Duration, Instant};

use crate::patience::patient;

/// A call that failed on a node. `TIMEOUT` and `DEAD` stand where no errno came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Which node.
    pub node: u16,
    /// The call and its arguments.
    pub call: String,
    /// Name of the errno.
    pub errno: String,
}

impl Display for Refused {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "node {}: {}: {}", self.node, self.call, self.errno)
    }
}

impl std::error::Error for Refused {}

/// The call must fail with one of these.
///
/// # Errors
/// When it succeeded or failed otherwise.
pub fn expect_errno<T: Debug>(result: Result<T, Refused>, allowed: &[&str]) -> anyhow::Result<()> {
    match result {
        Err(refused) if allowed.contains(&refused.errno.as_str()) => Ok(()),
        Err(refused) => anyhow::bail!("{refused}, where {} was expected", allowed.join(" or ")),
        Ok(value) => {
            anyhow::bail!("succeeded with {value:?}, where {} was expected", allowed.join(" or "))
        }
    }
}

/// Asks until `check` is satisfied, at most for `bound`, longer on a [busy machine](patient); returns when was asked
/// the question that found it so: zero for the first one.
///
/// # Errors
/// What `check` said last, when the time is up.
pub fn eventually(
    bound: Duration,
    mut check: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Duration> {
    let start = Instant::now();
    let mut asked = Duration::ZERO;
    loop {
        match check() {
            Ok(()) => return Ok(asked),
            Err(error) if asked >= bound && asked >= patient(bound) => {
                return Err(error.context(format!("still so after {bound:?}")));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
        }
        // A question that begins within the bound decides; one more is asked after it.
        asked = start.elapsed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_errno_is_no_success() {
        let refused = |errno: &str| Refused { node: 1, call: "open".into(), errno: errno.into() };
        assert!(expect_errno::<()>(Err(refused("EIO")), &["EIO"]).is_ok());
        assert!(expect_errno::<()>(Err(refused("EIO")), &["ENOENT", "ESTALE"]).is_err());
        assert!(expect_errno(Ok(1), &["EIO"]).is_err());
    }

    #[test]
    fn eventually_ends() {
        assert!(eventually(Duration::from_millis(20), || anyhow::bail!("no")).is_err());
        let mut asked = 0;
        let third = || {
            asked += 1;
            anyhow::ensure!(asked == 3, "not yet");
            Ok(())
        };
        assert!(eventually(Duration::from_secs(5), third).is_ok());
    }
}
