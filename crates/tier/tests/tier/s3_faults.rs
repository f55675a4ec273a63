//! What a bucket's server can do wrong, and what becomes of it: nothing wrong is ever delivered, what
//! passes is tried again, and what a person must correct is said.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use hayase_layout::ByteCount;
use hayase_tier::s3::{
    ConditionalWrites, CredentialSource, Credentials, Encryption, Environment, S3Settings,
};
use hayase_tier::{
    Action, Attributes, Key, ListRequest, Precondition, S3, Tier, TierError, Traffic,
};

use proptest::prelude::*;

use crate::scripted::{Reply, Request, Scripted, empty_page, error};

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

pub(crate) fn settings(server: &Scripted) -> S3Settings {
    S3Settings {
        endpoint: Some(server.endpoint()),
        credentials: CredentialSource::Keys(Credentials::permanent("AK", "secret")),
        conditional: ConditionalWrites::Trusted,
        part_bytes: ByteCount::mib(5),
        attempts: 4,
        patience: Duration::from_secs(5),
        ..S3Settings::new("bucket")
    }
}

pub(crate) fn is_knock(request: &Request) -> bool {
    request.line.contains("max-keys=1&") && !request.line.contains("encoding-type")
}

/// A tier whose server answers `attach`, and then as told.
fn attach(mut handler: impl FnMut(usize, &Request) -> Reply + Send + 'static) -> (Scripted, S3) {
    let server =
        Scripted::start(
            move |number, request| {
                if is_knock(request) { empty_page() } else { handler(number, request) }
            },
        );
    let tier = S3::attach(settings(&server)).unwrap();
    (server, tier)
}

pub(crate) const BYTES: &[u8] = b"the bytes of an object, all of them";

/// Headers of an answer with `BYTES`, or a range of them.
fn headers(range: Option<(usize, usize)>, etag: &str) -> Vec<(&'static str, String)> {
    let mut headers = vec![("etag", format!("\"{etag}\"")), ("last-modified", DATE.to_owned())];
    if let Some((first, last)) = range {
        let last = last.min(BYTES.len() - 1);
        headers.push(("content-range", format!("bytes {first}-{last}/{}", BYTES.len())));
    }
    headers
}

const DATE: &str = "Fri, 24 May 2013 00:00:00 GMT";

/// A true answer to a GET.
pub(crate) fn truth(request: &Request) -> Reply {
    match request.range() {
        Some((first, last)) => {
            let piece = BYTES[first..=last.min(BYTES.len() - 1)].to_vec();
            Reply::Answer(206, headers(Some((first, last)), "v1"), piece)
        }
        None => Reply::Answer(200, headers(None, "v1"), BYTES.to_vec()),
    }
}

pub(crate) fn read(tier: &S3) -> Result<Vec<u8>, TierError> {
    let reader = tier.open(&key("o"))?;
    let mut bytes = vec![0; 100];
    let count = reader.read_at(0, &mut bytes)?;
    bytes.truncate(count);
    Ok(bytes)
}

/// The first answers are `faults`, then comes the truth: the bytes arrive, after as many repetitions.
fn survives(faults: Vec<Reply>) -> Traffic {
    let count = faults.len() as u64;
    let (_, tier) = attach(move |number, request| {
        faults.get(number).cloned().unwrap_or_else(|| truth(request))
    });
    assert_eq!(read(&tier).unwrap(), BYTES);
    let traffic = tier.traffic();
    // A kept connection that ends is replaced without a pause, and not counted.
    assert!((count.saturating_sub(1)..=count).contains(&(traffic.repeats + traffic.throttled)));
    traffic
}

/// Every answer is `fault`: that is said, after a bounded number of attempts.
fn fails(fault: Reply) -> TierError {
    let (server, tier) = attach(move |_, _| fault.clone());
    let error = read(&tier).unwrap_err();
    // Four attempts, the first of which may replace a kept connection.
    assert!(server.seen().len() <= 5, "{} attempts", server.seen().len());
    error
}

