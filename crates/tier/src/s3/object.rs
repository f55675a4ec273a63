//! One object as the server tells of it: its key, its attributes, its version.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hayase_layout::ByteCount;
use xxhash_rust::xxh3::Xxh3;

use super::client::{Client, Request};
use super::date;
use super::fault::Fault;
use super::http::Head;
use super::limits::OBJECT_KEY_BYTES_MAX;
use super::settings::S3Settings;
use crate::{Attributes, Key, ObjectMeta};

/// Permission bits of every object, since S3 has none.
const MODE: u32 = 0o644;

const META_MODE: &str = "x-amz-meta-hayase-mode";
const META_MTIME: &str = "x-amz-meta-hayase-mtime";
/// Tells one commit from another, for a commit that must know its own work again.
pub(super) const META_UPLOAD: &str = "x-amz-meta-hayase-upload";

/// The key with the tier's prefix, or why S3 can not have it.
pub(super) fn full_key(settings: &S3Settings, key: &Key) -> Result<String, &'static str> {
    let name = std::str::from_utf8(key.as_bytes())
        .map_err(|_| "S3 has only names that are UTF-8; rename it, or keep it in a pack")?;
    let full = format!("{}{name}", settings.prefix);
    if full.len() > OBJECT_KEY_BYTES_MAX {
        return Err("S3 has only names up to 1024 bytes, the prefix included; keep it in a pack");
    }
    Ok(full)
}

/// What a head tells of a version.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) meta: ObjectMeta,
    pub(super) etag: Option<String>,
    pub(super) attributes: Attributes,
    /// The value of [`META_UPLOAD`].
    pub(super) upload: Option<String>,
}

impl Seen {
    /// `size` is that of the whole object.
    pub(super) fn of(head: &Head, size: u64) -> Self {
        let modified = head.get("last-modified").and_then(date::parse_http);
        let etag = head.get("etag").map(str::to_owned);
        Self {
            meta: meta(size, modified, etag.as_deref()),
            etag,
            attributes: Attributes {
                mode: head.get(META_MODE).and_then(|text| u32::from_str_radix(text, 8).ok()),
                mtime: head.get(META_MTIME).and_then(parse_time),
            },
            upload: head.get(META_UPLOAD).map(str::to_owned),
        }
    }
}

/// What listings and heads agree on.
pub(super) fn meta(size: u64, modified: Option<SystemTime>, etag: Option<&str>) -> ObjectMeta {
    let mtime = modified.unwrap_or(UNIX_EPOCH);
    let mut hash = Xxh3::new();
    match etag {
        Some(etag) => hash.update(bare(etag).as_bytes()),
        // A server without entity tags: the time is the next best.
        None => hash.update(show_time(mtime).as_bytes()),
    }
    hash.update(&size.to_le_bytes());
    ObjectMeta { size: ByteCount(size), mode: MODE, mtime, identity: hash.digest() }
}

/// An entity tag without its quotes, which some servers leave out.
fn bare(etag: &str) -> &str {
    etag.trim_start_matches("W/").trim_matches('"')
}

/// Asks for the attributes of an object.
pub(super) fn head(client: &Client, full: &str) -> Result<Seen, Fault> {
    let request = Request::new("HEAD", Some(full)).headers(client.encryption_headers(false));
    client.call(&request, client.settings.attempts, |exchange| {
        let head = exchange.head();
        let size = head.get("content-length").and_then(|length| length.parse().ok());
        size.map(|size| Seen::of(head, size)).ok_or(Fault::NotS3)
    })
}

/// Metadata of a new object.
pub(super) fn attribute_headers(attributes: Attributes) -> Vec<(String, String)> {
    let mode = attributes.mode.map(|mode| (META_MODE.into(), format!("{:o}", mode & 0o777)));
    let mtime = attributes.mtime.map(|mtime| (META_MTIME.into(), show_time(mtime)));
    mode.into_iter().chain(mtime).collect()
}

/// Seconds since 1970 with nine digits behind the point; before 1970 negative.
fn show_time(time: SystemTime) -> String {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => format!("{}.{:09}", since.as_secs(), since.subsec_nanos()),
        Err(error) => {
            let before = error.duration();
            format!("-{}.{:09}", before.as_secs(), before.subsec_nanos())
        }
    }
}

fn parse_time(text: &str) -> Option<SystemTime> {
    let (before, text) = match text.strip_prefix('-') {
        Some(text) => (true, text),
        None => (false, text),
    };
    let (seconds, nanos) = text.split_once('.').unwrap_or((text, "0"));
    let digits = format!("{nanos:0<9}");
    let nanos = digits.get(..9)?.parse().ok()?;
    let by = Duration::new(seconds.parse().ok()?, nanos);
    if before { UNIX_EPOCH.checked_sub(by) } else { UNIX_EPOCH.checked_add(by) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_that_s3_can_not_have_are_refused() {
        let settings = S3Settings { prefix: "p/".into(), ..S3Settings::new("data") };
        let check = |name: &[u8]| full_key(&settings, &Key::new(name).unwrap());
        assert_eq!(check("a/\u{e9}".as_bytes()).unwrap(), "p/a/\u{e9}");
        assert!(check(b"\xff").is_err());
        assert!(check("d/".repeat(510).as_bytes().strip_suffix(b"/").unwrap()).is_ok());
        assert!(check(("d/".repeat(511) + "x").as_bytes()).is_err());
    }

    #[test]
    fn versions_differ_by_tag_and_size() {
        let identity = |size, etag| meta(size, Some(UNIX_EPOCH), etag).identity;
        assert_eq!(identity(1, Some("\"a\"")), identity(1, Some("a")));
        assert_ne!(identity(1, Some("a")), identity(2, Some("a")));
        assert_ne!(identity(1, Some("a")), identity(1, Some("b")));
        assert_ne!(meta(1, None, None), meta(1, Some(SystemTime::now()), None));
    }

    proptest! {
        #[test]
        fn times_survive_the_way_through_metadata(seconds in -9_000_000_000_i64..9_000_000_000, nanos in 0..1_000_000_000_u32) {
            let by = Duration::new(seconds.unsigned_abs(), nanos);
            let time = if seconds < 0 { UNIX_EPOCH - by } else { UNIX_EPOCH + by };
            prop_assert_eq!(parse_time(&show_time(time)), Some(time));
        }

        #[test]
        fn any_text_is_read_without_panic(text: String) {
            let _ = parse_time(&text);
        }
    }
}
