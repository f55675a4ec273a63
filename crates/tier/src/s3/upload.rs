//! Writing one object: small ones in one request, large ones in parts while the caller goes on.
//!
//! Invariants:
//! 1. Memory holds the last full part (`held`), the growing one (`current`) and those on their way, so
//!    a write may reach back by one part: [`crate::Capabilities::write_window`].
//! 2. Parts are sent in order of their numbers, at most `streams` at a time.
//! 3. A commit that is told "it exists" or "no such upload" looks whether that was its own work, done by
//!    an attempt whose answer was lost.

use std::sync::Arc;

use super::checksum::{self, Sum};
use super::client::{Client, Request};
use super::commit::{Condition, Conditional, committed, object_headers};
use super::fault::Fault;
use super::limits::{PARTS_MAX, PARTS_PER_SIZE, PUT_PARTS_MAX};
use super::multipart::{Multipart, part_bytes};
use super::object::{self, META_UPLOAD, Seen};
use crate::{Action, Attributes, ObjectMeta, Precondition, TierError, Upload};

struct ObjectUpload {
    client: Arc<Client>,
    key: String,
    attributes: Attributes,
    conditional: Conditional,
    /// Where `held`, or else `current`, begins in the object.
    base: u64,
    /// Empty, or one full part.
    held: Vec<u8>,
    current: Vec<u8>,
    multipart: Option<Multipart>,
    /// A part was lost: nothing more can become of this upload.
    broken: bool,
}

pub(super) fn begin(
    client: &Arc<Client>,
    key: String,
    attributes: Attributes,
    conditional: Conditional,
) -> Box<dyn Upload> {
    Box::new(ObjectUpload {
        client: Arc::clone(client),
        key,
        attributes,
        conditional,
        base: 0,
        held: Vec::new(),
        current: Vec::new(),
        multipart: None,
        broken: false,
    })
}

/// Most bytes that the upload of an object of `size` bytes holds: the part that is kept, the one that
/// grows, and those on their way.
pub(super) fn memory(client: &Client, size: u64) -> u64 {
    let (mut part, mut number, mut reached) = (part_bytes(client, 0) as u64, 0, 0_u64);
    while number < PARTS_MAX && reached < size {
        part = part_bytes(client, number) as u64;
        reached = reached.saturating_add(part.saturating_mul(PARTS_PER_SIZE.into()));
        number += PARTS_PER_SIZE;
    }
    let parts = client.settings.streams.max(1) as u64 + 2;
    size.min(part.saturating_mul(parts))
}

/// An object from memory: one request, or parts straight from the caller's memory.
pub(super) fn put(
    client: &Arc<Client>,
    key: &str,
    attributes: Attributes,
    data: &[u8],
    (precondition, conditional): (Precondition, Conditional),
) -> Result<ObjectMeta, TierError> {
    let single = data.len() <= part_bytes(client, 0) * PUT_PARTS_MAX;
    let condition = Condition::of(client, key, precondition, conditional, single)?;
    let failed = |fault| client.failed(Action::Commit, key, fault);
    if single {
        let headers = object_headers(client, attributes);
        return put_single(client, key, headers, &[data], &condition);
    }
    let mut multipart = Multipart::begin(client, key, attributes, None).map_err(failed)?;
    multipart.send_all(data).map_err(failed)?;
    finish(&mut multipart, data.len() as u64, client, key, &condition)
}

/// An object that stands for something else, with these headers.
pub(super) fn put_mark(
    client: &Client,
    key: &str,
    headers: Vec<(String, String)>,
    bytes: &[u8],
) -> Result<(), Fault> {
    let crc = checksum::crc32c(&[bytes]);
    let pieces = [bytes];
    let body: &[&[u8]] = if bytes.is_empty() { &[] } else { &pieces };
    let sum = Sum::knowing(client.settings.checksum, body, Some(crc));
    let mut request = Request::new("PUT", Some(key))
        .headers(headers)
        .header(checksum::OWN, checksum::own(crc, bytes.len() as u64))
        .body(body);
    request.headers.extend(sum.map(|sum| sum.header()));
    client.call(&request, client.settings.attempts, |_| Ok(()))
}

