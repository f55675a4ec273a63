//! Whose an unfinished upload is: written into its name, so that its owner finds what it left behind, and
//! nobody takes away somebody else's.
//!
//! A name is `.hayase-partial-<owner>.<attachment>.<random>`: the attachment, 64 random bits, tells what is on its
//! way now from what an earlier process of the same owner left. An owner holds no dot, so that none begins as
//! another one does.

use std::hash::{BuildHasher, RandomState};

use crate::key::TEMPORARY_PREFIX;

/// Longest name of an owner; with all that is added a name stays far below 255 bytes.
const OWNER_BYTES_MAX: usize = 96;

/// Who attaches a tier, the same after each start: one server of one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner(String);

/// A text that can not name an owner.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid owner of uploads `{0}`: use 1 to 96 characters of a-z, 0-9 and -")]
pub struct OwnerError(String);

impl Owner {
    /// Fails on an empty or long text, and on other letters than `a-z`, `0-9` and `-`.
    pub fn new(text: impl Into<String>) -> Result<Self, OwnerError> {
        let text = text.into();
        let fits = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
        match (1..=OWNER_BYTES_MAX).contains(&text.len()) && text.bytes().all(fits) {
            true => Ok(Self(text)),
            false => Err(OwnerError(text)),
        }
    }
}

/// How names of one attachment begin.
#[derive(Debug)]
pub(crate) struct Attachment {
    /// Of every attachment of the owner.
    owner_prefix: Vec<u8>,
    /// Of this one.
    prefix: Vec<u8>,
}

impl Attachment {
    pub(crate) fn of(owner: &Owner) -> Self {
        let owner_prefix = [TEMPORARY_PREFIX, owner.0.as_bytes(), b"."].concat();
        let number = format!("{:016x}.", RandomState::new().hash_one(0));
        Self { prefix: [&owner_prefix, number.as_bytes()].concat(), owner_prefix }
    }

    pub(crate) fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// An earlier attachment of the owner gave this name.
    pub(crate) fn is_left_over(&self, name: &[u8]) -> bool {
        name.starts_with(&self.owner_prefix) && !name.starts_with(&self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_knows_its_own_names_and_no_others() {
        let own = |text: &str| Attachment::of(&Owner::new(text).unwrap());
        let name = |of: &Attachment| [of.prefix(), b"0123456789abcdef"].concat();
        let (earlier, now) = (own("job-1"), own("job-1"));
        assert!(now.is_left_over(&name(&earlier)) && earlier.is_left_over(&name(&now)));
        assert!(!now.is_left_over(&name(&now)));
        for other in ["job-12", "job", "job-1-2"] {
            assert!(!now.is_left_over(&name(&own(other))), "{other}");
        }
        assert!(!now.is_left_over(b".hayase-partial-0123456789abcdef"));
        assert!(!now.is_left_over(b"job-1.file"));
    }

    #[test]
    fn owners_have_plain_names() {
        let long = "x".repeat(OWNER_BYTES_MAX + 1);
        for bad in ["", "a.b", "a/b", "A", &long] {
            assert_eq!(Owner::new(bad), Err(OwnerError(bad.to_owned())));
        }
    }
}
