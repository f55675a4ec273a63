//! Open files and mappings on a node.

use anyhow::ensure;

use super::{Node, Pending};
use crate::actor::data::from_hex;
use crate::actor::{Answer, Attr, Command, Data, LockAction, LockKind, MapKind, Whence};
use crate::expect::Refused;

type Result<T> = std::result::Result<T, Refused>;

/// An open file. Not closed by drop: the actor closes what a test left when the test is over.
#[derive(Debug)]
pub struct File {
    node: Node,
    id: u32,
}

impl File {
    pub(super) const fn new(node: Node, id: u32) -> Self {
        Self { node, id }
    }

    /// Its number in the actor.
    pub const fn id(&self) -> u32 {
        self.id
    }

    /// Where it is open.
    pub const fn node(&self) -> &Node {
        &self.node
    }

    /// close(2).
    ///
    /// # Errors
    /// When the actor does not have it.
    pub fn close(self) -> Result<()> {
        self.node.done(Command::Close { file: self.id })
    }

    /// Up to `len` bytes; fewer only at the end of the file.
    ///
    /// # Errors
    /// The errno of pread(2).
    pub fn pread(&self, offset: u64, len: u64) -> Result<Vec<u8>> {
        let command = Command::Pread { file: self.id, offset, len };
        bytes(&self.node, "pread", self.node.call(command)?)
    }

    /// Reads and compares.
    ///
    /// # Errors
    /// The first difference, or the errno of pread(2).
    pub fn check(&self, offset: u64, expect: Data) -> anyhow::Result<()> {
        let len = expect.len();
        match self.node.call(Command::Check { file: self.id, offset, expect })? {
            Answer::Difference(None) => Ok(()),
            Answer::Difference(Some(text)) => {
                anyhow::bail!("node {}: read of {len} bytes at {offset}: {text}", self.node.index())
            }
            other => Err(self.node.odd("check", &other).into()),
        }
    }

    /// pwrite(2) until all is written.
    ///
    /// # Errors
    /// Its errno.
    pub fn pwrite(&self, offset: u64, data: Data) -> Result<u64> {
        self.number(Command::Pwrite { file: self.id, offset, data })
    }

    /// write(2) until all is written.
    ///
    /// # Errors
    /// Its errno.
    pub fn write(&self, data: Data) -> Result<u64> {
        self.number(Command::Write { file: self.id, data })
    }

    /// One write(2).
    ///
    /// # Errors
    /// Its errno.
    pub fn write_once(&self, data: Data) -> Result<u64> {
        self.number(Command::WriteOnce { file: self.id, data })
    }

    /// fstat(2).
    ///
    /// # Errors
    /// Its errno.
    pub fn attr(&self) -> Result<Attr> {
        self.node.attr(Command::Fstat { file: self.id })
    }

    /// ftruncate(2).
    ///
    /// # Errors
    /// Its errno.
    pub fn truncate(&self, size: u64) -> Result<()> {
        self.node.done(Command::Ftruncate { file: self.id, size })
    }

    /// fallocate(2) with the bits of its mode.
    ///
    /// # Errors
    /// Its errno.
    pub fn allocate(&self, mode: u32, offset: u64, len: u64) -> Result<()> {
        self.node.done(Command::Fallocate { file: self.id, mode, offset, len })
    }

    /// lseek(2).
    ///
    /// # Errors
    /// Its errno.
    pub fn seek(&self, whence: Whence, offset: i64) -> Result<u64> {
        self.number(Command::Lseek { file: self.id, whence, offset })
    }

    /// fsync(2).
    ///
    /// # Errors
    /// Its errno.
    pub fn fsync(&self) -> Result<()> {
        self.node.done(Command::Fsync { file: self.id, data_only: false })
    }

    /// copy_file_range(2) until `len` bytes or the end of the source.
    ///
    /// # Errors
    /// Its errno.
    pub fn copy_range(&self, offset: u64, to: &Self, to_offset: u64, len: u64) -> Result<u64> {
        let (from, to) = (self.id, to.id);
        self.number(Command::CopyRange { from, from_offset: offset, to, to_offset, len })
    }

