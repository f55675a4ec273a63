//! A bucket is a tier: the suite and what is particular, against a server in this process.

use std::time::{Duration, SystemTime};

use hayase_layout::ByteCount;
use hayase_s3_server::{ACCESS_KEY, BUCKET, Options, SECRET_KEY, Server};
use hayase_tier::s3::{
    Addressing, CredentialSource, Credentials, PayloadSignature, S3Settings, UploadChecksum,
};
use hayase_tier::{
    Attributes, EntryKind, Key, ListRequest, Memory, Precondition, S3, Tier, TierError, conformance,
};
use proptest::prelude::*;

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

fn settings(server: &Server) -> S3Settings {
    S3Settings {
        endpoint: Some(server.endpoint()),
        credentials: CredentialSource::Keys(Credentials::permanent(ACCESS_KEY, SECRET_KEY)),
        part_bytes: ByteCount::mib(5),
        ..S3Settings::new(BUCKET)
    }
}

#[test]
fn a_bucket_is_a_tier() {
    let server = Server::start(&Options::default()).unwrap();
    conformance::run(|| {
        server.make_bucket(BUCKET);
        S3::attach(settings(&server)).unwrap()
    });
    assert_eq!(server.unfinished_uploads(), 0);
}

#[test]
fn a_bucket_whose_uploads_outlive_their_process_is_a_tier() {
    let server = Server::start(&Options::default()).unwrap();
    let around = tempfile::tempdir().unwrap();
    // Made when it is missing.
    let kept_in = Some(around.path().join("uploads"));
    let left = || std::fs::read_dir(around.path().join("uploads")).unwrap().count();
    conformance::run(|| {
        server.make_bucket(BUCKET);
        S3::attach(S3Settings { kept_in: kept_in.clone(), ..settings(&server) }).unwrap()
    });
    assert_eq!((server.unfinished_uploads(), left()), (0, 0));
}

#[test]
fn what_lies_below_a_prefix_is_a_tier() {
    let server = Server::start(&Options::default()).unwrap();
    let mut count = 0;
    conformance::run(|| {
        count += 1;
        S3::attach(S3Settings { prefix: format!("a b/\u{e9}+{count}/"), ..settings(&server) })
            .unwrap()
    });
    let outside = S3::attach(settings(&server)).unwrap();
    assert!(outside.stat(&key("a b")).is_err());
}

/// Bytes that differ at every offset.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()[7]).collect()
}

fn whole(tier: &S3, name: &Key) -> Vec<u8> {
    let reader = tier.open(name).unwrap();
    let mut bytes = vec![0; usize::try_from(reader.meta().size.get()).unwrap()];
    assert_eq!(reader.read_at(0, &mut bytes).unwrap(), bytes.len());
    bytes
}

#[test]
fn large_objects_travel_in_parts_and_ranges() {
    let server = Server::start(&Options::default()).unwrap();
    let tier = S3::attach(settings(&server)).unwrap();
    let bytes = pattern((23 << 20) + 17);
    let name = key("large");
    let meta = tier.put(&name, Attributes::default(), &bytes, Precondition::Absent).unwrap();
    assert_eq!(meta.identity, tier.stat(&name).unwrap().identity);
    assert!(whole(&tier, &name) == bytes, "bytes differ");
    let taken = tier.put(&name, Attributes::default(), &bytes, Precondition::Absent).unwrap_err();
    assert!(matches!(taken, TierError::Exists { .. }), "{taken}");

    // In pieces of every size, each beginning a little before the end of the one before.
    let name = key("pieces");
    let mut upload = tier.begin(&name, Attributes::default()).unwrap();
    let mut at = 0_usize;
    for (n, step) in [1, 4096, 1 << 20, (5 << 20) + 1, 3, 7 << 20, 9 << 20].into_iter().enumerate()
    {
        let (back, end) = (at.saturating_sub(n * 100_000), (at + step).min(bytes.len()));
        upload.write_at(at as u64, &vec![0xee; (end - at).min(1000)]).unwrap();
        upload.write_at(back as u64, &bytes[back..end]).unwrap();
        at = end;
    }
    upload.write_at(at as u64, &bytes[at..]).unwrap();
    upload.commit(Precondition::Absent).unwrap();
    assert!(whole(&tier, &name) == bytes, "bytes differ");
    assert_eq!(server.unfinished_uploads(), 0);
}

#[test]
fn a_part_is_one_request_whose_wait_and_bytes_are_counted() {
    let server = Server::start(&Options::default()).unwrap();
    let tier = S3::attach(settings(&server)).unwrap();
    assert_eq!(tier.endpoint().unwrap(), server.endpoint());
    let (bytes, name) = (pattern(17 << 20), key("large"));
    let before = tier.traffic();
    tier.put(&name, Attributes::default(), &bytes, Precondition::Any).unwrap();
    let sent = tier.traffic();
    assert!(sent.carried - before.carried >= 17 << 20);
    let reader = tier.open(&name).unwrap();
    let mut part = vec![0; 12 << 20];
    for (is_one, requests) in [(true, 1), (false, 3)] {
        let before = tier.traffic();
        let count = match is_one {
            true => reader.read_part(5 << 20, &mut part),
            false => reader.read_at(5 << 20, &mut part),
        };
        assert_eq!(count.unwrap(), part.len());
        assert!(part == bytes[5 << 20..], "bytes differ");
        let now = tier.traffic();
        let counted = (now.requests - before.requests, now.waits - before.waits);
        assert_eq!(counted, (requests, requests));
        assert!(now.wait_micros > before.wait_micros);
        assert!(now.carried - before.carried >= 12 << 20);
    }
    // The end of an object, and what lies behind it.
    assert_eq!(reader.read_part(16 << 20, &mut part).unwrap(), 1 << 20);
    assert_eq!(reader.read_part(17 << 20, &mut part).unwrap(), 0);
}

