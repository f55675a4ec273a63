//! What a directory asks for its new files.
//!
//! Here: the rule itself, its limits, its text form.
//! Not here: which servers it means for one file ([`crate::placement`]), the arithmetic ([`crate::stripe`]).

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::ByteCount;

/// Smallest stripe: a page, so that no page lies on two servers.
pub const STRIPE_BYTES_MIN: ByteCount = ByteCount::kib(4);

/// Largest stripe.
pub const STRIPE_BYTES_MAX: ByteCount = ByteCount::gib(1);

/// Stripes are multiples of this.
pub const STRIPE_BYTES_STEP: ByteCount = ByteCount::kib(4);

/// The stripe where nobody asked for another: one transfer slot, so that a unit is one request.
pub const STRIPE_BYTES_DEFAULT: ByteCount = ByteCount::mib(1);

/// Stripe new files below a directory over several servers (`hayase layout set`), inherited by
/// its new subdirectories. Without a policy a new file is `Whole` on its creator's node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StripePolicy {
    /// Bytes dealt to one server before the next one's turn; a multiple of 4 KiB, 4 KiB to 1 GiB.
    pub stripe: ByteCount,
    /// How many servers; 0 means all of the job.
    pub width: u16,
}

/// Why a stripe rule can not be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// The stripe is out of bounds or not whole pages.
    #[error("a stripe of {} bytes: expected a multiple of {STRIPE_BYTES_STEP}, from {STRIPE_BYTES_MIN} to {STRIPE_BYTES_MAX}", .stripe.0)]
    Stripe {
        /// What was asked for.
        stripe: ByteCount,
    },
    /// More servers than the job has.
    #[error("a width of {width} is more than the {servers} servers of this job")]
    Width {
        /// What was asked for.
        width: u16,
        /// What there is.
        servers: u16,
    },
    /// Not the text of a policy.
    #[error(
        "`{text}` is not a layout: write `whole` or `striped:<bytes>:<width>`, for example `striped:1048576:8`"
    )]
    Text {
        /// What was given.
        text: String,
    },
}

impl PolicyError {
    /// What the user can try next.
    pub fn help(&self) -> Option<&'static str> {
        match self {
            Self::Stripe { .. } => Some("1MiB suits most files: it is the size of one request"),
            Self::Width { .. } => Some("a width of 0 means all servers of the job"),
            Self::Text { .. } => None,
        }
    }
}

/// Fails when `stripe` is out of bounds or not whole pages.
pub fn check_stripe(stripe: ByteCount) -> Result<(), PolicyError> {
    let in_bounds = STRIPE_BYTES_MIN <= stripe && stripe <= STRIPE_BYTES_MAX;
    if in_bounds && stripe.0.is_multiple_of(STRIPE_BYTES_STEP.0) {
        Ok(())
    } else {
        Err(PolicyError::Stripe { stripe })
    }
}

impl StripePolicy {
    /// Fails when the rule makes no sense in a job of so many servers.
    pub fn check(self, servers: u16) -> Result<(), PolicyError> {
        check_stripe(self.stripe)?;
        if self.width > servers {
            return Err(PolicyError::Width { width: self.width, servers });
        }
        Ok(())
    }
}

impl fmt::Display for StripePolicy {
    /// `striped:<bytes>:<width>`, the form that [`StripePolicy::from_str`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "striped:{}:{}", self.stripe.0, self.width)
    }
}

impl FromStr for StripePolicy {
    type Err = PolicyError;

    /// Reads `striped:<bytes>:<width>`; the bytes may have a unit. The stripe is checked, the width is
    /// not: it depends on the job.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || PolicyError::Text { text: text.to_owned() };
        let (stripe, width) = text
            .strip_prefix("striped:")
            .and_then(|rule| rule.split_once(':'))
            .ok_or_else(wrong)?;
        let stripe = stripe.parse().map_err(|_| wrong())?;
        let width = width.parse().map_err(|_| wrong())?;
        check_stripe(stripe)?;
        Ok(Self { stripe, width })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_checked_against_the_job() {
        let check = |stripe, width, servers, valid| {
            let policy = StripePolicy { stripe: ByteCount(stripe), width };
            assert_eq!(policy.check(servers).is_ok(), valid, "{policy} over {servers}");
        };
        check(4096, 1, 1, true);
        check(1 << 30, 0, 3, true);
        check(1 << 20, 3, 3, true);
        check(1 << 20, 4, 3, false);
        check(0, 1, 3, false);
        check(4095, 1, 3, false);
        check(6144, 1, 3, false);
        check((1 << 30) + 4096, 1, 3, false);
    }

    #[test]
    fn policies_are_read_as_they_are_shown() {
        let check = |text: &str, read: Option<(u64, u16)>| {
            let policy = text.parse::<StripePolicy>().ok();
            assert_eq!(policy.map(|policy| (policy.stripe.0, policy.width)), read, "{text}");
        };
        check("striped:1048576:8", Some((1 << 20, 8)));
        check("striped:64KiB:0", Some((64 << 10, 0)));
        check("striped:5000:0", None);
        check("striped:1048576", None);
        check("striped:1048576:8:1", None);
        check("striped:1048576:65536", None);
        check("striped:1048576:-1", None);
        check("whole", None);
        let policy = StripePolicy { stripe: ByteCount::mib(4), width: 3 };
        assert_eq!(policy.to_string().parse(), Ok(policy));
    }
}
