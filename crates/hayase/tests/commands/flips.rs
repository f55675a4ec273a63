//! One flipped bit, or one missing end, in any file that a job keeps, and then a command: nothing is lost without a word.
//!
//! The state is that of a job of two nodes that was killed with synced files which the tier does not have. Each seed
//! gets a copy of it, damages one file and runs `resume`, `up` or `down`. `HAYASE_FLIP_SEED=N` runs one seed and says
//! what it did, `HAYASE_FLIP_SEEDS=N` runs that many, from `HAYASE_FLIP_FIRST` or else from the commit (`HAYASE_COMMIT`).
//!
//! A copy is seen at the path of the job by one command alone, through a bind mount of its own.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use hayase_container::{
    Access, Container, ContainerFile, Creation, Durability, Finished, Identity,
};
use hayase_layout::{GlobalOffset, NodeId, Rank};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Done, Scene, done, wait_until};

const SEEDS: u64 = 200;
const CONTAINER_SEEDS: u64 = 100;

/// More than any file has in use: journals are 64 MiB of mostly nothing.
const HEAD_BYTES: u64 = 1 << 20;

/// Parts of this file lie on both nodes.
const STRIPED: &str = "striped/s";

/// What a job has left that was killed.
struct Killed {
    scene: Scene,
    /// Copies lie here, in memory.
    copies: tempfile::TempDir,
    /// What the tier is to have, with its bytes.
    files: Vec<(&'static str, Vec<u8>)>,
    /// Files that the job keeps, and how many bytes of each are in use.
    kept: Vec<(PathBuf, u64)>,
    /// The bytes of programs.
    parts: Vec<(PathBuf, Vec<u8>)>,
}

/// Below `place`, as paths relative to it.
fn files_below(place: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut places = vec![place.to_owned()];
    while let Some(next) = places.pop() {
        for entry in fs::read_dir(next).unwrap().flatten() {
            match entry.file_type().unwrap() {
                kind if kind.is_dir() => places.push(entry.path()),
                kind if kind.is_file() => {
                    found.push(entry.path().strip_prefix(place).unwrap().to_owned());
                }
                _ => {}
            }
        }
    }
    found.sort();
    found
}

fn copy(from: &Path, to: &Path) {
    let arguments = ["-a", "--sparse=always", "-T"];
    let copied = Command::new("cp").args(arguments).arg(from).arg(to).status().unwrap();
    assert!(copied.success(), "copy {}", from.display());
}

fn is_part(path: &Path) -> bool {
    path.components().any(|name| name.as_os_str() == "parts")
}

/// Bytes of a file up to its last one that is not zero.
fn used(path: &Path) -> u64 {
    let mut bytes = Vec::new();
    fs::File::open(path).unwrap().take(HEAD_BYTES).read_to_end(&mut bytes).unwrap();
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1)
}

fn bytes_of(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 251 + at) as u8 ^ seed).collect()
}

