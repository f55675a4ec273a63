//! Reading one version: ranges straight into the caller's memory, large ones over several connections.
//!
//! Every answer is compared with the version that was opened (entity tag and size), so bytes of another
//! one are never delivered.

use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

use super::checksum;
use super::client::{Client, Request};
use super::fault::Fault;
use super::http::{Exchange, Head};
use super::object::{self, Seen, Told};
use crate::{Action, Attributes, ObjectMeta, Reader, TierError};

struct Object {
    client: Arc<Client>,
    key: String,
    meta: ObjectMeta,
    /// As the server wrote it; not known before the first answer about a listed version.
    etag: OnceLock<String>,
    told: OnceLock<Told>,
    /// Its first bytes, which came with the open.
    first: Vec<u8>,
}

/// Opens the version that is there now: one request, which also brings the first bytes.
pub(super) fn open(client: &Arc<Client>, key: String) -> Result<Box<dyn Reader>, TierError> {
    let wanted = client.settings.first_bytes.get().max(1);
    let request = get(client, &key, Some(0..wanted));
    let answer =
        client.call(&request, client.settings.attempts, |exchange| first(exchange, wanted));
    let answer = match answer {
        // An empty object has no first byte.
        Err(fault) if fault.has_code("InvalidRange") || is_out_of_range(&fault) => {
            object::head(client, &key).map(|seen| (seen, Vec::new()))
        }
        answer => answer,
    };
    let (seen, first) = answer.map_err(|fault| client.failed(Action::Open, &key, fault))?;
    let object = Object {
        client: Arc::clone(client),
        key,
        meta: seen.meta,
        etag: OnceLock::new(),
        told: OnceLock::from(seen.told),
        first,
    };
    object.learn(&seen);
    Ok(Box::new(object))
}

/// Opens a version that a listing told of, without asking.
pub(super) fn listed(client: &Arc<Client>, key: String, meta: ObjectMeta) -> Box<dyn Reader> {
    Box::new(Object {
        client: Arc::clone(client),
        key,
        meta,
        etag: OnceLock::new(),
        told: OnceLock::new(),
        first: Vec::new(),
    })
}

fn is_out_of_range(fault: &Fault) -> bool {
    matches!(fault, Fault::Answer(answer) if answer.status == 416)
}

fn get<'a>(client: &Client, key: &'a str, range: Option<Range<u64>>) -> Request<'a> {
    let request = Request::new("GET", Some(key))
        .headers(client.encryption_headers(false))
        .header("x-amz-checksum-mode", "ENABLED");
    match range {
        Some(range) => request.header("range", format!("bytes={}-{}", range.start, range.end - 1)),
        None => request,
    }
}

/// The version and its first bytes, at most `wanted`.
fn first(exchange: &mut Exchange<'_>, wanted: u64) -> Result<(Seen, Vec<u8>), Fault> {
    let (start, size) = place(exchange)?;
    if start != 0 {
        return Err(Fault::Corrupt("the server sent another range than was asked for".into()));
    }
    let seen = Seen::of(exchange.head(), size);
    let mut bytes = vec![0; usize::try_from(size.min(wanted)).unwrap_or(0)];
    fill(exchange, &mut bytes)?;
    if bytes.len() as u64 == size {
        checksum::verify(exchange.head(), &bytes).map_err(Fault::Corrupt)?;
    }
    Ok((seen, bytes))
}

/// Where the body begins in the object, and how large the object is.
fn place(exchange: &Exchange<'_>) -> Result<(u64, u64), Fault> {
    let head = exchange.head();
    let told = match head.status {
        206 => head.get("content-range").and_then(parse_content_range),
        _ => exchange.length().map(|size| (0, size)),
    };
    told.ok_or_else(|| Fault::Corrupt("the server does not tell the object's size".into()))
}

/// `bytes 0-9/100` as first byte and size.
fn parse_content_range(text: &str) -> Option<(u64, u64)> {
    let (range, size) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last, size) = (first.parse().ok()?, last.parse::<u64>().ok()?, size.parse().ok()?);
    (first <= last && last < size).then_some((first, size))
}

fn fill(exchange: &mut Exchange<'_>, bytes: &mut [u8]) -> Result<(), Fault> {
    let count = exchange.fill(bytes).map_err(Fault::Transport)?;
    if count == bytes.len() {
        return Ok(());
    }
    Err(Fault::Corrupt(format!(
        "the server sent {count} bytes where {} were asked for",
        bytes.len()
    )))
}

