//! Requests that commit an object: what they ask the server to check, what they say of the object, what is answered.
//!
//! Not here: which conditions this server obeys ([`super::probe`]); sending them ([`super::upload`],
//! [`super::multipart`]).

use std::time::SystemTime;

use super::client::Client;
use super::date;
use super::object::{self, Stands};
use crate::{Action, Attributes, ObjectMeta, Precondition, TierError};

/// Where a condition on a write is obeyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Obeyed {
    /// Nowhere.
    Never,
    /// When an object is put with one request.
    Single,
    /// Also when parts are joined.
    Always,
}

/// The conditions on writes and removals that we make use of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Conditional {
    /// `If-None-Match: *`.
    pub(super) absent: Obeyed,
    /// `If-Match` with an entity tag, on writes.
    pub(super) matches: Obeyed,
    /// The same on removals: there are servers that obey one of the two.
    pub(super) removals: bool,
}

impl Conditional {
    pub(super) const NEVER: Self =
        Self { absent: Obeyed::Never, matches: Obeyed::Never, removals: false };
    pub(super) const ALWAYS: Self =
        Self { absent: Obeyed::Always, matches: Obeyed::Always, removals: true };
}

/// What a request that commits an object asks the server to check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    None,
    /// No object is there.
    Absent,
    /// The version with this entity tag is there.
    Matches(String),
}

impl Condition {
    /// Of an object that is put with a `single` request, or joined of parts.
    ///
    /// # Errors
    /// `Unsupported` for a condition that this server does not know, `Changed` when another version is there already.
    pub(super) fn of(
        client: &Client,
        key: &str,
        precondition: Precondition,
        conditional: Conditional,
        single: bool,
    ) -> Result<Self, TierError> {
        let is_obeyed = |obeyed| match obeyed {
            Obeyed::Always => true,
            Obeyed::Single => single,
            Obeyed::Never => false,
        };
        let path = || format!("s3://{}/{key}", client.settings.bucket);
        match precondition {
            Precondition::Any => Ok(Self::None),
            Precondition::Absent if is_obeyed(conditional.absent) => Ok(Self::Absent),
            Precondition::Absent => {
                Err(TierError::Unsupported { action: Action::Commit, path: path() })
            }
            Precondition::Matches(identity) => {
                let changed = || TierError::Changed { action: Action::Commit, path: path() };
                let seen = match object::head(client, key) {
                    Ok(seen) if seen.meta.identity == identity => seen,
                    Ok(_) => return Err(changed()),
                    Err(fault) if fault.is_missing() => return Err(changed()),
                    Err(fault) => return Err(client.failed(Action::Commit, key, fault)),
                };
                let etag = seen.etag.filter(|_| is_obeyed(conditional.matches));
                Ok(etag.map_or(Self::None, Self::Matches))
            }
        }
    }

    pub(super) fn header(&self) -> Option<(String, String)> {
        match self {
            Self::None => None,
            Self::Absent => Some(("if-none-match".to_owned(), "*".to_owned())),
            Self::Matches(etag) => Some(("if-match".to_owned(), etag.clone())),
        }
    }

    /// What it means that it was not met.
    pub(super) fn unmet(&self, path: String) -> TierError {
        let action = Action::Commit;
        match self {
            Self::Matches(_) => TierError::Changed { action, path },
            _ => TierError::Exists { action, path },
        }
    }
}

/// Headers of a new object, whichever way it is written.
pub(super) fn object_headers(client: &Client, attributes: Attributes) -> Vec<(String, String)> {
    let mut headers = client.encryption_headers(true);
    headers.extend(object::attribute_headers(Stands::File, attributes));
    headers
}

/// What a commit answers without asking again.
pub(super) fn committed(etag: Option<&str>, date: Option<&str>, size: u64) -> Option<ObjectMeta> {
    let now = date.and_then(date::parse_http).unwrap_or_else(SystemTime::now);
    etag.map(|etag| object::meta(size, Some(now), Some(etag)))
}
