//! What a person may say about an S3 tier: bucket, endpoint, keys, encryption, effort.
//!
//! `S3Settings::from_url` reads `s3://bucket/prefix` and, through the look-up it is given, the variables
//! that every S3 tool reads, and our own ([`variables`]); nothing here touches the process's environment itself.

mod variables;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use hayase_layout::ByteCount;

use super::aws;
use super::credentials::{CredentialSource, Environment, Profile};
use super::http::Proxies;
use super::limits::{PART_BYTES_MAX, PART_BYTES_MIN};
use crate::{Key, KeyError};

/// How a bucket is named in requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Addressing {
    /// Host style at AWS (unless the bucket's name holds a dot), path style elsewhere.
    #[default]
    Auto,
    /// `http://host/bucket/key`.
    Path,
    /// `http://bucket.host/key`.
    Host,
}

/// Encryption by the server.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Encryption {
    /// As the bucket says.
    #[default]
    BucketDefault,
    /// SSE-S3: keys of the server.
    ServerKeys,
    /// SSE-KMS: a key of the key service; `None` is its default key.
    KeyService(Option<String>),
    /// SSE-C: 32 bytes of our own, sent with each request and kept nowhere.
    CustomerKey([u8; 32]),
}

impl std::fmt::Debug for Encryption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::BucketDefault => "BucketDefault",
            Self::ServerKeys => "ServerKeys",
            Self::KeyService(_) => "KeyService",
            Self::CustomerKey(_) => "CustomerKey(..)",
        })
    }
}

/// Checksum that travels with each upload, for the server to verify and keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UploadChecksum {
    /// None; for servers that refuse the header.
    Off,
    /// CRC32C, some 20 GB/s on a core.
    #[default]
    Crc32c,
    /// SHA-256, under 2 GB/s on a core.
    Sha256,
}

/// Whether signatures cover the bytes of a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PayloadSignature {
    /// Over TLS the transport vouches for them; over plain TCP they are signed.
    #[default]
    Auto,
    /// Always: costs one SHA-256 of each body.
    Signed,
    /// Never.
    Unsigned,
}

/// Whether the server refuses a write where an object is (`If-None-Match: *`), and a write or a removal of another
/// version than a known one (`If-Match`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConditionalWrites {
    /// AWS does; others are tried once at the start, on a hidden object that is removed again.
    #[default]
    Probe,
    /// It does, for objects of any size. A removal that it refuses for its condition is asked for again without.
    Trusted,
    /// Never ask: `Precondition::Absent` is `Unsupported`, and a removal looks before. Right for tiers that are only read.
    Off,
}

/// All that is said about one S3 tier.
#[derive(Clone, Debug)]
pub struct S3Settings {
    /// Its name.
    pub bucket: String,
    /// What all keys begin with: empty, or ends with `/`.
    pub prefix: String,
    /// `http[s]://host[:port]`; `None` is AWS.
    pub endpoint: Option<String>,
    /// `None`: `us-east-1` until the server names another.
    pub region: Option<String>,
    /// How the bucket is named in requests.
    pub addressing: Addressing,
    /// Where keys come from.
    pub credentials: CredentialSource,
    /// Certificates (PEM) to trust instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// Ways out of this network.
    pub proxies: Proxies,
    /// Connect here instead of looking up the endpoint's host (tunnels, one of many gateways).
    pub connect_to: Option<SocketAddr>,
    /// Encryption by the server.
    pub encryption: Encryption,
    /// Send a customer's key also without TLS. Anybody on the way can read it then.
    pub customer_key_in_clear: bool,
    /// Checksum of uploads.
    pub checksum: UploadChecksum,
    /// Entity tags of plain objects are the MD5 of their bytes, and those of objects in parts are made of the
    /// MD5 of each: what comes without TLS, and has no better checksum, is compared with them.
    pub etag_is_md5: bool,
    /// Whether signatures cover bodies.
    pub payload: PayloadSignature,
    /// Whether the server has conditional writes.
    pub conditional: ConditionalWrites,
    /// Parts of uploads and ranges of downloads; at least 5 MiB. An upload holds at most
    /// `streams + 2` parts in memory.
    pub part_bytes: ByteCount,
    /// How much of an object `open` brings at once, so that a small one costs one request.
    pub first_bytes: ByteCount,
    /// Parts of one object on their way at once.
    pub streams: usize,
    /// Attempts of each request, the first included.
    pub attempts: u32,
    /// Longest silence of the server before an attempt is given up.
    pub patience: Duration,
    /// Acknowledge each segment at once (`TCP_QUICKACK`): without it servers that hold back small
    /// segments lose 40 ms on each small object.
    pub acknowledge_at_once: bool,
    /// Directory of this user alone, made when it is missing, where uploads are remembered that outlive their
    /// process; `None`: there are none such.
    pub kept_in: Option<PathBuf>,
}

