//! `hayase container` and `hayase mount`: containers made by the library, seen through the command.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use hayase_container::{Access, Container, ContainerFile, Creation, Durability, Identity, Write};
use hayase_layout::{
    ByteCount, Extent, GlobalOffset, NodeId, Rank, Run, StreamExtent, StreamOffset, View,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{PATIENCE, Scene, done};

/// Writers of a container, each with every `WRITERS`-th block.
const WRITERS: u64 = 4;
const BLOCK: u64 = 3000;

fn open(container: &Container, rank: u64) -> ContainerFile {
    let who = Identity {
        node: NodeId(0),
        process: 100 + rank as u32,
        opening: 0,
        rank: Rank(rank as u32),
    };
    ContainerFile::open(container.clone(), Access::ReadWrite, who, None).unwrap()
}

/// Writes `blocks` blocks of one writer through its view.
fn write(file: &ContainerFile, rank: u64, blocks: u64) {
    let block = Extent::new(GlobalOffset(rank * BLOCK), ByteCount(BLOCK)).unwrap();
    let run = Run::contiguous(block).unwrap();
    let view = View::new(GlobalOffset(0), ByteCount(WRITERS * BLOCK), &[run]).unwrap();
    let view = file.declare_view(&view);
    let window = StreamExtent::new(StreamOffset(0), ByteCount(blocks * BLOCK)).unwrap();
    let data: Vec<u8> = (0..blocks * BLOCK).map(|at| value(rank, at)).collect();
    file.write(Write::Through { view, window }, &data).unwrap();
}

/// Byte `at` of what a writer writes.
fn value(rank: u64, at: u64) -> u8 {
    ((at / 7 + rank * 31) % 253) as u8
}

/// What all of them make of the file.
fn expected(blocks: u64) -> Vec<u8> {
    let byte = |at: u64| {
        let (block, rank) = (at / BLOCK / WRITERS, at / BLOCK % WRITERS);
        value(rank, block * BLOCK + at % BLOCK)
    };
    (0..blocks * WRITERS * BLOCK).map(byte).collect()
}

/// `name` in `data`, written by all writers, closed.
fn container(scene: &Scene, name: &str, blocks: u64) -> PathBuf {
    fs::create_dir_all(scene.path("data")).unwrap();
    let path = scene.path("data").join(name);
    let container = Container::open(&path, Creation::Exclusive).unwrap();
    for rank in 0..WRITERS {
        let file = open(&container, rank);
        write(&file, rank, blocks);
        file.close(Durability::Written).unwrap();
    }
    path
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn json(told: &str) -> serde_json::Value {
    serde_json::from_str(told).unwrap()
}

#[test]
fn directories_are_marked_and_unmarked() {
    let scene = Scene::new();
    let data = scene.path("data");
    fs::create_dir(&data).unwrap();
    let enable = |more: &[&str]| {
        let told = scene.hayase(&[&["container", "enable", text(&data), "--json"], more].concat());
        json(&told.with(0).stdout)["changed"].as_bool().unwrap()
    };
    assert!(enable(&[]));
    assert!(!enable(&[]));
    assert!(data.join(".hayase-containers").exists());
    fs::create_dir(data.join("below")).unwrap();
    let show = scene.hayase(&["container", "show", text(&data.join("below"))]).with(0).stdout;
    assert!(show.contains("no containers") && show.contains("data is marked"), "{show}");
    assert!(enable(&["--off"]));
    assert!(!enable(&["--off"]));
    assert_eq!(fs::read_dir(&data).unwrap().count(), 1);
    let missing = text(&scene.path("missing")).to_owned();
    scene.hayase(&["container", "enable", &missing]).with(2).says(&["there is no container"]);
}

#[test]
fn containers_are_shown_exported_and_compacted() {
    let scene = Scene::new();
    let path = container(&scene, "a.out", 20);
    container(&scene, "b.out", 1);
    let data = text(&scene.path("data")).to_owned();
    let told = json(&scene.hayase(&["container", "show", &data, "--json"]).with(0).stdout);
    let containers = told["containers"].as_array().unwrap();
    assert_eq!(containers.len(), 2);
    assert_eq!(containers[0]["size"], 20 * WRITERS * BLOCK);
    assert_eq!((&containers[0]["writers"], &containers[0]["records"]), (&4.into(), &4.into()));
    let human = scene.hayase(&["container", "show", "--writers", text(&path)]).with(0).stdout;
    assert!(human.contains("a.out") && human.contains("node 0 process 101"), "{human}");

    let out = scene.path("flat");
    let export = ["container", "export", text(&path), text(&out)];
    scene.hayase(&export).with(0);
    assert_eq!(fs::read(&out).unwrap(), expected(20));
    scene.hayase(&export).with(2).says(&["flat exists"]);
    let told = scene.hayase(&[&export[..], &["--force", "--json"]].concat()).with(0).stdout;
    assert_eq!(json(&told)["bytes"], 20 * WRITERS * BLOCK);

    let told = json(&scene.hayase(&["container", "compact", &data, "--json"]).with(0).stdout);
    assert_eq!(told["containers"][0]["indexes_removed"], 4);
    let told = scene.hayase(&["container", "compact", &data]).with(0).stdout;
    assert!(told.contains("a.out: nothing to merge"), "{told}");
    scene.hayase(&[&export[..], &["--force"]].concat()).with(0);
    assert_eq!(fs::read(&out).unwrap(), expected(20));
    let flatten = ["container", "compact", "--flatten", text(&path), "--json"];
    let told = json(&scene.hayase(&flatten).with(0).stdout);
    assert_eq!(
        (&told["containers"][0]["writers"], &told["containers"][0]["parts_removed"]),
        (&1.into(), &4.into())
    );
    scene.hayase(&[&export[..], &["--force"]].concat()).with(0);
    assert_eq!(fs::read(&out).unwrap(), expected(20));
    let told = scene.hayase(&["container", "check", &data]).with(0).stdout;
    assert!(told.contains("2 of 2 containers are sound"), "{told}");
}

#[test]
fn what_is_wrong_with_a_container_is_said() {
    let scene = Scene::new();
    let path = container(&scene, "a.out", 2);
    let check = |code| {
        json(&scene.hayase(&["container", "check", text(&path), "--json"]).with(code).stdout)
    };
    assert_eq!(check(0)["problems"].as_array().unwrap().len(), 0);
    let part = path.join("n0-p102-o0.part");
    fs::OpenOptions::new().write(true).open(&part).unwrap().set_len(100).unwrap();
    let problem = &check(1)["problems"][0];
    assert_eq!((&problem["severity"], &problem["at"]), (&"damage".into(), &100.into()));
    assert_eq!(problem["path"], text(&part));
    let human = scene.hayase(&["container", "check", text(&scene.path("data"))]).with(1).stdout;
    assert!(human.contains("o0.part at byte 100: it ends there"), "{human}");
    assert!(human.contains("0 of 1 containers are sound"), "{human}");
    let out = scene.path("flat");
    let export = scene.hayase(&["container", "export", text(&path), text(&out)]).with(1);
    export.says(&["n0-p102-o0.part", "100 bytes where 6000", "hayase container check"]);
    assert!(!out.exists(), "no half file");

    let index = path.join("n0-p101-o0.index");
    fs::OpenOptions::new().write(true).open(&index).unwrap().write_all_at(b"X", 70).unwrap();
    let told = scene.hayase(&["container", "show", text(&path), "--json"]).with(3).stdout;
    assert!(json(&told)["unreadable"][0]["why"].as_str().unwrap().contains("damaged at byte"));
    let plain = scene.path("plain");
    fs::write(&plain, "x").unwrap();
    scene.hayase(&["container", "check", text(&plain)]).with(2).says(&["is not a container"]);
    scene.hayase(&["container", "export", text(&plain), "o"]).with(2).says(&["is not a container"]);
}

/// A mount that is taken away when the test ends, however it does.
pub(crate) struct Mount {
    pub(crate) point: PathBuf,
    daemon: Pid,
}

impl Mount {
    fn new(scene: &Scene, test: &str) -> Option<Self> {
        let data = scene.path("data");
        Self::with(scene, test, |command| {
            command.arg(&data);
        })
    }

    /// Of what `say` adds to the command line.
    pub(crate) fn with(scene: &Scene, test: &str, say: impl FnOnce(&mut Command)) -> Option<Self> {
        if fs::File::open("/dev/fuse").is_err() {
            println!("SKIP {test}: needs /dev/fuse");
            return None;
        }
        let point = scene.path("mount");
        let mut command = scene.command(&["mount", "--json"]);
        say(&mut command);
        let told = done(&command.arg(&point).output().unwrap()).with(0).stdout;
        let daemon = json(&told)["process"].as_i64().unwrap();
        Some(Self { point, daemon: Pid::from_raw(daemon as i32).unwrap() })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.point.join(name)
    }

    /// Whether its process lives.
    fn is_served(&self) -> bool {
        let line = fs::read(format!("/proc/{}/cmdline", self.daemon.as_raw_nonzero()));
        line.is_ok_and(|line| String::from_utf8_lossy(&line).contains(text(&self.point)))
    }

    pub(crate) fn unmount(&self) -> bool {
        let umount = Command::new("umount").arg(&self.point).status();
        umount.is_ok_and(|status| status.success())
            || Command::new("fusermount3")
                .arg("-u")
                .arg(&self.point)
                .status()
                .is_ok_and(|s| s.success())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // It unmounts when that was not done. Where it was, it has ended, unless another mount namespace
        // (of a job of another test) has a copy of the mount: then it ends now.
        if self.is_served() {
            let _ = kill_process(self.daemon, Signal::TERM);
        }
    }
}

#[test]
fn a_mount_shows_containers_as_plain_files() {
    let scene = Scene::new();
    let path = container(&scene, "a.out", 300); // 3.4 MiB: several requests
    let data = scene.path("data");
    fs::create_dir(data.join("below")).unwrap();
    fs::rename(container(&scene, "c.out", 1), data.join("below/c.out")).unwrap();
    fs::write(data.join("plain"), "as it is").unwrap();
    std::os::unix::fs::symlink("plain", data.join("link")).unwrap();
    scene.hayase(&["container", "enable", text(&data)]).with(0);
    let Some(mount) = Mount::new(&scene, "a_mount_shows_containers_as_plain_files") else { return };

    let mut names: Vec<_> =
        fs::read_dir(&mount.point).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort_unstable();
    assert_eq!(names, ["a.out", "below", "link", "plain"], "no marks");
    let out = scene.path("flat");
    scene.hayase(&["container", "export", text(&path), text(&out)]).with(0);
    let flat = fs::read(&out).unwrap();
    assert!(flat == expected(300) && fs::read(mount.path("a.out")).unwrap() == flat);
    assert!(fs::read(mount.path("below/c.out")).unwrap() == expected(1));
    assert_eq!(fs::read(mount.path("link")).unwrap(), b"as it is");

    let file = fs::File::open(mount.path("a.out")).unwrap();
    let metadata = file.metadata().unwrap();
    assert!(metadata.is_file() && metadata.len() == flat.len() as u64);
    let mut piece = vec![0; 70_000];
    for at in [1, 999_999, 3_000_001] {
        file.read_exact_at(&mut piece, at).unwrap();
        assert!(piece == flat[at as usize..at as usize + piece.len()]);
    }
    assert_eq!(file.read_at(&mut piece, flat.len() as u64).unwrap(), 0);
    for refused in [
        fs::write(mount.path("a.out"), "x"),
        fs::write(mount.path("new"), "x"),
        fs::remove_file(mount.path("a.out")),
        fs::rename(mount.path("a.out"), mount.path("b.out")),
    ] {
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::EROFS));
    }
    drop(file);
    assert!(mount.unmount());
    assert_eq!(fs::read_dir(&mount.point).unwrap().count(), 0);
}

