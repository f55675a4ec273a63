//! A place: a directory of a tier, where a tree is copied from or to.

use std::sync::Arc;

use hayase_tier::{Key, KeyError, Tier};

/// A tier, and the directory in it that names are relative to.
#[derive(Clone, Debug)]
pub struct Place {
    /// Where it is.
    pub tier: Arc<dyn Tier>,
    /// Empty (the tier's root), or ends with `/`.
    prefix: Vec<u8>,
}

impl Place {
    /// The root of a tier.
    pub fn root(tier: Arc<dyn Tier>) -> Self {
        Self { tier, prefix: Vec::new() }
    }

    /// The directory `directory` of a tier; slashes at its ends do not matter.
    pub fn below(tier: Arc<dyn Tier>, directory: &[u8]) -> Result<Self, KeyError> {
        let trimmed = directory.strip_prefix(b"/").unwrap_or(directory);
        let trimmed = trimmed.strip_suffix(b"/").unwrap_or(trimmed);
        let mut prefix = trimmed.to_vec();
        if !prefix.is_empty() {
            Key::new(&prefix)?;
            prefix.push(b'/');
        }
        Ok(Self { tier, prefix })
    }

    /// Empty, or ends with `/`.
    pub fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// The key of `name` here. Fails when the two together are longer than a key may be.
    pub fn key(&self, name: impl AsRef<[u8]>) -> Result<Key, KeyError> {
        Key::new([self.prefix.as_slice(), name.as_ref()].concat())
    }

    /// For people.
    pub fn describe(&self) -> String {
        if self.prefix.is_empty() {
            return self.tier.describe();
        }
        format!("{} in {}", self.prefix.escape_ascii(), self.tier.describe())
    }
}
