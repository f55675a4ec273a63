//! Bits that flip on the way from a bucket: whoever reads a whole object gets the right bytes, or an error.

use std::time::Duration;

use crc_fast::CrcAlgorithm;
use data_encoding::{BASE64, HEXLOWER};
use hayase_layout::ByteCount;
use hayase_tier::s3::{ConditionalWrites, CredentialSource, Credentials, S3Settings};
use hayase_tier::{Attributes, Key, Reader, S3, Tier, TierError, copy_object};
use md5::{Digest, Md5};

use crate::scripted::{Reply, Request, Scripted, empty_page, error};

const MIB: usize = 1 << 20;

type Headers = Vec<(&'static str, String)>;

/// One object, and what its server tells of it.
#[derive(Clone)]
struct Object {
    bytes: Vec<u8>,
    etag: String,
    /// With every answer.
    always: Headers,
    /// Only with answers about the whole object.
    whole: Headers,
    /// Of the answers with bytes those whose number is below it have a flipped bit in byte 17.
    flips: usize,
}

impl Object {
    fn new(len: usize) -> Self {
        let bytes = (0..len).map(|at| (at * 7 + at / 256) as u8).collect();
        Self { bytes, etag: "v1".into(), always: vec![], whole: vec![], flips: 0 }
    }

    fn crc(&self) -> u32 {
        crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, &self.bytes) as u32
    }

    /// As we write objects in one request.
    fn ours(len: usize) -> Self {
        let mut object = Self::new(len);
        let value = format!("{:08x}-{len}", object.crc());
        object.always.push(("x-amz-meta-hayase-crc32c", value));
        object
    }

    /// Of a writer and a server that know checksums of whole objects.
    fn checked(len: usize) -> Self {
        let mut object = Self::new(len);
        let value = BASE64.encode(&object.crc().to_be_bytes());
        object.whole.push(("x-amz-checksum-crc32c", value));
        object
    }

    /// Of any other writer.
    fn foreign(len: usize) -> Self {
        let mut object = Self::new(len);
        object.etag = HEXLOWER.encode(&Md5::digest(&object.bytes));
        object
    }

    fn flipped(self, flips: usize) -> Self {
        Self { flips, ..self }
    }

    fn answer(&self, request: &Request, number: usize) -> Reply {
        let size = self.bytes.len();
        let (first, last) = request.range().unwrap_or((0, size - 1));
        let last = last.min(size - 1);
        let mut headers = self.always.clone();
        headers.push(("etag", format!("\"{}\"", self.etag)));
        if (first, last) == (0, size - 1) {
            headers.extend(self.whole.clone());
        }
        if request.line.starts_with("HEAD") {
            headers.push(("content-length", size.to_string()));
            return Reply::Answer(200, headers, vec![]);
        }
        let mut bytes = self.bytes[first..=last].to_vec();
        if number < self.flips {
            bytes[17] ^= 4;
        }
        if request.range().is_none() {
            return Reply::Answer(200, headers, bytes);
        }
        headers.push(("content-range", format!("bytes {first}-{last}/{size}")));
        Reply::Answer(206, headers, bytes)
    }

    fn serve(self) -> Scripted {
        let mut answers = 0;
        Scripted::start(move |_, request| {
            if request.line.contains("list-type=2") {
                return empty_page();
            }
            let number = answers;
            answers += usize::from(request.line.starts_with("GET"));
            self.answer(request, number)
        })
    }
}

fn attach(server: &Scripted) -> S3 {
    S3::attach(S3Settings {
        endpoint: Some(server.endpoint()),
        credentials: CredentialSource::Keys(Credentials::permanent("AK", "secret")),
        conditional: ConditionalWrites::Trusted,
        part_bytes: ByteCount::mib(5),
        first_bytes: ByteCount::mib(1),
        attempts: 3,
        patience: Duration::from_secs(5),
        ..S3Settings::new("bucket")
    })
    .unwrap()
}

/// All bytes by one read, of a version that was opened or listed.
fn whole(tier: &S3, listed: bool) -> Result<Vec<u8>, TierError> {
    let name = Key::new("o").unwrap();
    let reader: Box<dyn Reader> = match listed {
        true => tier.open_listed(&name, tier.stat(&name)?)?,
        false => tier.open(&name)?,
    };
    let mut bytes = vec![0; usize::try_from(reader.meta().size.get()).unwrap()];
    let count = reader.read_at(0, &mut bytes)?;
    assert_eq!(count, bytes.len());
    Ok(bytes)
}

/// In one request, with the open and another, in several at once.
const SIZES: [usize; 3] = [100, 2 * MIB, 11 * MIB];

