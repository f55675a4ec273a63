//! Whole transfers: between directories and a store without a tree, loose, packed and sealed; and what
//! happens when something goes wrong.

mod broken;
mod bucket;
mod faults;
mod form;
mod gone;
mod inside;
mod many;
mod memory;
mod on_the_way;
mod proxy;
mod resume;
mod rules;
mod shares;
mod throttling;
mod trees;

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use hayase_stage::pack::writer::Compression;
use hayase_stage::pack::{MasterKey, PackError};
use hayase_stage::progress::Silent;
use hayase_stage::source::Source;
use hayase_stage::{Mtime, Options, PackOptions, Place, Progress, Streams, Summary, transfer};
use hayase_tier::{Memory, Posix, Tier};
use ring::rand::SystemRandom;

fn directory(path: &Path) -> Place {
    Place::root(Arc::new(Posix::attach(path).unwrap()))
}

fn store() -> Place {
    Place::root(Arc::new(Memory::flat()))
}

fn of(tier: impl Tier + 'static) -> Place {
    Place::root(Arc::new(tier))
}

fn master() -> MasterKey {
    MasterKey::parse(&[7; 32]).unwrap()
}

fn packs(bytes: u64, compression: Compression, master: Option<MasterKey>) -> Options {
    let packs = PackOptions { bytes, compression, master, ..PackOptions::default() };
    Options { packs: Some(packs), ..Options::default() }
}

fn try_copy(
    from: &Place,
    to: &Place,
    master: Option<&MasterKey>,
    options: &Options,
) -> Result<Summary, PackError> {
    let source = Source::open(from.clone(), master)?;
    transfer(&source, to, options, &Progress::default(), &Silent, &SystemRandom::new())
}

/// A transfer that can be begun.
fn copy(from: &Place, to: &Place, options: &Options) -> Summary {
    try_copy(from, to, None, options).unwrap()
}

/// A transfer that must arrive whole.
#[track_caller]
fn copy_all(from: &Place, to: &Place, options: &Options) -> Summary {
    let summary = copy(from, to, options);
    assert!(summary.is_complete(), "{summary:?}");
    summary
}

/// Kind, mode, time and contents of everything below a directory, by relative name.
fn snapshot(top: &Path) -> BTreeMap<Vec<u8>, (char, u32, Mtime, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![top.to_path_buf()];
    while let Some(directory) = waiting.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(top).unwrap().as_os_str().as_bytes().to_vec();
            let meta = std::fs::symlink_metadata(&path).unwrap();
            let (mode, mtime) =
                (meta.permissions().mode() & 0o777, meta.modified().unwrap().into());
            let what = if meta.is_symlink() {
                let target = std::fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec();
                ('l', 0o777, Mtime::EPOCH, target)
            } else if meta.is_dir() {
                waiting.push(path.clone());
                ('d', mode, mtime, Vec::new())
            } else {
                ('f', mode, mtime, std::fs::read(&path).unwrap())
            };
            found.insert(name, what);
        }
    }
    found
}

#[track_caller]
fn assert_same(a: &Path, b: &Path) {
    let (a, b) = (snapshot(a), snapshot(b));
    let shown = |names: Vec<&Vec<u8>>| -> Vec<String> {
        names.into_iter().map(|name| name.escape_ascii().to_string()).collect()
    };
    let differ = a.iter().filter(|(name, what)| b.get(*name) != Some(what)).map(|(name, _)| name);
    assert_eq!(shown(differ.collect()), [""; 0], "differ");
    assert_eq!(shown(b.keys().filter(|name| !a.contains_key(*name)).collect()), [""; 0], "more");
}

/// `count` files of `bytes` bytes that all differ, in some directories.
fn fill(top: &Path, count: usize, bytes: usize) {
    for number in 0..count {
        let directory = top.join(format!("d{}", number % 3));
        std::fs::create_dir_all(&directory).unwrap();
        let data: Vec<u8> = (0..bytes).map(|at| (at * 31 + number * 7) as u8).collect();
        std::fs::write(directory.join(format!("f{number:04}")), data).unwrap();
    }
}

/// As [`fill`], and what is hard to keep: names, links, modes, times, empty directories.
fn fill_oddly(top: &Path) {
    fill(top, 30, 3000);
    let at = |name: &[u8]| top.join(std::ffi::OsStr::from_bytes(name));
    for name in [&b" "[..], b"-rf", b"a\nb", b"\xff\xfe", b"%41", b"x.zst", b"x", &[b'n'; 255]] {
        std::fs::write(at(name), name).unwrap();
    }
    std::fs::create_dir_all(at(b"empty/deeper")).unwrap();
    std::fs::create_dir_all(at(b"x.d")).unwrap();
    std::fs::write(at(b"x.d/y"), "").unwrap();
    std::os::unix::fs::symlink("x", at(b"link")).unwrap();
    std::os::unix::fs::symlink("/etc/../\u{e9} nowhere", at(b"dangling")).unwrap();
    let mode = |name: &[u8], mode| {
        std::fs::set_permissions(at(name), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(b"x", 0o600);
    mode(b"-rf", 0o755);
    mode(b"empty/deeper", 0o700);
    let old =
        std::time::SystemTime::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 123_456_789);
    std::fs::File::open(at(b"x")).unwrap().set_modified(old).unwrap();
    std::fs::File::open(at(b"empty")).unwrap().set_modified(old).unwrap();
}

/// A new directory with a tree in it, and one for the copy.
struct Trees {
    _top: tempfile::TempDir,
    from: std::path::PathBuf,
    to: std::path::PathBuf,
}

impl Trees {
    fn new(fill: impl FnOnce(&Path)) -> Self {
        let top = tempfile::tempdir().unwrap();
        let (from, to) = (top.path().join("from"), top.path().join("to"));
        std::fs::create_dir(&from).unwrap();
        std::fs::create_dir(&to).unwrap();
        fill(&from);
        Self { _top: top, from, to }
    }

    fn from(&self) -> Place {
        directory(&self.from)
    }

    fn to(&self) -> Place {
        directory(&self.to)
    }
}
