//! The cache area in front of a bucket, and what is staged out through it behind the command.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use hayase_s3_server::{ACCESS_KEY, BUCKET, Options, SECRET_KEY, Server};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use crate::packs::{check_same, make_tree};
use crate::support::{Done, Scene, done, wait_until};

/// A job of this machine with a bucket behind its cache area.
struct Bucket {
    scene: Scene,
    server: Server,
    url: String,
}

impl Bucket {
    fn new(test: &str) -> Option<Self> {
        let scene = Scene::with_nodes(test)?;
        let server = Server::start(&Options::default()).unwrap();
        Some(Self { scene, server, url: format!("s3://{BUCKET}/project") })
    }

    fn run(&self, args: &[&str]) -> Done {
        let mut command = self.scene.command(args);
        command.env("AWS_ENDPOINT_URL", self.server.endpoint()).env_remove("AWS_PROFILE");
        command.env("AWS_ACCESS_KEY_ID", ACCESS_KEY).env("AWS_SECRET_ACCESS_KEY", SECRET_KEY);
        done(&command.output().unwrap())
    }

    fn up(&self, more: &[&str]) {
        let (storage, mount) = (self.scene.path("storage"), self.scene.path("mount"));
        let (storage, mount) = (storage.to_str().unwrap(), mount.to_str().unwrap());
        let areas = ["--shared", "300M", "--local", "16M", "--tier", &self.url];
        let places = ["up", "--storage", storage, "--mount", mount];
        self.run(&[&places, &areas[..], more].concat()).with(0);
    }

    fn down(&self) {
        self.run(&["down"]).with(0);
        self.scene.check_nothing_left();
    }

    fn cache(&self, name: &str) -> PathBuf {
        self.scene.path("mount/cache").join(name)
    }

    /// The same name as one of two nodes without namespaces sees it.
    fn cache_of(&self, node: u16, name: &str) -> PathBuf {
        self.scene.path(&format!("mount/node-{node}/cache")).join(name)
    }

    /// Puts an object into the bucket behind the job's back.
    fn put(&self, name: &str, text: &str) {
        fs::create_dir_all(self.scene.path("new")).unwrap();
        fs::write(self.scene.path("new").join(name), text).unwrap();
        let args = ["stage", "out", "new", &self.url, "--pack", "none", "--overwrite", "always"];
        self.run(&args).with(0);
        fs::remove_file(self.scene.path("new").join(name)).unwrap();
    }

    /// The bucket, or what lies below a prefix of it, as a directory.
    fn staged(&self, below: &str, to: &str) -> PathBuf {
        let url = format!("{}{below}", self.url);
        self.run(&["stage", "in", &url, to]).with(0);
        self.scene.path(to)
    }
}

fn errno(result: std::io::Result<()>) -> Option<Errno> {
    result.err().and_then(|error| Errno::from_io_error(&error))
}