fn put_single(
    client: &Client,
    key: &str,
    headers: Vec<(String, String)>,
    pieces: &[&[u8]],
    condition: &Condition,
) -> Result<ObjectMeta, TierError> {
    let size = pieces.iter().map(|piece| piece.len() as u64).sum();
    let (token, crc) = (client.token(), checksum::crc32c(pieces));
    let sum = Sum::knowing(client.settings.checksum, pieces, Some(crc));
    let mut request = Request::new("PUT", Some(key))
        .headers(headers)
        .header(checksum::OWN, checksum::own(crc, size))
        .body(pieces);
    request.headers.extend(sum.map(|sum| sum.header()));
    if let Some(header) = condition.header() {
        request.headers.push(header);
        request = request.header(META_UPLOAD, token.clone());
    }
    let answer = client.call(&request, client.settings.attempts, |exchange| {
        Ok(committed(exchange.head().get("etag"), exchange.head().get("date"), size))
    });
    settle(client, key, answer, &token, condition)
}

/// Turns the answer to a commit into the truth: an attempt whose answer was lost may have done it.
fn settle(
    client: &Client,
    key: &str,
    answer: Result<Option<ObjectMeta>, Fault>,
    token: &str,
    condition: &Condition,
) -> Result<ObjectMeta, TierError> {
    let failed = |fault| client.failed(Action::Commit, key, fault);
    let path = || format!("s3://{}/{key}", client.settings.bucket);
    match answer {
        Ok(Some(meta)) => Ok(meta),
        // A server that names no version when it makes one.
        Ok(None) => object::head(client, key).map(|seen| seen.meta).map_err(failed),
        Err(fault) if fault.is_unmet() || fault.is_missing() || fault.has_code("NoSuchUpload") => {
            // An object that was to match and is gone: some servers call that a condition, others a missing object.
            let is_unmet = fault.is_unmet()
                || matches!(condition, Condition::Matches(_)) && fault.is_missing();
            match object::head(client, key) {
                Ok(Seen { meta, upload: Some(there), .. }) if there == token => Ok(meta),
                Ok(_) if is_unmet => Err(condition.unmet(path())),
                Err(gone) if is_unmet && gone.is_missing() => Err(condition.unmet(path())),
                _ => Err(failed(fault)),
            }
        }
        Err(fault) => Err(failed(fault)),
    }
}

pub(super) fn finish(
    multipart: &mut Multipart,
    size: u64,
    client: &Client,
    key: &str,
    condition: &Condition,
) -> Result<ObjectMeta, TierError> {
    let token = multipart.token().to_owned();
    let answer = multipart.complete(size, condition);
    let settled = settle(client, key, answer, &token, condition);
    if settled.is_ok() {
        multipart.done();
    }
    settled
}

impl ObjectUpload {
    fn failed(&self, action: Action, fault: Fault) -> TierError {
        self.client.failed(action, &self.key, fault)
    }

    fn end(&self) -> u64 {
        self.base + (self.held.len() + self.current.len()) as u64
    }

    /// How long the part in `current` may get.
    fn current_max(&self) -> usize {
        let sent = self.multipart.as_ref().map_or(0, Multipart::parts);
        part_bytes(&self.client, sent + u32::from(!self.held.is_empty()))
    }

    /// Adds `len` bytes at the end, each piece by `put(current, how many)`.
    fn append(
        &mut self,
        mut len: u64,
        mut put: impl FnMut(&mut Vec<u8>, usize),
    ) -> Result<(), Fault> {
        while len > 0 {
            let room = self.current_max() - self.current.len();
            let count = usize::try_from(len).unwrap_or(usize::MAX).min(room);
            if self.current.is_empty() && count == room {
                self.current.reserve_exact(count);
            }
            put(&mut self.current, count);
            len -= count as u64;
            if count == room {
                self.rotate()?;
            }
        }
        Ok(())
    }