#[test]
fn a_mount_follows_what_writers_publish() {
    let scene = Scene::new();
    let path = container(&scene, "a.out", 1);
    let Some(mount) = Mount::new(&scene, "a_mount_follows_what_writers_publish") else { return };
    let shown = mount.path("a.out");
    assert!(fs::read(&shown).unwrap() == expected(1));

    let container = Container::open(&path, Creation::Never).unwrap();
    let writers = [0, 1].map(|rank| open(&container, rank));
    let held = fs::File::open(&shown).unwrap();
    let mut size = expected(1).len() as u64;
    for round in 1..4u64 {
        for (writer, nth) in writers.iter().zip(0u64..) {
            let bytes = vec![(round * 2 + nth) as u8; 5000];
            writer.write_at(GlobalOffset(size), &bytes).unwrap();
            writer.sync(Durability::Written).unwrap();
            size += 5000;
            // Seen by name, and by who has it open.
            wait_for(|| fs::metadata(&shown).unwrap().len() == size);
            wait_for(|| held.metadata().unwrap().len() == size);
            let mut tail = vec![0; 5000];
            held.read_exact_at(&mut tail, size - 5000).unwrap();
            assert!(tail == bytes, "round {round}, writer {nth}");
        }
    }
    // The same size, other bytes.
    writers[0].write_at(GlobalOffset(0), b"changed").unwrap();
    writers[0].sync(Durability::Written).unwrap();
    wait_for(|| fs::read(&shown).unwrap().starts_with(b"changed"));
    // Gone, and another one of the same name.
    writers.iter().for_each(|writer| writer.close(Durability::Written).unwrap());
    drop((held, writers));
    Container::delete(&path).unwrap();
    wait_for(|| fs::metadata(&shown).is_err());
    let new = Container::open(&path, Creation::Exclusive).unwrap();
    let file = open(&new, 0);
    file.write_at(GlobalOffset(0), b"new").unwrap();
    file.close(Durability::Written).unwrap();
    wait_for(|| fs::read(&shown).is_ok_and(|bytes| bytes == b"new"));
}

