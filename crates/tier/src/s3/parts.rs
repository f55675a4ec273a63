//! An object that several threads send in parts, in any order, each straight from its own memory.
//!
//! Not here: an upload by one writer, which holds parts back ([`super::upload`]).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::client::Client;
use super::commit::{Condition, Conditional};
use super::kept::{self, Begun, Found, Record};
use super::limits::{PART_BYTES_MIN, PARTS_MAX};
use super::multipart::{self, Multipart, Part};
use super::upload;
use crate::{Action, Attributes, ObjectMeta, PartsUpload, Precondition, TierError, UploadOf};

struct ObjectParts {
    client: Arc<Client>,
    key: String,
    conditional: Conditional,
    of: UploadOf,
    multipart: Multipart,
    sent: Mutex<Vec<Part>>,
    /// Of one that outlives this process.
    kept: Option<Kept>,
}

struct Kept {
    record: Record,
    /// What earlier processes sent, by number, counted from 1.
    found: BTreeMap<u32, Found>,
}

fn is_possible(of: UploadOf) -> bool {
    of.part_bytes >= PART_BYTES_MIN && (1..=PARTS_MAX.into()).contains(&of.parts())
}

/// `None` when the server takes no parts of this size, or not so many.
pub(super) fn begin(
    client: &Arc<Client>,
    key: String,
    attributes: Attributes,
    (size, part_bytes): (u64, u64),
    conditional: Conditional,
) -> Result<Option<Box<dyn PartsUpload>>, TierError> {
    let of = UploadOf { version: 0, size, part_bytes };
    if !is_possible(of) {
        return Ok(None);
    }
    let multipart = Multipart::begin(client, &key, attributes, Some(part_bytes))
        .map_err(|fault| client.failed(Action::Begin, &key, fault))?;
    let (client, sent) = (Arc::clone(client), Mutex::default());
    Ok(Some(Box::new(ObjectParts { client, key, conditional, of, multipart, sent, kept: None })))
}

/// Goes on with what was begun of the same, or begins it; `None` also where it can not be remembered.
pub(super) fn resume(
    client: &Arc<Client>,
    key: String,
    attributes: Attributes,
    of: UploadOf,
    conditional: Conditional,
) -> Result<Option<Box<dyn PartsUpload>>, TierError> {
    let record = if is_possible(of) { Record::claim(client, &key) } else { None };
    let Some(record) = record else { return Ok(None) };
    let failed = |fault| client.failed(Action::Begin, &key, fault);
    let begun = |id: &str, token: &str| Begun::new(client, &key, (attributes, of), (id, token));
    let former = record.read().filter(|former| former.is_at(client, &key));
    let resumed = match former {
        Some(former) if former.is_same(&begun("", "")) => {
            match kept::parts(client, &key, &former.id).map_err(failed) {
                Ok(found) => Ok((Multipart::resumed(client, &key, former.id, former.token), found)),
                Err(away @ TierError::Unavailable { .. }) => return Err(away),
                // It is gone, or may not be looked at.
                Err(_) => Err(Some(former.id)),
            }
        }
        other => Err(other.map(|other| other.id)),
    };
    let (multipart, found) = match resumed {
        Ok(resumed) => resumed,
        Err(former) => {
            if let Some(id) = former {
                // Nobody remembers it from here on. Where that fails it is left to `sweep`.
                let _ = multipart::abort(client, &key, &id);
            }
            let multipart = Multipart::begin(client, &key, attributes, Some(of.part_bytes));
            let multipart = multipart.map_err(failed)?;
            if record.write(&begun(multipart.id(), multipart.token())).is_none() {
                record.remove();
                return Ok(None);
            }
            (multipart, BTreeMap::new())
        }
    };
    let (client, sent, kept) = (Arc::clone(client), Mutex::default(), Some(Kept { record, found }));
    Ok(Some(Box::new(ObjectParts { client, key, conditional, of, multipart, sent, kept })))
}

impl ObjectParts {
    fn path(&self) -> String {
        format!("s3://{}/{}", self.client.settings.bucket, self.key)
    }

    fn take(&self, part: Part) {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner).push(part);
    }

    fn join(&mut self, precondition: Precondition) -> Result<ObjectMeta, TierError> {
        let condition =
            Condition::of(&self.client, &self.key, precondition, self.conditional, false)?;
        let sent = std::mem::take(self.sent.get_mut().unwrap_or_else(PoisonError::into_inner));
        self.multipart.take(sent);
        if self.multipart.sent() as u64 != self.of.parts() {
            return Err(upload::lost(Action::Commit, self.path()));
        }
        upload::finish(&mut self.multipart, self.of.size, &self.client, &self.key, &condition)
    }

    /// From here on it is an upload like any other, which ends with this process.
    fn forget(&mut self) {
        if let Some(kept) = self.kept.take() {
            kept.record.remove();
        }
    }
}

impl PartsUpload for ObjectParts {
    fn is_kept(&self, number: u32, data: &[u8]) -> bool {
        let found = self.kept.as_ref().and_then(|kept| kept.found.get(&(number + 1)));
        let part = found.and_then(|found| found.with(number + 1, data));
        let is_kept = part.is_some() && data.len() as u64 == self.of.len(number);
        part.into_iter().filter(|_| is_kept).for_each(|part| self.take(part));
        is_kept
    }

    fn discard(mut self: Box<Self>) {
        self.forget();
    }

    fn put_part(&self, number: u32, data: &[u8]) -> Result<(), TierError> {
        if data.is_empty() || data.len() as u64 != self.of.len(number) {
            return Err(TierError::Unsupported { action: Action::Write, path: self.path() });
        }
        let part = self.multipart.send_now(number + 1, data);
        self.take(part.map_err(|fault| self.client.failed(Action::Write, &self.key, fault))?);
        Ok(())
    }

    fn commit(mut self: Box<Self>, precondition: Precondition) -> Result<ObjectMeta, TierError> {
        let joined = self.join(precondition);
        // Out of reach, it may be done or be resumed; otherwise nothing becomes of it.
        if !matches!(joined, Err(TierError::Unavailable { .. })) {
            self.forget();
        }
        joined
    }
}

impl Drop for ObjectParts {
    fn drop(&mut self) {
        if self.kept.is_some() {
            self.multipart.done();
        }
    }
}
