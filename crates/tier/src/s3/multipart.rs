//! An upload in parts: begun, sent by several threads, joined or given up. What others left: [`super::sweep`].

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use super::checksum::{self, Sum};
use super::client::{Client, Request};
use super::commit::{Condition, committed, object_headers};
use super::fault::{Answer, Fault};
use super::limits::{JOIN_PATIENCE, PART_BYTES_MAX, PARTS_MAX, PARTS_PER_SIZE, TIDY_ATTEMPTS};
use super::object::META_UPLOAD;
use super::xml::{Element, escape};
use crate::{Attributes, ObjectMeta};

/// A part that the server has.
#[derive(Debug)]
pub(super) struct Part {
    number: u32,
    etag: String,
    sum: Option<Sum>,
}

impl Part {
    /// One that an earlier process sent.
    pub(super) fn known(number: u32, etag: String, sum: Option<Sum>) -> Self {
        Self { number, etag, sum }
    }
}

type Sending = JoinHandle<(Result<Part, Fault>, Vec<u8>)>;

/// Given up when dropped before it is done.
pub(super) struct Multipart {
    client: Arc<Client>,
    key: String,
    id: String,
    token: String,
    /// Parts given out so far.
    count: u32,
    sending: VecDeque<Sending>,
    sent: Vec<Part>,
    done: bool,
}

impl Multipart {
    /// `part_bytes` where all parts but the last have them, so that readers can ask for the same.
    pub(super) fn begin(
        client: &Arc<Client>,
        key: &str,
        attributes: Attributes,
        part_bytes: Option<u64>,
    ) -> Result<Self, Fault> {
        let token = client.token();
        let mut request = Request::new("POST", Some(key))
            .query("uploads", "")
            .headers(object_headers(client, attributes))
            .header(META_UPLOAD, token.clone());
        request.headers.extend(checksum::announcement(client.settings.checksum));
        let part_bytes = part_bytes.map(|bytes| (checksum::PART_BYTES.into(), bytes.to_string()));
        request.headers.extend(part_bytes);
        let id = client.call(&request, client.settings.attempts, |exchange| {
            let root = document(&exchange.document().map_err(Fault::Transport)?)?;
            root.text_of("UploadId").map(str::to_owned).ok_or(Fault::NotS3)
        })?;
        Ok(Self::resumed(client, key, id, token))
    }

    /// One that an earlier process began.
    pub(super) fn resumed(client: &Arc<Client>, key: &str, id: String, token: String) -> Self {
        Self {
            client: Arc::clone(client),
            key: key.to_owned(),
            id,
            token,
            count: 0,
            sending: VecDeque::new(),
            sent: Vec::new(),
            done: false,
        }
    }

    /// As the server calls it.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// By which the object can be recognised.
    pub(super) fn token(&self) -> &str {
        &self.token
    }

    /// How many parts there are, sent or on their way.
    pub(super) fn parts(&self) -> u32 {
        self.count
    }

    fn next_number(&mut self) -> Result<u32, Fault> {
        if self.count == PARTS_MAX {
            return Err(Fault::Corrupt(
                "the object needs more than 10,000 parts; ask for larger ones".into(),
            ));
        }
        self.count += 1;
        Ok(self.count)
    }

    /// Sends one part in the background, after waiting for an older one where `streams` are on their
    /// way. Gives back a buffer that is free.
    pub(super) fn send(&mut self, part: Vec<u8>) -> Result<Option<Vec<u8>>, Fault> {
        let number = self.next_number()?;
        let streams = self.client.settings.streams.max(1);
        let spare = if self.sending.len() >= streams { self.reap()? } else { None };
        let (client, key, id) = (Arc::clone(&self.client), self.key.clone(), self.id.clone());
        let sending = thread::Builder::new()
            .name("s3-part".into())
            .spawn(move || {
                let answer = send_part(&client, &key, &id, number, &part);
                let mut spare = part;
                spare.clear();
                (answer, spare)
            })
            .map_err(Fault::Transport)?;
        self.sending.push_back(sending);
        Ok(spare)
    }

    /// Waits for the oldest part.
    fn reap(&mut self) -> Result<Option<Vec<u8>>, Fault> {
        let Some(oldest) = self.sending.pop_front() else { return Ok(None) };
        let (answer, spare) = oldest.join().expect("a thread that sends a part does not panic");
        self.sent.push(answer?);
        Ok(Some(spare))
    }

    /// Sends an object from the caller's memory, and waits.
    pub(super) fn send_all(&mut self, data: &[u8]) -> Result<(), Fault> {
        let mut pieces = Vec::new();
        let mut rest = data;
        while !rest.is_empty() {
            let number = self.next_number()?;
            let (piece, later) =
                rest.split_at(part_bytes(&self.client, number - 1).min(rest.len()));
            pieces.push((number, piece));
            rest = later;
        }
        let queue = Mutex::new(pieces.into_iter());
        let done = Mutex::new((Vec::new(), None));
        let lock = || done.lock().unwrap_or_else(PoisonError::into_inner);
        let (client, key, id) = (&self.client, &self.key, &self.id);
        thread::scope(|scope| {
            for _ in 0..client.settings.streams.max(1) {
                scope.spawn(|| {
                    while lock().1.is_none() {
                        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
                        let Some((number, piece)) = next else { break };
                        match send_part(client, key, id, number, piece) {
                            Ok(part) => lock().0.push(part),
                            Err(fault) => drop(lock().1.get_or_insert(fault)),
                        }
                    }
                });
            }
        });
        let (sent, failure) = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.sent = sent;
        failure.map_or(Ok(()), Err)
    }

