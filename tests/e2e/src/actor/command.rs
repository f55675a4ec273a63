//! What an actor can be told, and what it answers: JSON, one object per line.

use serde::{Deserialize, Serialize};

use super::{Data, Loop, Report};

/// One line to an actor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Request {
    /// Comes back in the reply.
    pub id: u64,
    /// What to do.
    pub command: Command,
}

/// One line from an actor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Reply {
    /// That of the request.
    pub id: u64,
    /// What came of it, or the name of the errno.
    pub result: Result<Answer, String>,
}

/// Where lseek(2) counts from, or what it looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Whence {
    /// The start of the file.
    Set,
    /// The position.
    Current,
    /// The end of the file.
    End,
    /// The next data at or after the offset.
    Data,
    /// The next hole at or after the offset.
    Hole,
}

/// How a file is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MapKind {
    /// `MAP_SHARED`, readable.
    SharedRead,
    /// `MAP_SHARED`, readable and writable.
    SharedWrite,
    /// `MAP_PRIVATE`, readable and writable.
    Private,
}

/// Which call locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LockKind {
    /// flock(2), exclusive.
    Flock,
    /// fcntl(2), exclusive, the whole file.
    Fcntl,
}

/// What it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LockAction {
    /// Takes the lock or fails.
    Try,
    /// Takes the lock, whenever that is.
    Wait,
    /// Gives it up.
    Unlock,
}

/// One POSIX call (or one loop of them). Files and maps are numbers that the actor gave out.
/// Flags of an open are words joined by `+`: see `errno::open_flags`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each variant is the call of its name, with the call's arguments")]
pub enum Command {
    Open {
        path: String,
        flags: String,
        mode: u32,
    },
    Close {
        file: u32,
    },
    Pread {
        file: u32,
        offset: u64,
        len: u64,
    },
    Pwrite {
        file: u32,
        offset: u64,
        data: Data,
    },
    /// write(2) at the position (or, opened with `append`, at the end), until all is written.
    Write {
        file: u32,
        data: Data,
    },
    /// One write(2) only; answers how many bytes it took.
    WriteOnce {
        file: u32,
        data: Data,
    },
    /// Reads and compares; answers the first difference.
    Check {
        file: u32,
        offset: u64,
        expect: Data,
    },
    Fstat {
        file: u32,
    },
    Stat {
        path: String,
    },
    Lstat {
        path: String,
    },
    Ftruncate {
        file: u32,
        size: u64,
    },
    Truncate {
        path: String,
        size: u64,
    },
    /// `mode` is the bits of fallocate(2).
    Fallocate {
        file: u32,
        mode: u32,
        offset: u64,
        len: u64,
    },
    Lseek {
        file: u32,
        whence: Whence,
        offset: i64,
    },
    Fsync {
        file: u32,
        data_only: bool,
    },
    CopyRange {
        from: u32,
        from_offset: u64,
        to: u32,
        to_offset: u64,
        len: u64,
    },
    /// sendfile(2) between two files.
    Sendfile {
        from: u32,
        from_offset: u64,
        to: u32,
        len: u64,
    },
    Map {
        file: u32,
        offset: u64,
        len: u64,
        kind: MapKind,
    },
    MapRead {
        map: u32,
        offset: u64,
        len: u64,
    },
    MapWrite {
        map: u32,
        offset: u64,
        data: Data,
    },
    MapSync {
        map: u32,
    },
    Unmap {
        map: u32,
    },
    Unlink {
        path: String,
    },
    Rmdir {
        path: String,
    },
    Mkdir {
        path: String,
        mode: u32,
    },
    /// `flags` is empty, `noreplace` or `exchange`.
    Rename {
        from: String,
        to: String,
        flags: String,
    },
    /// Both names below an open directory.
    RenameAt {
        from_dir: u32,
        from: String,
        to_dir: u32,
        to: String,
    },
    Link {
        from: String,
        to: String,
    },
    Symlink {
        target: String,
        path: String,
    },
    Readlink {
        path: String,
    },
    Chmod {
        path: String,
        mode: u32,
    },
    Chown {
        path: String,
        uid: u32,
        gid: u32,
    },
    /// Sets atime and mtime, in nanoseconds since 1970.
    SetTimes {
        path: String,
        atime: i64,
        mtime: i64,
    },
    /// Without `.` and `..`, in the order of the directory.
    ReadDir {
        path: String,
    },
    GetXattr {
        path: String,
        name: String,
    },
    SetXattr {
        path: String,
        name: String,
        value: String,
    },
    ListXattr {
        path: String,
    },
    RemoveXattr {
        path: String,
        name: String,
    },
    StatVfs {
        path: String,
    },
    Lock {
        file: u32,
        kind: LockKind,
        action: LockAction,
    },
    /// The command, made by another user in a child process. A file it opens ends with the child.
    AsUser {
        uid: u32,
        gid: u32,
        command: Box<Command>,
    },
    /// The command, begun later.
    After {
        micros: u64,
        command: Box<Command>,
    },
    /// `sh -c`.
    Shell {
        script: String,
    },
    Loop {
        work: Loop,
        until: super::Until,
    },
    /// Ends the loops that wait for this word.
    Raise {
        flag: String,
    },
    /// Closes all files and maps, ends all loops, forgets all flags.
    Reset,
}

/// What a call brought back.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It succeeded and has nothing to tell.
    Done,
    /// A file was opened.
    File(u32),
    /// A file was mapped.
    Map(u32),
    /// Bytes moved, or where a seek ended.
    Number(u64),
    /// Bytes read, in hexadecimal.
    Bytes(String),
    /// What a stat told.
    Attr(Attr),
    /// A listing.
    Entries(Vec<DirEntry>),
    /// Names or a text.
    Text(String),
    /// A difference from what was expected, or none.
    Difference(Option<String>),
    /// What statvfs told.
    Space(Space),
    /// What a loop counted.
    Report(Report),
    /// What a shell command printed.
    Output(Output),
}

/// stat(2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attr {
    /// Inode number.
    pub ino: u64,
    /// Type and permission bits.
    pub mode: u32,
    /// Names.
    pub nlink: u64,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Units of 512 bytes.
    pub blocks: u64,
    /// Nanoseconds since 1970.
    pub atime: i64,
    /// Nanoseconds since 1970.
    pub mtime: i64,
    /// Nanoseconds since 1970.
    pub ctime: i64,
}

/// One name of a listing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DirEntry {
    /// The name.
    pub name: String,
    /// Its inode.
    pub ino: u64,
}

/// statvfs(2), in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    /// All.
    pub total: u64,
    /// Not used.
    pub free: u64,
    /// Usable without privilege.
    pub available: u64,
    /// Of the file system.
    pub inodes: u64,
    /// Unused ones.
    pub inodes_free: u64,
}

/// What a child process left.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Output {
    /// Exit code; none after a signal.
    pub code: Option<i32>,
    /// At most the last 64 KiB.
    pub stdout: String,
    /// At most the last 64 KiB.
    pub stderr: String,
}
