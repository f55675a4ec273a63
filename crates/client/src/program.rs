//! The burst buffer for programs: files of the shared area by path, without a mount.
//!
//! Paths are relative to the area's root (`a/b` and `/a/b` are the same file). Files whose part is on
//! this node are read and written by its descriptor; the others by messages. Everything may be
//! used from any number of threads at a time; each call uses a connection of its own.
//! Not here: rights of other users (a program acts as the job's owner).

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use hayase_layout::InodeId;
use hayase_wire::message::{
    Access, Attr, DirEntry, FileKind, MetaChange, NewNode, ParentPolicy, Refused, without_suidgid,
};

use crate::limits::LISTING_BYTES;
use crate::open_file::Serving;
use crate::session::Session;
use crate::volume::{OpenWish, Volume};
use crate::{AreaSettings, AreaVolume, LinkError};

mod file;

pub use file::File;

/// Symbolic links followed in one path.
const LINKS_MAX: usize = 40;

/// Why a call of a program failed.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// No connection.
    #[error("connect to the server of this node")]
    Connect(#[from] LinkError),
    /// No thread could be started.
    #[error("start the background threads")]
    Threads(#[source] std::io::Error),
    /// A file operation was refused.
    #[error("{action} {path}")]
    Refused {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: String,
        /// Why not.
        source: Refused,
    },
}

impl ProgramError {
    /// The errno of a refusal; `EIO` of everything else.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Refused { source, .. } => source.errno,
            Self::Connect(_) | Self::Threads(_) => libc::EIO,
        }
    }
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    /// To read.
    pub read: bool,
    /// To write.
    pub write: bool,
    /// Made if it is not there.
    pub create: bool,
    /// An error if it is there.
    pub exclusive: bool,
    /// Emptied.
    pub truncate: bool,
    /// Permission bits of a new file.
    pub mode: u32,
}

/// A program's way into the shared area of its job.
#[derive(Clone)]
pub struct Program {
    volume: Arc<AreaVolume>,
}

/// A directory, so that many names in it cost no walk.
#[derive(Clone)]
pub struct Directory {
    volume: Arc<AreaVolume>,
    ino: InodeId,
    path: String,
}

impl Program {
    /// Connects to the server of this node, by its socket.
    ///
    /// # Errors
    /// When nobody listens there, or this user may not use it.
    pub fn connect(socket: &Path) -> Result<Self, ProgramError> {
        let session = Session::connect(socket, false)?;
        let volume = AreaVolume::new(Arc::new(session), AreaSettings::program());
        Ok(Self { volume: Arc::new(volume.map_err(ProgramError::Threads)?) })
    }

    /// The root of the area.
    pub fn root(&self) -> Directory {
        let volume = Arc::clone(&self.volume);
        Directory { volume, ino: InodeId::ROOT, path: "/".to_owned() }
    }

    /// A directory by path; symbolic links are followed.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ELOOP`.
    pub fn directory(&self, path: &str) -> Result<Directory, ProgramError> {
        let attr = self.found(path, true).map_err(failed("open directory", path))?;
        if attr.kind != FileKind::Directory {
            return Err(failed("open directory", path)(Refused::new(libc::ENOTDIR)));
        }
        let volume = Arc::clone(&self.volume);
        Ok(Directory { volume, ino: attr.ino, path: path.to_owned() })
    }

    /// Opens or creates a file.
    ///
    /// # Errors
    /// As open(2).
    pub fn open(&self, path: &str, options: OpenOptions) -> Result<File, ProgramError> {
        let (parent, name) = self.parent(path).map_err(failed("open", path))?;
        parent.open(name, options)
    }

    /// Attributes; symbolic links are followed.
    ///
    /// # Errors
    /// As stat(2).
    pub fn stat(&self, path: &str) -> Result<Attr, ProgramError> {
        self.found(path, true).map_err(failed("stat", path))
    }