impl Killed {
    fn make(test: &str) -> Option<Self> {
        let scene = Scene::with_nodes(test)?;
        let tier = scene.path("tier");
        fs::create_dir(&tier).unwrap();
        let options = ["--nodes", "2", "--no-namespaces", "--no-image", "--job", "t", "--tier"];
        let options = [&options[..], &[tier.to_str().unwrap()]].concat();
        scene.up(&options).with(0);
        let cache = |node: u16| scene.path(&format!("mount/node-{node}/cache"));
        let striped = cache(0).join("striped");
        fs::create_dir(&striped).unwrap();
        let set = ["layout", "set", "--stripe", "64KiB", "--width", "2"];
        scene.hayase(&[&set[..], &[striped.to_str().unwrap()]].concat()).with(0);
        let (mut files, mut open) = (Vec::new(), Vec::new());
        for (node, name, len) in
            [(0, "a", 70_000), (0, "b", 5), (1, "c", 70_000), (0, STRIPED, 300_000)]
        {
            let bytes = bytes_of(files.len() as u8, len);
            let mut file = fs::File::create(cache(node).join(name)).unwrap();
            file.write_all(&bytes).unwrap();
            file.sync_all().unwrap();
            files.push((name, bytes));
            open.push(file); // so that none is flushed
        }
        for (pid, _) in scene.processes() {
            let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
        }
        let left = || format!("{:?}", scene.processes());
        wait_until("all processes end", || scene.processes().is_empty(), left);
        drop(open);
        detach_below(&scene.path(""));
        let copies = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let saved = copies.path().join("saved");
        copy(&scene.path(""), &saved);
        for name in ["run", "storage", "mount"] {
            fs::remove_dir_all(scene.path(name)).unwrap();
        }
        let all = files_below(&saved);
        let is_kept = |path: &&PathBuf| {
            let is_own = path.starts_with("storage/t") || path.starts_with("run/jobs/t");
            is_own && !is_part(path) && path.extension().is_none_or(|end| end != "log")
        };
        let kept = all.iter().filter(is_kept).map(|path| (path.clone(), used(&saved.join(path))));
        let kept: Vec<_> = kept.filter(|(_, used)| *used > 0).collect();
        let parts = all.iter().filter(|path| is_part(path));
        let parts = parts.map(|path| (path.clone(), fs::read(saved.join(path)).unwrap())).collect();
        assert!(fs::read_dir(saved.join("tier")).unwrap().flatten().all(|entry| {
            entry.file_name() == "striped" || entry.file_name().to_string_lossy().starts_with('.')
        }));
        Some(Self { scene, copies, files, kept, parts })
    }

    /// The command, where `copy` is what lies at the path of the job.
    fn run(&self, copy: &Path, args: &[&str]) -> Done {
        let mut command = self.scene.program("unshare");
        let script = "mount --bind \"$1\" \"$2\" && shift 2 && exec \"$@\"";
        command.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"]);
        command.arg(copy).arg(self.scene.path("")).arg(env!("CARGO_BIN_EXE_hayase")).args(args);
        done(&command.current_dir("/").output().unwrap())
    }

    /// One damage and one command; what is wrong with what came of it.
    fn try_seed(&self, seed: u64, worker: usize) -> Result<String, String> {
        let mut random = Random(seed);
        let (file, used) = &self.kept[random.below(self.kept.len() as u64) as usize];
        let copied = self.copies.path().join(format!("copy-{worker}"));
        let _ = fs::remove_dir_all(&copied);
        copy(&self.copies.path().join("saved"), &copied);
        let what = damage(&copied.join(file), *used, &mut random);
        let (top, nowhere) = (self.scene.path("run/jobs/t"), self.scene.path("nowhere"));
        let (job, nowhere) = (top.to_str().unwrap(), nowhere.to_str().unwrap());
        let command: &[&str] = match random.below(8) {
            // It looks for dead jobs, and then finds no storage of its own.
            0 => &["up", "--storage", nowhere, "--nodes", "1"],
            1 => &["down", "--job", job],
            _ => &["resume", "--replaced-tier", job],
        };
        let ran = self.run(&copied, command);
        let told = format!("{seed}: {}: {what}; hayase {}", file.display(), command.join(" "));
        match self.judge(&copied, file, command[0], &ran) {
            Ok(()) => Ok(format!("{told} ended with {}", ran.code)),
            Err(why) => Err(format!("{told}\n{why}\n{ran:#?}")),
        }
    }

    fn judge(&self, copy: &Path, file: &Path, verb: &str, ran: &Done) -> Result<(), String> {
        let mut missing = Vec::new();
        for (name, bytes) in &self.files {
            match fs::read(copy.join("tier").join(name)) {
                Ok(found) if found == *bytes => {}
                Ok(_) => return Err(format!("{name} has other bytes in the tier")),
                Err(_) => missing.push(*name),
            }
        }
        let is_there = |(part, bytes): &&(PathBuf, Vec<u8>)| {
            fs::read(copy.join(part)).is_ok_and(|found| found == *bytes)
        };
        if !missing.is_empty() && !self.parts.iter().all(|part| is_there(&part)) {
            return Err(format!("{missing:?} did not arrive, and parts are gone"));
        }
        let told = format!("{}{}", ran.stdout, ran.stderr);
        if told.contains("panicked") || !(0..=3).contains(&ran.code) {
            return Err("it did not end as commands do".to_owned());
        }
        match (verb, ran.code) {
            ("resume", 0) if missing.is_empty() => Ok(()),
            ("resume", 0) => Err(format!("it ended with 0, without {missing:?}")),
            ("resume", _) if !self.names(file, &told) => Err("it does not name the file".into()),
            ("down", 0) => Err("it ended with 0, and the tier has nothing".to_owned()),
            _ => Ok(()),
        }
    }

