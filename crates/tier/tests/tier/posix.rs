//! What only a directory can meet: links, pipes, full disks, files of others, killed writers.

use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

use hayase_tier::{
    Attributes, Depth, EntryKind, Key, ListRequest, Owner, Posix, Precondition, Tier, TierError,
};

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

fn put(tier: &Posix, name: &str, bytes: &[u8]) -> Result<(), TierError> {
    let mut upload = tier.begin(&key(name), Attributes::default())?;
    upload.write_at(0, bytes)?;
    upload.commit(Precondition::Any).map(drop)
}

#[test]
fn what_is_no_object_is_shown_refused_and_left_alone() {
    let around = tempfile::tempdir().unwrap();
    let root = around.path().join("root");
    std::fs::create_dir_all(root.join("dir")).unwrap();
    std::fs::write(around.path().join("secret"), "outside").unwrap();
    symlink("../secret", root.join("link")).unwrap();
    symlink("..", root.join("up")).unwrap();
    rustix::fs::mkfifoat(
        rustix::fs::CWD,
        root.join("pipe"),
        rustix::fs::Mode::from_raw_mode(0o644),
    )
    .unwrap();
    let tier = Posix::attach(&root).unwrap();
    for name in ["link", "up/secret", "pipe", "dir"] {
        let refused = |answer: Result<(), TierError>| {
            assert!(matches!(answer, Err(TierError::NotObject { .. })), "{name}: {answer:?}");
        };
        refused(tier.stat(&key(name)).map(drop));
        refused(tier.open(&key(name)).map(drop));
        refused(tier.delete(&key(name)));
        refused(tier.set_attributes(&key(name), Attributes::default()));
        refused(put(&tier, name, b"replaced"));
    }
    assert_eq!(std::fs::read(around.path().join("secret")).unwrap(), b"outside");
    assert!(root.join("link").is_symlink() && root.join("pipe").exists());

    let all = tier.list(&ListRequest::all("")).unwrap().entries;
    let others: Vec<_> = all
        .iter()
        .filter_map(|entry| match entry.kind {
            EntryKind::Other(why) => Some((String::from_utf8_lossy(&entry.name), why)),
            EntryKind::Object(_) | EntryKind::Directory => None,
        })
        .collect();
    assert_eq!(others.len(), 3, "{all:?}");
    assert_eq!(others[0], ("link".into(), "it is a symbolic link, and links are not followed"));
    assert_eq!(others[1], ("pipe".into(), "it is a pipe"));
}

#[test]
fn attaching_says_what_is_wrong() {
    let root = tempfile::tempdir().unwrap();
    let missing = Posix::attach(&root.path().join("no")).unwrap_err();
    assert!(matches!(missing, TierError::Missing { .. }), "{missing}");
    assert!(missing.to_string().starts_with("open /"), "{missing}");
    std::fs::write(root.path().join("file"), "").unwrap();
    let file = Posix::attach(&root.path().join("file")).unwrap_err();
    assert!(matches!(file, TierError::NotObject { .. }), "{file}");
}

#[test]
fn a_killed_writer_leaves_nothing_that_is_seen_and_sweep_removes_it() {
    let root = tempfile::tempdir().unwrap();
    let tier = Posix::attach(root.path()).unwrap();
    put(&tier, "d/whole", b"whole").unwrap();
    std::fs::write(root.path().join("d/.hayase-partial-0123456789abcdef"), "half").unwrap();
    assert_eq!(tier.list(&ListRequest::all("")).unwrap().entries.len(), 1);
    let later = SystemTime::now() + Duration::from_secs(60);
    assert_eq!(tier.sweep(b"", SystemTime::now() - Duration::from_secs(3600)).unwrap(), 0);
    assert_eq!(tier.sweep(b"", later).unwrap(), 1);
    let left: Vec<_> = std::fs::read_dir(root.path().join("d")).unwrap().collect();
    assert_eq!(left.len(), 1);
}

#[test]
fn an_owner_removes_what_its_killed_writer_left_and_nothing_else() {
    let root = tempfile::tempdir().unwrap();
    let attach =
        |owner: &str| Posix::attach_owned(root.path(), &Owner::new(owner).unwrap()).unwrap();
    let begin = |tier: &Posix, path| {
        let mut upload = tier.begin(&key(path), Attributes::default()).unwrap();
        upload.write_at(0, b"half").unwrap();
        upload
    };
    let (killed, other, nobody) =
        (attach("job-1"), attach("job-12"), Posix::attach(root.path()).unwrap());
    // Never dropped, as by kill -9.
    for (tier, path) in [(&killed, "d/f"), (&killed, "top"), (&other, "d/f"), (&nobody, "d/f")] {
        std::mem::forget(begin(tier, path));
    }
    let again = attach("job-1");
    assert!(again.capabilities().owned && !nobody.capabilities().owned);
    let going = begin(&again, "d/g");
    put(&again, "d/whole", b"whole").unwrap();
    assert_eq!(again.sweep_own(b"d").unwrap(), 1);
    assert_eq!(again.sweep_own(b"d").unwrap(), 0);
    assert_eq!(again.sweep_own(b"").unwrap(), 1);
    assert_eq!(again.sweep_own(b"not/there").unwrap(), 0);
    assert_eq!(nobody.sweep_own(b"d").unwrap(), 0);
    going.commit(Precondition::Any).unwrap();
    assert_eq!(again.list(&ListRequest::all("")).unwrap().entries.len(), 2);
    // Those of the other one, of nobody, and the two whole files.
    assert_eq!(std::fs::read_dir(root.path().join("d")).unwrap().count(), 4);
}

