//! The process of a lane: takes requests from its socket, calls libgfarm, answers, until the socket ends.
//!
//! Files that are open when it ends are closed by Gfarm's servers, which see the connection end.

use std::collections::HashMap;
use std::ffi::CString;
use std::io;
use std::ops::ControlFlow::{Break, Continue};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::{Answer, Kind, Request, SetTime, Stat, Time, frame};
use crate::gfarm::error::{self, Aim, code};
use crate::gfarm::library::{self, Failure, File, Library, TimeSet, Use};
use crate::timestamp::seconds_and_nanos;

/// Serves requests about files of one Gfarm until the other end closes.
///
/// # Errors
/// What the socket says; errors of Gfarm are answers.
pub fn serve(socket: &UnixStream) -> io::Result<()> {
    let mut serving = Serving::default();
    serve_by(socket, |request, bytes| {
        let aim = aim(&request);
        serving.answer(request, &bytes).unwrap_or_else(|failure| {
            let errno = match failure.code {
                -1 => libc::EIO,
                number => error::errno(number, aim),
            };
            let broken = error::is_broken(failure.code);
            Answer::Failed { errno, text: failure.text, broken }.into()
        })
    })
}

/// The same with answers of somebody else's, who is given the bytes behind each request.
///
/// # Errors
/// What the socket says.
pub fn serve_by(
    socket: &UnixStream,
    mut answer: impl FnMut(Request, Vec<u8>) -> Reply,
) -> io::Result<()> {
    while let Some((request, bytes, _)) = frame::receive::<Request>(socket, None)? {
        let reply = answer(request, bytes);
        let descriptor = reply.descriptor.as_ref().map(AsFd::as_fd);
        frame::send(socket, &reply.answer, &reply.bytes, descriptor, None)?;
    }
    Ok(())
}

/// What a host that is gone means for a request.
fn aim(request: &Request) -> Aim {
    match request {
        Request::Create { .. } | Request::Open { truncate: true, .. } | Request::Write { .. } => {
            Aim::Room
        }
        Request::Xattr { .. } | Request::SetXattr { .. } | Request::RemoveXattr { .. } => {
            Aim::Attribute
        }
        Request::Open { .. }
        | Request::Read { .. }
        | Request::Truncate { .. }
        | Request::Sync { .. }
        | Request::Close { .. } => Aim::Bytes,
        _ => Aim::Names,
    }
}

#[derive(Default)]
struct Serving {
    files: HashMap<u64, Held>,
    opened: u64,
    own_host: OwnHost,
}

/// An open file.
struct Held {
    file: File,
    /// A file server was chosen for its bytes.
    is_placed: bool,
}

impl Held {
    /// For what needs a place.
    fn placed(&mut self, own: Option<&CString>) -> Result<&File, Failure> {
        if !self.is_placed {
            place_new(&self.file, own)?;
            self.is_placed = true;
        }
        Ok(&self.file)
    }
}

/// This host as Gfarm calls it, and when it was last asked for. A file server may come up after its mounts.
#[derive(Default)]
struct OwnHost {
    name: Option<CString>,
    asked: Option<Instant>,
}

/// What a host is called is asked again after this long where Gfarm knew none: the resolver may be slow.
const ASKED_AGAIN: Duration = Duration::from_secs(20);

/// An answer, and what travels with it.
#[derive(Debug)]
pub struct Reply {
    /// The answer.
    pub answer: Answer,
    /// Behind it.
    pub bytes: Vec<u8>,
    /// Beside it.
    pub descriptor: Option<OwnedFd>,
}

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Self {
        Self { answer, bytes: Vec::new(), descriptor: None }
    }
}

impl From<()> for Reply {
    fn from((): ()) -> Self {
        Answer::Done.into()
    }
}

impl From<Vec<u8>> for Reply {
    fn from(bytes: Vec<u8>) -> Self {
        Self { bytes, ..Answer::Bytes.into() }
    }
}

