//! A Gfarm in memory, behind real lanes, and a kernel that notes what it is told to drop.
//!
//! An open that only reads has a copy of its own, as it was when it was opened; all that write have the file itself.
//! So whoever reads from an old open gets old bytes.

use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use hayase_layout::InodeId;
use hayase_tier::gfarm_lane::{Answer, Kind, Lanes, Reply, Request, Stat, Time, serve_by};
use hayase_wire::message::{Access, Refused};

use super::GfarmVolume;
use crate::open_file::Serving;
use crate::testing::new_file;
use crate::volume::{Drops, FileOpen, KernelCaches, OpenWish, Volume};

/// Never runs out.
const PATIENCE: Duration = Duration::from_secs(600);

pub(super) const READ: Access = Access { read: true, write: false };
pub(super) const WRITE: Access = Access { read: true, write: true };

/// What happens elsewhere when a request comes.
type Before = Box<dyn FnMut(&Request, &mut Files) + Send>;

/// What happens before an answer that is made already leaves.
type Leaves = Arc<dyn Fn(&Request) + Send + Sync>;

#[derive(Default)]
pub(super) struct Fake {
    files: Mutex<Files>,
    asked: Mutex<Vec<Request>>,
    dropped: Mutex<Vec<Drops>>,
    before: Mutex<Option<Before>>,
    leaves: Mutex<Option<Leaves>>,
}

/// What Gfarm knows.
#[derive(Default)]
pub(super) struct Files {
    names: HashMap<Vec<u8>, u64>,
    inodes: HashMap<u64, File>,
    opens: HashMap<u64, Open>,
    numbers: u64,
    /// When a file is made, and whose it is then.
    pub(super) clock: Time,
    pub(super) owner: (u32, u32),
}

struct File {
    stat: Stat,
    bytes: Vec<u8>,
    attributes: HashMap<Vec<u8>, Vec<u8>>,
}

struct Open {
    ino: u64,
    /// What one that only reads has.
    copy: Option<Vec<u8>>,
}

impl KernelCaches for Fake {
    fn invalidate(&self, _ino: InodeId, drops: Drops) {
        self.dropped.lock().unwrap().push(drops);
    }

    fn forget_name(&self, _parent: InodeId, _name: &[u8], _wait: Duration) {}

    fn release_descriptor(&self, _ino: InodeId) {}
}

impl Fake {
    /// A mount of it.
    pub(super) fn mount() -> (Arc<Self>, GfarmVolume) {
        let fake = Arc::new(Self::default());
        fake.files().add(b"/", Kind::Directory, b"");
        let theirs = Arc::clone(&fake);
        let spawn = move |socket: UnixStream| {
            let fake = Arc::clone(&theirs);
            std::thread::spawn(move || {
                serve_by(&socket, |request, bytes| fake.serve(&request, &bytes))
            });
            Command::new("sleep").arg("100").stdin(Stdio::null()).spawn()
        };
        let volume = GfarmVolume::new(Lanes::new(Box::new(spawn), PATIENCE), b"/").unwrap();
        volume.attach(Arc::clone(&fake) as Arc<dyn KernelCaches>);
        (fake, volume)
    }

    /// As another host sees it, and changes it.
    pub(super) fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap()
    }

    pub(super) fn before(&self, step: impl FnMut(&Request, &mut Files) + Send + 'static) {
        *self.before.lock().unwrap() = Some(Box::new(step));
    }

    /// The answers to other requests do not wait for `step`, but for those on the same lane.
    pub(super) fn leaves(&self, step: impl Fn(&Request) + Send + Sync + 'static) {
        *self.leaves.lock().unwrap() = Some(Arc::new(step));
    }

    /// How many were asked since the last time.
    pub(super) fn asked(&self, is_meant: impl Fn(&Request) -> bool) -> usize {
        let asked = std::mem::take(&mut *self.asked.lock().unwrap());
        asked.iter().filter(|request| is_meant(request)).count()
    }

    /// Whether pages were to be dropped since the last time.
    pub(super) fn pages_were_dropped(&self) -> bool {
        std::mem::take(&mut *self.dropped.lock().unwrap()).contains(&Drops::Pages)
    }

    fn serve(&self, request: &Request, bytes: &[u8]) -> Reply {
        self.asked.lock().unwrap().push(request.clone());
        let mut files = self.files();
        if let Some(before) = &mut *self.before.lock().unwrap() {
            before(request, &mut files);
        }
        let answer = files.answer(request, bytes).unwrap_or_else(|errno| {
            Answer::Failed { errno, text: request.to_string(), broken: false }.into()
        });
        drop(files);
        let leaves = self.leaves.lock().unwrap().clone();
        if let Some(leaves) = leaves {
            leaves(request);
        }
        answer
    }
}