    /// Whether `told` names the file, or the directory of the store that it belongs to.
    fn names(&self, file: &Path, told: &str) -> bool {
        let is_store = |place: &&Path| place.file_name().is_some_and(|name| name == "meta");
        let store = file.ancestors().find(is_store);
        let named = [Some(file), store].into_iter().flatten();
        named
            .into_iter()
            .any(|path| told.contains(self.scene.path("").join(path).to_str().unwrap()))
    }
}

/// Without damage everything arrives.
fn check_whole(killed: &Killed) {
    let copied = killed.copies.path().join("whole");
    copy(&killed.copies.path().join("saved"), &copied);
    let job = killed.scene.path("run/jobs/t");
    let ran = killed.run(&copied, &["resume", "--replaced-tier", job.to_str().unwrap()]).with(0);
    killed.judge(&copied, Path::new("nothing"), "resume", &ran).unwrap();
    assert!(!copied.join("storage/t").exists() && !copied.join("run/jobs/t").exists());
    fs::remove_dir_all(copied).unwrap();
}

/// A journal of names without its end: nothing is sent that needs it, and nothing is removed.
fn check_cut_journals(killed: &Killed) {
    const CUTS: u64 = 5;
    let job = killed.scene.path("run/jobs/t");
    let is_journal = |file: &Path| file.extension().is_some_and(|end| end == "jnl");
    let mut refused = 0;
    for (file, used) in killed.kept.iter().filter(|(file, _)| is_journal(file)) {
        for cut in 0..CUTS {
            let copied = killed.copies.path().join("cut");
            copy(&killed.copies.path().join("saved"), &copied);
            let len = used * cut / CUTS;
            let opened = fs::OpenOptions::new().write(true).open(copied.join(file)).unwrap();
            opened.set_len(len).unwrap();
            let ran = killed.run(&copied, &["resume", "--replaced-tier", job.to_str().unwrap()]);
            if let Err(why) = killed.judge(&copied, file, "resume", &ran) {
                panic!("{} cut at {len}: {why}\n{ran:#?}", file.display());
            }
            if ran.code != 0 {
                let named = killed.scene.path("").join(file);
                let named = named.to_str().unwrap();
                ran.with(1).says(&[named, "bytes of it were synced", "hayase resume --salvage"]);
                refused += 1;
            }
            fs::remove_dir_all(copied).unwrap();
        }
    }
    assert!(refused > 0, "no cut was ever reported");
}

/// Mounts of a killed job.
fn detach_below(place: &Path) {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    let mut points: Vec<_> = points.filter(|point| Path::new(point).starts_with(place)).collect();
    points.reverse();
    for point in points {
        let detached = Command::new("umount").arg("-l").arg(point).status().unwrap();
        assert!(detached.success(), "detach {point}");
    }
}