    /// Attributes of the last component itself.
    ///
    /// # Errors
    /// As lstat(2).
    pub fn lstat(&self, path: &str) -> Result<Attr, ProgramError> {
        self.found(path, false).map_err(failed("stat", path))
    }

    /// A new directory.
    ///
    /// # Errors
    /// As mkdir(2).
    pub fn create_directory(&self, path: &str, mode: u32) -> Result<Directory, ProgramError> {
        let (parent, name) = self.parent(path).map_err(failed("create directory", path))?;
        parent.create_directory(name, mode)
    }

    /// Takes a file's name away.
    ///
    /// # Errors
    /// As unlink(2).
    pub fn remove(&self, path: &str) -> Result<(), ProgramError> {
        let (parent, name) = self.parent(path).map_err(failed("remove", path))?;
        parent.remove(name)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As rmdir(2).
    pub fn remove_directory(&self, path: &str) -> Result<(), ProgramError> {
        let (parent, name) = self.parent(path).map_err(failed("remove directory", path))?;
        let removed = self.volume.remove(parent.ino, name.as_bytes(), true);
        removed.map_err(failed("remove directory", path))
    }

    /// Renames, over what is there.
    ///
    /// # Errors
    /// As rename(2).
    pub fn rename(&self, from: &str, to: &str) -> Result<(), ProgramError> {
        let (source, old) = self.parent(from).map_err(failed("rename", from))?;
        let (target, new) = self.parent(to).map_err(failed("rename", to))?;
        let (from_place, to_place) = ((source.ino, old.into()), (target.ino, new.into()));
        self.volume.rename(from_place, to_place, false, false).map_err(failed("rename", from))
    }

    fn parent<'a>(&self, path: &'a str) -> Result<(Directory, &'a str), Refused> {
        let trimmed = path.trim_end_matches('/');
        let (parent, name) = trimmed.rsplit_once('/').unwrap_or(("", trimmed));
        if name.is_empty() || name == "." || name == ".." {
            return Err(Refused::new(libc::EINVAL));
        }
        let (ino, _) = self.walk(parent, true)?;
        let volume = Arc::clone(&self.volume);
        Ok((Directory { volume, ino, path: parent.to_owned() }, name))
    }

    fn found(&self, path: &str, follow_last: bool) -> Result<Attr, Refused> {
        match self.walk(path, follow_last)? {
            (_, Some(attr)) => Ok(attr),
            (ino, None) => Ok(self.volume.attributes(ino)?.attr),
        }
    }

    /// From the root; `..` goes back by where the walk came from, and not above the root. The root
    /// itself is not asked what it is.
    fn walk(&self, path: &str, follow_last: bool) -> Result<(InodeId, Option<Attr>), Refused> {
        let mut trail = vec![(InodeId::ROOT, None)];
        let mut left: Vec<String> = components(path);
        let mut links = 0;
        while let Some(name) = left.pop() {
            if name == ".." {
                if trail.len() > 1 {
                    trail.pop();
                }
                continue;
            }
            let (dir, _) = trail.last().expect("the root stays");
            let found = self.volume.lookup(*dir, name.as_bytes())?.attr;
            if found.kind == FileKind::Symlink && (follow_last || !left.is_empty()) {
                links += 1;
                if links > LINKS_MAX {
                    return Err(Refused::new(libc::ELOOP));
                }
                let target = self.volume.read_link(found.ino)?;
                let target = String::from_utf8_lossy(&target).into_owned();
                if target.starts_with('/') {
                    trail.truncate(1);
                }
                left.extend(components(&target));
            } else {
                trail.push((found.ino, Some(found)));
            }
        }
        Ok(trail.pop().expect("the root stays"))
    }
}

/// Last first, without `.` and empty ones.
fn components(path: &str) -> Vec<String> {
    let named = |name: &&str| !name.is_empty() && *name != ".";
    path.split('/').filter(named).rev().map(str::to_owned).collect()
}