    /// Sends part `number`, counted from 1, and waits; [`Multipart::take`] is told of it.
    pub(super) fn send_now(&self, number: u32, bytes: &[u8]) -> Result<Part, Fault> {
        send_part(&self.client, &self.key, &self.id, number, bytes)
    }

    /// Counts parts that [`Multipart::send_now`] sent; of two of one number the later.
    pub(super) fn take(&mut self, parts: Vec<Part>) {
        let all = std::mem::take(&mut self.sent).into_iter().chain(parts);
        let by_number: BTreeMap<u32, Part> = all.map(|part| (part.number, part)).collect();
        self.sent = by_number.into_values().collect();
    }

    /// Parts that the server has.
    pub(super) fn sent(&self) -> usize {
        self.sent.len()
    }

    /// Joins the parts; `None` when the server names no version.
    pub(super) fn complete(
        &mut self,
        size: u64,
        condition: &Condition,
    ) -> Result<Option<ObjectMeta>, Fault> {
        while !self.sending.is_empty() {
            self.reap()?;
        }
        self.sent.sort_by_key(|part| part.number);
        let mut body = String::from(
            "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">",
        );
        // A server may tell the sums of parts that are sent and not those of parts that it has.
        let has_sums = self.sent.iter().all(|part| part.sum.is_some());
        for Part { number, etag, sum } in &self.sent {
            let sum = sum.as_ref().filter(|_| has_sums).map(Sum::element).unwrap_or_default();
            let etag = escape(etag);
            write!(body, "<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag>{sum}</Part>")
                .expect("a string takes all");
        }
        body.push_str("</CompleteMultipartUpload>");
        let pieces = [body.as_bytes()];
        let mut request = Request::new("POST", Some(&self.key))
            .query("uploadId", self.id.clone())
            .header("content-type", "application/xml")
            .body(&pieces);
        request.patience = JOIN_PATIENCE;
        request.headers.extend(condition.header());
        self.client.call(&request, self.client.settings.attempts, |exchange| {
            let date = exchange.head().get("date").map(str::to_owned);
            // The server answers 200 before it is done, and tells in the document how it went.
            let root = document(&exchange.document().map_err(Fault::Transport)?)?;
            Ok(committed(root.text_of("ETag"), date.as_deref(), size))
        })
    }

    /// The object is there, or a later process goes on: nothing is to be given up.
    pub(super) fn done(&mut self) {
        self.done = true;
    }
}

impl Drop for Multipart {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        for sending in self.sending.drain(..) {
            let _ = sending.join();
        }
        // What can not be given up now is left to `sweep`.
        let _ = abort(&self.client, &self.key, &self.id);
    }
}

pub(super) fn abort(client: &Client, key: &str, id: &str) -> Result<(), Fault> {
    let request = Request::new("DELETE", Some(key)).query("uploadId", id);
    client.call(&request, TIDY_ATTEMPTS, |_| Ok(()))
}

pub(super) fn document(bytes: &[u8]) -> Result<Element, Fault> {
    let root = Element::parse(bytes)
        .map_err(|why| Fault::Corrupt(format!("cannot parse the answer of the server: {why}")))?;
    match Answer::of_element(&root) {
        Some(answer) => Err(Fault::Answer(Box::new(answer))),
        None => Ok(root),
    }
}

fn send_part(
    client: &Client,
    key: &str,
    id: &str,
    number: u32,
    bytes: &[u8],
) -> Result<Part, Fault> {
    let pieces = [bytes];
    let sum = Sum::of(client.settings.checksum, &pieces);
    let mut request = Request::new("PUT", Some(key))
        .query("partNumber", number.to_string())
        .query("uploadId", id)
        .headers(client.encryption_headers(false))
        .body(&pieces);
    request.headers.extend(sum.as_ref().map(Sum::header));
    client.call(&request, client.settings.attempts, |exchange| {
        let head = exchange.head();
        let etag = head.get("etag").ok_or(Fault::NotS3)?.to_owned();
        // A server that returns the part's checksum says that it knows checksums; only then may the
        // list of parts name them.
        let known = sum.as_ref().filter(|sum| head.get(&sum.header().0).is_some());
        Ok(Part { number, etag, sum: known.cloned() })
    })
}

/// Bytes of the part with this number, counted from 0.
pub(super) fn part_bytes(client: &Client, number: u32) -> usize {
    let doublings = (number / PARTS_PER_SIZE).min(16);
    let first = client.settings.part_bytes.get();
    usize::try_from((first << doublings).min(PART_BYTES_MAX.max(first))).unwrap_or(usize::MAX)
}
