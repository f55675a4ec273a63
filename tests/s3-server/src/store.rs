//! Buckets in memory: each call is one step, so conditions are decided as S3 promises.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;
use data_encoding::HEXLOWER;
use s3s::checksum::ChecksumHasher;
use s3s::crypto::{Checksum as _, Md5};
use s3s::dto::{Checksum, Metadata};
use s3s::{S3Result, s3_error};

/// Smallest part but the last, as S3 has it.
const PART_BYTES_MIN: usize = 5 << 20;

/// Everything that is stored.
#[derive(Debug, Default)]
pub(crate) struct Store {
    buckets: Mutex<BTreeMap<String, Bucket>>,
    /// Of objects, by readers.
    pub(crate) bytes_read: AtomicU64,
    /// Requests that make, change or remove something.
    pub(crate) changes: AtomicU64,
}

#[derive(Debug, Default)]
pub(crate) struct Bucket {
    objects: BTreeMap<String, Object>,
    /// By key and name of the upload.
    uploads: BTreeMap<(String, String), Upload>,
    /// Makes names of uploads.
    begun: u64,
}

/// One version.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) bytes: Bytes,
    pub(crate) etag: String,
    pub(crate) modified: SystemTime,
    pub(crate) metadata: Option<Metadata>,
    pub(crate) checksum: Checksum,
}

/// An upload in parts that is neither joined nor given up.
#[derive(Clone, Debug)]
pub(crate) struct Upload {
    pub(crate) initiated: SystemTime,
    metadata: Option<Metadata>,
    /// The CRC32C of the whole object was asked for.
    has_crc32c: bool,
    parts: BTreeMap<i32, (Bytes, [u8; 16])>,
}

impl Upload {
    fn checksum(&self, bytes: &[u8]) -> Checksum {
        if !self.has_crc32c {
            return Checksum::default();
        }
        let crc32c = Some(Default::default());
        let mut hasher = ChecksumHasher { crc32c, ..ChecksumHasher::default() };
        hasher.update(bytes);
        hasher.finalize()
    }
}

/// One line of a listing.
#[derive(Debug)]
pub(crate) enum Listed {
    Object(String, Box<Object>),
    Prefix(String),
}

/// Number, length and entity tag.
pub(crate) type ListedPart = (i32, usize, String);