impl Directory {
    /// Opens or creates a file in it.
    ///
    /// # Errors
    /// As openat(2).
    pub fn open(&self, name: &str, options: OpenOptions) -> Result<File, ProgramError> {
        self.try_open(name, options).map_err(failed("open", &self.join(name)))
    }

    /// A new file, opened for writing.
    ///
    /// # Errors
    /// `EEXIST` when the name is taken.
    pub fn create(&self, name: &str, mode: u32) -> Result<File, ProgramError> {
        let options = OpenOptions {
            write: true,
            create: true,
            exclusive: true,
            mode,
            ..OpenOptions::default()
        };
        self.open(name, options)
    }

    /// A new directory in it.
    ///
    /// # Errors
    /// As mkdirat(2).
    pub fn create_directory(&self, name: &str, mode: u32) -> Result<Self, ProgramError> {
        let made = self
            .volume
            .make(self.new_node(name, FileKind::Directory, mode))
            .map_err(failed("create directory", &self.join(name)))?;
        let volume = Arc::clone(&self.volume);
        Ok(Self { volume, ino: made.attr.ino, path: self.join(name) })
    }

    /// Attributes of a name in it.
    ///
    /// # Errors
    /// As fstatat(2) without following.
    pub fn stat(&self, name: &str) -> Result<Attr, ProgramError> {
        let found = self.volume.lookup(self.ino, name.as_bytes());
        Ok(found.map_err(failed("stat", &self.join(name)))?.attr)
    }

    /// Takes a file's name away.
    ///
    /// # Errors
    /// As unlinkat(2).
    pub fn remove(&self, name: &str) -> Result<(), ProgramError> {
        let removed = self.volume.remove(self.ino, name.as_bytes(), false);
        removed.map_err(failed("remove", &self.join(name)))
    }

    /// All entries, in the order of their cookies; without `.` and `..`.
    ///
    /// # Errors
    /// As readdir(3).
    pub fn list(&self) -> Result<Vec<DirEntry>, ProgramError> {
        let mut entries: Vec<DirEntry> = Vec::new();
        loop {
            let after = entries.last().map_or(0, |entry| entry.cookie);
            let page = self.volume.list(self.ino, after, LISTING_BYTES, false);
            let page = page.map_err(failed("list", &self.path))?;
            if page.is_empty() {
                return Ok(entries);
            }
            entries.extend(page.into_iter().map(|listed| listed.entry));
        }
    }

    fn join(&self, name: &str) -> String {
        format!("{}/{name}", self.path.trim_end_matches('/'))
    }

    fn new_node(&self, name: &str, kind: FileKind, mode: u32) -> NewNode {
        NewNode {
            parent: self.ino,
            name: name.into(),
            kind,
            mode,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            rdev: 0,
            target: None,
            policy: ParentPolicy::Unknown,
            acls: None,
            exclusive: true,
            open: None,
        }
    }

    fn try_open(&self, name: &str, options: OpenOptions) -> Result<File, Refused> {
        let access = Access { read: options.read, write: options.write };
        let wish = OpenWish {
            access,
            truncate: options.truncate,
            serving: Serving::Descriptor,
            uncached: true,
        };
        if options.create {
            let node = self.new_node(name, FileKind::Regular, options.mode);
            match self.volume.create(node, wish) {
                Ok((found, open)) => {
                    return Ok(self.file(found.attr.ino, access, open.descriptor));
                }
                Err(refused) if refused.errno == libc::EEXIST && !options.exclusive => {}
                Err(refused) => return Err(refused),
            }
        }
        let attr = self.volume.lookup(self.ino, name.as_bytes())?.attr;
        match attr.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(Refused::new(libc::EISDIR)),
            FileKind::Symlink => return Err(Refused::new(libc::ELOOP)),
            _ => return Err(Refused::new(libc::ENXIO)),
        }
        let open = self.volume.open(attr.ino, wish)?;
        let file = self.file(attr.ino, access, open.descriptor);
        // Its writes are not told apart later: as if it had written.
        let may_keep_bits = rustix::process::geteuid().is_root();
        if access.write && !may_keep_bits && without_suidgid(attr.mode) != attr.mode {
            let change = MetaChange { kill_suidgid: true, ..MetaChange::default() };
            self.volume.set_attributes(attr.ino, &change)?;
        }
        Ok(file)
    }

    fn file(&self, ino: InodeId, access: Access, part: Option<Arc<OwnedFd>>) -> File {
        File::new(Arc::clone(&self.volume), ino, access, part)
    }
}