impl Serving {
    fn answer(&mut self, request: Request, bytes: &[u8]) -> Result<Reply, Failure> {
        let library = Library::get().map_err(|why| fault(format!("{why:?}")))?;
        match request {
            Request::Create { path, mode, place, like } => {
                self.create(library, &path, mode, place, like)
            }
            Request::Open { path, write, truncate } => self.open(library, &path, write, truncate),
            Request::Read { file, offset, len } => {
                let mut bytes = vec![0; len as usize];
                let got = self.file(file)?.read_at(offset, &mut bytes)?;
                bytes.truncate(got);
                Ok(bytes.into())
            }
            Request::Write { file, offset } => Ok(self.file(file)?.write_at(offset, bytes)?.into()),
            Request::Truncate { file, len } => Ok(self.file(file)?.truncate(len)?.into()),
            Request::Sync { file } => Ok(self.file(file)?.sync()?.into()),
            Request::Close { file, len } => {
                let mut held = self.files.remove(&file).ok_or_else(not_open)?;
                if let Some(len) = len {
                    held.placed(self.own_host.name.as_ref())?.truncate(len)?;
                }
                Ok(held.file.close()?.into())
            }
            request => self.named(library, request, bytes),
        }
    }

    /// What is about names alone.
    fn named(
        &mut self,
        library: &Library,
        request: Request,
        bytes: &[u8],
    ) -> Result<Reply, Failure> {
        Ok(match request {
            Request::Stat { path } => {
                let path = text(path)?;
                self.own_host(library, &path);
                Answer::Stat(stat(&library.lstat(&path)?)).into()
            }
            Request::List { path, most } => {
                let mut entries = Vec::new();
                library.names(&text(path)?, &mut |name, found| {
                    entries.push((name.to_vec(), stat(found)));
                    if entries.len() < most { Continue(()) } else { Break(()) }
                })?;
                Answer::Entries(entries).into()
            }
            Request::ReadLink { path } => library.readlink(&text(path)?)?.into(),
            Request::MakeDirectory { path, mode } => library.mkdir(&text(path)?, mode)?.into(),
            Request::RemoveDirectory { path } => library.rmdir(&text(path)?)?.into(),
            Request::Unlink { path } => library.unlink(&text(path)?)?.into(),
            Request::Rename { from, to } => library.rename(&text(from)?, &text(to)?)?.into(),
            Request::Link { from, to } => library.link(&text(from)?, &text(to)?)?.into(),
            Request::Symlink { target, path } => {
                library.symlink(&text(target)?, &text(path)?)?.into()
            }
            Request::SetMode { path, mode } => library.set_mode(&text(path)?, mode)?.into(),
            Request::SetTimes { path, atime, mtime } => {
                library.set_times(&text(path)?, time_set(atime), time_set(mtime))?.into()
            }
            Request::SetOwner { path, uid, gid } => {
                let path = text(path)?;
                self.own_host(library, &path);
                library.set_owner(&path, uid, gid)?.into()
            }
            Request::Xattr { path, name } => library.xattr(&text(path)?, &text(name)?)?.into(),
            Request::SetXattr { path, name, flags } => {
                library.set_xattr_if(&text(path)?, &text(name)?, bytes, flags)?.into()
            }
            Request::Xattrs { path } => library.xattr_names(&text(path)?)?.into(),
            Request::RemoveXattr { path, name } => {
                library.remove_xattr(&text(path)?, &text(name)?)?.into()
            }
            Request::Room { path } => {
                let room = library.room(&text(path)?)?;
                Answer::Room { used: room.used, free: room.free, files: room.files }.into()
            }
            _ => return Err(fault("a request about a file, asked of names".to_owned())),
        })
    }

    fn create(
        &mut self,
        library: &'static Library,
        path: &[u8],
        mode: u32,
        place: bool,
        like: Option<Stat>,
    ) -> Result<Reply, Failure> {
        let path = text(path.to_vec())?;
        let own = self.own_host(library, &path);
        let (file, library::Made { ino, generation }) =
            library.create_for(&path, mode, Use::Both)?;
        let attributes = || match like {
            Some(like) => Ok(Stat { ino, generation, ..like }),
            None => file.stat().map(|found| stat(&found)),
        };
        let placed = match place {
            true => place_new(&file, own.as_ref()),
            false => Ok(None),
        };
        // What stays without the place that it needs must not stay at all.
        match placed.and_then(|here| Ok((here, attributes()?))) {
            Ok((descriptor, stat)) => {
                Ok(self.keep(Held { file, is_placed: place }, stat, descriptor))
            }
            Err(failure) => {
                drop(file);
                let _ = library.unlink(&path);
                Err(failure)
            }
        }
    }

