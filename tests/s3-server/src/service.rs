//! Requests, as `s3s` reads them, to calls of the store.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use bytes::Bytes;
use data_encoding::HEXLOWER;
use s3s::checksum::ChecksumHasher;
use s3s::dto::*;
use s3s::{Body, S3, S3Request, S3Response, S3Result, s3_error};

use crate::store::{Listed, Object as Stored, Only, Store, md5};

/// Largest body that is taken: everything lies in memory.
const BODY_BYTES_MAX: usize = 1 << 30;

/// The store as `s3s` calls it.
#[derive(Debug)]
pub(crate) struct Service(pub(crate) Arc<Store>);

type Answer<T> = S3Result<S3Response<T>>;

fn ok<T>(output: T) -> Answer<T> {
    Ok(S3Response::new(output))
}

async fn collect(body: Option<StreamingBlob>) -> S3Result<Bytes> {
    let Some(body) = body else { return Ok(Bytes::new()) };
    let bytes = Body::from(body).store_all_limited(BODY_BYTES_MAX).await;
    bytes.map_err(|error| match error.downcast::<s3s::S3Error>() {
        Ok(error) => *error,
        Err(_) => s3_error!(IncompleteBody),
    })
}

/// Compares the checksums that came along with the bytes; those are kept.
fn verify(bytes: &[u8], sent: Checksum) -> S3Result<Checksum> {
    let wanted = |sum: &Option<String>| sum.is_some();
    let mut hasher = ChecksumHasher {
        crc32: wanted(&sent.checksum_crc32).then(Default::default),
        crc32c: wanted(&sent.checksum_crc32c).then(Default::default),
        sha1: wanted(&sent.checksum_sha1).then(Default::default),
        sha256: wanted(&sent.checksum_sha256).then(Default::default),
        crc64nvme: wanted(&sent.checksum_crc64nvme).then(Default::default),
    };
    hasher.update(bytes);
    if hasher.finalize() == sent { Ok(sent) } else { Err(s3_error!(BadDigest)) }
}

/// `If-None-Match`, of which only `*` has a meaning for writes, and `If-Match`, which names one entity tag; of removals
/// only the latter.
fn only(absent: Option<&ETagCondition>, matches: Option<&ETagCondition>) -> S3Result<Only> {
    match (absent, matches) {
        (None, None) => Ok(Only::Any),
        (Some(condition), None) if condition.is_any() => Ok(Only::Absent),
        (None, Some(condition)) => match condition.as_etag() {
            Some(etag) => Ok(Only::Matches(etag.value().to_owned())),
            None => Err(s3_error!(NotImplemented)),
        },
        _ => Err(s3_error!(NotImplemented)),
    }
}

/// Names in listings, as AWS writes them: a space is `+`.
fn encoder(encoding: Option<&EncodingType>) -> impl Fn(&str) -> String + use<> {
    let url = encoding.is_some_and(|encoding| encoding.as_str() == EncodingType::URL);
    move |name| {
        if !url {
            return name.to_owned();
        }
        let mut encoded = String::new();
        for byte in name.bytes() {
            match byte {
                b' ' => encoded.push('+'),
                b'/' | b'-' | b'.' | b'_' | b'*' => encoded.push(char::from(byte)),
                byte if byte.is_ascii_alphanumeric() => encoded.push(char::from(byte)),
                byte => write!(encoded, "%{byte:02X}").expect("a string takes all"),
            }
        }
        encoded
    }
}