#[test]
fn broken_answers_are_asked_for_again() {
    let whole = headers(Some((0, 1 << 20)), "v1");
    survives(vec![Reply::Close, Reply::Close]);
    survives(vec![Reply::Cut(whole.clone(), BYTES.to_vec(), 7)]);
    survives(vec![Reply::Cut(whole, BYTES.to_vec(), 0)]);
    survives(vec![Reply::Raw(b"HTTP/1.1 200 OK\r\ncontent-le".to_vec())]);
    survives(vec![Reply::Raw(
        b"HTTP/1.1 206 x\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab".to_vec(),
    )]);
    let unavailable = fails(Reply::Close);
    assert!(matches!(unavailable, TierError::Unavailable { .. }), "{unavailable}");
    assert!(unavailable.is_transient() && unavailable.help().is_some());
}

/// What is taken piece by piece begins anew; what its taker refuses is not asked for again.
#[test]
fn pieces_of_a_broken_answer_begin_anew() {
    let end = BYTES.len() - 1;
    let (server, tier) = attach(move |_, request| match request.range() {
        Some((2, last)) => {
            let head = format!(
                "HTTP/1.1 206 x\r\ncontent-length: {}\r\ncontent-range: bytes 2-{last}/{}\r\netag: \"v1\"\r\n\r\n",
                last - 1,
                BYTES.len()
            );
            Reply::Raw([head.as_bytes(), &BYTES[2..8]].concat())
        }
        _ => truth(request),
    });
    let reader = tier.open(&key("o")).unwrap();
    let mut taken = Vec::new();
    let mut take = |at, piece: &[u8]| {
        taken.push((at, piece.to_vec()));
        Ok(())
    };
    let cut = reader.read_pieces(2, end as u64 - 2, &mut [0; 4], &mut take);
    assert!(matches!(cut, Err(TierError::Unavailable { .. })), "{cut:?}");
    assert!(taken.len() > 1 && taken.iter().all(|(at, piece)| *at == 2 && *piece == BYTES[2..6]));
    let before = server.seen().len();
    let mut full = |_, _: &[u8]| Err(TierError::Full { action: Action::Write, path: "o".into() });
    let refused = reader.read_pieces(0, 4, &mut [0; 2], &mut full);
    assert!(matches!(refused, Err(TierError::Full { .. })), "{refused:?}");
    assert_eq!(server.seen().len(), before + 1);
}

#[test]
fn storms_are_waited_out_and_counted() {
    let storm = vec![error(503, "SlowDown"), error(429, ""), error(503, "")];
    assert_eq!(survives(storm).throttled, 3);
    let stumbles = vec![error(500, "InternalError"), error(502, ""), error(400, "RequestTimeout")];
    assert_eq!(survives(stumbles).repeats, 3);
    assert!(matches!(fails(error(503, "SlowDown")), TierError::Unavailable { .. }));
}

#[test]
fn a_silent_server_is_given_up() {
    let server = Scripted::start(|number, request| match number {
        _ if is_knock(request) => empty_page(),
        0 => Reply::Silence(Duration::from_secs(20)),
        _ => truth(request),
    });
    let patience = Duration::from_millis(300);
    let tier = S3::attach(S3Settings { patience, ..settings(&server) }).unwrap();
    assert_eq!(read(&tier).unwrap(), BYTES);
    assert_eq!(tier.traffic().repeats, 1);
}

#[test]
fn flipped_bits_are_never_delivered() {
    let sum = "x-amz-meta-hayase-crc32c";
    let crc = format!("{:08x}-{}", crc32c(BYTES), BYTES.len());
    let answer = move |bytes: &[u8]| {
        let mut headers = headers(Some((0, 1 << 20)), "v1");
        headers.push((sum, crc.clone()));
        Reply::Answer(206, headers, bytes.to_vec())
    };
    let mut flipped = BYTES.to_vec();
    flipped[20] ^= 4;
    survives(vec![answer(&flipped)]);
    let corrupt = fails(answer(&flipped));
    assert!(matches!(corrupt, TierError::Corrupt { .. }), "{corrupt}");
}

/// Bit by bit, so that it shares nothing with the code under test (polynomial of RFC 3720).
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
    let byte = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc));
    !bytes.iter().fold(!0, byte)
}