/// An URL or variable that can not be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// Not `s3://bucket[/prefix]`.
    #[error("invalid S3 URL `{0}`: expected s3://BUCKET or s3://BUCKET/PREFIX")]
    NotS3(String),
    /// Against the rules of bucket names.
    #[error("invalid bucket name `{0}`: use 3 to 63 characters of a-z, 0-9, `.`, `-` and `_`")]
    Bucket(String),
    /// A prefix that can be no directory.
    #[error("invalid prefix in the URL")]
    Prefix(#[from] KeyError),
    /// Parts that no server takes, or that would not fit into memory.
    #[error("invalid part size {0}: expected 5 MiB to 512 MiB")]
    Part(ByteCount),
    /// Not `http[s]://host[:port]`.
    #[error("invalid endpoint `{0}`: expected https://HOST or http://HOST:PORT, without a path")]
    Endpoint(String),
    /// A variable names a proxy that we cannot speak to, and the endpoint would be reached through it.
    #[error("{0}")]
    Proxy(String),
    /// A variable of ours with a text that it does not know.
    #[error("invalid {name} `{value}`: expected {expected}")]
    Variable {
        /// Which.
        name: &'static str,
        /// What it says.
        value: String,
        /// What it could say.
        expected: &'static str,
    },
    /// SSE-C without a key.
    #[error("HAYASE_S3_SSE is `c`, but HAYASE_S3_SSE_C_KEY_FILE is not set")]
    NoKeyFile,
    /// A key that can not be read.
    #[error("the key in {}: {why}", .path.display())]
    KeyFile {
        /// Where it should be.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

impl S3Settings {
    /// Defaults for a bucket: AWS, anonymous.
    pub fn new(bucket: impl Into<String>) -> Self {
        Self {
            bucket: bucket.into(),
            prefix: String::new(),
            endpoint: None,
            region: None,
            addressing: Addressing::default(),
            credentials: CredentialSource::Anonymous,
            ca_file: None,
            proxies: Proxies::default(),
            connect_to: None,
            encryption: Encryption::default(),
            customer_key_in_clear: false,
            checksum: UploadChecksum::default(),
            etag_is_md5: true,
            payload: PayloadSignature::default(),
            conditional: ConditionalWrites::default(),
            part_bytes: ByteCount::mib(8),
            first_bytes: ByteCount::mib(1),
            streams: 4,
            attempts: 10,
            patience: Duration::from_secs(30),
            acknowledge_at_once: true,
            kept_in: None,
        }
    }

    /// Reads `s3://bucket/prefix`, and from `variable` what other S3 tools read too:
    /// `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL`, `AWS_REGION`, `AWS_DEFAULT_REGION`, `AWS_CA_BUNDLE`, those of proxies (see [`Proxies`]),
    /// and those of the credentials (see [`Environment`]); then our own, `HAYASE_S3_..`. Region and endpoint may also stand in the
    /// profile files. What is set afterwards on the value wins.
    ///
    /// # Errors
    /// See [`SettingsError`]; files that are not there are no error.
    pub fn from_url(
        url: &str,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, SettingsError> {
        let not_s3 = || SettingsError::NotS3(url.to_owned());
        let rest = url.strip_prefix("s3://").ok_or_else(not_s3)?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let said = |name: &str| variable(name).filter(|value| !value.is_empty());
        let proxies = Proxies::read(&said);
        let environment = Environment { proxies: proxies.clone(), ..Environment::read(variable) };
        let profile = Profile::load(&environment);
        let endpoint = said("AWS_ENDPOINT_URL_S3").or_else(|| said("AWS_ENDPOINT_URL"));
        let mut settings = Self {
            prefix: normal_prefix(prefix)?,
            endpoint: endpoint.or(profile.endpoint),
            region: said("AWS_REGION").or_else(|| said("AWS_DEFAULT_REGION")).or(profile.region),
            ca_file: said("AWS_CA_BUNDLE").map(PathBuf::from),
            proxies,
            credentials: CredentialSource::Found(Box::new(environment)),
            ..Self::new(bucket)
        };
        variables::apply(&mut settings, &said)?;
        settings.check()?;
        Ok(settings)
    }

    /// Every rule that needs no server.
    pub(super) fn check(&self) -> Result<Origin, SettingsError> {
        let letters = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b".-_".contains(&b);
        let name = self.bucket.as_str();
        let well_named = (3..=63).contains(&name.len())
            && name.bytes().all(letters)
            && name.starts_with(|c: char| c.is_ascii_alphanumeric())
            && !name.contains("..");
        if !well_named {
            return Err(SettingsError::Bucket(name.into()));
        }
        if normal_prefix(&self.prefix)? != self.prefix {
            let key = Key::new(&self.prefix).map(|_| ());
            return Err(key.err().map_or(SettingsError::NotS3(self.prefix.clone()), Into::into));
        }
        if !(PART_BYTES_MIN..=PART_BYTES_MAX).contains(&self.part_bytes.get()) {
            return Err(SettingsError::Part(self.part_bytes));
        }
        let origin = Origin::new(self)?;
        let host = origin.host(self.region.as_deref().unwrap_or(aws::FIRST_REGION));
        self.proxies
            .to(origin.tls, &host, origin.port)
            .map_err(|why| SettingsError::Proxy(why.to_string()))?;
        Ok(origin)
    }
}

/// Empty, or with one slash at its end.
fn normal_prefix(prefix: &str) -> Result<String, KeyError> {
    match prefix.trim_end_matches('/') {
        "" => Ok(String::new()),
        path => Key::new(path).map(|_| format!("{path}/")),
    }
}

/// An endpoint taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) tls: bool,
    /// `None`: AWS, whose host depends on the region.
    host: Option<String>,
    port: u16,
    bucket: String,
    bucket_in_host: bool,
}

impl Origin {
    fn new(settings: &S3Settings) -> Result<Self, SettingsError> {
        let bucket = settings.bucket.clone();
        let Some(endpoint) = &settings.endpoint else {
            let bucket_in_host = match settings.addressing {
                Addressing::Auto => !bucket.contains(['.', '_']),
                Addressing::Path => false,
                Addressing::Host => true,
            };
            return Ok(Self { tls: true, host: None, port: 443, bucket, bucket_in_host });
        };
        let bad = || SettingsError::Endpoint(endpoint.clone());
        let (tls, rest) = match endpoint.split_once("://") {
            Some(("https", rest)) => (true, rest),
            Some(("http", rest)) => (false, rest),
            _ => return Err(bad()),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = split_port(rest, if tls { 443 } else { 80 }).ok_or_else(bad)?;
        let bucket_in_host = settings.addressing == Addressing::Host;
        if bucket_in_host && host.starts_with('[') {
            return Err(bad());
        }
        Ok(Self { tls, host: Some(host.into()), port, bucket, bucket_in_host })
    }

    pub(super) fn is_aws(&self) -> bool {
        self.host.is_none()
    }

    /// The name to look up, which the certificate must bear.
    pub(super) fn host(&self, region: &str) -> String {
        let base = match &self.host {
            Some(host) => host.clone(),
            None => aws::host("s3", region),
        };
        if self.bucket_in_host { format!("{}.{base}", self.bucket) } else { base }
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// The value of `host`: the port where it is not the scheme's own.
    pub(super) fn authority(&self, region: &str) -> String {
        let own = if self.tls { 443 } else { 80 };
        let host = self.host(region);
        if self.port == own { host } else { format!("{host}:{}", self.port) }
    }

    /// What stands before the key in a path, not encoded: `/` or `/bucket/`; without a key no slash
    /// follows the bucket.
    pub(super) fn path(&self, key: Option<&str>) -> String {
        match (self.bucket_in_host, key) {
            (true, key) => format!("/{}", key.unwrap_or("")),
            (false, Some(key)) => format!("/{}/{key}", self.bucket),
            (false, None) => format!("/{}", self.bucket),
        }
    }

    /// For people.
    pub(super) fn shown(&self, region: &str) -> String {
        format!("{}://{}", if self.tls { "https" } else { "http" }, self.authority(region))
    }
}

fn split_port(text: &str, default: u16) -> Option<(&str, u16)> {
    // `[::1]:80`: the colon of the port is the one behind the bracket.
    let colon = text.rfind(':').filter(|&colon| text.rfind(']').is_none_or(|end| end < colon));
    let (host, port) = match colon {
        Some(colon) => (&text[..colon], text[colon + 1..].parse().ok()?),
        None => (text, default),
    };
    let fine = |b: u8| b.is_ascii_alphanumeric() || b"-._[]:".contains(&b);
    (!host.is_empty() && host.bytes().all(fine)).then_some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(url: &str, variables: &[(&str, &str)]) -> Result<S3Settings, SettingsError> {
        S3Settings::from_url(url, &|name| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn urls_name_bucket_and_prefix() {
        let check = |url, bucket: &str, prefix: &str| {
            let settings = from(url, &[]).unwrap();
            assert_eq!((settings.bucket.as_str(), settings.prefix.as_str()), (bucket, prefix));
        };
        check("s3://data", "data", "");
        check("s3://data/", "data", "");
        check("s3://data/a b/c", "data", "a b/c/");
        check("s3://my.data_1/a/", "my.data_1", "a/");
        for bad in
            ["", "http://x/y", "s3:/x", "s3://", "s3://ab", "s3://Up", "s3://a..b", "s3://bad/../x"]
        {
            assert!(from(bad, &[]).is_err(), "{bad}");
        }
    }

    #[test]
    fn variables_are_those_of_every_s3_tool() {
        let settings = from(
            "s3://data",
            &[
                ("AWS_ENDPOINT_URL", "http://other"),
                ("AWS_ENDPOINT_URL_S3", "http://host:9000/"),
                ("AWS_DEFAULT_REGION", "eu-west-1"),
                ("AWS_CA_BUNDLE", "/ca.pem"),
            ],
        )
        .unwrap();
        assert_eq!(settings.endpoint.as_deref(), Some("http://host:9000/"));
        assert_eq!(settings.region.as_deref(), Some("eu-west-1"));
        assert_eq!(settings.ca_file, Some("/ca.pem".into()));
        for bad in ["host", "ftp://host", "http://", "http://h/path", "http://h:x", "http://u@h"] {
            let answer = from("s3://data", &[("AWS_ENDPOINT_URL", bad)]);
            assert_eq!(answer.unwrap_err(), SettingsError::Endpoint(bad.into()));
        }
    }

    #[test]
    fn buckets_stand_in_the_path_or_in_the_host() {
        let check = |endpoint: Option<&str>, addressing, shown: &str, path: &str| {
            let settings = S3Settings {
                endpoint: endpoint.map(str::to_owned),
                addressing,
                ..S3Settings::new("data")
            };
            let origin = settings.check().unwrap();
            assert_eq!(origin.shown("eu-west-1"), shown);
            assert_eq!(origin.path(Some("a/b")), path);
        };
        let aws = "https://data.s3.eu-west-1.amazonaws.com";
        check(None, Addressing::Auto, aws, "/a/b");
        check(None, Addressing::Path, "https://s3.eu-west-1.amazonaws.com", "/data/a/b");
        check(Some("http://h:80"), Addressing::Auto, "http://h", "/data/a/b");
        check(Some("http://h:8"), Addressing::Host, "http://data.h:8", "/a/b");
        check(Some("https://[::1]:8"), Addressing::Path, "https://[::1]:8", "/data/a/b");
    }
}