/// One bit, or the end, of the bytes of a file that are in use.
fn damage(file: &Path, used: u64, random: &mut Random) -> String {
    let opened = fs::OpenOptions::new().read(true).write(true).open(file).unwrap();
    if random.below(4) == 0 {
        let len = random.below(used);
        opened.set_len(len).unwrap();
        return format!("cut at {len}");
    }
    use std::os::unix::fs::FileExt;
    let (at, bit, mut byte) = (random.below(used), random.below(8), [0]);
    opened.read_exact_at(&mut byte, at).unwrap();
    opened.write_all_at(&[byte[0] ^ (1 << bit)], at).unwrap();
    format!("bit {bit} of byte {at}")
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The first seed of a commit: its first 12 hexadecimal digits.
fn of_commit() -> Option<u64> {
    let commit = std::env::var("HAYASE_COMMIT").ok()?;
    u64::from_str_radix(commit.get(..12)?, 16).ok()
}

#[test]
fn a_flipped_bit_in_any_file_that_a_job_keeps_loses_nothing_silently() {
    let Some(killed) = Killed::make("a_flipped_bit_in_any_file_that_a_job_keeps") else { return };
    check_whole(&killed);
    check_cut_journals(&killed);
    if let Some(seed) = number("HAYASE_FLIP_SEED") {
        println!("{}", killed.try_seed(seed, 0).unwrap_or_else(|why| panic!("seed {why}")));
        return;
    }
    let first = number("HAYASE_FLIP_FIRST").or_else(of_commit).unwrap_or(1);
    let end = first + number("HAYASE_FLIP_SEEDS").unwrap_or(SEEDS);
    let (next, refused) = (AtomicU64::new(first), AtomicU64::new(0));
    let wrong = Mutex::new(Vec::new());
    let work = &|worker: usize| {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                return;
            }
            match killed.try_seed(seed, worker) {
                Ok(told) => {
                    let is_refusal = told.contains("resume") && !told.ends_with(" 0");
                    refused.fetch_add(u64::from(is_refusal), Ordering::Relaxed);
                }
                Err(why) => {
                    println!("seed {why}");
                    wrong.lock().unwrap().push(seed);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for worker in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(move || work(worker));
        }
    });
    let (refused, wrong) = (refused.into_inner(), wrong.into_inner().unwrap());
    println!("seeds {first} to {}: {refused} damages were told by resume", end - 1);
    assert!(wrong.is_empty(), "seeds {wrong:?}: HAYASE_FLIP_SEED=N runs one");
}

/// Two writers whose indexes were merged, and one by itself.
fn make_container(path: &Path) {
    let container = Container::open(path, Creation::IfAbsent).unwrap();
    for process in 0..3 {
        let who = Identity { node: NodeId(0), process, opening: 0, rank: Rank(process) };
        let file = ContainerFile::open(container.clone(), Access::ReadWrite, who, None).unwrap();
        file.write_at(GlobalOffset(u64::from(process) * 100), &[process as u8; 100]).unwrap();
        file.close(Durability::Durable).unwrap();
        if process == 1 {
            container.compact(Finished::Closed).unwrap();
        }
    }
}

/// The same of containers, which `container check` looks at: what it calls sound is read as it was written.
#[test]
fn a_flipped_bit_in_any_file_of_a_container_is_told_by_its_check() {
    let scene = Scene::new();
    let path = scene.path("F");
    make_container(&path);
    let check = || scene.hayase(&["container", "check", path.to_str().unwrap()]);
    check().with(0);
    let is_kept = |path: &PathBuf| path.extension().is_none_or(|end| end != "part");
    let kept = files_below(&path).into_iter().filter(is_kept).collect::<Vec<_>>();
    let first = number("HAYASE_FLIP_SEED").or_else(of_commit).unwrap_or(1);
    for seed in first..first + CONTAINER_SEEDS {
        let mut random = Random(seed);
        let file = path.join(&kept[random.below(kept.len() as u64) as usize]);
        let whole = fs::read(&file).unwrap();
        if whole.is_empty() {
            continue; // the stub
        }
        let what = damage(&file, whole.len() as u64, &mut random);
        let ran = check();
        let told = format!("seed {seed}: {}: {what}: {ran:#?}", file.display());
        // An end that is missing may be one that a kill tore off: what is not published is no damage.
        let writer = file.file_stem().unwrap().to_str().unwrap();
        let is_right = match (ran.code, what.starts_with("cut")) {
            (1, _) => ran.stdout.contains(path.to_str().unwrap()),
            (0, true) => ran.stdout.contains(writer),
            _ => false,
        };
        assert!(is_right, "{told}");
        fs::write(&file, whole).unwrap();
    }
    check().with(0);
}