fn failed(action: &'static str, path: &str) -> impl FnOnce(Refused) -> ProgramError {
    let path = path.to_owned();
    move |source| ProgramError::Refused { action, path, source }
}

impl Directory {
    /// How new files in it are laid out: `None` is whole, on their creator's node.
    ///
    /// # Errors
    /// When the server refuses.
    pub fn set_policy(
        &self,
        policy: Option<hayase_layout::StripePolicy>,
    ) -> Result<(), ProgramError> {
        let change = MetaChange { policy: Some(policy), ..MetaChange::default() };
        let set = self.volume.set_attributes(self.ino, &change).map(drop);
        set.map_err(failed("set the layout of", &self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::FakeServer;
    use crate::testing::server::Parts;

    fn program(directory: &tempfile::TempDir, parts: Parts) -> Program {
        let server = Arc::new(FakeServer::new(directory.path().to_owned(), parts));
        let volume = AreaVolume::new(server, AreaSettings::program()).unwrap();
        Program { volume: Arc::new(volume) }
    }

    const READ: OpenOptions = OpenOptions {
        read: true,
        write: false,
        create: false,
        exclusive: false,
        truncate: false,
        mode: 0,
    };

    #[test]
    fn files_by_path() {
        for parts in [Parts::Here, Parts::Elsewhere] {
            let directory = tempfile::tempdir().unwrap();
            let program = program(&directory, parts);
            program.create_directory("a", 0o755).unwrap();
            program.create_directory("/a/b", 0o755).unwrap();
            let create = OpenOptions { write: true, create: true, mode: 0o644, ..READ };
            let file = program.open("a/b/file", create).unwrap();
            assert_eq!(file.write_at(b"hello world", 0).unwrap(), 11);
            assert_eq!(file.append(b"!").unwrap(), 1);
            let mut bytes = [0; 32];
            assert_eq!(file.read_at(&mut bytes, 6).unwrap(), 6);
            assert_eq!(&bytes[..6], b"world!");
            assert_eq!(file.attributes().unwrap().size, 12);
            drop(file);
            assert_eq!(program.stat("a/../a/./b/file").unwrap().size, 12);
            let names = program.directory("a/b").unwrap().list().unwrap();
            assert_eq!(names.iter().map(|entry| &entry.name[..]).collect::<Vec<_>>(), [b"file"]);

            let exclusive = OpenOptions { exclusive: true, ..create };
            let error = program.open("a/b/file", exclusive).unwrap_err();
            assert_eq!(
                (error.errno(), error.to_string().as_str()),
                (libc::EEXIST, "open a/b/file")
            );
            let truncate = OpenOptions { truncate: true, write: true, ..READ };
            drop(program.open("a/b/file", truncate).unwrap());
            assert_eq!(program.stat("a/b/file").unwrap().size, 0);

            program.rename("a/b/file", "a/moved").unwrap();
            assert_eq!(program.stat("a/b/file").unwrap_err().errno(), libc::ENOENT);
            assert_eq!(program.remove_directory("a").unwrap_err().errno(), libc::ENOTEMPTY);
            program.remove("a/moved").unwrap();
            program.remove_directory("a/b").unwrap();
        }
    }
}
