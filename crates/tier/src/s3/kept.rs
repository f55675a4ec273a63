//! Uploads in parts that outlive their process: where they are remembered, and what the server has of them.
//!
//! A server tells nothing of an unfinished upload but its key, name and parts, so that nobody can see whose it
//! is, of which version, or with which attributes it was begun. A record of that lies in a directory of this
//! user, one file for each key, and is locked while its upload is on its way ([`crate::claim`]).
//! No part is believed: it counts when the caller has read the same bytes again and the sums agree.
//! A record with anything wrong in it, torn or damaged, says nothing at all.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use ring::digest;
use rustix::fs::{self, AtFlags, Mode, OFlags};
use serde::{Deserialize, Serialize};

use super::checksum::{Sum, announcement};
use super::client::{Client, Request};
use super::etag::bare;
use super::fault::Fault;
use super::limits::{KEYS_PER_PAGE, PARTS_MAX, RECORD_BYTES_MAX};
use super::multipart::{Part, document};
use crate::claim::{claim, claim_present};
use crate::descriptor::{read_fully, write_fully};
use crate::timestamp::system_time;
use crate::{Attributes, PartSums, UploadOf};

/// What is remembered of one upload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Begun {
    /// Endpoint, bucket and key.
    object: [String; 3],
    version: u128,
    size: u64,
    part_bytes: u64,
    mode: Option<u32>,
    mtime: Option<(bool, u64, u32)>,
    /// Hash of what the server was asked to seal and sum it with: an upload keeps that to its end.
    sealing: String,
    /// As the server calls it, and by which its object can be recognised.
    pub(super) id: String,
    pub(super) token: String,
}

impl Begun {
    pub(super) fn new(
        client: &Client,
        key: &str,
        (attributes, of): (Attributes, UploadOf),
        (id, token): (&str, &str),
    ) -> Self {
        let since = |time: SystemTime| match time.duration_since(UNIX_EPOCH) {
            Ok(after) => (true, after.as_secs(), after.subsec_nanos()),
            Err(before) => {
                let before = before.duration();
                (false, before.as_secs(), before.subsec_nanos())
            }
        };
        Self {
            object: object(client, key),
            version: of.version,
            size: of.size,
            part_bytes: of.part_bytes,
            mode: attributes.mode,
            mtime: attributes.mtime.map(since),
            sealing: sealing(client),
            id: id.to_owned(),
            token: token.to_owned(),
        }
    }

    /// It is an upload of this key: names of records are hashes.
    pub(super) fn is_at(&self, client: &Client, key: &str) -> bool {
        self.object == object(client, key)
    }

    /// The same upload, whatever the server calls it.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let Self { id, token, .. } = other.clone();
        Self { id, token, ..self.clone() } == *other
    }
}

/// Keys are among what is hashed.
fn sealing(client: &Client) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    let sums = announcement(client.settings.checksum);
    for (name, value) in client.encryption_headers(true).into_iter().chain(sums) {
        context.update(format!("{name}: {value}\n").as_bytes());
    }
    data_encoding::HEXLOWER.encode(context.finish().as_ref())
}

fn object(client: &Client, key: &str) -> [String; 3] {
    [client.endpoint(), client.settings.bucket.clone(), key.to_owned()]
}

/// The record of one key, locked.
pub(super) struct Record {
    directory: OwnedFd,
    name: String,
    file: OwnedFd,
}

