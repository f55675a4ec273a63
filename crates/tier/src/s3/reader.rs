//! Reading one version: ranges straight into the caller's memory, large ones over several connections.
//!
//! Every answer is compared with the version that was opened (entity tag and size), so bytes of another
//! one are never delivered. A whole object is compared with the checksums that are known of it, also when
//! several requests brought it; who reads it piece by piece can do so with [`Reader::crc32c`].

use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Instant;

use super::checksum::Sums;
use super::client::{Client, Request};
use super::fault::Fault;
use super::http::{Exchange, Head};
use super::limits::WHOLE_READS_MAX;
use super::object::{self, Seen, Told};
use crate::{Action, Attributes, ObjectMeta, PartSums, PieceSink, Reader, TierError};

struct Object {
    client: Arc<Client>,
    key: String,
    meta: ObjectMeta,
    /// As the server wrote it; not known before the first answer about a listed version.
    etag: OnceLock<String>,
    told: OnceLock<Told>,
    /// What the first answer told of all bytes.
    sums: OnceLock<Sums>,
    /// The same with what only a question brings.
    asked_sums: OnceLock<Sums>,
    /// Its first bytes, which came with the open.
    first: Vec<u8>,
}

/// Opens the version that is there now: one request, which also brings the first bytes.
pub(super) fn open(client: &Arc<Client>, key: String) -> Result<Box<dyn Reader>, TierError> {
    let wanted = client.settings.first_bytes.get().max(1);
    let request = get(client, &key, Some(0..wanted));
    let answer =
        client.call(&request, client.settings.attempts, |exchange| first(client, exchange, wanted));
    let answer = match answer {
        // An empty object has no first byte.
        Err(fault) if fault.has_code("InvalidRange") || is_out_of_range(&fault) => {
            object::head_with_sums(client, &key).map(|(seen, sums)| (seen, sums, Vec::new()))
        }
        answer => answer,
    };
    let (seen, sums, first) = answer.map_err(|fault| client.failed(Action::Open, &key, fault))?;
    let object = Object {
        client: Arc::clone(client),
        key,
        meta: seen.meta,
        etag: OnceLock::new(),
        told: OnceLock::from(seen.told),
        sums: OnceLock::from(sums),
        asked_sums: OnceLock::new(),
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
        sums: OnceLock::new(),
        asked_sums: OnceLock::new(),
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
fn first(
    client: &Client,
    exchange: &mut Exchange<'_>,
    wanted: u64,
) -> Result<(Seen, Sums, Vec<u8>), Fault> {
    let (start, size) = place(exchange)?;
    if start != 0 {
        return Err(Fault::Corrupt("the server sent another range than was asked for".into()));
    }
    let seen = Seen::of(exchange.head(), size);
    let sums = client.sums(exchange.head());
    let mut bytes = vec![0; usize::try_from(size.min(wanted)).unwrap_or(0)];
    fill(exchange, &mut bytes)?;
    if bytes.len() as u64 == size {
        sums.verify(&bytes).map_err(Fault::Mismatch)?;
    }
    Ok((seen, sums, bytes))
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
        self.sums.get_or_init(|| self.client.sums(head));
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

    /// What there is to compare all bytes with; asks for it unless what an answer told `suffices`.
    fn sums(&self, suffices: impl Fn(&Sums) -> bool) -> Result<&Sums, Fault> {
        if let Some(sums) = self.sums.get().filter(|sums| suffices(sums)) {
            return Ok(sums);
        }
        if let Some(sums) = self.asked_sums.get() {
            return Ok(sums);
        }
        let (seen, sums) = object::head_with_sums(&self.client, &self.key).map_err(replaced)?;
        if seen.meta.identity != self.meta.identity {
            return Err(Fault::Changed);
        }
        self.learn(&seen);
        Ok(self.asked_sums.get_or_init(|| sums))
    }

    /// Exactly the bytes from `offset` on that `buffer` has room for; they lie within the object.
    fn fetch(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Fault> {
        let len = buffer.len() as u64;
        let whole = offset == 0 && len == self.meta.size.get();
        self.ask(offset..offset + len, |exchange| {
            fill(exchange, buffer)?;
            match whole {
                true => {
                    let sums = self.client.sums(exchange.head());
                    sums.verify(buffer).map_err(Fault::Mismatch)
                }
                false => Ok(()),
            }
        })
    }

    /// The same by way of `buffer`, until `take` wants no more of it.
    fn fetch_pieces(
        &self,
        range: Range<u64>,
        buffer: &mut [u8],
        mut take: impl FnMut(u64, &[u8]) -> bool,
    ) -> Result<(), Fault> {
        self.ask(range.clone(), |exchange| {
            let mut at = range.start;
            while at < range.end {
                let most = usize::try_from(range.end - at).unwrap_or(usize::MAX);
                let piece = most.min(buffer.len());
                fill(exchange, &mut buffer[..piece])?;
                let begin = Instant::now();
                if !take(at, &buffer[..piece]) {
                    break;
                }
                exchange.prolong(begin.elapsed());
                at += piece as u64;
            }
            Ok(())
        })
    }

    /// One request for these bytes of the version that is open; `consume` begins anew with each attempt.
    fn ask(
        &self,
        range: Range<u64>,
        mut consume: impl FnMut(&mut Exchange<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let (offset, len) = (range.start, range.end - range.start);
        let whole = offset == 0 && len == self.meta.size.get();
        let mut request = get(&self.client, &self.key, (!whole).then_some(range));
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
            consume(exchange)
        });
        answer.map_err(replaced)
    }

    /// The whole object into `buffer`, compared with what is known of it. Where several requests bring it
    /// and it does not fit, all of it is read again: which of them went wrong nobody knows.
    fn fetch_whole(&self, buffer: &mut [u8]) -> Result<(), Fault> {
        let here = self.first.len();
        if here == buffer.len() {
            // Compared when it came.
            buffer.copy_from_slice(&self.first);
            return Ok(());
        }
        if here == 0 && self.is_one_request(buffer.len()) {
            return self.fetch(0, buffer);
        }
        let mut reads = 1;
        loop {
            if reads == 1 && here > 0 {
                let (first, rest) = buffer.split_at_mut(here);
                first.copy_from_slice(&self.first);
                self.fetch_parallel(here as u64, rest)?;
            } else {
                self.fetch_parallel(0, buffer)?;
            }
            match self.sums(Sums::is_known)?.verify(buffer) {
                Ok(()) => return Ok(()),
                Err(what) if reads >= WHOLE_READS_MAX => return Err(Fault::Mismatch(what)),
                Err(why) => tracing::debug!(why, reads, key = self.key, "read again"),
            }
            reads += 1;
        }
    }

    /// What the open brought, then the rest from the server by `fetch`; a whole object is compared.
    fn read_by(
        &self,
        offset: u64,
        buffer: &mut [u8],
        fetch: impl Fn(u64, &mut [u8]) -> Result<(), Fault>,
    ) -> Result<usize, TierError> {
        let left = self.meta.size.get().saturating_sub(offset);
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        if count == 0 {
            return Ok(0);
        }
        let failed = |fault| self.client.failed(Action::Read, &self.key, fault);
        let buffer = &mut buffer[..count];
        if offset == 0 && count as u64 == self.meta.size.get() {
            self.fetch_whole(buffer).map_err(failed)?;
            return Ok(count);
        }
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(self.first.len());
        let here = count.min(self.first.len() - from);
        buffer[..here].copy_from_slice(&self.first[from..from + here]);
        if here < count {
            fetch(offset + here as u64, &mut buffer[here..]).map_err(failed)?;
        }
        Ok(count)
    }

    /// So many bytes are asked for at once.
    fn is_one_request(&self, len: usize) -> bool {
        len as u64 <= self.client.settings.part_bytes.get() || self.client.settings.streams <= 1
    }

    /// Such bytes in pieces of a part's size, several at once.
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

/// What was open is no longer there.
fn replaced(fault: Fault) -> Fault {
    match fault.is_unmet() || fault.is_missing() || is_out_of_range(&fault) {
        true => Fault::Changed,
        false => fault,
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

    fn crc32c(&self) -> Result<Option<u32>, TierError> {
        let size = self.meta.size.get();
        let has_crc = |sums: &Sums| !matches!(sums.crc32c(size), Ok(None));
        let sums = self.sums(has_crc);
        let sum = sums.and_then(|sums| sums.crc32c(size).map_err(Fault::Corrupt));
        sum.map_err(|fault| self.client.failed(Action::Read, &self.key, fault))
    }

    fn part_sums(&self) -> Option<PartSums> {
        let sums = self.sums.get().or_else(|| self.asked_sums.get());
        sums.and_then(|sums| sums.of_parts(self.meta.size.get()))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, TierError> {
        self.read_by(offset, buffer, |at, rest| self.fetch_parallel(at, rest))
    }

    fn read_part(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, TierError> {
        self.read_by(offset, buffer, |at, rest| self.fetch(at, rest))
    }

    fn read_pieces(
        &self,
        offset: u64,
        len: u64,
        buffer: &mut [u8],
        sink: &mut PieceSink<'_>,
    ) -> Result<(), TierError> {
        let end = offset.saturating_add(len).min(self.meta.size.get());
        if offset >= end || buffer.is_empty() {
            return Ok(());
        }
        let mut refused = None;
        let fetched = self.fetch_pieces(offset..end, buffer, |at, piece| {
            refused = sink(at, piece).err();
            refused.is_none()
        });
        match refused {
            Some(refused) => Err(refused),
            None => fetched.map_err(|fault| self.client.failed(Action::Read, &self.key, fault)),
        }
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