#[test]
fn wrong_ranges_and_lengths_are_never_delivered() {
    let other = headers(Some((5, 1 << 20)), "v1");
    let corrupt = fails(Reply::Answer(206, other, BYTES[5..].to_vec()));
    assert!(matches!(corrupt, TierError::Corrupt { .. }), "{corrupt}");
    let no_size = Reply::Answer(206, vec![], BYTES.to_vec());
    assert!(matches!(fails(no_size), TierError::Corrupt { .. }));
    // Longer than it says: what follows must not be taken for the next answer.
    let long = Reply::Raw(
        b"HTTP/1.1 206 x\r\ncontent-length: 3\r\ncontent-range: bytes 0-2/3\r\n\r\nabcdef".to_vec(),
    );
    let (_, tier) = attach(move |number, request| match number {
        0 => long.clone(),
        _ => truth(request),
    });
    assert_eq!(read(&tier).unwrap(), b"abc");
    assert_eq!(read(&tier).unwrap(), BYTES);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Wherever a byte of an answer changes: the right bytes come, or an error; no panic, no hang.
    #[test]
    fn a_changed_byte_anywhere_never_delivers_others(at: prop::sample::Index, to: u8) {
        let mut answer = format!(
            "HTTP/1.1 206 Partial Content\r\ncontent-length: {len}\r\ncontent-range: bytes 0-{end}/{len}\r\n\
             etag: \"v1\"\r\nx-amz-meta-hayase-crc32c: {:08x}-{len}\r\n\r\n",
            crc32c(BYTES),
            len = BYTES.len(),
            end = BYTES.len() - 1,
        )
        .into_bytes();
        answer.extend_from_slice(BYTES);
        let at = at.index(answer.len());
        answer[at] = to;
        let server = Scripted::start(move |_, request| {
            if is_knock(request) { empty_page() } else { Reply::Raw(answer.clone()) }
        });
        let tier = S3::attach(S3Settings { attempts: 1, ..settings(&server) }).unwrap();
        if let Ok(bytes) = read(&tier) {
            prop_assert_eq!(bytes, BYTES);
        }
    }
}

#[test]
fn another_version_is_told_not_delivered() {
    // The open brings 4 bytes of the first version; then the object is replaced.
    let server = Scripted::start(|_, request| match request.range() {
        _ if is_knock(request) => empty_page(),
        Some((0, 3)) => truth(request),
        range => Reply::Answer(206, headers(range, "v2"), BYTES[4..].to_vec()),
    });
    let first_bytes = ByteCount(4);
    let tier = S3::attach(S3Settings { first_bytes, ..settings(&server) }).unwrap();
    let reader = tier.open(&key("o")).unwrap();
    let changed = reader.read_at(0, &mut [0; 100]).unwrap_err();
    assert!(matches!(changed, TierError::Changed { .. }), "{changed}");
    assert_eq!(server.seen()[1].get("if-match"), Some("\"v1\""));
}

#[test]
fn the_region_is_learned_or_corrected() {
    let elsewhere = |request: &Request| {
        let right =
            request.get("authorization").is_some_and(|text| text.contains("/eu-west-1/s3/"));
        let region = vec![("x-amz-bucket-region", "eu-west-1".to_owned())];
        if right { empty_page() } else { Reply::Answer(301, region, vec![]) }
    };
    let server = Scripted::start(move |_, request| elsewhere(request));
    let tier = S3::attach(settings(&server)).unwrap();
    tier.list(&ListRequest::all("")).unwrap();
    let named = S3Settings { region: Some("us-west-2".into()), ..settings(&server) };
    let error = S3::attach(named).unwrap_err();
    assert!(error.to_string().contains("in the region `eu-west-1`, not in `us-west-2`"), "{error}");
    assert!(error.help().unwrap().contains("AWS_REGION"));
}

#[test]
fn a_clock_that_is_wrong_is_corrected() {
    let theirs = "Wed, 01 Jan 2098 00:00:00 GMT";
    let (_, tier) = attach(move |_, request| {
        let right = request.get("x-amz-date").unwrap().starts_with("20980101T00");
        let date = vec![("date", theirs.to_owned())];
        let document = b"<Error><Code>RequestTimeTooSkewed</Code></Error>".to_vec();
        if right { truth(request) } else { Reply::Answer(403, date, document) }
    });
    assert_eq!(read(&tier).unwrap(), BYTES);
}

