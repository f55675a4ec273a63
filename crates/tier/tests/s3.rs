//! A bucket is a tier: the suite and what is particular, against a server in this process.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use hayase_layout::ByteCount;
use hayase_s3_server::{ACCESS_KEY, BUCKET, Options, SECRET_KEY, Server};
use hayase_tier::s3::{CredentialSource, Credentials, S3Settings};
use hayase_tier::{Key, S3, Tier, conformance};

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