#[test]
fn flipped_bits_of_whole_objects_are_never_delivered() {
    for size in SIZES {
        for object in [Object::ours(size), Object::checked(size), Object::foreign(size)] {
            for listed in [false, true] {
                let told = format!("{size} bytes, {:?} {:?}", object.always, object.whole);
                let passing = whole(&attach(&object.clone().flipped(1).serve()), listed);
                assert!(passing.unwrap() == object.bytes, "other bytes: {told}");
                let server = object.clone().flipped(usize::MAX).serve();
                let error = whole(&attach(&server), listed).unwrap_err();
                assert!(matches!(error, TierError::Corrupt { .. }), "{error}: {told}");
                assert!(server.seen().len() <= 16, "{} requests", server.seen().len());
            }
        }
    }
}

#[test]
fn an_entity_tag_is_taken_for_an_md5_only_where_it_is_one() {
    let encrypted = |name, value: &str| {
        let mut object = Object::foreign(2 * MIB);
        object.etag = "0123456789abcdef0123456789abcdef".into();
        object.always.push((name, value.to_owned()));
        object
    };
    let mut parts = Object::foreign(2 * MIB);
    parts.etag.push_str("-2");
    for object in [
        encrypted("x-amz-server-side-encryption", "aws:kms"),
        encrypted("x-amz-server-side-encryption-customer-algorithm", "AES256"),
        parts,
    ] {
        let server = object.clone().serve();
        assert!(whole(&attach(&server), true).unwrap() == object.bytes);
    }
    // A server with tags of its own: that is said, with the way out.
    let mut strange = Object::foreign(2 * MIB);
    strange.etag = "0123456789abcdef0123456789abcdef".into();
    let server = strange.clone().serve();
    let tier = attach(&server);
    let error = whole(&tier, true).unwrap_err();
    assert!(error.to_string().contains("HAYASE_S3_ETAG_MD5=no"), "{error}");
    let settings = S3Settings {
        endpoint: Some(server.endpoint()),
        credentials: CredentialSource::Keys(Credentials::permanent("AK", "secret")),
        conditional: ConditionalWrites::Trusted,
        etag_is_md5: false,
        ..S3Settings::new("bucket")
    };
    assert!(whole(&S3::attach(settings).unwrap(), true).unwrap() == strange.bytes);
}

#[test]
fn the_checksum_of_an_object_is_told_to_those_who_read_pieces() {
    let sum = |object: &Object, listed: bool| {
        let (server, name) = (object.clone().serve(), Key::new("o").unwrap());
        let tier = attach(&server);
        let reader = match listed {
            true => tier.open_listed(&name, tier.stat(&name).unwrap()).unwrap(),
            false => tier.open(&name).unwrap(),
        };
        reader.read_at(5, &mut [0; 10]).unwrap();
        let before = server.seen().len();
        let sums = [reader.crc32c(), reader.crc32c()].map(Result::ok);
        assert_eq!(sums[0], sums[1]);
        (sums[0], server.seen().len() - before)
    };
    for listed in [false, true] {
        let (ours, checked) = (Object::ours(2 * MIB), Object::checked(2 * MIB));
        assert_eq!(sum(&ours, listed), (Some(Some(ours.crc())), 0));
        // Answers with pieces do not tell it.
        assert_eq!(sum(&checked, listed), (Some(Some(checked.crc())), 1));
        assert_eq!(sum(&Object::foreign(2 * MIB), listed), (Some(None), 1));
        let mut other = ours;
        other.always[0].1.push('0');
        assert_eq!(sum(&other, listed), (None, 0), "it is told of an object of another size");
    }
}

#[test]
fn a_copy_within_a_bucket_is_not_committed_with_a_flipped_bit() {
    let object = Object::ours(11 * MIB).flipped(1);
    let mut answers = 0;
    let server = Scripted::start(move |_, request| {
        let (method, target) = request.line.split_once(' ').unwrap();
        let begun = b"<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>";
        match method {
            "GET" if request.line.contains("list-type=2") => empty_page(),
            "GET" => {
                answers += 1;
                object.answer(request, answers - 1)
            }
            "HEAD" if target.ends_with("/to") => error(404, "NoSuchKey"),
            "HEAD" => object.answer(request, 0),
            "POST" if target.ends_with("?uploads=") => Reply::Answer(200, vec![], begun.to_vec()),
            "PUT" => Reply::Answer(200, vec![("etag", "\"part\"".into())], vec![]),
            "DELETE" => Reply::Answer(204, vec![], vec![]),
            _ => panic!("it is committed: {}", request.line),
        }
    });
    let (tier, from, to) = (attach(&server), Key::new("o").unwrap(), Key::new("to").unwrap());
    let identity = tier.stat(&from).unwrap().identity;
    let copied = copy_object(&tier, (&from, identity), (&to, None), Attributes::default());
    assert!(matches!(copied, Err(TierError::Corrupt { .. })), "{copied:?}");
    let seen = server.seen();
    assert!(!seen.iter().any(|request| request.line.ends_with("uploadId=1") && request.line.starts_with("POST")));
}
