//! The index: packs, then rows in the order of trees, then a checksum over all; drawn in `docs/guide/pack-format.md`.
//!
//! Written and read as a stream of lines. Names ascend strictly, so that one pass without memory
//! finds duplicates; whoever reads it to the end knows that it is whole.

use std::fmt;
use std::io::{BufRead, Write};

use ring::digest::{Context, SHA256};

use super::PackError;
use super::header::padding;
use super::row::{self, Row};
use crate::item::Item;
use crate::limits::LINE_BYTES_MAX;

/// The first line.
const FIRST: &[u8] = b"hayase-index 1";

/// Which pack: 128 random bits, 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PackId(pub [u8; 16]);

impl PackId {
    /// A new one.
    pub fn random(random: &dyn ring::rand::SecureRandom) -> Result<Self, PackError> {
        let mut bytes = [0; 16];
        random.fill(&mut bytes).map_err(|_| PackError::Random)?;
        Ok(Self(bytes))
    }

    /// Reads 32 lower-case digits.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut bytes = [0; 16];
        if text.len() != 32 {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
            let digits = std::str::from_utf8(pair).ok()?;
            let lower = digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
            *byte = u8::from_str_radix(digits, 16).ok().filter(|_| lower)?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for PackId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PackId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// What an index says of one pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackLine {
    /// Which.
    pub id: PackId,
    /// Its length as a tar (sealing adds to that); 0 inside the pack itself, which can not know.
    pub bytes: u64,
    /// Of the whole tar; 0 inside the pack itself.
    pub crc32c: u32,
}

/// A whole index in memory: some 150 bytes and the name for each entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    /// Rows name them by their place here.
    pub packs: Vec<PackLine>,
    /// In the order of trees.
    pub rows: Vec<Row>,
}

impl Index {
    /// Writes it in pieces of some 64 KiB.
    pub fn write<E>(&self, mut sink: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        const PIECE: usize = 64 * 1024;
        let mut digest = Context::new(&SHA256);
        let mut piece = FIRST.to_vec();
        piece.push(b'\n');
        let mut put = |piece: &mut Vec<u8>, limit: usize| {
            if piece.len() >= limit {
                digest.update(piece);
                sink(piece)?;
                piece.clear();
            }
            Ok(())
        };
        for pack in &self.packs {
            let fine = "a vector takes every write";
            writeln!(piece, "p {} {} {:08x}", pack.id, pack.bytes, pack.crc32c).expect(fine);
            put(&mut piece, PIECE)?;
        }
        for row in &self.rows {
            row.write(&mut piece);
            put(&mut piece, PIECE)?;
        }
        put(&mut piece, 0)?;
        let sum = digest.finish();
        let sum: String = sum.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        sink(format!("e {} {sum}\n", self.rows.len()).as_bytes())
    }

    /// All of it as one text.
    pub fn to_text(&self) -> Vec<u8> {
        let mut text = Vec::new();
        let Ok(()) = self.write(|piece| {
            text.extend_from_slice(piece);
            Ok::<_, std::convert::Infallible>(())
        });
        text
    }

    /// Reads to the end line and checks everything that one index can tell. `object` is named in errors.
    pub fn read(source: impl BufRead, object: &str) -> Result<Self, PackError> {
        let mut reader = IndexReader::new(source, object);
        let mut rows = Vec::new();
        while let Some(row) = reader.next_row()? {
            rows.push(row);
        }
        Ok(Self { packs: reader.packs, rows })
    }
}

/// Reads an index line by line.
pub struct IndexReader<R> {
    source: R,
    object: String,
    line: Vec<u8>,
    number: u64,
    digest: Option<Context>,
    /// Complete once the first row, or the end, was read.
    pub packs: Vec<PackLine>,
    last: Option<Item>,
    rows: u64,
}

