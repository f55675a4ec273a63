//! Calls on open files.

use std::os::fd::AsFd;

use rustix::fs::{FallocateFlags, FlockOperation, Mode, SeekFrom, Stat};
use rustix::io::Errno;

use super::{Outcome, Tried, done};
use crate::actor::buffer::Buffer;
use crate::actor::command::{Answer, Attr, Command, LockAction, LockKind, Whence};
use crate::actor::data::{Data, difference, to_hex};
use crate::actor::errno;
use crate::actor::table::Table;

pub(super) fn make(table: &Table, command: Command) -> Tried {
    Ok(match command {
        Command::Open { path, flags, mode } => open(table, &path, &flags, mode),
        Command::Close { file } => table.close(file).map(|()| Answer::Done),
        Command::Pread { file, offset, len } => {
            read(table, file, offset, len).map(|bytes| Answer::Bytes(to_hex(&bytes)))
        }
        Command::Check { file, offset, expect } => check(table, file, offset, &expect),
        Command::Pwrite { file, offset, data } => pwrite(table, file, offset, &data),
        Command::Write { file, data } => write(table, file, &data),
        Command::WriteOnce { file, data } => write_once(table, file, &data),
        Command::Fstat { file } => {
            on(table, file, |fd| rustix::fs::fstat(fd).map(|stat| Answer::Attr(attr(&stat))))
        }
        Command::Ftruncate { file, size } => {
            on(table, file, |fd| rustix::fs::ftruncate(fd, size).map(|()| Answer::Done))
        }
        Command::Fallocate { file, mode, offset, len } => on(table, file, |fd| {
            let mode = FallocateFlags::from_bits_retain(mode);
            rustix::fs::fallocate(fd, mode, offset, len).map(|()| Answer::Done)
        }),
        Command::Lseek { file, whence, offset } => on(table, file, |fd| {
            rustix::fs::seek(fd, seek_from(whence, offset)).map(Answer::Number)
        }),
        Command::Fsync { file, data_only: true } => {
            on(table, file, |fd| rustix::fs::fdatasync(fd).map(|()| Answer::Done))
        }
        Command::Fsync { file, data_only: false } => {
            on(table, file, |fd| rustix::fs::fsync(fd).map(|()| Answer::Done))
        }
        Command::CopyRange { from, from_offset, to, to_offset, len } => {
            copy_range(table, (from, from_offset), (to, to_offset), len)
        }
        Command::Sendfile { from, from_offset, to, len } => {
            sendfile(table, from, from_offset, to, len)
        }
        Command::Lock { file, kind, action } => {
            table.file(file).and_then(|fd| done(lock(&fd, kind, action)))
        }
        other => return Err(Box::new(other)),
    })
}

pub(super) fn attr(stat: &Stat) -> Attr {
    let nanos = |seconds: i64, nanos: u64| seconds * 1_000_000_000 + nanos as i64;
    Attr {
        ino: stat.st_ino,
        mode: stat.st_mode,
        nlink: stat.st_nlink,
        uid: stat.st_uid,
        gid: stat.st_gid,
        size: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        atime: nanos(stat.st_atime, stat.st_atime_nsec),
        mtime: nanos(stat.st_mtime, stat.st_mtime_nsec),
        ctime: nanos(stat.st_ctime, stat.st_ctime_nsec),
    }
}