#[test]
fn a_bucket_stands_behind_the_cache_area() {
    let Some(bucket) = Bucket::new("a_bucket_stands_behind_the_cache_area") else { return };
    make_tree(&bucket.scene);
    let input = format!("{}/in", bucket.url);
    bucket.run(&["stage", "out", "tree/sub", &input, "--pack", "none"]).with(0);
    bucket.up(&[]);
    let tree = bucket.scene.path("tree/sub");
    check_same(&tree, &bucket.cache("in"));
    // Written as a whole and in parts, dated, removed, renamed over one another.
    let large: Vec<u8> = (0..21_000_000u32).map(|at| (at ^ (at >> 11)) as u8).collect();
    fs::create_dir_all(bucket.cache("out/empty")).unwrap();
    fs::write(bucket.cache("out/large"), &large).unwrap();
    fs::write(bucket.cache("out/state.new"), "second").unwrap();
    fs::write(bucket.cache("out/state"), "first").unwrap();
    bucket.run(&["flush"]).with(0);
    // What the bucket has is moved there, changed there and removed there.
    fs::rename(bucket.cache("out/state.new"), bucket.cache("out/state")).unwrap();
    fs::set_permissions(bucket.cache("out/state"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::rename(bucket.cache("in/file-001"), bucket.cache("out/moved")).unwrap();
    fs::remove_file(bucket.cache("in/file-002")).unwrap();
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_234_567_890);
    fs::File::open(bucket.cache("out/moved")).unwrap().set_modified(time).unwrap();
    assert_eq!(fs::read(bucket.cache("out/state")).unwrap(), b"second");
    // In part: the file is fetched, changed and sent as a whole.
    let file = fs::OpenOptions::new().write(true).open(bucket.cache("in/file-150")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"changed", 100).unwrap();
    drop(file);
    // What a bucket can not have.
    let link = std::os::unix::fs::symlink("large", bucket.cache("out/link"));
    assert_eq!(errno(link), Some(Errno::PERM));
    let renamed = fs::rename(bucket.cache("out"), bucket.cache("other"));
    assert_eq!(errno(renamed), Some(Errno::XDEV));
    assert_eq!(errno(fs::remove_dir(bucket.cache("out"))), Some(Errno::NOTEMPTY));
    fs::create_dir(bucket.cache("gone")).unwrap();
    fs::remove_dir(bucket.cache("gone")).unwrap();
    bucket.down();
    let all = bucket.staged("", "all");
    let names = |path: &str| -> Vec<String> {
        let entries = fs::read_dir(all.join(path)).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(names(""), ["in", "out"]);
    assert_eq!(names("out"), ["empty", "large", "moved", "state"]);
    assert!(fs::read(all.join("out/large")).unwrap() == large);
    assert_eq!(fs::read(all.join("out/state")).unwrap(), b"second");
    let meta = |name: &str| fs::metadata(all.join(name)).unwrap();
    assert_eq!(meta("out/state").permissions().mode() & 0o777, 0o640);
    assert_eq!(meta("out/moved").modified().unwrap(), time);
    assert_eq!(fs::read(all.join("out/moved")).unwrap(), fs::read(tree.join("file-001")).unwrap());
    let changed = fs::read(all.join("in/file-150")).unwrap();
    assert_eq!(changed.len() as u64, fs::metadata(tree.join("file-150")).unwrap().len());
    assert_eq!(&changed[100..107], b"changed");
    assert_eq!(names("in").len(), 199, "200 files and a directory, one moved, one removed");
}

#[test]
fn a_change_in_the_bucket_is_seen_and_two_versions_are_kept() {
    let Some(bucket) = Bucket::new("a_change_in_the_bucket_is_seen_and_two_versions_are_kept")
    else {
        return;
    };
    bucket.put("a", "first");
    bucket.put("b", "first");
    bucket.up(&[]);
    assert_eq!(fs::read(bucket.cache("a")).unwrap(), b"first");
    bucket.put("a", "other");
    let seen = || fs::read(bucket.cache("a")).is_ok_and(|bytes| bytes == b"other");
    wait_until("the new version is seen", seen, String::new);
    // Both change one: theirs keeps the name, ours lies beside it.
    let mut ours = fs::OpenOptions::new().write(true).open(bucket.cache("b")).unwrap();
    std::io::Write::write_all(&mut ours, b"ours!").unwrap();
    bucket.put("b", "their");
    drop(ours);
    bucket.run(&["flush"]);
    bucket.run(&["down"]);
    let all = bucket.staged("", "all");
    assert_eq!(fs::read(all.join("b")).unwrap(), b"their");
    let beside = fs::read_dir(&all).unwrap().map(|entry| entry.unwrap().path());
    let mut beside = beside.filter(|path| path.to_string_lossy().contains("hayase-conflict"));
    assert_eq!(fs::read(beside.next().unwrap()).unwrap(), b"ours!");
}

/// Simulated nodes with networks of their own would not reach the server.
#[test]
fn two_nodes_see_what_the_other_wrote_and_what_comes_to_the_bucket() {
    let test = "two_nodes_see_what_the_other_wrote_and_what_comes_to_the_bucket";
    let Some(bucket) = Bucket::new(test) else { return };
    bucket.up(&["--nodes", "2", "--no-namespaces", "--no-image"]);
    let read = |node: u16, name: &str| fs::read(bucket.cache_of(node, name)).unwrap();
    // Whole and in parts; the other node sees it when it is closed.
    let large: Vec<u8> = (0..21_000_000u32).map(|at| (at ^ (at >> 11)) as u8).collect();
    fs::write(bucket.cache_of(0, "small"), "first").unwrap();
    assert_eq!(read(1, "small"), b"first");
    fs::write(bucket.cache_of(0, "large"), &large).unwrap();
    assert!(read(1, "large") == large, "other bytes on node 1");
    bucket.run(&["flush"]).with(0);
    let kept = bucket.staged("", "kept");
    assert_eq!(fs::read(kept.join("small")).unwrap(), b"first");
    assert!(fs::read(kept.join("large")).unwrap() == large, "other bytes in the bucket");
    // Changed by others, to as many bytes: the next opens see it soon, who has it open reads on.
    let opened = [0, 1].map(|node| fs::File::open(bucket.cache_of(node, "small")).unwrap());
    bucket.put("small", "other");
    for node in [0, 1] {
        let path = bucket.cache_of(node, "small");
        let is_seen = || fs::read(&path).is_ok_and(|bytes| bytes == b"other");
        wait_until("the new version is seen", is_seen, || format!("{:?}", fs::read(&path)));
    }
    for file in opened {
        assert_eq!(std::io::read_to_string(file).unwrap(), "first");
    }
    // Written by the other node on top of that: no second version, and both see it at once.
    fs::write(bucket.cache_of(1, "small"), "third").unwrap();
    assert_eq!((read(0, "small"), read(1, "small")), (b"third".to_vec(), b"third".to_vec()));
    bucket.run(&["flush"]).with(0);
    bucket.down();
    let all = bucket.staged("", "all");
    assert_eq!(fs::read(all.join("small")).unwrap(), b"third");
    let mut names: Vec<_> =
        fs::read_dir(&all).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["large", "small"], "no second version");
}

/// Without a variable that says where the server is.
#[test]
fn an_endpoint_is_told_by_an_option() {
    let Some(bucket) = Bucket::new("an_endpoint_is_told_by_an_option") else { return };
    make_tree(&bucket.scene);
    let endpoint = format!("--endpoint={}", bucket.server.endpoint());
    let run = |args: &[&str]| {
        let mut command = bucket.scene.command(args);
        command.env_remove("AWS_ENDPOINT_URL").env_remove("AWS_PROFILE");
        command.env("AWS_ACCESS_KEY_ID", ACCESS_KEY).env("AWS_SECRET_ACCESS_KEY", SECRET_KEY);
        done(&command.output().unwrap())
    };
    let start = |verb: &str, more: &[&str]| {
        let args = bucket.scene.start_args(verb, more);
        run(&args.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let (storage, mount) = (bucket.scene.path("storage"), bucket.scene.path("mount"));
    let places = ["--storage", storage.to_str().unwrap(), "--mount", mount.to_str().unwrap()];
    let tier = ["up", "--shared", "300M", "--local", "16M", &endpoint, "--tier", &bucket.url];
    run(&[&tier[..], &places].concat()).with(0);
    fs::write(bucket.scene.path("mount/cache/file"), "flushed").unwrap();
    // The job remembers where its tier is.
    run(&["flush", "--verify"]).with(0);
    run(&["down"]).with(0);
    let back = bucket.staged("", "back");
    assert_eq!(fs::read_to_string(back.join("file")).unwrap(), "flushed");
    let (into, out) = ("tree:shared/in", format!("shared/in:{}/out", bucket.url));
    start("run", &[&endpoint, "--in", into, "--out", &out, "--", "true"]).with(0);
    let packs = format!("{}/out", bucket.url);
    let shown = bucket.scene.path("shown");
    fs::create_dir(&shown).unwrap();
    run(&["mount", &endpoint, &packs, "shown"]).with(0);
    check_same(&bucket.scene.path("tree"), &shown);
    let unmounted = std::process::Command::new("umount").arg(&shown).status().unwrap();
    assert!(unmounted.success());
}

#[test]
fn what_is_staged_out_behind_the_command_arrives() {
    let Some(bucket) = Bucket::new("what_is_staged_out_behind_the_command_arrives") else { return };
    make_tree(&bucket.scene);
    let tree = bucket.scene.path("tree");
    let target = format!("{}/results/one", bucket.url);
    let stage = |target: &str, more: &[&str]| {
        bucket.run(&[&["stage", "out", "tree", target, "--background"], more].concat())
    };
    stage(&target, &[]).with(2).says(&["no job"]);
    bucket.up(&[]);
    stage("s3://elsewhere/x", &[]).with(2).says(&["is not in the tier", "--background"]);
    stage("kept", &[]).with(2).says(&["is not in the tier"]);
    // Packed, since it goes to a bucket; and loose, where a bucket's cache area has no links.
    let told = stage(&target, &[]).with(0);
    assert!(told.stderr.contains("on its way to the tier"), "{told:?}");
    let loose = format!("{}/results/loose", bucket.url);
    stage(&loose, &["--pack", "none", "--exclude", "/link"]).with(0);
    let again = stage(&loose, &["--pack", "none", "--exclude", "/link", "--json"]).with(0).stdout;
    assert!(again.contains("\"copied\":0,"), "{again}");
    // What was there when the command ended is safe: its source may go.
    fs::rename(&tree, bucket.scene.path("source")).unwrap();
    bucket.down();
    check_same(&bucket.scene.path("source"), &bucket.staged("/results/one", "back"));
    fs::remove_file(bucket.scene.path("source/link")).unwrap();
    check_same(&bucket.scene.path("source"), &bucket.staged("/results/loose", "loose"));
}

#[test]
fn what_was_on_its_way_when_the_job_died_is_resumed() {
    let Some(bucket) = Bucket::new("what_was_on_its_way_when_the_job_died_is_resumed") else {
        return;
    };
    make_tree(&bucket.scene);
    // On one machine the images stay mounted when all processes are killed.
    bucket.up(&[]);
    let target = format!("{}/results", bucket.url);
    bucket.run(&["stage", "out", "tree", &target, "--background"]).with(0);
    for (pid, _) in bucket.scene.processes() {
        // One may end with another.
        let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
    }
    let none = || bucket.scene.processes().is_empty();
    wait_until("all processes are gone", none, || format!("{:?}", bucket.scene.processes()));
    let dir = bucket.scene.path("run/jobs").join(&bucket.scene.jobs()[0]);
    bucket.run(&["resume", dir.to_str().unwrap()]).with(0);
    assert_eq!(bucket.scene.leftovers(), <[String; 0]>::default());
    check_same(&bucket.scene.path("tree"), &bucket.staged("/results", "back"));
}