/// Of something new, empty.
pub(super) fn stat(ino: u64, kind: Kind) -> Stat {
    let time = (0, 0);
    let (atime, mtime, ctime) = (time, time, time);
    let (generation, mode, nlink, uid, gid, size) = (1, 0o644, 1, 0, 0, 0);
    Stat { ino, generation, kind, mode, nlink, uid, gid, size, atime, mtime, ctime }
}

impl Files {
    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn add(&mut self, path: &[u8], kind: Kind, bytes: &[u8]) {
        let ino = 100 + self.number();
        let (size, (uid, gid), time) = (bytes.len() as u64, self.owner, self.clock);
        let times = Stat { atime: time, mtime: time, ctime: time, ..stat(ino, kind) };
        let stat = Stat { size, uid, gid, ..times };
        self.inodes.insert(ino, File { stat, bytes: bytes.into(), attributes: HashMap::new() });
        self.names.insert(path.into(), ino);
    }

    fn list(&self, directory: &[u8]) -> Vec<(Vec<u8>, Stat)> {
        let names = self.names.iter().filter_map(|(path, ino)| {
            let name = path.strip_prefix(directory)?;
            let name = name.strip_prefix(b"/").unwrap_or(name);
            let is_here = !name.is_empty() && !name.contains(&b'/');
            is_here.then(|| (name.to_vec(), self.inodes[ino].stat))
        });
        names.collect()
    }

    fn ino(&self, path: &[u8]) -> Result<u64, i32> {
        self.names.get(path).copied().ok_or(libc::ENOENT)
    }

    fn file(&mut self, path: &[u8]) -> Result<&mut File, i32> {
        let ino = self.ino(path)?;
        self.inodes.get_mut(&ino).ok_or(libc::ENOENT)
    }

    fn opened(&mut self, file: u64) -> Result<&mut File, i32> {
        let open = self.opens.get(&file).filter(|open| open.copy.is_none()).ok_or(libc::EBADF)?;
        self.inodes.get_mut(&open.ino).ok_or(libc::EBADF)
    }

    pub(super) fn stat(&mut self, path: &str) -> Stat {
        self.file(path.as_bytes()).unwrap().stat
    }

    pub(super) fn attribute(&mut self, path: &str, name: &[u8]) -> Option<Vec<u8>> {
        self.file(path.as_bytes()).unwrap().attributes.get(name).cloned()
    }

    /// The file is another one now.
    pub(super) fn replace(&mut self, path: &str, bytes: &[u8]) {
        let _ = self.unlink(path.as_bytes());
        self.add(path.as_bytes(), Kind::File, bytes);
    }

    pub(super) fn write(&mut self, path: &str, bytes: &[u8]) {
        self.file(path.as_bytes()).unwrap().set(|file| *file = bytes.to_vec());
    }

    pub(super) fn link(&mut self, from: &[u8], to: &[u8]) -> Result<(), i32> {
        self.file(from)?.stat.nlink += 1;
        let ino = self.ino(from)?;
        self.names.insert(to.into(), ino);
        Ok(())
    }

    pub(super) fn unlink(&mut self, path: &[u8]) -> Result<(), i32> {
        self.file(path)?.stat.nlink -= 1;
        self.names.remove(path);
        self.forget();
        Ok(())
    }

    /// What has no name and is not open is no more.
    fn forget(&mut self) {
        let opens = &self.opens;
        self.inodes
            .retain(|ino, file| file.stat.nlink > 0 || opens.values().any(|open| open.ino == *ino));
    }

    pub(super) fn opens(&self) -> usize {
        self.opens.len()
    }