/// Runs `call` on the descriptor of `file`.
fn on(
    table: &Table,
    file: u32,
    call: impl FnOnce(std::os::fd::BorrowedFd<'_>) -> rustix::io::Result<Answer>,
) -> Outcome {
    call(table.file(file)?.as_fd()).map_err(errno::name)
}

fn open(table: &Table, path: &str, flags: &str, mode: u32) -> Outcome {
    let file = rustix::fs::open(path, errno::open_flags(flags)?, Mode::from_raw_mode(mode))
        .map_err(errno::name)?;
    Ok(Answer::File(table.add_file(file)))
}

/// Reads until the end of the file or until `len` bytes are there.
fn read(table: &Table, file: u32, offset: u64, len: u64) -> Result<Vec<u8>, String> {
    let fd = table.file(file)?;
    let mut buffer = Buffer::new(len as usize);
    let mut have = 0;
    while have < len as usize {
        match rustix::io::pread(&fd, &mut buffer.bytes_mut()[have..], offset + have as u64) {
            Ok(0) => break,
            Ok(count) => have += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(errno::name(error)),
        }
    }
    Ok(buffer.bytes()[..have].to_vec())
}

fn check(table: &Table, file: u32, offset: u64, expect: &Data) -> Outcome {
    let found = read(table, file, offset, expect.len())?;
    Ok(Answer::Difference(difference(offset, &expect.at(offset)?, &found)))
}

fn pwrite(table: &Table, file: u32, offset: u64, data: &Data) -> Outcome {
    let fd = table.file(file)?;
    let buffer = filled(offset, data)?;
    let mut have = 0;
    while have < buffer.bytes().len() {
        match rustix::io::pwrite(&fd, &buffer.bytes()[have..], offset + have as u64) {
            Ok(count) => have += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(errno::name(error)),
        }
    }
    Ok(Answer::Number(have as u64))
}

fn write(table: &Table, file: u32, data: &Data) -> Outcome {
    let fd = table.file(file)?;
    let buffer = filled(0, data)?;
    let mut rest = buffer.bytes();
    while !rest.is_empty() {
        match rustix::io::write(&fd, rest) {
            Ok(count) => rest = &rest[count..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(errno::name(error)),
        }
    }
    Ok(Answer::Number(data.len()))
}

fn write_once(table: &Table, file: u32, data: &Data) -> Outcome {
    let fd = table.file(file)?;
    let count = rustix::io::write(&fd, filled(0, data)?.bytes()).map_err(errno::name)?;
    Ok(Answer::Number(count as u64))
}

fn filled(offset: u64, data: &Data) -> Result<Buffer, String> {
    let mut buffer = Buffer::new(data.len() as usize);
    data.write_to(offset, buffer.bytes_mut())?;
    Ok(buffer)
}

const fn seek_from(whence: Whence, offset: i64) -> SeekFrom {
    match whence {
        Whence::Set => SeekFrom::Start(offset as u64),
        Whence::Current => SeekFrom::Current(offset),
        Whence::End => SeekFrom::End(offset),
        Whence::Data => SeekFrom::Data(offset as u64),
        Whence::Hole => SeekFrom::Hole(offset as u64),
    }
}

fn copy_range(table: &Table, from: (u32, u64), to: (u32, u64), len: u64) -> Outcome {
    let (source, target) = (table.file(from.0)?, table.file(to.0)?);
    let (mut from, mut to, mut left) = (from.1, to.1, len);
    while left > 0 {
        let count = rustix::fs::copy_file_range(
            &source,
            Some(&mut from),
            &target,
            Some(&mut to),
            left as usize,
        )
        .map_err(errno::name)?;
        if count == 0 {
            break;
        }
        left -= count as u64;
    }
    Ok(Answer::Number(len - left))
}

fn sendfile(table: &Table, from: u32, from_offset: u64, to: u32, len: u64) -> Outcome {
    let (source, target) = (table.file(from)?, table.file(to)?);
    let (mut offset, mut left) = (from_offset, len);
    while left > 0 {
        let count = rustix::fs::sendfile(&target, &source, Some(&mut offset), left as usize)
            .map_err(errno::name)?;
        if count == 0 {
            break;
        }
        left -= count as u64;
    }
    Ok(Answer::Number(len - left))
}

/// Takes or gives up a lock of the whole file.
pub(in crate::actor) fn lock(
    fd: impl AsFd,
    kind: LockKind,
    action: LockAction,
) -> rustix::io::Result<()> {
    let operation = match action {
        LockAction::Try => FlockOperation::NonBlockingLockExclusive,
        LockAction::Wait => FlockOperation::LockExclusive,
        LockAction::Unlock => FlockOperation::Unlock,
    };
    match kind {
        LockKind::Flock => rustix::fs::flock(fd, operation),
        LockKind::Fcntl => rustix::fs::fcntl_lock(fd, operation),
    }
}