#[test]
fn keys_that_ended_are_read_anew() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("credentials");
    let write = |name: &str| {
        let text = format!("[default]\naws_access_key_id={name}\naws_secret_access_key=s\n");
        std::fs::write(&file, text).unwrap();
    };
    write("OLD");
    let server = Scripted::start(|_, request| {
        let new = request.get("authorization").unwrap().contains("Credential=NEW/");
        match is_knock(request) {
            true => empty_page(),
            false if new => truth(request),
            false => error(400, "ExpiredToken"),
        }
    });
    let found = Environment { credentials_file: Some(file.clone()), ..Environment::default() };
    let credentials = CredentialSource::Found(Box::new(found));
    let tier = S3::attach(S3Settings { credentials, ..settings(&server) }).unwrap();
    let ended = read(&tier).unwrap_err();
    assert!(ended.to_string().contains("has ended"), "{ended}");
    write("NEW");
    assert_eq!(read(&tier).unwrap(), BYTES);
}

#[test]
fn each_wrong_setting_has_its_own_words() {
    let said = |reply: Reply| {
        let server = Scripted::start(move |_, _| reply.clone());
        let error = S3::attach(settings(&server)).unwrap_err();
        assert!(matches!(error, TierError::Refused { .. }), "{error}");
        format!("{error}; {}", error.help().unwrap())
    };
    let check = |reply, expected: &str| {
        let text = said(reply);
        assert!(text.contains(expected), "{text}");
    };
    check(error(403, "InvalidAccessKeyId"), "does not know the access key `AK`");
    check(error(403, "NotSignedUp"), "does not know the access key `AK`");
    check(error(403, "XAdminUserNotFound"), "does not know the access key `AK`");
    check(error(403, "SignatureDoesNotMatch"), "the secret of the access key `AK` is wrong");
    check(error(404, "NoSuchBucket"), "no bucket `bucket` at http://127.0.0.1");
    check(error(400, "InvalidBucketName"), "takes no bucket `bucket`");
    check(Reply::Answer(200, vec![], b"<html></html>".to_vec()), "is no S3 server");
    check(Reply::Raw(b"SSH-2.0-OpenSSH_9\r\n".to_vec()), "no S3 server answers");
    let moved = vec![("location", "https://other.example/".to_owned())];
    check(Reply::Answer(302, moved, vec![]), "sends us to https://other.example/");

    let server = Scripted::start(|_, _| empty_page());
    let nowhere =
        S3Settings { endpoint: Some("http://nowhere.invalid".into()), ..settings(&server) };
    let error = S3::attach(nowhere).unwrap_err();
    assert!(error.to_string().contains("look up the host nowhere.invalid"), "{error}");
    let none = CredentialSource::Found(Box::default());
    let error = S3::attach(S3Settings { credentials: none, ..settings(&server) }).unwrap_err();
    assert!(error.to_string().contains("no credentials were found"), "{error}");
    let secret = Encryption::CustomerKey([1; 32]);
    let error = S3::attach(S3Settings { encryption: secret, ..settings(&server) }).unwrap_err();
    assert!(error.to_string().contains("in clear"), "{error}");
}

#[test]
fn rights_quota_and_space_are_told_apart() {
    assert!(matches!(fails(error(403, "AccessDenied")), TierError::Denied { .. }));
    assert!(matches!(fails(error(403, "QuotaExceeded")), TierError::Quota { .. }));
    assert!(matches!(fails(error(507, "InsufficientStorage")), TierError::Full { .. }));
    assert!(matches!(fails(error(404, "NoSuchKey")), TierError::Missing { .. }));
    assert!(matches!(fails(error(501, "NotImplemented")), TierError::Unsupported { .. }));
    assert_eq!(fails(error(403, "AccessDenied")).errno(), 13);
}

/// A server whose answer to the first writing request is lost; then it says `then`, and shows an object
/// with the token of the upload, or with another.
fn answer_lost(then: Reply, ours: bool, multipart: bool) -> Result<(), TierError> {
    let token = Arc::new(Mutex::new(None));
    let mut lost = false;
    let (_, tier) = attach(move |_, request| {
        let mut token = token.lock().unwrap();
        if let Some(sent) = request.get("x-amz-meta-hayase-upload") {
            *token = Some(if ours { sent.to_owned() } else { "another".into() });
        }
        let method = request.line.split(' ').next().unwrap();
        let tag = || vec![("etag", "\"e\"".to_owned())];
        match method {
            "HEAD" => {
                let mut headers = tag();
                headers.push(("x-amz-meta-hayase-upload", token.clone().unwrap()));
                Reply::Answer(200, headers, vec![])
            }
            "POST" if request.line.ends_with("?uploads=") => Reply::Answer(
                200,
                vec![],
                b"<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>"
                    .to_vec(),
            ),
            "PUT" if request.line.contains("partNumber=") => Reply::Answer(200, tag(), vec![]),
            "DELETE" => Reply::Answer(204, vec![], vec![]),
            _ if !lost => {
                lost = true;
                Reply::Close
            }
            _ => then.clone(),
        }
    });
    let data = vec![1; if multipart { 16 << 20 } else { 10 }];
    tier.put(&key("o"), Attributes::default(), &data, Precondition::Absent).map(drop)
}

