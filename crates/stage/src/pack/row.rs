//! Rows: one line of an index, text that every language reads.
//!
//! `kind pack offset stored bytes crc32c codec mode mtime name [target]`, one space between fields.

use std::io::Write;

use hayase_tier::Key;

use super::object::DIRECTORY;
use crate::item::{Item, Kind, Mtime};
use crate::limits::COMPRESSED_BYTES_MAX;

/// How an entry's bytes are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// As they are.
    Raw,
    /// One zstd frame.
    Zstd,
}

/// Where an entry lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// Which pack, by its place in the index.
    pub pack: u32,
    /// First stored byte in the pack, behind the tar header.
    pub offset: u64,
    /// Stored bytes.
    pub stored: u64,
    /// How they are stored.
    pub codec: Codec,
}

/// One entry of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What it is.
    pub item: Item,
    /// Of the file's bytes, as they were read from the source; 0 for what has none.
    pub crc32c: u32,
    /// `None`: an object of its own beside the packs, under its own name.
    pub location: Option<Location>,
}

/// Bytes that stand for themselves in a name.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"/._-+,=@:~".contains(&byte)
}

/// Every other byte as `%XX`.
fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in bytes {
        if is_plain(byte) {
            out.push(byte);
        } else {
            out.extend([b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
    }
}

fn unescape(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, tail)) = rest.split_first() {
        rest = match first {
            b'%' => {
                let digits = std::str::from_utf8(tail.get(..2)?).ok()?;
                // from_str_radix takes a sign, which is no digit.
                digits.bytes().all(|digit| digit.is_ascii_hexdigit()).then_some(())?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
                &tail[2..]
            }
            plain if is_plain(plain) => {
                bytes.push(plain);
                tail
            }
            _ => return None,
        };
    }
    Some(bytes)
}

impl Row {
    /// Appends the line, with its end.
    pub fn write(&self, out: &mut Vec<u8>) {
        let (kind, bytes) = match self.item.kind {
            Kind::File { bytes } => ('f', bytes),
            Kind::Directory => ('d', 0),
            Kind::Link { .. } => ('l', 0),
        };
        let fine = "a vector takes every write";
        match self.location {
            Some(at) => write!(out, "{kind} {} {} {}", at.pack, at.offset, at.stored).expect(fine),
            None => write!(out, "{kind} - 0 {bytes}").expect(fine),
        }
        let codec = match self.location {
            Some(Location { codec: Codec::Zstd, .. }) => "zstd",
            _ => "raw",
        };
        let (mode, mtime) = (self.item.mode, self.item.mtime);
        write!(out, " {bytes} {:08x} {codec} {mode:04o} {mtime} ", self.crc32c).expect(fine);
        escape(self.item.name.as_bytes(), out);
        if let Kind::Link { target } = &self.item.kind {
            out.push(b' ');
            escape(target, out);
        }
        out.push(b'\n');
    }

    /// Reads a line without its end; `Err` says which rule it breaks.
    pub fn read(line: &[u8]) -> Result<Self, &'static str> {
        let mut fields = line.split(|&byte| byte == b' ');
        let mut next = || fields.next().ok_or("a field is missing");
        let (kind, pack, offset, stored) = (next()?, next()?, next()?, next()?);
        let (bytes, crc, codec) = (next()?, next()?, next()?);
        let (mode, mtime, name) = (next()?, next()?, next()?);
        let bytes: u64 = number(bytes)?;
        let name = unescape(name).ok_or("a name with bytes that should be escaped")?;
        let name = Key::new(name).map_err(|_| "a name that no file may have")?;
        if name.as_bytes().split(|&byte| byte == b'/').next() == Some(DIRECTORY.as_bytes()) {
            return Err("a name among the packs themselves");
        }
        let kind = match kind {
            b"f" => Kind::File { bytes },
            b"d" => Kind::Directory,
            b"l" => {
                let target = unescape(next()?).ok_or("a link with bytes that should be escaped")?;
                if target.is_empty() || target.len() > 4095 || target.contains(&0) {
                    return Err("a link that leads nowhere");
                }
                Kind::Link { target: target.into() }
            }
            _ => return Err("a kind that is neither file, directory nor link"),
        };
        if fields.next().is_some() {
            return Err("more fields than there are");
        }
        let codec = match codec {
            b"raw" => Codec::Raw,
            b"zstd" => Codec::Zstd,
            _ => return Err("a codec that is neither raw nor zstd"),
        };
        let (offset, stored) = (number(offset)?, number(stored)?);
        let location = match pack {
            b"-" => None,
            pack => Some(Location { pack: number(pack)?, offset, stored, codec }),
        };
        let item = Item { name, kind, mode: octal(mode)?, mtime: time(mtime)? };
        let row = Self { item, crc32c: hex(crc)?, location };
        row.check(bytes, stored)?;
        Ok(row)
    }

    /// What the fields must say together.
    fn check(&self, bytes: u64, stored: u64) -> Result<(), &'static str> {
        let codec = self.location.map_or(Codec::Raw, |at| at.codec);
        if codec == Codec::Raw && stored != bytes {
            return Err("sizes that disagree");
        }
        if codec == Codec::Zstd && (bytes > COMPRESSED_BYTES_MAX || stored > bytes) {
            return Err("a compressed entry that is larger than it may be");
        }
        if !matches!(self.item.kind, Kind::File { .. }) && (bytes != 0 || self.crc32c != 0) {
            return Err("bytes of something that has none");
        }
        match self.location {
            Some(at) if at.offset % 512 != 0 => Err("an entry that is not aligned"),
            Some(at) if at.offset.checked_add(at.stored).is_none() => Err("an impossible offset"),
            None if !matches!(self.item.kind, Kind::File { .. }) => {
                Err("a loose entry that is no file")
            }
            _ => Ok(()),
        }
    }
}