fn most(asked: Option<i32>) -> usize {
    usize::try_from(asked.unwrap_or(1000)).unwrap_or(0).min(1000)
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

#[async_trait::async_trait]
impl S3 for Service {
    async fn list_buckets(&self, _: S3Request<ListBucketsInput>) -> Answer<ListBucketsOutput> {
        let named = |name| Bucket { name: Some(name), ..Bucket::default() };
        let buckets = Some(self.0.buckets().into_iter().map(named).collect());
        ok(ListBucketsOutput { buckets, ..Default::default() })
    }

    async fn create_bucket(
        &self,
        request: S3Request<CreateBucketInput>,
    ) -> Answer<CreateBucketOutput> {
        let name = &request.input.bucket;
        if self.0.buckets().contains(name) {
            return Err(s3_error!(BucketAlreadyOwnedByYou));
        }
        self.0.make_bucket(name);
        ok(CreateBucketOutput::default())
    }

    async fn head_bucket(&self, request: S3Request<HeadBucketInput>) -> Answer<HeadBucketOutput> {
        self.0.with(&request.input.bucket, |_| Ok(()))?;
        ok(HeadBucketOutput::default())
    }

    async fn get_object(&self, request: S3Request<GetObjectInput>) -> Answer<GetObjectOutput> {
        let input = request.input;
        let stored = self.0.with(&input.bucket, |bucket| bucket.get(&input.key))?;
        let etag = ETag::Strong(stored.etag.clone());
        let other = |condition: &ETagCondition| {
            condition.as_etag().is_some_and(|wanted| !wanted.strong_cmp(&etag))
        };
        if input.if_match.as_ref().is_some_and(other) {
            return Err(s3_error!(PreconditionFailed));
        }
        let size = stored.bytes.len();
        let mut bytes = stored.bytes;
        let mut content_range = None;
        let mut checksum = stored.checksum;
        if let Some(range) = input.range {
            let range = range.check(size as u64)?;
            content_range = Some(format!("bytes {}-{}/{size}", range.start, range.end - 1));
            bytes = bytes.slice(range.start as usize..range.end as usize);
        }
        self.0.bytes_read.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if bytes.len() < size || input.checksum_mode.is_none() {
            checksum = Checksum::default();
        }
        ok(GetObjectOutput {
            content_length: Some(bytes.len().cast_signed() as i64),
            body: Some(StreamingBlob::from(Body::from(bytes))),
            content_range,
            e_tag: Some(etag),
            last_modified: Some(Timestamp::from(stored.modified)),
            metadata: stored.metadata,
            checksum_crc32c: checksum.checksum_crc32c,
            checksum_sha256: checksum.checksum_sha256,
            ..Default::default()
        })
    }

    async fn head_object(&self, request: S3Request<HeadObjectInput>) -> Answer<HeadObjectOutput> {
        let input = request.input;
        let stored = self.0.with(&input.bucket, |bucket| bucket.get(&input.key))?;
        let is_asked = input.checksum_mode.is_some();
        let checksum = if is_asked { stored.checksum } else { Checksum::default() };
        ok(HeadObjectOutput {
            checksum_crc32c: checksum.checksum_crc32c,
            checksum_sha256: checksum.checksum_sha256,
            content_length: Some(stored.bytes.len().cast_signed() as i64),
            e_tag: Some(ETag::Strong(stored.etag)),
            last_modified: Some(Timestamp::from(stored.modified)),
            metadata: stored.metadata,
            ..Default::default()
        })
    }

    async fn put_object(&self, request: S3Request<PutObjectInput>) -> Answer<PutObjectOutput> {
        let input = request.input;
        let only = only(input.if_none_match.as_ref(), input.if_match.as_ref())?;
        let bytes = collect(input.body).await?;
        let sent = Checksum {
            checksum_crc32: input.checksum_crc32,
            checksum_crc32c: input.checksum_crc32c,
            checksum_sha1: input.checksum_sha1,
            checksum_sha256: input.checksum_sha256,
            checksum_crc64nvme: input.checksum_crc64nvme,
            ..Checksum::default()
        };
        let checksum = verify(&bytes, sent)?;
        let etag = HEXLOWER.encode(&md5(&bytes));
        let stored = Stored {
            bytes,
            etag: etag.clone(),
            modified: SystemTime::now(),
            metadata: input.metadata,
            checksum: checksum.clone(),
        };
        self.0.change(&input.bucket, |bucket| bucket.put(input.key, stored, &only))?;
        ok(PutObjectOutput {
            e_tag: Some(ETag::Strong(etag)),
            checksum_crc32c: checksum.checksum_crc32c,
            checksum_sha256: checksum.checksum_sha256,
            ..Default::default()
        })
    }

    async fn delete_object(
        &self,
        request: S3Request<DeleteObjectInput>,
    ) -> Answer<DeleteObjectOutput> {
        let input = request.input;
        let only = only(None, input.if_match.as_ref())?;
        self.0.change(&input.bucket, |bucket| bucket.delete(&input.key, &only))?;
        ok(DeleteObjectOutput::default())
    }

    async fn delete_objects(
        &self,
        request: S3Request<DeleteObjectsInput>,
    ) -> Answer<DeleteObjectsOutput> {
        let input = request.input;
        let deleted = self.0.change(&input.bucket, |bucket| {
            let keys = input.delete.objects.into_iter().map(|object| object.key);
            let deleted = keys.map(|key| {
                bucket.delete(&key, &Only::Any)?;
                Ok(DeletedObject { key: Some(key), ..Default::default() })
            });
            deleted.collect::<S3Result<Vec<_>>>()
        })?;
        ok(DeleteObjectsOutput { deleted: Some(deleted), ..Default::default() })
    }

    async fn list_objects(
        &self,
        request: S3Request<ListObjectsInput>,
    ) -> Answer<ListObjectsOutput> {
        let marker = request.input.marker.clone();
        let second = request.map_input(|input| ListObjectsV2Input {
            start_after: marker,
            ..ListObjectsV2Input::from(input)
        });
        let page = self.list_objects_v2(second).await?;
        Ok(page.map_output(|page| ListObjectsOutput {
            next_marker: page.next_continuation_token.as_deref().and_then(marker_of),
            contents: page.contents,
            common_prefixes: page.common_prefixes,
            is_truncated: page.is_truncated,
            name: page.name,
            prefix: page.prefix,
            delimiter: page.delimiter,
            encoding_type: page.encoding_type,
            max_keys: page.max_keys,
            ..Default::default()
        }))
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> Answer<ListObjectsV2Output> {
        let input = request.input;
        let encode = encoder(input.encoding_type.as_ref());
        let prefix = input.prefix.clone().unwrap_or_default();
        let after = match &input.continuation_token {
            Some(token) => Some(marker_of(token).ok_or_else(|| s3_error!(InvalidArgument))?),
            None => input.start_after.clone(),
        };
        let (lines, more) = self.0.with(&input.bucket, |bucket| {
            let delimiter = input.delimiter.as_deref().filter(|delimiter| !delimiter.is_empty());
            Ok(bucket.list(&prefix, delimiter, after.as_deref(), most(input.max_keys)))
        })?;
        let next = lines.last().filter(|_| more).map(|last| match last {
            Listed::Object(name, _) => HEXLOWER.encode(name.as_bytes()),
            Listed::Prefix(name) => HEXLOWER.encode(format!("{name}{}", char::MAX).as_bytes()),
        });
        let key_count = Some(count(lines.len()));
        let (mut contents, mut prefixes) = (Vec::new(), Vec::new());
        for line in lines {
            match line {
                Listed::Prefix(name) => prefixes.push(CommonPrefix { prefix: Some(encode(&name)) }),
                Listed::Object(name, stored) => contents.push(Object {
                    key: Some(encode(&name)),
                    size: Some(stored.bytes.len().cast_signed() as i64),
                    e_tag: Some(ETag::Strong(stored.etag)),
                    last_modified: Some(Timestamp::from(stored.modified)),
                    ..Default::default()
                }),
            }
        }
        ok(ListObjectsV2Output {
            contents: Some(contents),
            common_prefixes: Some(prefixes),
            is_truncated: Some(more),
            next_continuation_token: next,
            key_count,
            max_keys: input.max_keys,
            name: Some(input.bucket),
            prefix: input.prefix.map(|prefix| encode(&prefix)),
            delimiter: input.delimiter,
            encoding_type: input.encoding_type,
            ..Default::default()
        })
    }

    async fn create_multipart_upload(
        &self,
        request: S3Request<CreateMultipartUploadInput>,
    ) -> Answer<CreateMultipartUploadOutput> {
        let CreateMultipartUploadInput { bucket, key, metadata, .. } = request.input;
        let (algorithm, kind) = (request.input.checksum_algorithm, request.input.checksum_type);
        let has_crc32c = algorithm.is_some_and(|name| name.as_str() == ChecksumAlgorithm::CRC32C)
            && kind.as_ref().is_some_and(|kind| kind.as_str() == ChecksumType::FULL_OBJECT);
        let id = self.0.change(&bucket, |b| Ok(b.begin(key.clone(), metadata, has_crc32c)))?;
        ok(CreateMultipartUploadOutput {
            checksum_type: kind.filter(|_| has_crc32c),
            bucket: Some(bucket),
            key: Some(key),
            upload_id: Some(id),
            ..Default::default()
        })
    }

    async fn upload_part(&self, request: S3Request<UploadPartInput>) -> Answer<UploadPartOutput> {
        let input = request.input;
        let bytes = collect(input.body).await?;
        let sent = Checksum {
            checksum_crc32: input.checksum_crc32,
            checksum_crc32c: input.checksum_crc32c,
            checksum_sha1: input.checksum_sha1,
            checksum_sha256: input.checksum_sha256,
            checksum_crc64nvme: input.checksum_crc64nvme,
            ..Checksum::default()
        };
        let checksum = verify(&bytes, sent)?;
        let (key, id, number) = (&input.key, &input.upload_id, input.part_number);
        let etag = self.0.change(&input.bucket, |bucket| bucket.part(key, id, number, bytes))?;
        ok(UploadPartOutput {
            e_tag: Some(ETag::Strong(etag)),
            checksum_crc32c: checksum.checksum_crc32c,
            checksum_sha256: checksum.checksum_sha256,
            ..Default::default()
        })
    }

    async fn complete_multipart_upload(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> Answer<CompleteMultipartUploadOutput> {
        let input = request.input;
        let only = only(input.if_none_match.as_ref(), input.if_match.as_ref())?;
        let parts = input.multipart_upload.and_then(|upload| upload.parts).unwrap_or_default();
        let named = parts.into_iter().map(|part| {
            let etag = part.e_tag.map(ETag::into_value);
            part.part_number.zip(etag).ok_or_else(|| s3_error!(MalformedXML))
        });
        let named = named.collect::<S3Result<Vec<_>>>()?;
        let (key, id) = (&input.key, &input.upload_id);
        let etag =
            self.0.change(&input.bucket, |bucket| bucket.complete(key, id, &named, &only))?;
        ok(CompleteMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            e_tag: Some(ETag::Strong(etag)),
            ..Default::default()
        })
    }

    async fn abort_multipart_upload(
        &self,
        request: S3Request<AbortMultipartUploadInput>,
    ) -> Answer<AbortMultipartUploadOutput> {
        let input = request.input;
        self.0.change(&input.bucket, |bucket| bucket.abort(&input.key, &input.upload_id))?;
        ok(AbortMultipartUploadOutput::default())
    }

    async fn list_parts(&self, request: S3Request<ListPartsInput>) -> Answer<ListPartsOutput> {
        let input = request.input;
        let marker = input.part_number_marker.unwrap_or(0);
        let (page, more) = self.0.with(&input.bucket, |bucket| {
            let (key, id) = (&input.key, &input.upload_id);
            bucket.parts(key, id, marker, most(input.max_parts))
        })?;
        let last = page.last().filter(|_| more).map(|(number, _, _)| *number);
        let parts = page.into_iter().map(|(number, size, etag)| Part {
            part_number: Some(number),
            size: Some(size as i64),
            e_tag: Some(ETag::Strong(etag)),
            ..Default::default()
        });
        ok(ListPartsOutput {
            parts: Some(parts.collect()),
            is_truncated: Some(more),
            next_part_number_marker: last,
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(input.upload_id),
            ..Default::default()
        })
    }

    async fn list_multipart_uploads(
        &self,
        request: S3Request<ListMultipartUploadsInput>,
    ) -> Answer<ListMultipartUploadsOutput> {
        let input = request.input;
        let encode = encoder(input.encoding_type.as_ref());
        let prefix = input.prefix.clone().unwrap_or_default();
        // A key without a name stands behind all uploads of that key.
        let id = input.upload_id_marker.unwrap_or_else(|| char::MAX.into());
        let after = input.key_marker.map(|key| (key, id)).unwrap_or_default();
        let (page, more) = self.0.with(&input.bucket, |bucket| {
            Ok(bucket.uploads(&prefix, &after, most(input.max_uploads)))
        })?;
        let last = page.last().filter(|_| more).cloned();
        let uploads = page.into_iter().map(|(key, id, upload)| MultipartUpload {
            key: Some(encode(&key)),
            upload_id: Some(id),
            initiated: Some(Timestamp::from(upload.initiated)),
            ..Default::default()
        });
        ok(ListMultipartUploadsOutput {
            uploads: Some(uploads.collect()),
            is_truncated: Some(more),
            next_key_marker: last.as_ref().map(|(key, _, _)| encode(key)),
            next_upload_id_marker: last.map(|(_, id, _)| id),
            bucket: Some(input.bucket),
            prefix: input.prefix.map(|prefix| encode(&prefix)),
            encoding_type: input.encoding_type,
            ..Default::default()
        })
    }
}

/// The name in a token; `None` when it is none of ours.
fn marker_of(token: &str) -> Option<String> {
    String::from_utf8(HEXLOWER.decode(token.as_bytes()).ok()?).ok()
}