impl<R: BufRead> IndexReader<R> {
    /// `object` is named in errors.
    pub fn new(source: R, object: &str) -> Self {
        Self {
            source,
            object: object.to_owned(),
            line: Vec::new(),
            number: 0,
            digest: Some(Context::new(&SHA256)),
            packs: Vec::new(),
            last: None,
            rows: 0,
        }
    }

    fn wrong(&self, why: &'static str) -> PackError {
        PackError::Line { object: self.object.clone(), line: self.number, why }
    }

    /// Reads one line, with its end, into `self.line`.
    fn next_line(&mut self) -> Result<(), PackError> {
        self.line.clear();
        self.number += 1;
        let mut limited = std::io::Read::take(&mut self.source, LINE_BYTES_MAX as u64);
        let read = limited.read_until(b'\n', &mut self.line);
        read.map_err(|error| self.unreadable(error))?;
        match self.line.last() {
            Some(b'\n') => Ok(()),
            _ if self.line.len() >= LINE_BYTES_MAX => Err(self.wrong("a line that is too long")),
            _ => Err(self.wrong("it ends too early")),
        }
    }

    /// What reads tiers and opens seals wraps its own error.
    fn unreadable(&self, error: std::io::Error) -> PackError {
        match error.downcast::<PackError>() {
            Ok(ours) => ours,
            Err(other) => {
                PackError::Damaged { object: self.object.clone(), why: other.to_string() }
            }
        }
    }

    /// The next row; `None` at the end line, once that was checked.
    pub fn next_row(&mut self) -> Result<Option<Row>, PackError> {
        loop {
            if self.digest.is_none() {
                return Ok(None);
            }
            self.next_line()?;
            let line = std::mem::take(&mut self.line);
            let answer = self.take_line(&line);
            self.line = line;
            if let Some(row) = answer? {
                return Ok(Some(row));
            }
        }
    }

    fn take_line(&mut self, line: &[u8]) -> Result<Option<Row>, PackError> {
        let text = &line[..line.len() - 1];
        if self.number == 1 {
            self.check_first(text)?;
        } else if let Some(fields) = text.strip_prefix(b"e ") {
            self.check_end(fields)?;
            return Ok(None);
        } else if let Some(fields) = text.strip_prefix(b"p ") {
            if self.last.is_some() {
                return Err(self.wrong("a pack behind the first entry"));
            }
            let pack = pack_line(fields).map_err(|why| self.wrong(why))?;
            self.packs.push(pack);
        }
        if let Some(digest) = &mut self.digest {
            digest.update(line);
        }
        if self.number == 1 || text.starts_with(b"p ") {
            return Ok(None);
        }
        let row = Row::read(text).map_err(|why| self.wrong(why))?;
        self.check_row(&row)?;
        self.last = Some(row.item.clone());
        self.rows += 1;
        Ok(Some(row))
    }

    fn check_first(&self, text: &[u8]) -> Result<(), PackError> {
        if text == FIRST {
            return Ok(());
        }
        let version = text.strip_prefix(b"hayase-index ").and_then(|v| row::number(v).ok());
        Err(match version {
            Some(found) => PackError::Version { object: self.object.clone(), found },
            None => self.wrong("it is no index"),
        })
    }

    fn check_row(&self, row: &Row) -> Result<(), PackError> {
        if self.last.as_ref().is_some_and(|last| last.order(&row.item).is_ge()) {
            return Err(self.wrong("names out of order, or a name twice"));
        }
        if let Some(at) = row.location {
            let Some(pack) = self.packs.get(at.pack as usize) else {
                return Err(self.wrong("an entry of a pack that is not named"));
            };
            let end = at
                .offset
                .checked_add(at.stored)
                .and_then(|end| end.checked_add(padding(at.stored)));
            if end.is_none_or(|end| pack.bytes != 0 && end > pack.bytes) {
                return Err(self.wrong("an entry behind the end of its pack"));
            }
        }
        Ok(())
    }

    fn check_end(&mut self, fields: &[u8]) -> Result<(), PackError> {
        let digest = self.digest.take().expect("lines are taken until the end line");
        let sum: String =
            digest.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        if fields != format!("{} {sum}", self.rows).as_bytes() {
            return Err(self.wrong("the checksum of the index does not fit its lines"));
        }
        Ok(())
    }