fn open(directory: &Path) -> Option<OwnedFd> {
    fs::open(directory, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()
}

fn name(client: &Client, key: &str) -> String {
    let text = object(client, key).join("\n");
    format!("s3-{:032x}", xxhash_rust::xxh3::xxh3_128(text.as_bytes()))
}

impl Record {
    /// `None` where another process is at an upload of the key, and where nothing can be kept.
    pub(super) fn claim(client: &Client, key: &str) -> Option<Self> {
        let directory = client.settings.kept_in.as_ref()?;
        // What can not be made can not be opened either.
        let _ = fs::mkdir(directory, Mode::from_raw_mode(0o700));
        let (directory, name) = (open(directory)?, name(client, key));
        let file = claim(&directory, name.as_bytes())?;
        Some(Self { directory, name, file })
    }

    pub(super) fn read(&self) -> Option<Begun> {
        read(&self.file)
    }

    pub(super) fn write(&self, begun: &Begun) -> Option<()> {
        fs::ftruncate(&self.file, 0).ok()?;
        let summed = Summed { sum: sum_of(begun)?, begun: begun.clone() };
        let text = serde_json::to_vec(&summed).ok()?;
        write_fully(0, &text, |at, rest| rustix::io::pwrite(&self.file, rest, at)).ok()
    }

    pub(super) fn remove(&self) {
        // One that stays names an upload that is not there: the next begins anew.
        let _ = fs::unlinkat(&self.directory, &self.name, AtFlags::empty());
    }
}

fn read(file: &OwnedFd) -> Option<Begun> {
    let mut text = vec![0; RECORD_BYTES_MAX];
    let count = read_fully(file, 0, &mut text).ok()?;
    let Summed { begun, sum } = serde_json::from_slice(&text[..count]).ok()?;
    (sum_of(&begun)? == sum).then_some(begun)
}

/// As it lies in the file.
#[derive(Serialize, Deserialize)]
struct Summed {
    begun: Begun,
    sum: u64,
}

/// XXH3 of its text.
fn sum_of(begun: &Begun) -> Option<u64> {
    serde_json::to_vec(begun).ok().map(|text| xxhash_rust::xxh3::xxh3_64(&text))
}

/// In which parts an upload of `size` bytes was begun.
pub(super) fn unfinished_part_bytes(client: &Client, key: &str, size: u64) -> Option<u64> {
    let directory = open(client.settings.kept_in.as_ref()?)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = fs::openat(directory, name(client, key), flags, Mode::empty()).ok()?;
    let begun = read(&file).filter(|begun| begun.is_at(client, key))?;
    (begun.size == size && begun.part_bytes > 0).then_some(begun.part_bytes)
}

/// A process of this user, where its records are seen, is at an upload of the key.
pub(super) fn is_live(client: &Client, key: &str) -> bool {
    let Some(directory) = client.settings.kept_in.as_deref().and_then(open) else { return false };
    let name = name(client, key);
    let is_there = fs::statat(&directory, &name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
    is_there && claim_present(&directory, name.as_bytes()).is_none()
}

/// Forgets uploads of keys that begin with `prefix` and were begun before `before`, and records that say nothing.
pub(super) fn sweep(client: &Client, prefix: &str, before: SystemTime) {
    let Some(directory) = client.settings.kept_in.as_deref().and_then(open) else { return };
    let Ok(mut names) = fs::Dir::read_from(&directory) else { return };
    while let Some(Ok(entry)) = names.read() {
        let name = entry.file_name();
        let is_old = || {
            let stat = fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
            Some(system_time(stat.st_mtime, stat.st_mtime_nsec) < before)
        };
        let is_below = |begun: Begun| {
            let [endpoint, bucket, key] = &begun.object;
            *endpoint == client.endpoint()
                && *bucket == client.settings.bucket
                && key.starts_with(prefix)
        };
        if name.to_bytes().starts_with(b"s3-")
            && is_old() == Some(true)
            && let Some(held) = claim_present(&directory, name.to_bytes())
            && read(&held).is_none_or(is_below)
        {
            let _ = fs::unlinkat(&directory, name, AtFlags::empty());
        }
    }
}

/// A part that the server has.
pub(super) struct Found {
    etag: String,
    size: u64,
    sums: Vec<Sum>,
}

impl Found {
    /// The part, where it has exactly these bytes: by its entity tag where that is the MD5, else by a checksum
    /// that the server stored with it.
    pub(super) fn with(&self, number: u32, data: &[u8]) -> Option<Part> {
        let md5 = || data_encoding::HEXLOWER.encode(&PartSums::of_part(data));
        let by_sum = || self.sums.iter().any(|sum| sum.is_of(data));
        let is_same = self.size == data.len() as u64
            && (bare(&self.etag).eq_ignore_ascii_case(&md5()) || by_sum());
        is_same.then(|| Part::known(number, self.etag.clone(), self.sums.first().cloned()))
    }
}

/// What the server has of an upload, by number, counted from 1.
pub(super) fn parts(client: &Client, key: &str, id: &str) -> Result<BTreeMap<u32, Found>, Fault> {
    let mut found = BTreeMap::new();
    let mut marker = 0;
    // Pages are whole but the last: there are no more than parts.
    for _ in 0..=PARTS_MAX {
        let request = Request::new("GET", Some(key))
            .query("max-parts", KEYS_PER_PAGE.to_string())
            .query("part-number-marker", marker.to_string())
            .query("uploadId", id)
            .headers(client.encryption_headers(false));
        let page = client.call(&request, client.settings.attempts, |exchange| {
            document(&exchange.document().map_err(Fault::Transport)?)
        })?;
        for part in page.all("Part") {
            let number = part.text_of("PartNumber").and_then(|number| number.parse().ok());
            let size = part.text_of("Size").and_then(|size| size.parse().ok());
            if let (Some(number), Some(size), Some(etag)) = (number, size, part.text_of("ETag")) {
                let found_part = Found { etag: etag.to_owned(), size, sums: Sum::told(part) };
                found.insert(number, found_part);
            }
        }
        let last = found.last_key_value().map_or(0, |(number, _)| *number);
        if page.text_of("IsTruncated") != Some("true") || last <= marker {
            break;
        }
        marker = last;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_is_torn_or_flipped_anywhere_says_nothing_else() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("s3-record");
        let directory = open(top.path()).unwrap();
        let file = claim(&directory, b"s3-record").unwrap();
        let record = Record { directory, name: "s3-record".to_owned(), file };
        assert_eq!(record.read(), None, "nothing was begun");
        let begun = Begun {
            object: ["https://s3", "bucket", "a/key"].map(str::to_owned),
            version: 7 << 100,
            size: 25 << 20,
            part_bytes: 5 << 20,
            mode: Some(0o640),
            mtime: Some((true, 1_234_567_890, 17)),
            sealing: "00ff".to_owned(),
            id: "upload id".to_owned(),
            token: "0123456789abcdef".to_owned(),
        };
        record.write(&begun).unwrap();
        assert_eq!(record.read(), Some(begun.clone()));
        let whole = std::fs::read(&path).unwrap();
        for end in 0..whole.len() {
            std::fs::write(&path, &whole[..end]).unwrap();
            assert_eq!(record.read(), None, "cut at {end}");
        }
        for at in 0..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[at / 8] ^= 1 << (at % 8);
            std::fs::write(&path, &flipped).unwrap();
            let read = record.read();
            assert!(read.is_none() || read.as_ref() == Some(&begun), "bit {at}: {read:?}");
        }
    }
}