#[test]
fn a_commit_by_link_that_was_cut_off_keeps_its_identity() {
    let root = tempfile::tempdir().unwrap();
    let owner = Owner::new("job-1").unwrap();
    let attach = || Posix::attach_owned(root.path(), &owner).unwrap();
    std::mem::forget(attach().begin(&key("f"), Attributes::default()).unwrap());
    let temporary = std::fs::read_dir(root.path()).unwrap().next().unwrap().unwrap().path();
    std::fs::hard_link(temporary, root.path().join("f")).unwrap();
    let tier = attach();
    let before = tier.stat(&key("f")).unwrap();
    assert_eq!(tier.sweep_own(b"").unwrap(), 0);
    assert_eq!(tier.stat(&key("f")).unwrap(), before);
}

#[test]
fn a_new_version_is_closed_to_others_until_its_mode_is_set() {
    let root = tempfile::tempdir().unwrap();
    let tier = Posix::attach(root.path()).unwrap();
    let attributes = Attributes { mode: Some(0o604), mtime: None };
    let upload = tier.begin(&key("private"), attributes).unwrap();
    let temporary = std::fs::read_dir(root.path()).unwrap().next().unwrap().unwrap();
    assert_eq!(temporary.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    upload.commit(Precondition::Any).unwrap();
    let mode = std::fs::metadata(root.path().join("private")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o604);
}

#[test]
fn hard_links_of_one_file_rename_to_one_name() {
    let root = tempfile::tempdir().unwrap();
    let tier = Posix::attach(root.path()).unwrap();
    put(&tier, "a", b"one file").unwrap();
    std::fs::hard_link(root.path().join("a"), root.path().join("b")).unwrap();
    tier.rename(&key("a"), &key("b")).unwrap();
    assert!(!root.path().join("a").exists());
    assert_eq!(std::fs::read(root.path().join("b")).unwrap(), b"one file");
    assert_eq!(std::fs::metadata(root.path().join("b")).unwrap().nlink(), 1);
}

#[test]
fn a_change_behind_our_back_changes_the_identity() {
    let root = tempfile::tempdir().unwrap();
    let tier = Posix::attach(root.path()).unwrap();
    put(&tier, "f", b"ours").unwrap();
    let before = tier.stat(&key("f")).unwrap();
    let mut file = std::fs::OpenOptions::new().append(true).open(root.path().join("f")).unwrap();
    file.write_all(b" and theirs").unwrap();
    assert_ne!(tier.stat(&key("f")).unwrap().identity, before.identity);
}

#[test]
fn a_deep_tree_needs_few_descriptors() {
    let root = tempfile::tempdir().unwrap();
    let tier = Posix::attach(root.path()).unwrap();
    let deep = "d/".repeat(1500) + "end";
    let bottom = root.path().join("d/".repeat(1500));
    std::fs::create_dir_all(&bottom).unwrap();
    std::fs::write(bottom.join("end"), b"bottom").unwrap();
    let page = tier.list(&ListRequest::all("")).unwrap();
    assert_eq!(page.entries.len(), 1);
    assert_eq!(page.entries[0].name, deep.as_bytes());
    tier.delete(&key(&deep)).unwrap();
}

/// A file system of 1 MiB that is unmounted when the value goes.
struct SmallMount<'a>(&'a Path);

impl<'a> SmallMount<'a> {
    /// `None`, said aloud, where mounting is not allowed.
    #[expect(clippy::print_stdout, reason = "test.sh collects these lines")]
    fn new(at: &'a Path) -> Option<Self> {
        let none = rustix::mount::MountFlags::empty();
        match rustix::mount::mount("none", at, "tmpfs", none, Some(c"size=1m,nr_inodes=64")) {
            Ok(()) => Some(Self(at)),
            Err(errno) => {
                println!("SKIP tier full disk: mounting a small tmpfs: {errno}");
                None
            }
        }
    }
}

impl Drop for SmallMount<'_> {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

#[test]
fn a_full_disk_is_said_at_the_write_and_replaces_nothing() {
    let root = tempfile::tempdir().unwrap();
    let Some(mount) = SmallMount::new(root.path()) else { return };
    let tier = Posix::attach(root.path()).unwrap();
    put(&tier, "f", &vec![1; 600_000]).unwrap();
    let full = put(&tier, "f", &vec![2; 600_000]).unwrap_err();
    assert!(matches!(full, TierError::Full { .. }), "{full}");
    assert!(full.to_string().contains(root.path().to_str().unwrap()), "{full}");
    assert!(full.help().is_some() && full.is_transient());
    assert_eq!(std::fs::read(root.path().join("f")).unwrap(), vec![1; 600_000]);
    put(&tier, "small", b"the half written version gave its space back").unwrap();
    let inodes = (0..100).find_map(|n| put(&tier, &format!("n/{n}"), b"").err());
    assert!(matches!(inodes, Some(TierError::Full { .. })), "{inodes:?}");
    drop(tier);
    drop(mount);
}

#[test]
fn one_level_shows_empty_directories() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(root.path().join("empty/er")).unwrap();
    let tier = Posix::attach(root.path()).unwrap();
    let request = ListRequest { depth: Depth::One, ..ListRequest::all("") };
    let page = tier.list(&request).unwrap();
    assert_eq!(page.entries.len(), 1);
    assert_eq!(page.entries[0].name, b"empty/");
    assert_eq!(tier.list(&ListRequest::all("")).unwrap().entries, []);
}