    /// What is behind the end line, for those who read on.
    pub fn into_source(self) -> R {
        self.source
    }
}

fn pack_line(fields: &[u8]) -> Result<PackLine, &'static str> {
    let mut fields = fields.split(|&byte| byte == b' ');
    let mut next = || fields.next().ok_or("a field is missing");
    let (id, bytes, crc) = (next()?, next()?, next()?);
    if fields.next().is_some() {
        return Err("more fields than there are");
    }
    let id = PackId::parse(id).ok_or("a pack's name that is none")?;
    Ok(PackLine { id, bytes: row::number(bytes)?, crc32c: row::hex(crc)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "000102030405060708090a0b0c0d0e0f";

    fn text(lines: &[&str]) -> Vec<u8> {
        let mut text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let sum = ring::digest::digest(&SHA256, text.as_bytes());
        let sum: String = sum.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let rows = lines.iter().filter(|line| line.starts_with(['f', 'd', 'l'])).count();
        text.push_str(&format!("e {rows} {sum}\n"));
        text.into_bytes()
    }

    fn read(text: &[u8]) -> Result<Index, String> {
        Index::read(text, "index").map_err(|error| error.to_string())
    }

    #[test]
    fn an_index_is_read_as_it_is_written() {
        let pack = format!("p {ID} 4096 0badcafe");
        let lines = [
            "hayase-index 1",
            &pack,
            "f 0 512 3 3 00000000 raw 0644 0.000000000 a",
            "f 0 1536 3 3 00000000 raw 0644 0.000000000 a-b",
            "d 0 2560 0 0 00000000 raw 0755 0.000000000 a.d",
            "f - 0 9 9 00000000 raw 0644 0.000000000 a.d/big",
        ];
        let lines =
            &lines.map(|line| if line.starts_with("hayase") { "hayase-index 1" } else { line });
        let written = text(lines);
        let index = read(&written).unwrap();
        assert_eq!((index.packs.len(), index.rows.len()), (1, 4));
        assert_eq!(index.to_text(), written);
        assert_eq!(Index::read(&*Index::default().to_text(), "x").unwrap(), Index::default());
    }

    #[test]
    fn an_index_that_lies_is_refused() {
        let pack = format!("p {ID} 4096 0badcafe");
        let row = |offset: u64, name: &str| {
            format!("f 0 {offset} 3 3 00000000 raw 0644 0.000000000 {name}")
        };
        let check = |rows: &[String], why: &str| {
            let mut lines = vec!["hayase-index 1", pack.as_str()];
            lines.extend(rows.iter().map(String::as_str));
            let told = read(&text(&lines)).expect_err(why);
            assert!(told.contains(why), "{told}");
        };
        check(&[row(512, "a"), row(512, "a")], "twice");
        check(&[row(512, "b"), row(512, "a")], "out of order");
        check(&[row(4096, "a")], "behind the end");
        check(&["f 1 512 3 3 00000000 raw 0644 0.000000000 a".into()], "not named");
        check(&[row(512, "a"), pack.clone()], "behind the first entry");
        check(&["x".repeat(LINE_BYTES_MAX + 1)], "too long");
        assert!(read(b"hayase-index 2\n").unwrap_err().contains("version 2"));
        assert!(read(b"<html>\n").unwrap_err().contains("no index"));
        assert!(read(b"").unwrap_err().contains("too early"));
    }

    #[test]
    fn every_flip_and_every_cut_is_found() {
        let pack = format!("p {ID} 4096 0badcafe");
        let lines = ["hayase-index 1", &pack, "f 0 512 3 3 00000000 raw 0644 0.000000000 a"];
        let good = text(&lines);
        for cut in 0..good.len() {
            assert!(read(&good[..cut]).is_err(), "cut at {cut}");
        }
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&bad).is_err(), "bit {bit}");
        }
    }
}
