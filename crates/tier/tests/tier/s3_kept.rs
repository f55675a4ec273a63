//! What servers tell of the parts that they have, and what of it is believed.

use std::fmt::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};

use data_encoding::BASE64;
use hayase_tier::s3::{
    ConditionalWrites, CredentialSource, Credentials, Encryption, S3Settings, UploadChecksum,
};
use hayase_tier::{Attributes, Key, PartSums, PartsUpload, Precondition, S3, Tier, UploadOf};

use crate::scripted::{Reply, Request, Scripted, empty_page, error};

const PART: u64 = 5 << 20;
const PARTS: u32 = 4;
const OF: UploadOf = UploadOf { version: 1, size: PART * PARTS as u64, part_bytes: PART };

fn part(number: u32) -> Vec<u8> {
    vec![number as u8 + 1; PART as usize]
}

fn md5(number: u32) -> String {
    PartSums::of_part(&part(number)).iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// How a server tells of a part: entity tag, length, and more.
fn told(number: u32, etag: &str, size: u64, more: &str) -> String {
    let number = number + 1;
    format!(
        "<Part><PartNumber>{number}</PartNumber><ETag>\"{etag}\"</ETag><Size>{size}</Size>{more}</Part>"
    )
}

/// Answers what every upload needs, and of lists of parts what `list` says of the marker.
fn server(list: impl Fn(&str) -> Reply + Send + 'static) -> Scripted {
    Scripted::start(move |_, request: &Request| {
        let line = request.line.as_str();
        let document = |text: &str| Reply::Answer(200, vec![], text.as_bytes().to_vec());
        let tag = || Reply::Answer(200, vec![("etag", "\"sent\"".to_owned())], vec![]);
        match line.split_once("part-number-marker=") {
            Some((_, rest)) => list(rest.split('&').next().unwrap()),
            None if line.contains("uploads=") => document("<R><UploadId>1</UploadId></R>"),
            None if line.starts_with("PUT") => tag(),
            None if line.starts_with("POST") => document("<R><ETag>\"done\"</ETag></R>"),
            None if line.starts_with("DELETE") => document(""),
            None => empty_page(),
        }
    })
}

fn settings(server: &Scripted, kept_in: &Path) -> S3Settings {
    S3Settings {
        endpoint: Some(server.endpoint()),
        credentials: CredentialSource::Keys(Credentials::permanent("AK", "secret")),
        conditional: ConditionalWrites::Trusted,
        attempts: 2,
        customer_key_in_clear: true,
        kept_in: Some(kept_in.to_owned()),
        ..S3Settings::new("bucket")
    }
}

fn tier(server: &Scripted, kept_in: &Path) -> S3 {
    S3::attach(settings(server, kept_in)).unwrap()
}

fn begin(tier: &S3) -> Box<dyn PartsUpload> {
    let key = Key::new("o").unwrap();
    tier.resume_parts(&key, Attributes::default(), OF).unwrap().unwrap()
}

/// Every part is there, says the server.
fn all_there() -> Scripted {
    server(|_| {
        let parts: String = (0..PARTS).map(|number| told(number, &md5(number), PART, "")).collect();
        Reply::Answer(200, vec![], format!("<R>{parts}</R>").into_bytes())
    })
}

/// Begins, ends, and begins the same again.
fn resumed(tier: &S3) -> Box<dyn PartsUpload> {
    drop(begin(tier));
    begin(tier)
}

/// Requests that begin with `method`.
fn count(server: &Scripted, method: &str) -> usize {
    server.seen().iter().filter(|request| request.line.starts_with(method)).count()
}

#[test]
fn parts_are_listed_page_by_page_and_believed_by_their_sums_only() {
    let kept_in = tempfile::tempdir().unwrap();
    let crc = |number| {
        let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &part(number)) as u32;
        format!("<ChecksumCRC32C>{}</ChecksumCRC32C>", BASE64.encode(&crc.to_be_bytes()))
    };
    // By its MD5; by a checksum, where the tag is none; by nothing; and one that is shorter than it should be.
    let first =
        [told(0, &md5(0).to_uppercase(), PART, ""), told(1, "opaque", PART, &crc(1))].concat();
    let second = [told(2, "opaque", PART, &crc(1)), told(3, &md5(3), PART - 1, &crc(3))].concat();
    let server = server(move |marker| {
        let (more, parts) = if marker == "0" { (true, &first) } else { (false, &second) };
        let page = format!("<R><IsTruncated>{more}</IsTruncated>{parts}</R>");
        Reply::Answer(200, vec![], page.into_bytes())
    });
    let upload = resumed(&tier(&server, kept_in.path()));
    let kept: Vec<u32> = (0..PARTS).filter(|&n| upload.is_kept(n, &part(n))).collect();
    assert_eq!(kept, [0, 1]);
    for number in [2, 3] {
        upload.put_part(number, &part(number)).unwrap();
    }
    upload.commit(Precondition::Any).unwrap();
    let last = server.seen().pop().unwrap();
    let body = String::from_utf8(last.body).unwrap();
    // Not all parts have a checksum that the server knows: none is named.
    assert!(body.contains("opaque") && !body.contains("Checksum"), "{body}");
    assert_eq!((count(&server, "DELETE"), count(&server, "PUT")), (0, 2));
    assert_eq!(std::fs::read_dir(kept_in.path()).unwrap().count(), 0, "the record stays");
}