#[test]
fn a_commit_whose_answer_was_lost_knows_its_own_work() {
    let unmet = || error(412, "PreconditionFailed");
    answer_lost(unmet(), true, false).unwrap();
    let other = answer_lost(unmet(), false, false).unwrap_err();
    assert!(matches!(other, TierError::Exists { .. }), "{other}");
    answer_lost(error(404, "NoSuchUpload"), true, true).unwrap();
    answer_lost(unmet(), true, true).unwrap();
    assert!(matches!(answer_lost(unmet(), false, true), Err(TierError::Exists { .. })));
    assert!(answer_lost(error(404, "NoSuchUpload"), false, true).is_err());
}

/// What a store does with a condition on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Conditions {
    Obeyed,
    Ignored,
    Refused,
}

/// Objects, by the path of a request, with the number of their version.
type Versions = Arc<Mutex<BTreeMap<String, u32>>>;

const OBJECT: &str = "/bucket/o";

/// A store that takes conditions on writes and on removals in these ways, and has version 1 of [`OBJECT`].
/// `at_delete` comes before each DELETE of it, and may answer in its place.
fn store(
    (writes, removals): (Conditions, Conditions),
    mut at_delete: impl FnMut(&mut BTreeMap<String, u32>) -> Option<Reply> + Send + 'static,
) -> (Scripted, Versions) {
    let versions = Versions::new(Mutex::new([(OBJECT.to_owned(), 1)].into()));
    let kept = Arc::clone(&versions);
    let server = Scripted::start(move |_, request| {
        let (method, path) = request.line.split_once(' ').unwrap();
        let mut versions = kept.lock().unwrap();
        if (method, path) == ("DELETE", OBJECT)
            && let Some(reply) = at_delete(&mut versions)
        {
            return reply;
        }
        let there = versions.get(path).copied();
        let tag = |version| vec![("etag", format!("\"v{version}\""))];
        let is_met = match (request.get("if-none-match"), request.get("if-match")) {
            (Some(_), _) => there.is_none(),
            (_, Some(etag)) => there.is_some_and(|there| etag == tag(there)[0].1),
            _ => true,
        };
        let conditions = if method == "DELETE" { removals } else { writes };
        let is_asked = request.get("if-none-match").or(request.get("if-match")).is_some();
        match (method, there) {
            _ if is_knock(request) => empty_page(),
            _ if is_asked && conditions == Conditions::Refused => error(501, "NotImplemented"),
            _ if !is_met && conditions == Conditions::Obeyed => error(412, "PreconditionFailed"),
            ("PUT", _) => {
                let version = there.unwrap_or(0) + 1;
                versions.insert(path.to_owned(), version);
                Reply::Answer(200, tag(version), vec![])
            }
            ("DELETE", _) => {
                versions.remove(path);
                Reply::Answer(204, vec![], vec![])
            }
            ("HEAD", Some(there)) => Reply::Answer(200, tag(there), vec![]),
            ("HEAD", None) => Reply::Answer(404, vec![], vec![]),
            _ => error(501, "NotImplemented"), // Parts.
        }
    });
    (server, versions)
}

/// Removes the version of [`OBJECT`] that is there now.
fn removes_version(conditional: ConditionalWrites, server: &Scripted) -> Result<(), TierError> {
    let tier = S3::attach(S3Settings { conditional, ..settings(server) }).unwrap();
    let known = tier.stat(&key("o")).unwrap().identity;
    tier.delete_version(&key("o"), known)
}

/// The last request that removed, and whether it had a condition.
fn is_conditional(server: &Scripted) -> bool {
    let seen = server.seen();
    let last = seen.iter().rfind(|request| request.line == format!("DELETE {OBJECT}"));
    last.unwrap().get("if-match").is_some()
}