impl Store {
    pub(crate) fn new(buckets: &[String]) -> Self {
        let store = Self::default();
        buckets.iter().for_each(|name| store.make_bucket(name));
        store
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Bucket>> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn make_bucket(&self, name: &str) {
        self.lock().insert(name.to_owned(), Bucket::default());
    }

    pub(crate) fn buckets(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    pub(crate) fn unfinished_uploads(&self) -> usize {
        self.lock().values().map(|bucket| bucket.uploads.len()).sum()
    }

    pub(crate) fn unfinished_parts(&self) -> usize {
        let buckets = self.lock();
        let uploads = buckets.values().flat_map(|bucket| bucket.uploads.values());
        uploads.map(|upload| upload.parts.len()).sum()
    }

    /// As [`Store::with`], counted.
    pub(crate) fn change<T>(
        &self,
        bucket: &str,
        step: impl FnOnce(&mut Bucket) -> S3Result<T>,
    ) -> S3Result<T> {
        self.changes.fetch_add(1, Ordering::Relaxed);
        self.with(bucket, step)
    }

    /// Runs `step` on a bucket; nobody else sees the middle of it.
    pub(crate) fn with<T>(
        &self,
        bucket: &str,
        step: impl FnOnce(&mut Bucket) -> S3Result<T>,
    ) -> S3Result<T> {
        step(self.lock().get_mut(bucket).ok_or_else(|| s3_error!(NoSuchBucket))?)
    }
}

/// When an object may be put or removed.
pub(crate) enum Only {
    /// Always.
    Any,
    /// Where nothing is.
    Absent,
    /// Over the object with this entity tag.
    Matches(String),
}

impl Bucket {
    pub(crate) fn get(&self, key: &str) -> S3Result<Object> {
        self.objects.get(key).cloned().ok_or_else(|| s3_error!(NoSuchKey))
    }

    pub(crate) fn put(&mut self, key: String, object: Object, only: &Only) -> S3Result<()> {
        self.require(&key, only)?;
        self.objects.insert(key, object);
        Ok(())
    }

    /// What is not there is removed all the same, as on AWS; of a version that is named, it is an error.
    pub(crate) fn delete(&mut self, key: &str, only: &Only) -> S3Result<()> {
        self.require(key, only)?;
        self.objects.remove(key);
        Ok(())
    }

    fn require(&self, key: &str, only: &Only) -> S3Result<()> {
        match (only, self.objects.get(key)) {
            (Only::Absent, Some(_)) => Err(s3_error!(PreconditionFailed)),
            (Only::Matches(_), None) => Err(s3_error!(NoSuchKey)),
            (Only::Matches(etag), Some(there)) if *etag != there.etag => {
                Err(s3_error!(PreconditionFailed))
            }
            _ => Ok(()),
        }
    }

    /// Lines behind `after`, at most `max`; true when there are more.
    pub(crate) fn list(
        &self,
        prefix: &str,
        delimiter: Option<&str>,
        after: Option<&str>,
        max: usize,
    ) -> (Vec<Listed>, bool) {
        let mut lines = Vec::new();
        let mut from = match after {
            Some(after) if after >= prefix => Bound::Excluded(after.to_owned()),
            _ => Bound::Included(prefix.to_owned()),
        };
        while let Some((key, object)) = self.objects.range((from, Bound::Unbounded)).next() {
            let Some(rest) = key.strip_prefix(prefix) else { break };
            if lines.len() == max {
                return (lines, true);
            }
            let cut = delimiter.and_then(|delimiter| Some(rest.find(delimiter)? + delimiter.len()));
            if let Some(cut) = cut {
                let common = &key[..prefix.len() + cut];
                // Behind everything that begins so.
                from = Bound::Excluded(format!("{common}{}", char::MAX));
                lines.push(Listed::Prefix(common.to_owned()));
            } else {
                from = Bound::Excluded(key.clone());
                lines.push(Listed::Object(key.clone(), Box::new(object.clone())));
            }
        }
        (lines, false)
    }

    pub(crate) fn begin(
        &mut self,
        key: String,
        metadata: Option<Metadata>,
        has_crc32c: bool,
    ) -> String {
        self.begun += 1;
        let id = format!("upload-{:08}", self.begun);
        let (initiated, parts) = (SystemTime::now(), BTreeMap::new());
        let upload = Upload { initiated, metadata, has_crc32c, parts };
        self.uploads.insert((key, id.clone()), upload);
        id
    }

    fn upload(&mut self, key: &str, id: &str) -> S3Result<&mut Upload> {
        let upload = self.uploads.get_mut(&(key.to_owned(), id.to_owned()));
        upload.ok_or_else(|| s3_error!(NoSuchUpload))
    }

    /// Takes a part and tells its entity tag.
    pub(crate) fn part(
        &mut self,
        key: &str,
        id: &str,
        number: i32,
        bytes: Bytes,
    ) -> S3Result<String> {
        if !(1..=10_000).contains(&number) {
            return Err(s3_error!(InvalidArgument, "part numbers are 1 to 10000"));
        }
        let digest = md5(&bytes);
        self.upload(key, id)?.parts.insert(number, (bytes, digest));
        Ok(HEXLOWER.encode(&digest))
    }

    /// Parts behind number `after`, at most `max`; true when there are more.
    pub(crate) fn parts(
        &mut self,
        key: &str,
        id: &str,
        after: i32,
        max: usize,
    ) -> S3Result<(Vec<ListedPart>, bool)> {
        let parts = &self.upload(key, id)?.parts;
        let mut behind = parts.range((Bound::Excluded(after), Bound::Unbounded));
        let page = behind.by_ref().take(max);
        let page = page.map(|(number, (bytes, md5))| (*number, bytes.len(), HEXLOWER.encode(md5)));
        Ok((page.collect(), behind.next().is_some()))
    }

    /// Joins parts, named by number and entity tag in order.
    pub(crate) fn complete(
        &mut self,
        key: &str,
        id: &str,
        named: &[(i32, String)],
        only: &Only,
    ) -> S3Result<String> {
        let upload = self.upload(key, id)?.clone();
        let (mut bytes, mut digests) = (Vec::new(), Md5::new());
        let last = named.len().checked_sub(1).ok_or_else(|| s3_error!(MalformedXML))?;
        for (at, (number, etag)) in named.iter().enumerate() {
            let part = upload.parts.get(number);
            let part = part.filter(|(_, digest)| HEXLOWER.encode(digest) == *etag);
            let (piece, digest) = part.ok_or_else(|| s3_error!(InvalidPart))?;
            if at > 0 && named[at - 1].0 >= *number {
                return Err(s3_error!(InvalidPartOrder));
            }
            if at < last && piece.len() < PART_BYTES_MIN {
                return Err(s3_error!(EntityTooSmall));
            }
            bytes.extend_from_slice(piece);
            digests.update(digest);
        }
        let etag = format!("{}-{}", HEXLOWER.encode(&digests.finalize()), named.len());
        let object = Object {
            checksum: upload.checksum(&bytes),
            bytes: bytes.into(),
            etag: etag.clone(),
            modified: SystemTime::now(),
            metadata: upload.metadata,
        };
        self.put(key.to_owned(), object, only)?;
        self.abort(key, id)?;
        Ok(etag)
    }

    pub(crate) fn abort(&mut self, key: &str, id: &str) -> S3Result<()> {
        self.upload(key, id)?;
        self.uploads.remove(&(key.to_owned(), id.to_owned()));
        Ok(())
    }

    /// Uploads behind `after` (key and name), at most `max`; true when there are more.
    pub(crate) fn uploads(
        &self,
        prefix: &str,
        after: &(String, String),
        max: usize,
    ) -> (Vec<(String, String, Upload)>, bool) {
        let behind = self.uploads.range((Bound::Excluded(after.clone()), Bound::Unbounded));
        let mut fitting = behind.filter(|((key, _), _)| key.starts_with(prefix));
        let page = fitting.by_ref().take(max);
        let page =
            page.map(|((key, id), upload)| (key.clone(), id.clone(), upload.clone())).collect();
        (page, fitting.next().is_some())
    }
}

pub(crate) fn md5(bytes: &[u8]) -> [u8; 16] {
    let mut digest = Md5::new();
    digest.update(bytes);
    digest.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(keys: &[&str]) -> Bucket {
        let object = Object {
            bytes: Bytes::new(),
            etag: String::new(),
            modified: SystemTime::UNIX_EPOCH,
            metadata: None,
            checksum: Checksum::default(),
        };
        let mut bucket = Bucket::default();
        for key in keys {
            bucket.put((*key).into(), object.clone(), &Only::Absent).unwrap();
        }
        bucket
    }

    fn names(lines: Vec<Listed>) -> String {
        let name = |line| match line {
            Listed::Object(name, _) | Listed::Prefix(name) => name,
        };
        lines.into_iter().map(name).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn listings_roll_up_what_lies_deeper() {
        let bucket = bucket(&["a", "b/c", "b/d/e", "b0", "c/x"]);
        let check = |prefix, delimiter, after, max, expected: &str, more| {
            let (lines, rest) = bucket.list(prefix, delimiter, after, max);
            assert_eq!((names(lines).as_str(), rest), (expected, more));
        };
        check("", None, None, 9, "a b/c b/d/e b0 c/x", false);
        check("", Some("/"), None, 9, "a b/ b0 c/", false);
        check("", Some("/"), None, 2, "a b/", true);
        check("b/", Some("/"), None, 9, "b/c b/d/", false);
        check("", None, Some("b/c"), 2, "b/d/e b0", true);
        check("z", None, None, 9, "", false);
    }

    #[test]
    fn parts_are_joined_when_all_is_right() {
        let mut bucket = bucket(&["taken"]);
        let id = bucket.begin("k".into(), None, true);
        let large = bucket.part("k", &id, 1, vec![1; PART_BYTES_MIN].into()).unwrap();
        let small = bucket.part("k", &id, 2, vec![2; 3].into()).unwrap();
        let good = [(1, large.clone()), (2, small.clone())];
        for bad in
            [&[][..], &[(2, small.clone()), (1, large)], &[(1, small.clone())], &[(3, small)]]
        {
            assert!(bucket.complete("k", &id, bad, &Only::Any).is_err());
        }
        assert!(bucket.complete("k", &id, &good, &Only::Absent).unwrap().ends_with("-2"));
        let whole = bucket.get("k").unwrap();
        assert_eq!(whole.bytes.len(), PART_BYTES_MIN + 3);
        assert!(
            whole.checksum.checksum_crc32c.is_some() && whole.checksum.checksum_sha256.is_none()
        );
        assert!(bucket.abort("k", &id).is_err());
    }
}