#[test]
fn an_upload_that_is_gone_or_hidden_begins_anew() {
    for (status, code) in [(404, "NoSuchUpload"), (403, "AccessDenied")] {
        let kept_in = tempfile::tempdir().unwrap();
        let server = server(move |_| error(status, code));
        let upload = resumed(&tier(&server, kept_in.path()));
        assert!(!upload.is_kept(0, &part(0)), "{code}");
        let begun = server.seen().iter().filter(|seen| seen.line.contains("uploads=")).count();
        assert_eq!(begun, 2, "{code}");
        // It is not remembered any more, and its parts are paid for.
        assert_eq!(count(&server, "DELETE"), 1, "{code}");
    }
}

#[test]
fn a_list_that_does_not_move_on_ends() {
    let kept_in = tempfile::tempdir().unwrap();
    let asked = Arc::new(Mutex::new(0));
    let times = Arc::clone(&asked);
    let server = server(move |_| {
        *times.lock().unwrap() += 1;
        let page = format!("<R><IsTruncated>true</IsTruncated>{}</R>", told(0, &md5(0), PART, ""));
        Reply::Answer(200, vec![], page.into_bytes())
    });
    let upload = resumed(&tier(&server, kept_in.path()));
    assert!(upload.is_kept(0, &part(0)));
    assert_eq!(*asked.lock().unwrap(), 2);
}

#[test]
fn a_record_that_is_torn_or_lies_begins_anew() {
    let kept_in = tempfile::tempdir().unwrap();
    let server = server(|_| {
        let page = format!("<R>{}</R>", told(0, &md5(0), PART, ""));
        Reply::Answer(200, vec![], page.into_bytes())
    });
    let tier = tier(&server, kept_in.path());
    assert!(resumed(&tier).is_kept(0, &part(0)));
    let record = std::fs::read_dir(kept_in.path()).unwrap().next().unwrap().unwrap().path();
    let whole = std::fs::read(&record).unwrap();
    for text in [&whole[..whole.len() - 1], b"", b"{}"] {
        std::fs::write(&record, text).unwrap();
        assert!(!begin(&tier).is_kept(0, &part(0)), "{}", text.escape_ascii());
    }
    // One that speaks of another object is none of this.
    let other = String::from_utf8(whole).unwrap().replace("\"o\"", "\"p\"");
    std::fs::write(&record, other).unwrap();
    assert!(!begin(&tier).is_kept(0, &part(0)));
    assert_eq!(count(&server, "DELETE"), 0, "somebody else's upload was given up");
}

#[test]
fn an_upload_that_is_sealed_or_summed_otherwise_begins_anew() {
    let changes: [fn(&mut S3Settings); 4] = [
        |settings| settings.encryption = Encryption::ServerKeys,
        |settings| settings.encryption = Encryption::CustomerKey([1; 32]),
        |settings| settings.encryption = Encryption::CustomerKey([2; 32]),
        |settings| settings.checksum = UploadChecksum::Sha256,
    ];
    let kept_in = tempfile::tempdir().unwrap();
    let server = all_there();
    assert!(resumed(&tier(&server, kept_in.path())).is_kept(0, &part(0)));
    for (at, change) in changes.iter().enumerate() {
        let mut settings = settings(&server, kept_in.path());
        change(&mut settings);
        let tier = S3::attach(settings).unwrap();
        assert!(!begin(&tier).is_kept(0, &part(0)), "{at}");
        assert_eq!(count(&server, "DELETE"), at + 1, "the former was not given up");
        assert!(begin(&tier).is_kept(0, &part(0)), "{at}: the same is not resumed");
    }
}

#[test]
fn a_sweep_forgets_what_it_gives_up_and_nothing_else() {
    let kept_in = tempfile::tempdir().unwrap();
    let server = all_there();
    let tier_of = |bucket: &str, prefix: &str| {
        let (bucket, prefix) = (bucket.to_owned(), prefix.to_owned());
        S3::attach(S3Settings { bucket, prefix, ..settings(&server, kept_in.path()) }).unwrap()
    };
    let records = || std::fs::read_dir(kept_in.path()).unwrap().count();
    drop(begin(&tier_of("bucket", "a/")));
    for record in std::fs::read_dir(kept_in.path()).unwrap() {
        let file = std::fs::File::options().write(true).open(record.unwrap().path()).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
    }
    let now = std::time::SystemTime::now();
    for (bucket, prefix) in [("bucket", "b/"), ("other", "a/")] {
        tier_of(bucket, prefix).sweep(b"", now).unwrap();
        assert_eq!(records(), 1, "{bucket} {prefix}");
    }
    let tier = tier_of("bucket", "a/");
    tier.sweep(b"below", now).unwrap();
    assert_eq!(records(), 1);
    tier.sweep(b"", std::time::UNIX_EPOCH).unwrap();
    assert_eq!(records(), 1, "it is not old");
    tier.sweep(b"", now).unwrap();
    assert_eq!(records(), 0);
}