/// Another program replaces the object between the look and the DELETE.
#[test]
fn what_comes_right_before_a_removal_stays_where_the_store_obeys_that_condition() {
    use Conditions::{Ignored, Obeyed, Refused};
    // Stores that obey it on a write need not on a removal, and the other way round.
    for ways in [(Obeyed, Obeyed), (Ignored, Obeyed), (Obeyed, Ignored), (Obeyed, Refused)] {
        let (server, versions) = store(ways, |versions| {
            versions.insert(OBJECT.to_owned(), 2);
            None
        });
        let removed = removes_version(ConditionalWrites::Probe, &server);
        let is_there = versions.lock().unwrap().get(OBJECT).is_some();
        let is_changed = matches!(removed, Err(TierError::Changed { .. }));
        let is_obeyed = ways.1 == Obeyed;
        assert_eq!((is_changed, is_there), (is_obeyed, is_obeyed), "{ways:?}: {removed:?}");
        assert!(is_obeyed || removed.is_ok(), "{ways:?}: {removed:?}");
        assert_eq!(is_conditional(&server), is_obeyed, "{ways:?}");
        let others = versions.lock().unwrap().keys().filter(|path| *path != OBJECT).count();
        assert_eq!(others, 0, "{ways:?}: what was tried is removed");
    }
}

#[test]
fn a_removal_whose_answer_was_lost_knows_its_own_work() {
    use Conditions::Obeyed;
    for theirs in [None, Some(2)] {
        let mut lost = false;
        let (server, versions) = store((Obeyed, Obeyed), move |versions| {
            let is_first = !std::mem::replace(&mut lost, true);
            is_first.then(|| {
                versions.remove(OBJECT);
                // The connection ends; before it is asked again another program may put its version there.
                versions.extend(theirs.map(|version| (OBJECT.to_owned(), version)));
                Reply::Close
            })
        });
        let removed = removes_version(ConditionalWrites::Trusted, &server);
        let is_changed = matches!(removed, Err(TierError::Changed { .. }));
        assert_eq!(is_changed, theirs.is_some(), "{removed:?}");
        assert!(is_changed || removed.is_ok(), "{removed:?}");
        assert_eq!(versions.lock().unwrap().get(OBJECT).copied(), theirs);
    }
}

/// AWS had it for writes first, and answers so where it has it not.
#[test]
fn a_condition_on_a_removal_that_is_refused_though_it_was_trusted_is_left_out() {
    let ways = (Conditions::Obeyed, Conditions::Refused);
    let (server, versions) = store(ways, |_| None);
    removes_version(ConditionalWrites::Trusted, &server).unwrap();
    assert!(versions.lock().unwrap().is_empty() && !is_conditional(&server));
}

#[test]
fn an_error_inside_a_good_status_is_an_error() {
    let (server, tier) = attach(|_, request| {
        let document: &[u8] = match request.line.as_str() {
            line if line.ends_with("?uploads=") => b"<R><UploadId>1</UploadId></R>",
            line if line.starts_with("POST") => b"<Error><Code>InternalError</Code></Error>",
            _ => b"",
        };
        Reply::Answer(200, vec![("etag", "\"e\"".to_owned())], document.to_vec())
    });
    let data = vec![1; 16 << 20];
    let error = tier.put(&key("o"), Attributes::default(), &data, Precondition::Any).unwrap_err();
    assert!(matches!(error, TierError::Unavailable { .. }), "{error}");
    let seen = server.seen();
    let sent: usize = seen.iter().map(|request| request.body.len()).sum();
    assert!(sent >= data.len());
    let last = seen.last().unwrap();
    assert!(last.line.starts_with("DELETE /bucket/o?uploadId=1"), "not given up: {}", last.line);
}