#[test]
fn a_mount_that_something_covers_ends_by_a_signal_and_the_other_stays() {
    let test = "a_mount_that_something_covers_ends_by_a_signal_and_the_other_stays";
    let scene = Scene::new();
    container(&scene, "a.out", 1);
    if !rustix::process::geteuid().is_root() {
        return println!("SKIP {test}: needs root to mount");
    }
    let Some(mount) = Mount::new(&scene, test) else { return };
    let over = Command::new("mount").args(["-t", "tmpfs", "over"]).arg(&mount.point).status();
    assert!(over.unwrap().success());
    fs::write(mount.path("file"), "over").unwrap();
    kill_process(mount.daemon, Signal::TERM).unwrap();
    wait_for(|| !mount.is_served());
    assert_eq!(fs::read(mount.path("file")).unwrap(), b"over");
    assert!(mount.unmount() && mount.unmount(), "first the other, then what is left of ours");
    assert_eq!(fs::read_dir(&mount.point).unwrap().count(), 0);
}

/// Until it is so.
fn wait_for(is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "it never was so");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn what_can_not_be_mounted_is_said() {
    let scene = Scene::new();
    let path = container(&scene, "a.out", 1);
    let (data, mount) = (scene.path("data"), scene.path("mount"));
    let inside = data.join("inside");
    fs::create_dir(&inside).unwrap();
    let refused = |dir: &Path, point: &Path, code| {
        scene.hayase(&["mount", text(dir), text(point)]).with(code)
    };
    refused(&data, &data, 2).says(&["or inside it", "choose a mount point outside"]);
    refused(&data, &inside, 2).says(&["or inside it"]);
    refused(&path, &mount, 2).says(&["is a container itself", "the directory above it"]);
    refused(&scene.path("missing"), &mount, 2).says(&["missing", "there is no directory"]);
    refused(&data, &scene.path("missing"), 2).says(&["missing", "there is no directory"]);
    let plain = scene.path("plain");
    fs::write(&plain, "").unwrap();
    refused(&data, &plain, 2).says(&["mount point", "is not a directory"]);
    let full = scene.path("full");
    fs::create_dir_all(full.join("x")).unwrap();
    refused(&data, &full, 2).says(&["full is not empty"]);
}
