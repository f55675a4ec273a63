//! Calls on paths.

use std::ffi::CStr;

use rustix::fs::{
    AtFlags, CWD, Gid, Mode, RawDir, RenameFlags, Timespec, Timestamps, Uid, XattrFlags,
};

use super::files::attr;
use super::{Outcome, Tried, done};
use crate::actor::command::{Answer, Command, DirEntry, Space};
use crate::actor::errno;
use crate::actor::table::Table;

/// Longer values and lists of names are cut off; no test needs them.
const XATTR_BYTES_MAX: usize = 256 * 1024;

pub(super) fn make(table: &Table, command: Command) -> Tried {
    use rustix::fs;
    Ok(match command {
        Command::Stat { path } => stat(fs::stat(path)),
        Command::Lstat { path } => stat(fs::lstat(path)),
        Command::Truncate { path, size } => super::child::truncate(&path, size),
        Command::Unlink { path } => done(fs::unlink(path)),
        Command::Rmdir { path } => done(fs::rmdir(path)),
        Command::Mkdir { path, mode } => done(fs::mkdir(path, Mode::from_raw_mode(mode))),
        Command::Rename { from, to, flags } => rename(&from, &to, &flags),
        Command::RenameAt { from_dir, from, to_dir, to } => table
            .file(from_dir)
            .and_then(|from_dir| done(fs::renameat(from_dir, from, table.file(to_dir)?, to))),
        Command::Link { from, to } => done(fs::link(from, to)),
        Command::Symlink { target, path } => done(fs::symlink(target, path)),
        Command::Readlink { path } => fs::readlink(path, Vec::new())
            .map(|target| Answer::Text(target.to_string_lossy().into_owned()))
            .map_err(errno::name),
        Command::Chmod { path, mode } => done(fs::chmod(path, Mode::from_raw_mode(mode))),
        Command::Chown { path, uid, gid } => {
            done(fs::chown(path, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))))
        }
        Command::SetTimes { path, atime, mtime } => set_times(&path, atime, mtime),
        Command::ReadDir { path } => list(&path).map(Answer::Entries),
        Command::StatVfs { path } => space(&path),
        other => return attributes(other),
    })
}

fn attributes(command: Command) -> Tried {
    use rustix::fs;
    let mut buffer = Vec::with_capacity(XATTR_BYTES_MAX);
    let text = |bytes: &[u8]| Answer::Text(String::from_utf8_lossy(bytes).into_owned());
    Ok(match command {
        Command::GetXattr { path, name } => {
            let value = fs::getxattr(path, name, rustix::buffer::spare_capacity(&mut buffer));
            value.map(|_| text(&buffer)).map_err(errno::name)
        }
        Command::ListXattr { path } => {
            let names = fs::listxattr(path, rustix::buffer::spare_capacity(&mut buffer));
            names.map(|_| text(&buffer)).map_err(errno::name)
        }
        Command::SetXattr { path, name, value } => {
            done(fs::setxattr(path, name, value.as_bytes(), XattrFlags::empty()))
        }
        Command::RemoveXattr { path, name } => done(fs::removexattr(path, name)),
        other => return Err(Box::new(other)),
    })
}

fn stat(result: rustix::io::Result<rustix::fs::Stat>) -> Outcome {
    result.map(|stat| Answer::Attr(attr(&stat))).map_err(errno::name)
}

fn rename(from: &str, to: &str, flags: &str) -> Outcome {
    let flags = match flags {
        "" => RenameFlags::empty(),
        "noreplace" => RenameFlags::NOREPLACE,
        "exchange" => RenameFlags::EXCHANGE,
        _ => return Err(format!("no flag of renameat2(2): {flags}")),
    };
    done(rustix::fs::renameat_with(CWD, from, CWD, to, flags))
}

fn set_times(path: &str, atime: i64, mtime: i64) -> Outcome {
    let time = |nanos: i64| Timespec {
        tv_sec: nanos.div_euclid(1_000_000_000),
        tv_nsec: nanos.rem_euclid(1_000_000_000),
    };
    let times = Timestamps { last_access: time(atime), last_modification: time(mtime) };
    done(rustix::fs::utimensat(CWD, path, &times, AtFlags::empty()))
}

/// One pass of getdents64 over the directory, as readdir(3) does it.
pub(in crate::actor) fn list(path: &str) -> Result<Vec<DirEntry>, String> {
    let dir = rustix::fs::open(path, errno::open_flags("r+directory")?, Mode::empty())
        .map_err(errno::name)?;
    let mut buffer = Vec::with_capacity(32 * 1024);
    let mut entries = RawDir::new(dir, buffer.spare_capacity_mut());
    let mut names = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry.map_err(errno::name)?;
        let name: &CStr = entry.file_name();
        if name != c"." && name != c".." {
            let name = name.to_string_lossy().into_owned();
            names.push(DirEntry { name, ino: entry.ino() });
        }
    }
    Ok(names)
}

fn space(path: &str) -> Outcome {
    let stat = rustix::fs::statvfs(path).map_err(errno::name)?;
    Ok(Answer::Space(Space {
        total: stat.f_blocks * stat.f_frsize,
        free: stat.f_bfree * stat.f_frsize,
        available: stat.f_bavail * stat.f_frsize,
        inodes: stat.f_files,
        inodes_free: stat.f_ffree,
    }))
}