    fn answer(&mut self, request: &Request, bytes: &[u8]) -> Result<Reply, i32> {
        match request {
            Request::Stat { path } => return Ok(Answer::Stat(self.file(path)?.stat).into()),
            Request::List { path, most } => {
                let entries = self.list(path).into_iter().take(*most).collect();
                return Ok(Answer::Entries(entries).into());
            }
            Request::Open { path, write, truncate } => {
                if *truncate {
                    self.file(path)?.set(Vec::clear);
                }
                return self.open(path, *write, None);
            }
            Request::Create { path, like, .. } => {
                if self.ino(path).is_ok() {
                    return Err(libc::EEXIST);
                }
                self.add(path, Kind::File, b"");
                let time = self.clock;
                let root = &mut self.file(b"/")?.stat; // all tests make their files there
                (root.mtime, root.ctime) = (time, time);
                return self.open(path, true, *like);
            }
            Request::Read { file, offset, len } => {
                let open = self.opens.get(file).ok_or(libc::EBADF)?;
                let bytes = open.copy.as_ref().unwrap_or(&self.inodes[&open.ino].bytes);
                let bytes = bytes.get(*offset as usize..).unwrap_or_default();
                return Ok(bytes[..bytes.len().min(*len as usize)].to_vec().into());
            }
            Request::Write { file, offset } => self.opened(*file)?.set(|there| {
                let end = *offset as usize + bytes.len();
                there.resize(there.len().max(end), 0);
                there[*offset as usize..end].copy_from_slice(bytes);
            }),
            Request::Truncate { file, len } => {
                self.opened(*file)?.set(|there| there.resize(*len as usize, 0));
            }
            Request::Sync { file } => drop(self.opened(*file)?),
            Request::Close { file, .. } => {
                self.opens.remove(file).ok_or(libc::EBADF)?;
                self.forget();
            }
            Request::Unlink { path } => self.unlink(path)?,
            Request::Rename { from, to } => {
                let _ = self.unlink(to);
                let ino = self.names.remove(from).ok_or(libc::ENOENT)?;
                self.names.insert(to.clone(), ino);
            }
            Request::Link { from, to } => self.link(from, to)?,
            Request::SetMode { path, mode } => self.file(path)?.stat.mode = *mode,
            Request::SetOwner { path, uid, gid } => {
                let stat = &mut self.file(path)?.stat;
                (stat.uid, stat.gid) = (uid.unwrap_or(stat.uid), gid.unwrap_or(stat.gid));
            }
            Request::SetTimes { path, .. } => self.file(path)?.stat.mtime = (1_000_000, 0),
            Request::SetXattr { path, name, .. } => {
                self.file(path)?.attributes.insert(name.clone(), bytes.into());
            }
            Request::RemoveXattr { path, name } => {
                self.file(path)?.attributes.remove(name).ok_or(libc::ENODATA)?;
            }
            _ => return Err(libc::ENOSYS),
        }
        Ok(Answer::Done.into())
    }

    fn open(&mut self, path: &[u8], write: bool, like: Option<Stat>) -> Result<Reply, i32> {
        let (number, ino) = (self.number(), self.ino(path)?);
        let file = &self.inodes[&ino];
        let (stat, copy) = (file.stat, (!write).then(|| file.bytes.clone()));
        self.opens.insert(number, Open { ino, copy });
        let stat = like.map_or(stat, |like| Stat { ino, generation: stat.generation, ..like });
        Ok(Answer::Opened { file: number, stat }.into())
    }
}

impl File {
    fn set(&mut self, change: impl FnOnce(&mut Vec<u8>)) {
        change(&mut self.bytes);
        self.stat.size = self.bytes.len() as u64;
        self.stat.generation += 1;
    }
}

/// What the kernel asks of a mount, briefly.
impl GfarmVolume {
    pub(super) fn look(&self, name: &str) -> Result<InodeId, Refused> {
        self.lookup(InodeId::ROOT, name.as_bytes()).map(|found| found.attr.ino)
    }

    pub(super) fn open_it(&self, ino: InodeId, access: Access) -> Result<FileOpen, Refused> {
        let serving = Serving::Messages;
        self.open(ino, OpenWish { access, truncate: false, serving, uncached: false })
    }

    pub(super) fn create_it(&self, name: &str, access: Access) -> Result<InodeId, Refused> {
        let serving = Serving::Messages;
        let wish = OpenWish { access, truncate: false, serving, uncached: false };
        self.create(new_file(name), wish).map(|(found, _)| found.attr.ino)
    }

    pub(super) fn bytes(&self, ino: InodeId) -> Result<Vec<u8>, Refused> {
        let mut got = Vec::new();
        self.read(ino, 0, 1 << 20, &mut |bytes| got.extend_from_slice(bytes))?;
        Ok(got)
    }

    pub(super) fn size(&self, ino: InodeId) -> u64 {
        self.attributes(ino).unwrap().attr.size
    }
}