    /// `current` is full: it becomes the one that is held, and the one held before is sent.
    fn rotate(&mut self) -> Result<(), Fault> {
        let full = std::mem::take(&mut self.current);
        let before = std::mem::replace(&mut self.held, full);
        self.send(before)
    }

    fn send(&mut self, part: Vec<u8>) -> Result<(), Fault> {
        if part.is_empty() {
            return Ok(());
        }
        self.base += part.len() as u64;
        let multipart = match &mut self.multipart {
            Some(multipart) => multipart,
            none => none.insert(Multipart::begin(&self.client, &self.key, self.attributes, None)?),
        };
        if let Some(spare) = multipart.send(part)? {
            self.current = spare;
        }
        Ok(())
    }

    /// Overwrites bytes that are still here.
    fn patch(&mut self, offset: u64, data: &[u8]) {
        let at = usize::try_from(offset - self.base).expect("within two parts");
        let in_held = self.held.len().saturating_sub(at).min(data.len());
        if in_held > 0 {
            self.held[at..at + in_held].copy_from_slice(&data[..in_held]);
        }
        let rest = &data[in_held..];
        if !rest.is_empty() {
            let at = at + in_held - self.held.len();
            self.current[at..at + rest.len()].copy_from_slice(rest);
        }
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), Fault> {
        let gap = offset.saturating_sub(self.end());
        self.append(gap, |part, count| part.resize(part.len() + count, 0))?;
        let known = usize::try_from(self.end() - offset).unwrap_or(usize::MAX).min(data.len());
        let (old, new) = data.split_at(known);
        self.patch(offset, old);
        let mut new = new;
        self.append(new.len() as u64, |part, count| {
            let (now, later) = new.split_at(count);
            part.extend_from_slice(now);
            new = later;
        })
    }
}

pub(super) fn lost(action: Action, path: String) -> TierError {
    let source = std::io::Error::other("a part of this upload could not be sent before");
    TierError::Io { action, path, source }
}

impl Upload for ObjectUpload {
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), TierError> {
        let path = || format!("s3://{}/{}", self.client.settings.bucket, self.key);
        if data.is_empty() {
            return Ok(());
        }
        let window = self.client.settings.part_bytes.get();
        if self.broken {
            return Err(lost(Action::Write, path()));
        }
        if offset < self.base || self.end().saturating_sub(offset) > window {
            return Err(TierError::Unsupported { action: Action::Write, path: path() });
        }
        if offset.checked_add(data.len() as u64).is_none_or(|end| end > i64::MAX as u64) {
            return Err(TierError::Full { action: Action::Write, path: path() });
        }
        self.write(offset, data).map_err(|fault| {
            self.broken = true;
            self.failed(Action::Write, fault)
        })
    }

    fn commit(mut self: Box<Self>, precondition: Precondition) -> Result<ObjectMeta, TierError> {
        let (client, key) = (Arc::clone(&self.client), std::mem::take(&mut self.key));
        let single = self.multipart.is_none();
        let condition = Condition::of(&client, &key, precondition, self.conditional, single)?;
        if self.broken {
            let path = format!("s3://{}/{key}", client.settings.bucket);
            return Err(lost(Action::Commit, path));
        }
        if self.multipart.is_none() {
            let pieces: [&[u8]; 2] = [&self.held, &self.current];
            let headers = object_headers(&client, self.attributes);
            return put_single(&client, &key, headers, &pieces, &condition);
        }
        let size = self.end();
        let failed = |fault| client.failed(Action::Commit, &key, fault);
        let (held, current) = (std::mem::take(&mut self.held), std::mem::take(&mut self.current));
        self.send(held).map_err(failed)?;
        self.send(current).map_err(failed)?;
        let mut multipart = self.multipart.take().expect("seen above");
        finish(&mut multipart, size, &client, &key, &condition)
    }
}
