//! The tar member before an entry's bytes: one ustar header, with pax records where ustar is too small.
//!
//! Made from the row alone, so that a reader can make it again and compare.
//! Owners are not kept: 0, and whoever unpacks owns. Fractions of seconds are in the index only.
//! Source: POSIX.1-2017, pax(1), "ustar Interchange Format" and "pax Extended Header".

use super::row::{Codec, Row};
use crate::item::Kind;

/// Everything in a tar comes in blocks of this size.
pub const BLOCK: usize = 512;

/// Largest number of eleven octal digits.
const OCTAL_MAX: u64 = 0o77_777_777_777;

/// Bytes after `len` bytes up to the next block.
pub fn padding(len: u64) -> u64 {
    len.next_multiple_of(BLOCK as u64) - len
}

/// The header of a row, a multiple of [`BLOCK`] long.
pub fn of(row: &Row) -> Vec<u8> {
    let stored = row.location.map_or(row.item.bytes(), |at| at.stored);
    let mut name = row.item.name.as_bytes().to_vec();
    let (flag, target): (u8, &[u8]) = match &row.item.kind {
        Kind::File { .. } => (b'0', b""),
        Kind::Directory => (b'5', b""),
        Kind::Link { target } => (b'2', target),
    };
    match row.location.map(|at| at.codec) {
        Some(Codec::Zstd) => name.extend_from_slice(b".zst"),
        _ if flag == b'5' => name.push(b'/'),
        _ => {}
    }
    member(&name, flag, target, stored, row.item.mode, row.item.mtime.seconds())
}

/// A member of a name that needs no row: the index at the end of a pack.
pub(super) fn plain(name: &[u8], bytes: u64) -> Vec<u8> {
    member(name, b'0', b"", bytes, 0o444, 0)
}

fn member(name: &[u8], flag: u8, target: &[u8], bytes: u64, mode: u32, mtime: i64) -> Vec<u8> {
    let mut records = Vec::new();
    let split = split_name(name);
    if split.is_none() {
        record(&mut records, "path", name);
    }
    if target.len() > 100 {
        record(&mut records, "linkpath", target);
    }
    if bytes > OCTAL_MAX {
        record(&mut records, "size", bytes.to_string().as_bytes());
    }
    let seconds = u64::try_from(mtime).ok().filter(|&seconds| seconds <= OCTAL_MAX);
    if seconds.is_none() {
        record(&mut records, "mtime", mtime.to_string().as_bytes());
    }
    let mut out = Vec::with_capacity(BLOCK);
    if !records.is_empty() {
        let len = records.len() as u64;
        out.extend(ustar((b"", b"././@PaxHeader"), b'x', b"", len, 0o644, 0));
        out.extend(&records);
        out.resize(out.len() + padding(len) as usize, 0);
    }
    // What a reader of pax replaces; one that knows only ustar gets a shortened name.
    let split = split.unwrap_or((b"", &name[..name.len().min(100)]));
    let target = &target[..target.len().min(100)];
    let bytes = if bytes > OCTAL_MAX { 0 } else { bytes };
    out.extend(ustar(split, flag, target, bytes, mode, seconds.unwrap_or(0)));
    out
}

/// `LENGTH keyword=value\n`, where LENGTH counts itself.
fn record(out: &mut Vec<u8>, keyword: &str, value: &[u8]) {
    let rest = keyword.len() + value.len() + 3;
    let mut len = rest + 1;
    while len != rest + len.to_string().len() {
        len = rest + len.to_string().len();
    }
    out.extend_from_slice(format!("{len} {keyword}=").as_bytes());
    out.extend_from_slice(value);
    out.push(b'\n');
}

/// The prefix (155 bytes) and the name (100 bytes) of ustar; `None` when no slash cuts so.
fn split_name(name: &[u8]) -> Option<(&[u8], &[u8])> {
    if name.len() <= 100 {
        return Some((b"", name));
    }
    let slashes = name.iter().enumerate().filter(|&(_, &byte)| byte == b'/');
    let mut cuts = slashes.map(|(at, _)| (&name[..at], &name[at + 1..]));
    cuts.find(|(prefix, rest)| {
        !prefix.is_empty() && prefix.len() <= 155 && !rest.is_empty() && rest.len() <= 100
    })
}

fn ustar(
    (prefix, name): (&[u8], &[u8]),
    flag: u8,
    target: &[u8],
    bytes: u64,
    mode: u32,
    mtime: u64,
) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, name);
    put(100, format!("{mode:07o}").as_bytes());
    put(108, b"0000000");
    put(116, b"0000000");
    put(124, format!("{bytes:011o}").as_bytes());
    put(136, format!("{mtime:011o}").as_bytes());
    put(148, b"        ");
    put(156, &[flag]);
    put(157, target);
    put(257, b"ustar\x0000");
    put(329, b"0000000");
    put(337, b"0000000");
    put(345, prefix);
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_counts_its_own_length() {
        let check = |value: &str| {
            let mut out = Vec::new();
            record(&mut out, "path", value.as_bytes());
            let text = String::from_utf8(out).unwrap();
            let (len, _) = text.split_once(' ').unwrap();
            assert_eq!(len.parse::<usize>().unwrap(), text.len(), "{text}");
        };
        for len in [1, 89, 90, 91, 92, 93, 980, 990, 991, 992, 993, 4000] {
            check(&"x".repeat(len));
        }
    }

    #[test]
    fn names_are_cut_at_a_slash_that_fits() {
        let long = format!("{}/{}", "d".repeat(120), "f".repeat(90));
        assert_eq!(split_name(long.as_bytes()).unwrap().0.len(), 120);
        assert!(split_name("f".repeat(101).as_bytes()).is_none());
        assert!(split_name(format!("{}/f", "d".repeat(156)).as_bytes()).is_none());
        // Nothing is left behind the last slash of a directory's name.
        assert!(split_name(format!("{}/", "d".repeat(110)).as_bytes()).is_none());
    }
}
