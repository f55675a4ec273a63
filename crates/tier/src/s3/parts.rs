//! An object that several threads send in parts, in any order, each straight from its own memory.
//!
//! Not here: an upload by one writer, which holds parts back ([`super::upload`]).

use std::sync::{Arc, Mutex, PoisonError};

use super::client::Client;
use super::limits::{PART_BYTES_MIN, PARTS_MAX};
use super::multipart::{Multipart, Part};
use super::probe::Conditional;
use super::upload;
use crate::{Action, Attributes, ObjectMeta, PartsUpload, Precondition, TierError};

struct ObjectParts {
    client: Arc<Client>,
    key: String,
    conditional: Conditional,
    size: u64,
    part_bytes: u64,
    multipart: Multipart,
    sent: Mutex<Vec<Part>>,
}

/// `None` when the server takes no parts of this size, or not so many.
pub(super) fn begin(
    client: &Arc<Client>,
    key: String,
    attributes: Attributes,
    (size, part_bytes): (u64, u64),
    conditional: Conditional,
) -> Result<Option<Box<dyn PartsUpload>>, TierError> {
    let is_possible = part_bytes >= PART_BYTES_MIN && size.div_ceil(part_bytes) <= PARTS_MAX.into();
    if size == 0 || !is_possible {
        return Ok(None);
    }
    let multipart = Multipart::begin(client, &key, attributes, Some(part_bytes))
        .map_err(|fault| client.failed(Action::Begin, &key, fault))?;
    let client = Arc::clone(client);
    let sent = Mutex::default();
    Ok(Some(Box::new(ObjectParts { client, key, conditional, size, part_bytes, multipart, sent })))
}

impl ObjectParts {
    fn path(&self) -> String {
        format!("s3://{}/{}", self.client.settings.bucket, self.key)
    }

    /// Bytes of a part; 0 when there is none of this number.
    fn len(&self, number: u32) -> u64 {
        let begin = u64::from(number).saturating_mul(self.part_bytes);
        self.size.saturating_sub(begin).min(self.part_bytes)
    }
}

impl PartsUpload for ObjectParts {
    fn put_part(&self, number: u32, data: &[u8]) -> Result<(), TierError> {
        if data.is_empty() || data.len() as u64 != self.len(number) {
            return Err(TierError::Unsupported { action: Action::Write, path: self.path() });
        }
        let part = self.multipart.send_now(number + 1, data);
        let part = part.map_err(|fault| self.client.failed(Action::Write, &self.key, fault))?;
        self.sent.lock().unwrap_or_else(PoisonError::into_inner).push(part);
        Ok(())
    }

    fn commit(mut self: Box<Self>, precondition: Precondition) -> Result<ObjectMeta, TierError> {
        upload::require(&self.client, &self.key, precondition, self.conditional, false)?;
        let sent = std::mem::take(self.sent.get_mut().unwrap_or_else(PoisonError::into_inner));
        self.multipart.take(sent);
        if self.multipart.sent() as u64 != self.size.div_ceil(self.part_bytes) {
            return Err(upload::lost(Action::Commit, self.path()));
        }
        let absent = precondition == Precondition::Absent;
        let Self { client, key, size, multipart, .. } = *self;
        upload::finish(multipart, size, &client, &key, absent)
    }
}