    /// sendfile(2) to the position of `to`.
    ///
    /// # Errors
    /// Its errno.
    pub fn sendfile(&self, offset: u64, to: &Self, len: u64) -> Result<u64> {
        let (from, to) = (self.id, to.id);
        self.number(Command::Sendfile { from, from_offset: offset, to, len })
    }

    /// A lock that does not wait.
    ///
    /// # Errors
    /// The errno of flock(2) or fcntl(2).
    pub fn lock(&self, kind: LockKind) -> Result<()> {
        self.node.done(Command::Lock { file: self.id, kind, action: LockAction::Try })
    }

    /// A lock that waits.
    pub fn begin_lock(&self, kind: LockKind) -> Pending {
        self.node.begin(Command::Lock { file: self.id, kind, action: LockAction::Wait })
    }

    /// Gives up a lock.
    ///
    /// # Errors
    /// The errno of flock(2) or fcntl(2).
    pub fn unlock(&self, kind: LockKind) -> Result<()> {
        self.node.done(Command::Lock { file: self.id, kind, action: LockAction::Unlock })
    }

    /// mmap(2) from the start of the file.
    ///
    /// # Errors
    /// Its errno.
    pub fn map(&self, len: u64, kind: MapKind) -> Result<Map> {
        self.map_at(0, len, kind)
    }

    /// mmap(2); `offset` is a multiple of the page size.
    ///
    /// # Errors
    /// Its errno.
    pub fn map_at(&self, offset: u64, len: u64, kind: MapKind) -> Result<Map> {
        match self.node.call(Command::Map { file: self.id, offset, len, kind })? {
            Answer::Map(id) => Ok(Map { node: self.node.clone(), id }),
            other => Err(self.node.odd("mmap", &other)),
        }
    }

    fn number(&self, command: Command) -> Result<u64> {
        match self.node.call(command)? {
            Answer::Number(number) => Ok(number),
            other => Err(self.node.odd("call", &other)),
        }
    }
}

/// A mapped range; unmapped by the actor when the test is over.
#[derive(Debug)]
pub struct Map {
    node: Node,
    id: u32,
}

impl Map {
    /// Bytes as the mapping shows them now.
    ///
    /// # Errors
    /// When the range is outside, or the actor died of a signal (`DEAD`).
    pub fn read(&self, offset: u64, len: u64) -> Result<Vec<u8>> {
        let command = Command::MapRead { map: self.id, offset, len };
        bytes(&self.node, "read of a mapping", self.node.call(command)?)
    }

    /// Compares.
    ///
    /// # Errors
    /// When the bytes are others.
    pub fn check(&self, offset: u64, expect: &[u8]) -> anyhow::Result<()> {
        let found = self.read(offset, expect.len() as u64)?;
        let difference = crate::actor::data::difference(offset, expect, &found);
        ensure!(
            difference.is_none(),
            "node {}: mapping: {}",
            self.node.index(),
            difference.unwrap_or_default()
        );
        Ok(())
    }

    /// Stores bytes in the mapping.
    ///
    /// # Errors
    /// As [`Map::read`].
    pub fn write(&self, offset: u64, data: Data) -> Result<()> {
        self.node.done(Command::MapWrite { map: self.id, offset, data })
    }

    /// msync(2), `MS_SYNC`.
    ///
    /// # Errors
    /// Its errno.
    pub fn sync(&self) -> Result<()> {
        self.node.done(Command::MapSync { map: self.id })
    }

    /// munmap(2).
    ///
    /// # Errors
    /// When the actor does not have it.
    pub fn unmap(self) -> Result<()> {
        self.node.done(Command::Unmap { map: self.id })
    }
}

fn bytes(node: &Node, call: &str, answer: Answer) -> Result<Vec<u8>> {
    match answer {
        Answer::Bytes(hex) => {
            from_hex(&hex).map_err(|errno| Refused { node: node.index(), call: call.into(), errno })
        }
        other => Err(node.odd(call, &other)),
    }
}