    fn open(
        &mut self,
        library: &'static Library,
        path: &[u8],
        write: bool,
        truncate: bool,
    ) -> Result<Reply, Failure> {
        let path = text(path.to_vec())?;
        let own = self.own_host(library, &path);
        let file = match write {
            false => library.open_for(&path, Use::Read, truncate)?,
            true => match library.open_for(&path, Use::Both, truncate) {
                // It may be written and not read.
                Err(failure) if failure.code == code::DENIED => {
                    library.open_for(&path, Use::Write, truncate)?
                }
                file => file?,
            },
        };
        let stat = file.stat()?;
        let descriptor = match (stat.size, write) {
            (0, false) => None, // a file without bytes may lie nowhere
            (0, true) => place_new(&file, own.as_ref())?,
            _ => place_where_it_is(library, &file, &path, own.as_ref())?,
        };
        Ok(self.keep(Held { file, is_placed: true }, self::stat(&stat), descriptor))
    }

    fn keep(&mut self, held: Held, stat: Stat, descriptor: Option<OwnedFd>) -> Reply {
        self.opened += 1;
        self.files.insert(self.opened, held);
        let answer = Answer::Opened { file: self.opened, stat };
        Reply { descriptor, ..answer.into() }
    }

    /// For a call about its bytes, which need a place.
    fn file(&mut self, number: u64) -> Result<&File, Failure> {
        let held = self.files.get_mut(&number).ok_or_else(not_open)?;
        held.placed(self.own_host.name.as_ref())
    }

    /// Also lets the library know under which name this process is known.
    fn own_host(&mut self, library: &Library, path: &std::ffi::CStr) -> Option<CString> {
        let own = &mut self.own_host;
        if own.name.is_none() && own.asked.is_none_or(|when| when.elapsed() > ASKED_AGAIN) {
            // Out of reach now: asked again with the next request.
            if let Ok(name) = library.own_host(path) {
                *own = OwnHost { name, asked: Some(Instant::now()) };
            }
        }
        own.name.clone()
    }
}

/// Bytes that are still to come: on this host, else where Gfarm likes.
fn place_new(file: &File, own: Option<&CString>) -> Result<Option<OwnedFd>, Failure> {
    if own.is_none_or(|own| file.place(Some(own)).is_err()) {
        file.place(None)?;
    }
    file.descriptor()
}

/// Bytes that are there: the copy on this host, else the one that Gfarm likes.
fn place_where_it_is(
    library: &Library,
    file: &File,
    path: &CString,
    own: Option<&CString>,
) -> Result<Option<OwnedFd>, Failure> {
    if let Some(own) = own {
        // Renamed or removed since it was opened: then any copy does.
        let hosts = library.replicas(path).unwrap_or_default();
        let is_here = hosts.iter().any(|host| host.as_bytes() == own.as_bytes());
        if is_here && file.place(Some(own)).is_ok() {
            return file.descriptor();
        }
    }
    file.place(None)?;
    file.descriptor()
}

fn stat(found: &library::Stat) -> Stat {
    let time = |time| -> Time { seconds_and_nanos(time) };
    Stat {
        ino: found.ino,
        generation: found.generation,
        kind: match found.kind {
            library::Kind::File => Kind::File,
            library::Kind::Directory => Kind::Directory,
            library::Kind::Link => Kind::Link,
        },
        mode: found.mode,
        nlink: found.nlink,
        uid: found.uid,
        gid: found.gid,
        size: found.size,
        atime: time(found.atime),
        mtime: time(found.mtime),
        ctime: time(found.ctime),
    }
}

fn time_set(time: SetTime) -> TimeSet {
    match time {
        SetTime::Keep => TimeSet::Keep,
        SetTime::Now => TimeSet::Now,
        SetTime::To((seconds, nanos)) => TimeSet::To(seconds, nanos),
    }
}

fn text(bytes: Vec<u8>) -> Result<CString, Failure> {
    CString::new(bytes).map_err(|_| fault("a name holds a NUL byte".to_owned()))
}

fn fault(text: String) -> Failure {
    Failure { code: -1, text }
}

fn not_open() -> Failure {
    Failure { code: code::BAD_DESCRIPTOR, text: "the file is not open here".to_owned() }
}