/// Decimal, without sign, spaces or leading zeros: one number, one text.
pub(super) fn number<N: std::str::FromStr>(text: &[u8]) -> Result<N, &'static str> {
    let is_canonical =
        text == b"0" || text.first().is_some_and(|first| (b'1'..=b'9').contains(first));
    let text = std::str::from_utf8(text).ok().filter(|_| is_canonical);
    text.and_then(|text| text.parse().ok()).ok_or("a number that is none")
}

/// Eight lower-case hexadecimal digits.
pub(super) fn hex(text: &[u8]) -> Result<u32, &'static str> {
    let digits = text.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    let text = std::str::from_utf8(text).ok().filter(|_| digits && text.len() == 8);
    text.and_then(|text| u32::from_str_radix(text, 16).ok()).ok_or("a checksum that is none")
}

fn octal(text: &[u8]) -> Result<u32, &'static str> {
    let digits = text.iter().all(|digit| (b'0'..=b'7').contains(digit));
    let text = std::str::from_utf8(text).ok().filter(|_| digits && text.len() == 4);
    let mode = text.and_then(|text| u32::from_str_radix(text, 8).ok());
    mode.filter(|&mode| mode <= 0o777).ok_or("a mode that is none")
}

fn time(text: &[u8]) -> Result<Mtime, &'static str> {
    let parse = || {
        let (seconds, nanos) = std::str::from_utf8(text).ok()?.split_once('.')?;
        (nanos.len() == 9 && nanos.bytes().all(|digit| digit.is_ascii_digit())).then_some(())?;
        let magnitude = seconds.strip_prefix('-').unwrap_or(seconds);
        number::<u64>(magnitude.as_bytes()).ok()?;
        Mtime::new(seconds.parse().ok()?, nanos.parse().ok()?)
    };
    parse().ok_or("a time that is none")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str) {
        let row = Row::read(line.as_bytes()).unwrap_or_else(|why| panic!("{line}: {why}"));
        let mut again = Vec::new();
        row.write(&mut again);
        assert_eq!(String::from_utf8_lossy(&again), format!("{line}\n"));
    }

    #[test]
    fn lines_are_read_as_they_are_written() {
        check("f 0 512 100 100 0badcafe raw 0644 1700000000.000000005 a/b.txt");
        check("f 3 1024 7 100 00000000 zstd 0777 -1.999999999 %FF%20%0A%25");
        check("f - 0 99999999999 99999999999 12345678 raw 0600 0.000000000 big");
        check("d 0 512 0 0 00000000 raw 0755 5.000000000 d");
        check("l 0 512 0 0 00000000 raw 0777 0.000000000 link ../x%20y");
    }

    #[test]
    fn every_other_line_is_refused() {
        let refused = |line: &str, part: &str| {
            let why = Row::read(line.as_bytes()).expect_err(line);
            assert!(why.contains(part), "{line}: {why}");
        };
        refused("", "missing");
        refused("f 0 512 1 1 00000000 raw 0644 0.000000000", "missing");
        refused("f 0 512 1 1 00000000 raw 0644 0.000000000 a b", "more fields");
        refused("b 0 512 0 0 00000000 raw 0644 0.000000000 disk", "kind");
        for name in ["../a", "/etc/passwd", "a/../../b", "%2e%2e/a", "a%00", "", ".", "a//b"] {
            let line = format!("f 0 512 1 1 00000000 raw 0644 0.000000000 {name}");
            assert!(Row::read(line.as_bytes()).is_err(), "{line}");
        }
        refused("f 0 512 1 1 00000000 raw 0644 0.000000000 .hayase-packs/key.json", "packs");
        refused("d 0 512 0 0 00000000 raw 0755 0.000000000 .hayase-packs", "packs");
        refused("f 0 512 1 1 00000000 raw 0644 0.000000000 \u{e9}", "escaped");
        refused("f 0 512 1 1 00000000 raw 0644 0.000000000 a%+1", "escaped");
        refused("f 0 512 2 1 00000000 raw 0644 0.000000000 a", "disagree");
        refused("f 0 513 1 1 00000000 raw 0644 0.000000000 a", "aligned");
        refused("f 0 18446744073709551104 600 600 00000000 raw 0644 0.000000000 a", "impossible");
        refused("f 0 18446744073709551616 1 1 00000000 raw 0644 0.000000000 a", "number");
        refused("f 0 512 1 99999999999 00000000 zstd 0644 0.000000000 a", "larger");
        refused("f 0 0512 1 1 00000000 raw 0644 0.000000000 a", "number");
        refused("f 0 512 1 1 0 raw 0644 0.000000000 a", "checksum");
        refused("f 0 512 1 1 00000000 raw 4755 0.000000000 a", "mode");
        refused("f 0 512 1 1 00000000 raw 0644 0 a", "time");
        refused("f 0 512 1 1 00000000 raw 0644 99999999999999.000000000 a", "time");
        refused("d - 0 0 0 00000000 raw 0755 0.000000000 d", "no file");
        refused("d 0 512 4 4 00000000 raw 0755 0.000000000 d", "none");
        refused("l 0 512 0 0 00000000 raw 0777 0.000000000 link ", "nowhere");
    }
}