#[test]
fn uploads_that_are_dropped_are_given_up_and_forgotten_ones_swept() {
    let server = Server::start(&Options::default()).unwrap();
    let tier = S3::attach(settings(&server)).unwrap();
    let begin = || {
        let mut upload = tier.begin(&key("d/left over"), Attributes::default()).unwrap();
        upload.write_at(0, &vec![1; 16 << 20]).unwrap();
        upload
    };
    drop(begin());
    assert_eq!(server.unfinished_uploads(), 0);
    std::mem::forget(begin());
    std::mem::forget(begin());
    assert_eq!(server.unfinished_uploads(), 2);
    let later = SystemTime::now() + Duration::from_secs(60);
    assert_eq!(tier.sweep(b"", SystemTime::UNIX_EPOCH).unwrap(), 0);
    assert_eq!(tier.sweep(b"e/", later).unwrap(), 0);
    assert_eq!(tier.sweep(b"d/", later).unwrap(), 2);
    assert_eq!(server.unfinished_uploads(), 0);
}

#[test]
fn buckets_in_the_host_name_and_readers_without_a_name() {
    let options = Options { domain: Some("s3.test".into()), ..Options::default() };
    let server = Server::start(&options).unwrap();
    let host = S3Settings {
        endpoint: Some(format!("http://s3.test:{}", server.address().port())),
        addressing: Addressing::Host,
        connect_to: Some(server.address()),
        ..settings(&server)
    };
    let tier = S3::attach(host).unwrap();
    let name = key("a b/+%\u{e9}");
    tier.put(&name, Attributes::default(), b"x", Precondition::Any).unwrap();
    assert_eq!(whole(&tier, &name), b"x");

    let open = Server::start(&Options { keys: None, ..Options::default() }).unwrap();
    let anonymous = S3Settings { credentials: CredentialSource::Anonymous, ..settings(&open) };
    let tier = S3::attach(anonymous).unwrap();
    tier.put(&name, Attributes::default(), b"x", Precondition::Any).unwrap();
    assert_eq!(whole(&tier, &name), b"x");
    assert_eq!(tier.capabilities().absent_max, None, "nothing is tried where nobody is known");
}

#[test]
fn every_checksum_and_signature_is_taken_by_a_server_that_verifies() {
    let server = Server::start(&Options::default()).unwrap();
    let bytes = pattern(11 << 20);
    for checksum in [UploadChecksum::Off, UploadChecksum::Crc32c, UploadChecksum::Sha256] {
        for payload in [PayloadSignature::Signed, PayloadSignature::Unsigned] {
            let tier = S3::attach(S3Settings { checksum, payload, ..settings(&server) }).unwrap();
            for len in [0, 1000, bytes.len()] {
                let name = key("o");
                tier.put(&name, Attributes::default(), &bytes[..len], Precondition::Any).unwrap();
                assert!(whole(&tier, &name) == bytes[..len], "{checksum:?} {payload:?} {len}");
            }
        }
    }
}

#[test]
fn an_object_that_was_sent_in_parts_has_the_crc32c_of_all_bytes() {
    let server = Server::start(&Options::default()).unwrap();
    let (name, bytes) = (key("parts"), pattern(11 << 20));
    let expected = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes) as u32;
    for checksum in [UploadChecksum::Crc32c, UploadChecksum::Off] {
        let tier = S3::attach(S3Settings { checksum, ..settings(&server) }).unwrap();
        let (attributes, part) = (Attributes::default(), 5 << 20);
        let parts = tier.begin_parts(&name, attributes, (bytes.len() as u64, part)).unwrap();
        let parts = parts.expect("uploads in parts are of S3");
        for (number, bytes) in bytes.chunks(part as usize).enumerate() {
            parts.put_part(number as u32, bytes).unwrap();
        }
        parts.commit(Precondition::Any).unwrap();
        let told = tier.open(&name).unwrap().crc32c().unwrap();
        let is_asked_for = checksum == UploadChecksum::Crc32c;
        assert_eq!(told, is_asked_for.then_some(expected), "{checksum:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn listings_of_any_names_are_those_of_the_model(
        names in prop::collection::btree_set("[a-c+%&<' \u{e9}\u{1f600}\n\t?#.*~!-]{1,4}(/[ab+% ]{1,2}){0,2}", 1..20),
        prefix in "[a-c+% ]{0,1}/?",
        limit in 1..12_usize,
    ) {
        let server = Server::start(&Options::default()).unwrap();
        let tier = S3::attach(settings(&server)).unwrap();
        let model = Memory::flat();
        for name in names.iter().filter_map(|name| Key::new(name).ok()) {
            for each in [&tier as &dyn Tier, &model] {
                each.put(&name, Attributes::default(), name.as_bytes(), Precondition::Any).unwrap();
            }
        }
        for request in [ListRequest::all(prefix.as_str()), ListRequest::one_level(prefix.as_str())] {
            let request = ListRequest { limit, ..request };
            prop_assert_eq!(listed(&tier, request.clone()), listed(&model, request));
        }
    }
}

fn listed(tier: &dyn Tier, mut request: ListRequest) -> Vec<(String, Option<u64>)> {
    let mut all = Vec::new();
    loop {
        let page = tier.list(&request).unwrap();
        all.extend(page.entries.into_iter().map(|entry| {
            let size = match entry.kind {
                EntryKind::Object(meta) => Some(meta.size.get()),
                EntryKind::Directory | EntryKind::Other(_) => None,
            };
            (String::from_utf8(entry.name).unwrap(), size)
        }));
        let Some(next) = page.next else { return all };
        request = request.continued(next);
    }
}