impl Object {
    /// Remembers what the first answer told.
    fn learn(&self, seen: &Seen) {
        if let Some(etag) = &seen.etag {
            let _ = self.etag.set(etag.clone());
        }
        let _ = self.told.set(seen.told);
    }

    fn check(&self, head: &Head, size: u64) -> Result<(), Fault> {
        let seen = Seen::of(head, size);
        if seen.meta.identity != self.meta.identity {
            return Err(Fault::Changed);
        }
        self.learn(&seen);
        Ok(())
    }

    /// What the writer told, which came with the first answer; else it is asked for.
    fn told(&self) -> Result<Told, TierError> {
        if let Some(told) = self.told.get() {
            return Ok(*told);
        }
        let failed = |fault| self.client.failed(Action::Stat, &self.key, fault);
        let seen = object::head(&self.client, &self.key).map_err(failed)?;
        if seen.meta.identity != self.meta.identity {
            return Err(failed(Fault::Changed));
        }
        Ok(*self.told.get_or_init(|| seen.told))
    }

    /// Exactly the bytes from `offset` on that `buffer` has room for; they lie within the object.
    fn fetch(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Fault> {
        let len = buffer.len() as u64;
        let whole = offset == 0 && len == self.meta.size.get();
        let mut request = get(&self.client, &self.key, (!whole).then(|| offset..offset + len));
        if let Some(etag) = self.etag.get() {
            request = request.header("if-match", etag.clone());
        }
        let answer = self.client.call(&request, self.client.settings.attempts, |exchange| {
            let (start, size) = place(exchange)?;
            self.check(exchange.head(), size)?;
            let length = exchange.length();
            if start != offset || length.is_some_and(|length| length != len) {
                let what = "the server sent another range than was asked for";
                return Err(Fault::Corrupt(what.into()));
            }
            fill(exchange, buffer)?;
            match whole {
                true => checksum::verify(exchange.head(), buffer).map_err(Fault::Corrupt),
                false => Ok(()),
            }
        });
        match answer {
            Err(fault) if fault.is_unmet() || fault.is_missing() => Err(Fault::Changed),
            Err(fault) if is_out_of_range(&fault) => Err(Fault::Changed),
            answer => answer,
        }
    }

    /// The same in pieces of a part's size, several at once.
    fn fetch_parallel(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Fault> {
        let part = usize::try_from(self.client.settings.part_bytes.get()).unwrap_or(usize::MAX);
        let pieces = buffer.len().div_ceil(part);
        let workers = self.client.settings.streams.clamp(1, pieces);
        if pieces == 1 || workers == 1 {
            return self.fetch(offset, buffer);
        }
        let queue = Mutex::new(buffer.chunks_mut(part).enumerate());
        let failure = Mutex::new(None);
        let work = || {
            while lock(&failure).is_none() {
                let Some((index, piece)) = lock(&queue).next() else { break };
                if let Err(fault) = self.fetch(offset + (index * part) as u64, piece) {
                    lock(&failure).get_or_insert(fault);
                }
            }
        };
        thread::scope(|scope| {
            for _ in 1..workers {
                scope.spawn(work);
            }
            work();
        });
        failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Reader for Object {
    fn meta(&self) -> ObjectMeta {
        self.meta
    }

    fn attributes(&self) -> Result<Attributes, TierError> {
        self.told().map(|told| told.attributes)
    }

    fn is_link(&self) -> Result<bool, TierError> {
        self.told().map(|told| told.is_link)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, TierError> {
        let left = self.meta.size.get().saturating_sub(offset);
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        if count == 0 {
            return Ok(0);
        }
        let buffer = &mut buffer[..count];
        // What the open brought, then the rest from the server.
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(self.first.len());
        let here = count.min(self.first.len() - from);
        buffer[..here].copy_from_slice(&self.first[from..from + here]);
        if here < count {
            self.fetch_parallel(offset + here as u64, &mut buffer[here..])
                .map_err(|fault| self.client.failed(Action::Read, &self.key, fault))?;
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_they_are_written() {
        assert_eq!(parse_content_range("bytes 5-9/100"), Some((5, 100)));
        for bad in [
            "",
            "bytes */0",
            "bytes 5-9/*",
            "items 0-1/2",
            "bytes 59/100",
            "bytes 9-5/100",
            "bytes 0-34/3",
        ] {
            assert_eq!(parse_content_range(bad), None, "{bad}");
        }
    }
}
