//! One object as the server tells of it: its key, its attributes, its version.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hayase_layout::ByteCount;
use xxhash_rust::xxh3::Xxh3;

use super::checksum::Sums;
use super::client::{Client, Request};
use super::date;
use super::etag::bare;
use super::fault::Fault;
use super::http::Head;
use super::limits::OBJECT_KEY_BYTES_MAX;
use super::settings::S3Settings;
use crate::{Attributes, Key, ObjectMeta};

/// Permission bits of every object, since S3 has none.
const MODE: u32 = 0o644;

/// As s3fs and rclone write and read them: the mode with the kind of the file, octal with a zero before it
/// (s3fs also writes it decimal), and seconds since 1970 with a fraction.
const META_MODE: &str = "x-amz-meta-mode";
const META_MTIME: &str = "x-amz-meta-mtime";
/// As AWS `DataSync` and Lustre of AWS write them: octal, and nanoseconds with `ns` behind.
const META_OTHER_MODE: &str = "x-amz-meta-file-permissions";
const META_OTHER_MTIME: &str = "x-amz-meta-file-mtime";
/// Tells one commit from another, for a commit that must know its own work again.
pub(super) const META_UPLOAD: &str = "x-amz-meta-hayase-upload";

/// What an object stands for, in the upper bits of its mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stands {
    File = 0o100_000,
    Directory = 0o040_000,
    Link = 0o120_000,
}

/// The bits of a mode that tell the kind, and those that are kept beside it.
const KIND: u32 = 0o170_000;
const PERMISSIONS: u32 = 0o777;

/// What the writer of a version told of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) attributes: Attributes,
    pub(super) is_link: bool,
}

impl Told {
    fn of(head: &Head) -> Self {
        let mode = head.get(META_MODE).or_else(|| head.get(META_OTHER_MODE)).and_then(parse_mode);
        let other_time = || head.get(META_OTHER_MTIME).and_then(parse_nanos);
        let mtime = head.get(META_MTIME).and_then(parse_time).or_else(other_time);
        Self {
            attributes: Attributes { mode: mode.map(|mode| mode & PERMISSIONS), mtime },
            is_link: mode.is_some_and(|mode| mode & KIND == Stands::Link as u32),
        }
    }
}

/// The key with the tier's prefix, or why S3 can not have it.
pub(super) fn full_key(settings: &S3Settings, key: &Key) -> Result<String, &'static str> {
    let name = std::str::from_utf8(key.as_bytes())
        .map_err(|_| "S3 has only names that are UTF-8; rename it, or keep it in a pack")?;
    let full = format!("{}{name}", settings.prefix);
    check_length(&full)?;
    Ok(full)
}

pub(super) fn check_length(full: &str) -> Result<(), &'static str> {
    if full.len() > OBJECT_KEY_BYTES_MAX {
        return Err("S3 has only names up to 1024 bytes, the prefix included; keep it in a pack");
    }
    Ok(())
}

/// What a head tells of a version.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) meta: ObjectMeta,
    pub(super) etag: Option<String>,
    pub(super) told: Told,
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
            told: Told::of(head),
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

/// Asks for the attributes of an object.
pub(super) fn head(client: &Client, full: &str) -> Result<Seen, Fault> {
    let request = Request::new("HEAD", Some(full)).headers(client.encryption_headers(false));
    ask(client, &request).map(|(seen, _)| seen)
}

/// The same with all checksums that the server has. Not asked for otherwise: at AWS that takes the right
/// to decrypt.
pub(super) fn head_with_sums(client: &Client, full: &str) -> Result<(Seen, Sums), Fault> {
    let request = Request::new("HEAD", Some(full))
        .headers(client.encryption_headers(false))
        .header("x-amz-checksum-mode", "ENABLED");
    ask(client, &request)
}

fn ask(client: &Client, request: &Request<'_>) -> Result<(Seen, Sums), Fault> {
    client.call(request, client.settings.attempts, |exchange| {
        let head = exchange.head();
        let size = head.get("content-length").and_then(|length| length.parse().ok());
        let seen = size.map(|size| Seen::of(head, size)).ok_or(Fault::NotS3)?;
        Ok((seen, client.sums(head)))
    })
}

/// Metadata of a new object.
pub(super) fn attribute_headers(stands: Stands, attributes: Attributes) -> Vec<(String, String)> {
    let show = |mode: u32| format!("0{:o}", stands as u32 | mode & PERMISSIONS);
    let mode = attributes.mode.map(|mode| (META_MODE.into(), show(mode)));
    let mtime = attributes.mtime.map(|mtime| (META_MTIME.into(), show_time(mtime)));
    mode.into_iter().chain(mtime).collect()
}

/// Kind and permissions as somebody wrote them: octal with a zero before it, decimal, or octal.
fn parse_mode(text: &str) -> Option<u32> {
    const KINDS: [u32; 4] = [0, Stands::File as u32, Stands::Directory as u32, Stands::Link as u32];
    let is_one = |mode: &u32| *mode <= 0o177_777 && KINDS.contains(&(mode & KIND));
    let octal = || u32::from_str_radix(text, 8).ok().filter(is_one);
    // A decimal number of a mode without a kind could as well be an octal one: it is taken as that.
    let has_kind = |mode: &u32| is_one(mode) && mode & KIND != 0;
    let decimal = || text.parse().ok().filter(has_kind);
    if text.starts_with('0') { octal() } else { decimal().or_else(octal) }
}

/// `1547720072899381380ns`.
fn parse_nanos(text: &str) -> Option<SystemTime> {
    let nanos: u64 = text.strip_suffix("ns")?.parse().ok()?;
    UNIX_EPOCH.checked_add(Duration::from_nanos(nanos))
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

    #[test]
    fn modes_are_read_as_others_write_them() {
        for (text, mode) in [
            ("0100644", Some(0o100_644)), // ours, rclone
            ("100755", Some(0o100_755)),
            ("33188", Some(0o100_644)), // s3fs
            ("16877", Some(0o040_755)),
            ("41471", Some(0o120_777)),
            ("0120777", Some(0o120_777)),
            ("040755", Some(0o040_755)),
            ("40755", Some(0o040_755)),
            ("0644", Some(0o644)), // AWS DataSync
            ("644", Some(0o644)),
            ("0160644", None), // no kind of file
            ("999", None),
            ("", None),
            ("-1", None),
        ] {
            assert_eq!(parse_mode(text), mode, "{text}");
        }
        let shown = attribute_headers(
            Stands::Link,
            Attributes { mode: Some(0o777), mtime: Some(UNIX_EPOCH + Duration::new(7, 5)) },
        );
        let values: Vec<_> = shown.iter().map(|(_, value)| value.as_str()).collect();
        assert_eq!(values, ["0120777", "7.000000005"]);
    }

    #[test]
    fn times_are_read_as_others_write_them() {
        let at = |seconds, nanos| Some(UNIX_EPOCH + Duration::new(seconds, nanos));
        assert_eq!(parse_time("1547721185"), at(1_547_721_185, 0)); // s3fs
        assert_eq!(parse_time("1547720072.89938138"), at(1_547_720_072, 899_381_380)); // rclone
        assert_eq!(parse_nanos("1547720072899381380ns"), at(1_547_720_072, 899_381_380));
        assert_eq!(parse_nanos("1547720072"), None);
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
            let _ = (parse_time(&text), parse_nanos(&text), parse_mode(&text));
        }
    }
}