/// Two million names, made as they are asked for.
#[test]
fn two_million_names_are_listed_page_by_page() {
    const NAMES: usize = 2_000_000;
    let (server, tier) = attach(|_, request| {
        let token = request.line.split("continuation-token=").nth(1);
        let after = request.line.split("start-after=k").nth(1);
        let number = |text: &str| text.split('&').next().unwrap().parse::<usize>().unwrap();
        let from = token.map(number).or(after.map(|after| number(after) + 1)).unwrap_or(0);
        let until = (from + 1000).min(NAMES);
        let mut page = format!(
            "<R><IsTruncated>{}</IsTruncated><NextContinuationToken>{until}</NextContinuationToken>",
            until < NAMES
        );
        for n in from..until {
            page.push_str(&format!("<Contents><Key>k{n:07}</Key><Size>{n}</Size></Contents>"));
        }
        page.push_str("</R>");
        Reply::Answer(200, vec![], page.into_bytes())
    });
    let mut request = ListRequest::all("");
    let mut seen = 0;
    loop {
        let page = tier.list(&request).unwrap();
        for entry in &page.entries {
            assert_eq!(entry.name, format!("k{seen:07}").as_bytes());
            seen += 1;
        }
        let Some(next) = page.next else { break };
        request = request.continued(next);
    }
    assert_eq!(seen, NAMES);
    assert_eq!(server.seen().len(), NAMES / 1000);
}

#[test]
fn listings_that_lie_are_refused() {
    let refused = |page: &'static str| {
        let (_, tier) = attach(move |_, _| Reply::Answer(200, vec![], page.into()));
        let error = tier.list(&ListRequest::all("")).unwrap_err();
        assert!(matches!(error, TierError::Corrupt { .. }), "{error}");
    };
    refused("<R><IsTruncated>true</IsTruncated></R>");
    refused("<R><Contents><Key>a</Key></Contents></R>");
    refused("<R><Contents><Key>a</Key>");
    refused(
        "<R><IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>\
         <Contents><Key>b</Key><Size>1</Size></Contents></R>",
    );
    let mut first = true;
    let (_, tier) = attach(move |_, _| {
        let name = if std::mem::take(&mut first) { "b" } else { "a" };
        let page = format!(
            "<R><IsTruncated>true</IsTruncated><NextContinuationToken>{name}</NextContinuationToken>\
             <Contents><Key>{name}</Key><Size>1</Size></Contents></R>"
        );
        Reply::Answer(200, vec![], page.into_bytes())
    });
    let error = tier.list(&ListRequest::all("")).unwrap_err();
    assert!(error.to_string().contains("out of order"), "{error}");
}

#[test]
fn encryption_is_asked_for_in_each_request_that_needs_it() {
    let sent = |encryption: Encryption| {
        let server = Scripted::start(|_, request| match is_knock(request) {
            true => empty_page(),
            false if request.line.starts_with("PUT") => {
                Reply::Answer(200, vec![("etag", "\"e\"".into())], vec![])
            }
            false => truth(request),
        });
        let tier =
            S3::attach(S3Settings { encryption, customer_key_in_clear: true, ..settings(&server) });
        let tier = tier.unwrap();
        tier.put(&key("o"), Attributes::default(), b"x", Precondition::Any).unwrap();
        read(&tier).unwrap();
        let seen = server.seen();
        let of = |request: &Request, name: &str| {
            let name = format!("x-amz-server-side-encryption{name}");
            request.get(&name).unwrap_or("-").to_owned()
        };
        let row = |request: &Request| {
            let names = ["", "-aws-kms-key-id", "-customer-algorithm", "-customer-key-md5"];
            names.map(|name| of(request, name)).join(" ")
        };
        format!("{} | {}", row(&seen[0]), row(&seen[1]))
    };
    assert_eq!(sent(Encryption::BucketDefault), "- - - - | - - - -");
    assert_eq!(sent(Encryption::ServerKeys), "AES256 - - - | - - - -");
    assert_eq!(sent(Encryption::KeyService(Some("k".into()))), "aws:kms k - - | - - - -");
    // MD5 of 32 zero bytes.
    let own = "- - AES256 cLyPS3KoaSFGi/joRB3OUQ==";
    assert_eq!(sent(Encryption::CustomerKey([0; 32])), format!("{own} | {own}"));
}

#[test]
fn the_time_of_a_commit_is_the_servers() {
    let (_, tier) = attach(|_, _| {
        Reply::Answer(200, vec![("etag", "\"e\"".into()), ("date", DATE.into())], vec![])
    });
    let meta = tier.put(&key("o"), Attributes::default(), b"x", Precondition::Any).unwrap();
    let expected = SystemTime::UNIX_EPOCH + Duration::from_secs(1_369_353_600);
    assert_eq!(meta.mtime, expected);
}
