//! Calls on paths, with the types that tests want.

use super::{File, Node};
use crate::actor::{Answer, Attr, Command, DirEntry, Output, Space};
use crate::expect::Refused;

type Result<T> = std::result::Result<T, Refused>;

impl Node {
    /// open(2); flags as words (`rw+creat+trunc`), mode 0644.
    ///
    /// # Errors
    /// Its errno.
    pub fn open(&self, path: &str, flags: &str) -> Result<File> {
        self.open_mode(path, flags, 0o644)
    }

    /// open(2) with a mode.
    ///
    /// # Errors
    /// Its errno.
    pub fn open_mode(&self, path: &str, flags: &str, mode: u32) -> Result<File> {
        let command = Command::Open { path: path.into(), flags: flags.into(), mode };
        match self.call(command)? {
            Answer::File(id) => Ok(File::new(self.clone(), id)),
            other => Err(self.odd("open", &other)),
        }
    }

    /// stat(2).
    ///
    /// # Errors
    /// Its errno.
    pub fn stat(&self, path: &str) -> Result<Attr> {
        self.attr(Command::Stat { path: path.into() })
    }

    /// lstat(2).
    ///
    /// # Errors
    /// Its errno.
    pub fn lstat(&self, path: &str) -> Result<Attr> {
        self.attr(Command::Lstat { path: path.into() })
    }

    /// truncate(2).
    ///
    /// # Errors
    /// Its errno.
    pub fn truncate(&self, path: &str, size: u64) -> Result<()> {
        self.done(Command::Truncate { path: path.into(), size })
    }

    /// unlink(2).
    ///
    /// # Errors
    /// Its errno.
    pub fn unlink(&self, path: &str) -> Result<()> {
        self.done(Command::Unlink { path: path.into() })
    }

    /// mkdir(2), mode 0755.
    ///
    /// # Errors
    /// Its errno.
    pub fn mkdir(&self, path: &str) -> Result<()> {
        self.done(Command::Mkdir { path: path.into(), mode: 0o755 })
    }

    /// rmdir(2).
    ///
    /// # Errors
    /// Its errno.
    pub fn rmdir(&self, path: &str) -> Result<()> {
        self.done(Command::Rmdir { path: path.into() })
    }

    /// rename(2).
    ///
    /// # Errors
    /// Its errno.
    pub fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.rename_flags(from, to, "")
    }

    /// renameat2(2): `noreplace` or `exchange`.
    ///
    /// # Errors
    /// Its errno.
    pub fn rename_flags(&self, from: &str, to: &str, flags: &str) -> Result<()> {
        self.done(Command::Rename { from: from.into(), to: to.into(), flags: flags.into() })
    }

    /// link(2).
    ///
    /// # Errors
    /// Its errno.
    pub fn link(&self, from: &str, to: &str) -> Result<()> {
        self.done(Command::Link { from: from.into(), to: to.into() })
    }

    /// symlink(2).
    ///
    /// # Errors
    /// Its errno.
    pub fn symlink(&self, target: &str, path: &str) -> Result<()> {
        self.done(Command::Symlink { target: target.into(), path: path.into() })
    }

    /// readlink(2).
    ///
    /// # Errors
    /// Its errno.
    pub fn readlink(&self, path: &str) -> Result<String> {
        self.text(Command::Readlink { path: path.into() })
    }

    /// chmod(2).
    ///
    /// # Errors
    /// Its errno.
    pub fn chmod(&self, path: &str, mode: u32) -> Result<()> {
        self.done(Command::Chmod { path: path.into(), mode })
    }

    /// All entries but `.` and `..`, in the directory's own order.
    ///
    /// # Errors
    /// The errno of the open or of getdents64(2).
    pub fn list(&self, path: &str) -> Result<Vec<DirEntry>> {
        match self.call(Command::ReadDir { path: path.into() })? {
            Answer::Entries(entries) => Ok(entries),
            other => Err(self.odd("readdir", &other)),
        }
    }

    /// The names of [`Node::list`], sorted.
    ///
    /// # Errors
    /// As there.
    pub fn names(&self, path: &str) -> Result<Vec<String>> {
        let mut names: Vec<String> = self.list(path)?.into_iter().map(|entry| entry.name).collect();
        names.sort();
        Ok(names)
    }

    /// getxattr(2), as text.
    ///
    /// # Errors
    /// Its errno.
    pub fn get_xattr(&self, path: &str, name: &str) -> Result<String> {
        self.text(Command::GetXattr { path: path.into(), name: name.into() })
    }

    /// setxattr(2).
    ///
    /// # Errors
    /// Its errno.
    pub fn set_xattr(&self, path: &str, name: &str, value: &str) -> Result<()> {
        let (path, name, value) = (path.into(), name.into(), value.into());
        self.done(Command::SetXattr { path, name, value })
    }

    /// statvfs(2).
    ///
    /// # Errors
    /// Its errno.
    pub fn space(&self, path: &str) -> Result<Space> {
        match self.call(Command::StatVfs { path: path.into() })? {
            Answer::Space(space) => Ok(space),
            other => Err(self.odd("statvfs", &other)),
        }
    }

    /// `sh -c script`; fails unless it exits with 0.
    ///
    /// # Errors
    /// Its exit code and what it printed.
    pub fn shell(&self, script: &str) -> Result<Output> {
        match self.call(Command::Shell { script: script.into() })? {
            Answer::Output(output) if output.code == Some(0) => Ok(output),
            other => Err(self.odd(script, &other)),
        }
    }

    /// The call, made by user 65534 (nobody) with no other groups.
    ///
    /// # Errors
    /// Its errno.
    pub fn as_nobody(&self, command: Command) -> Result<Answer> {
        const NOBODY: u32 = 65_534;
        self.call(Command::AsUser { uid: NOBODY, gid: NOBODY, command: Box::new(command) })
    }

    /// Writes a new file as a whole and closes it.
    ///
    /// # Errors
    /// The errno of the call that failed.
    pub fn write_file(&self, path: &str, data: crate::Data) -> Result<()> {
        let file = self.open(path, "w+creat+trunc")?;
        file.pwrite(0, data)?;
        file.close()
    }

    /// Reads a file as a whole.
    ///
    /// # Errors
    /// The errno of the call that failed.
    pub fn read_file(&self, path: &str) -> Result<Vec<u8>> {
        let file = self.open(path, "r")?;
        let len = file.attr()?.size;
        let bytes = file.pread(0, len + 1)?;
        file.close()?;
        Ok(bytes)
    }

    pub(super) fn attr(&self, command: Command) -> Result<Attr> {
        match self.call(command)? {
            Answer::Attr(attr) => Ok(attr),
            other => Err(self.odd("stat", &other)),
        }
    }

    pub(super) fn done(&self, command: Command) -> Result<()> {
        match self.call(command)? {
            Answer::Done => Ok(()),
            other => Err(self.odd("call", &other)),
        }
    }

    fn text(&self, command: Command) -> Result<String> {
        match self.call(command)? {
            Answer::Text(text) => Ok(text),
            other => Err(self.odd("text", &other)),
        }
    }

    /// An answer of another kind than the call has.
    pub(super) fn odd(&self, call: &str, answer: &Answer) -> Refused {
        Refused { node: self.index(), call: call.into(), errno: format!("answered {answer:?}") }
    }
}
