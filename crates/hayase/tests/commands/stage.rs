//! `hayase stage`, also when it is killed.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hayase_s3_server::{ACCESS_KEY, BUCKET, Options, SECRET_KEY, Server};

use crate::packs::{check_same, make_tree};
use crate::support::{Done, Scene, done};

fn stage(scene: &Scene, args: &[&str]) -> Done {
    scene.hayase(&[&["stage"], args].concat())
}

/// The last event of a run with `--json`.
fn end(done: &Done) -> serde_json::Value {
    let event: serde_json::Value =
        serde_json::from_str(done.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(event["event"], "end", "{done:?}");
    event
}

#[test]
fn a_tree_goes_out_and_comes_in() {
    let scene = Scene::new();
    make_tree(&scene);
    stage(&scene, &["out", "tree", "kept"]).with(0);
    check_same(&scene.path("tree"), &scene.path("kept"));
    stage(&scene, &["out", "tree", "packed", "--pack", "64KiB"]).with(0);
    assert!(!scene.path("packed/sub").exists());
    for (from, to) in [("kept", "in-1"), ("packed", "in-2")] {
        let told = stage(&scene, &["in", from, to]).with(0).stdout;
        assert!(told.starts_with("204 items copied, "), "{told}");
        check_same(&scene.path("tree"), &scene.path(to));
        let again = end(&stage(&scene, &["in", from, to, "--json"]).with(0));
        assert_eq!((&again["copied"], &again["bytes_moved"]), (&0.into(), &0.into()));
        let same = stage(&scene, &["verify", from, to, "--exact"]).with(0).stdout;
        assert_eq!(same, "204 names compared, 0 differences\n");
    }
    stage(&scene, &["verify", "packed", "kept", "--exact"]).with(0);
}

#[test]
fn one_file_is_copied_into_the_target() {
    let scene = Scene::new();
    fs::create_dir_all(scene.path("from/below")).unwrap();
    for (name, bytes) in [("data.tar", "one"), ("data.tar.gz", "other"), ("below/f", "third")] {
        fs::write(scene.path("from").join(name), bytes).unwrap();
    }
    let server = Server::start(&Options::default()).unwrap();
    let url = format!("s3://{BUCKET}/from");
    let only = |place: &str, name: &str, bytes: &str| {
        let entries = fs::read_dir(scene.path(place)).unwrap();
        let names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, [OsStr::new(name)], "{place}");
        assert_eq!(fs::read_to_string(scene.path(place).join(name)).unwrap(), bytes);
    };
    let told = stage(&scene, &["in", "from/data.tar", "in"]).with(0).stdout;
    assert!(told.starts_with("1 item copied, 3 B"), "{told}");
    only("in", "data.tar", "one");
    let again = end(&stage(&scene, &["in", "from/data.tar", "in", "--json"]).with(0));
    assert_eq!((&again["copied"], &again["found"]), (&0.into(), &1.into()), "{again}");
    stage(&scene, &["out", "from/below/f", "out"]).with(0);
    only("out", "f", "third");
    // To a bucket, and one object of it.
    stage_s3(&scene, &server, &["out", "from/data.tar", &url, "--pack", "none"]).with(0);
    stage_s3(&scene, &server, &["in", &format!("{url}/data.tar"), "object"]).with(0);
    only("object", "data.tar", "one");
    stage_s3(&scene, &server, &["in", &format!("{url}/data.ta"), "none"])
        .with(1)
        .says(&["is empty or does not exist"]);
    // A name with others below it is a tree, also where an object has it.
    stage_s3(&scene, &server, &["out", "from/below", &format!("{url}/data.tar"), "--pack", "none"])
        .with(0);
    stage_s3(&scene, &server, &["in", &format!("{url}/data.tar"), "tree"]).with(0);
    only("tree", "f", "third");
    std::os::unix::fs::symlink("data.tar", scene.path("from/link")).unwrap();
    let file = scene.path("from/data.tar").display().to_string();
    stage(&scene, &["in", "from/link", "in"]).with(2).says(&["is a symbolic link", &file]);
    // A copy in packs is a tree too, of whatever name there is an object.
    let packed = format!("{url}/packed");
    stage_s3(&scene, &server, &["out", "from/below", &packed, "--pack", "64KiB"]).with(0);
    fs::write(scene.path("packed"), "marker").unwrap();
    stage_s3(&scene, &server, &["out", "packed", &url, "--pack", "none"]).with(0);
    stage_s3(&scene, &server, &["in", &packed, "unpacked"]).with(0);
    only("unpacked", "f", "third");
    stage(&scene, &["in", "from/data.tar", "from"]).with(2).says(&["the same place"]);
    stage(&scene, &["in", "from/data.tar", "in", "--delete"]).with(2).says(&["--delete needs"]);
    fs::write(scene.path("key"), "07".repeat(32)).unwrap();
    stage(&scene, &["in", "from/data.tar", "in", "--key-file", "key"]).with(2);
}

#[test]
fn places_that_lie_in_each_other_are_refused() {
    let scene = Scene::new();
    for tree in ["data", "data/new", "data/data"] {
        fs::create_dir_all(scene.path(tree)).unwrap();
        fs::write(scene.path(tree).join("f"), tree).unwrap();
    }
    let url = |name: &str| format!("file://{}", scene.path(name).display());
    for (from, to) in [("data/new", "data"), ("data/data", "data"), ("data", "data/copy")] {
        for (from, to) in [
            (from.to_owned(), to.to_owned()),
            (url(from), to.to_owned()),
            (from.to_owned(), url(to)),
        ] {
            for verb in ["in", "out"] {
                let said = stage(&scene, &[verb, &from, &to, "--delete", "--max-delete", "99"]);
                said.with(2).says(&["is inside the", "--exclude"]);
            }
        }
    }
    stage(&scene, &["in", "data", &url("data")]).with(2).says(&["the same place"]);
    let names = ["data/f", "data/new/f", "data/data/f"];
    assert!(
        names
            .iter()
            .all(|name| fs::read_to_string(scene.path(name)).unwrap() == name[..name.len() - 2])
    );
    stage(&scene, &["in", "data/new", "data", "--exclude", "/new", "--exclude", "/data"]).with(0);
    assert_eq!(fs::read_to_string(scene.path("data/f")).unwrap(), "data/new");
}

#[test]
fn patterns_that_select_nothing_are_told() {
    let scene = Scene::new();
    make_tree(&scene);
    stage(&scene, &["out", "tree", "kept"]).with(0);
    let told = stage(&scene, &["in", "kept", "new", "--include", "no-such-name"]).with(0).stdout;
    assert!(told.contains("no name of the source is selected, of 204"), "{told}");
    let verify = stage(&scene, &["verify", "tree", "kept", "--include", "no-such-name"]);
    verify.with(2).says(&["match no name in the source", "a pattern matches names"]);
}

#[test]
fn what_is_only_read_is_not_written_to() {
    let scene = Scene::new();
    make_tree(&scene);
    let server = Server::start(&Options::default()).unwrap();
    let (packed, loose) = (format!("s3://{BUCKET}/packed"), format!("s3://{BUCKET}/loose"));
    stage_s3(&scene, &server, &["out", "tree", &packed]).with(0);
    stage_s3(&scene, &server, &["out", "tree", &loose, "--pack", "none"]).with(0);
    let before = server.changes();
    for place in [&packed, &loose] {
        stage_s3(&scene, &server, &["in", place, "back"]).with(0);
        stage_s3(&scene, &server, &["verify", "tree", place]).with(0);
    }
    for verb in ["list", "verify"] {
        let mut pack = scene.command(&["pack", verb, &packed]);
        done(&with_s3(&mut pack, &server).output().unwrap()).with(0);
    }
    assert_eq!(server.changes(), before, "something was written to what was only to be read");
}

#[test]
fn a_lost_index_is_told_and_made_again() {
    let scene = Scene::new();
    make_tree(&scene);
    stage(&scene, &["out", "tree", "kept", "--pack", "64KiB"]).with(0);
    scene.hayase(&["pack", "reindex", "kept"]).with(2).says(&["have an index"]);
    let index = fs::read_dir(scene.path("kept/.hayase-packs")).unwrap();
    let mut index = index.map(|entry| entry.unwrap().path());
    let index = index.find(|path| path.to_string_lossy().contains("/index-")).unwrap();
    fs::remove_file(index).unwrap();
    fs::create_dir(scene.path("full")).unwrap();
    fs::write(scene.path("full/precious"), "1").unwrap();
    for verb in [&["in", "kept", "full", "--delete"][..], &["verify", "kept", "full"]] {
        stage(&scene, verb).with(1).says(&["packs without an index", "pack reindex"]);
    }
    assert!(scene.path("full/precious").exists());
    let told = scene.hayase(&["pack", "reindex", "kept"]).with(0).stdout;
    assert!(told.starts_with("an index of 204 entries in "), "{told}");
    stage(&scene, &["in", "kept", "back"]).with(0);
    check_same(&scene.path("tree"), &scene.path("back"));
}

/// `hayase stage` with the keys of a server for tests.
fn command_s3(scene: &Scene, server: &Server, args: &[&str]) -> Command {
    let mut command = scene.command(&[&["stage"], args].concat());
    with_s3(&mut command, server);
    command
}

fn with_s3<'a>(command: &'a mut Command, server: &Server) -> &'a mut Command {
    command.env("AWS_ENDPOINT_URL", server.endpoint()).env_remove("AWS_PROFILE");
    command.env("AWS_ACCESS_KEY_ID", ACCESS_KEY).env("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
}

/// The same, to its end.
fn stage_s3(scene: &Scene, server: &Server, args: &[&str]) -> Done {
    done(&command_s3(scene, server, args).output().unwrap())
}

#[test]
fn a_tree_goes_to_a_bucket_and_comes_back() {
    let scene = Scene::new();
    make_tree(&scene);
    let server = Server::start(&Options::default()).unwrap();
    for pack in ["64KiB", "auto"] {
        let (url, back) = (format!("s3://{BUCKET}/kept/{pack}"), format!("back-{pack}"));
        stage_s3(&scene, &server, &["out", "tree", &url, "--pack", pack]).with(0);
        stage_s3(&scene, &server, &["in", &url, &back]).with(0);
        check_same(&scene.path("tree"), &scene.path(&back));
        let again = end(&stage_s3(&scene, &server, &["in", &url, &back, "--json"]).with(0));
        assert_eq!(again["copied"], 0, "{pack}: {again}");
    }
    // Links and empty directories of loose objects are objects that stand for them.
    let url = format!("s3://{BUCKET}/loose");
    stage_s3(&scene, &server, &["out", "tree", &url, "--pack", "none"]).with(0);
    stage_s3(&scene, &server, &["in", &url, "loose"]).with(0);
    check_same(&scene.path("tree"), &scene.path("loose"));
    stage_s3(&scene, &server, &["verify", "tree", &url, "--exact"]).with(0);
    stage_s3(&scene, &server, &["verify", &url, "loose", "--exact"]).with(0);
    // A name that S3 can not have is told.
    fs::write(scene.path("tree").join(OsStr::from_bytes(b"\xff")), "").unwrap();
    let told = stage_s3(&scene, &server, &["out", "tree", &url, "--pack", "none"]).with(3).stdout;
    assert!(told.contains("1 did not arrive") && told.contains("keep it in a pack"), "{told}");
    // Where the server is can be typed, too; that counts.
    let mut typed =
        scene.command(&["stage", "verify", &url, "loose", "--endpoint", &server.endpoint()]);
    typed.env("AWS_ENDPOINT_URL", "http://127.0.0.1:1").env_remove("AWS_PROFILE");
    typed.env("AWS_ACCESS_KEY_ID", ACCESS_KEY).env("AWS_SECRET_ACCESS_KEY", SECRET_KEY);
    done(&typed.output().unwrap()).with(0);
    let nowhere = stage_s3(&scene, &server, &["in", "s3://no-such-bucket/x", "in"]).with(2);
    assert!(nowhere.stderr.contains("no-such-bucket"), "{nowhere:?}");
    stage_s3(&scene, &server, &["in", "s3://A", "in"]).with(2).says(&["invalid bucket name"]);
}

#[test]
fn differences_are_listed() {
    let scene = Scene::new();
    make_tree(&scene);
    stage(&scene, &["in", "tree", "in"]).with(0);
    fs::remove_file(scene.path("in/link")).unwrap();
    let file = scene.path("in/sub/file-002");
    let modified = fs::metadata(&file).unwrap().modified().unwrap();
    let mut bytes = fs::read(&file).unwrap();
    bytes[3] ^= 1;
    fs::write(&file, bytes).unwrap();
    fs::File::open(&file).unwrap().set_modified(modified).unwrap();
    fs::write(scene.path("in/more"), "").unwrap();
    let told = stage(&scene, &["verify", "tree", "in", "--exact"]).with(3).stdout;
    let lines = ["link is missing", "more is not in the source", "sub/file-002 has other bytes"];
    assert_eq!(told.lines().take(3).collect::<Vec<_>>(), lines, "{told}");
}

#[test]
fn what_did_not_arrive_is_listed_with_exit_code_3() {
    let scene = Scene::new();
    make_tree(&scene);
    assert!(
        std::process::Command::new("mkfifo")
            .arg(scene.path("tree/pipe"))
            .status()
            .unwrap()
            .success()
    );
    let told = stage(&scene, &["out", "tree", "kept", "--delete"]).with(3).stdout;
    assert!(
        told.contains("1 did not arrive:\n  pipe: ") && told.contains("it is a pipe"),
        "{told}"
    );
    let told = stage(&scene, &["out", "tree", "kept", "--json"]).with(3);
    assert!(told.stdout.contains(r#"{"event":"failed","name":"pipe""#), "{told:?}");
    assert_eq!(end(&told)["failures_total"], 1);
    stage(&scene, &["out", "tree", "kept", "--exclude", "pipe"]).with(0);
}

#[test]
fn a_dry_run_says_what_would_be_done() {
    let scene = Scene::new();
    make_tree(&scene);
    let told =
        stage(&scene, &["in", "tree", "in", "--dry-run", "--include", "file-19*"]).with(0).stdout;
    assert!(told.starts_with("would copy sub/file-190\n"), "{told}");
    assert!(told.ends_with("10 items would be copied\n"), "{told}");
    assert!(!scene.path("in").exists());
    fs::create_dir(scene.path("in")).unwrap();
    fs::write(scene.path("in/old"), "").unwrap();
    let told =
        stage(&scene, &["in", "tree", "in", "--dry-run", "--delete", "--json"]).with(0).stdout;
    assert!(
        told.contains(r#"{"event":"would","action":"remove","name":"old","bytes":0}"#),
        "{told}"
    );
    assert!(scene.path("in/old").exists());
}

#[test]
fn what_was_good_is_remembered() {
    let scene = Scene::new();
    fs::create_dir(scene.path("tree")).unwrap();
    for number in 0..40 {
        fs::write(scene.path("tree").join(number.to_string()), vec![1; 100_000]).unwrap();
    }
    // Long enough that it tells something: 4 MB at 2 MB a second.
    let told = end(&stage(&scene, &["in", "tree", "in", "--bandwidth", "2MB", "--json"]).with(0));
    let kept = fs::read_to_string(scene.path("run/tuned.json")).unwrap();
    let streams = &told["streams"];
    let good = format!("{{\"streams\":{streams},\"part_bytes\":8388608}}");
    let expected = format!("{{\"directory tree -> directory in\":{good}}}");
    assert_eq!(kept, expected);
    // What can not be read is as if nothing was known.
    fs::write(scene.path("run/tuned.json"), "rubbish").unwrap();
    stage(&scene, &["verify", "tree", "in"]).with(0);
    stage(&scene, &["in", "tree", "in"]).with(0);
}

#[test]
fn a_copy_tells_its_progress_each_second() {
    const BYTES: u64 = 6_000_000;
    let scene = Scene::new();
    fs::create_dir(scene.path("tree")).unwrap();
    for number in 0..60_u8 {
        let data = vec![number; BYTES as usize / 60];
        fs::write(scene.path("tree").join(number.to_string()), data).unwrap();
    }
    // For three seconds.
    let told = stage(&scene, &["in", "tree", "in", "--bandwidth", "2MB", "--json"]).with(0);
    let lines = told.stdout.lines();
    let events: Vec<serde_json::Value> =
        lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    let (last, before) = events.split_last().unwrap();
    assert_eq!((&last["event"], &last["bytes_moved"]), (&"end".into(), &BYTES.into()), "{last}");
    assert!(!before.is_empty(), "no progress: {told:?}");
    let number = |event: &serde_json::Value, name: &str| event[name].as_u64();
    let mut moved = 0;
    for event in before {
        assert_eq!(event["event"], "progress", "{event}");
        assert!(number(event, "bytes_per_second") > Some(0), "{event}");
        let now = number(event, "bytes_moved").unwrap();
        assert!((moved..=BYTES).contains(&now), "{event} after {moved}");
        moved = now;
    }
    // The tree is small: it was looked at whole long before.
    let planned = before.iter().find(|event| event["is_planned"] == true).unwrap();
    assert_eq!(number(planned, "bytes_wanted"), Some(BYTES), "{planned}");
    assert!(number(planned, "seconds_left").is_some_and(|left| left <= 60), "{planned}");
}

/// Each message says what is so, and what can be tried.
#[test]
fn places_that_can_not_be_meant_are_told() {
    let scene = Scene::new();
    make_tree(&scene);
    let inside = scene.path("tree/sub/..").into_os_string().into_string().unwrap();
    for same in ["tree", "./tree/", inside.as_str()] {
        stage(&scene, &["out", "tree", same]).with(2).says(&["the same place", "another target"]);
    }
    stage(&scene, &["in", "s3://bucket/q", "s3://bucket//q/"]).with(2).says(&["the same place"]);
    stage(&scene, &["verify", "tree/sub/file-001", "to"])
        .with(2)
        .says(&["file-001 is not a directory", "the directory above it"]);
    fs::write(scene.path("key"), "07".repeat(32)).unwrap();
    let sealed = ["out", "tree", "sealed", "--pack", "64KiB", "--key-file", "key"];
    stage(&scene, &sealed).with(0);
    fs::remove_file(scene.path("sealed/.hayase-packs/key.json")).unwrap();
    stage(&scene, &["in", "sealed", "to", "--key-file", "key"])
        .with(1)
        .says(&["key.json is missing", "without a copy the data is lost"]);
}

#[test]
fn wrong_usage_is_told() {
    let scene = Scene::new();
    make_tree(&scene);
    fs::write(scene.path("key"), [9; 32]).unwrap();
    stage(&scene, &["out", "tree", "kept", "--key-file", "key"]).with(2).says(&["--pack 16MiB"]);
    stage(&scene, &["out", "tree", "kept", "--zstd"]).with(2).says(&["--pack 16MiB"]);
    stage(&scene, &["in", "tree", "in", "--key-file", "key"]).with(2).says(&["not sealed"]);
    stage(&scene, &["in", "gone", "in"]).with(2).says(&["gone"]);
    stage(&scene, &["out", "tree", "tree/sub/kept"])
        .with(2)
        .says(&["is inside the source", "--exclude"]);
    assert!(!scene.path("tree/sub/kept").exists());
    stage(&scene, &["out", "tree", "tree/kept", "--exclude", "/kept"]).with(0);
    stage(&scene, &["in", "tree", "in", "--max-delete", "3"]).with(2).says(&["--delete"]);
    stage(&scene, &["in", "tree", "in", "--streams", "0"]).with(2).says(&["1 to 64"]);
    for size in ["4MiB", "1GiB", "large"] {
        let told = stage(&scene, &["in", "tree", "in", "--part-size", size]).with(2);
        told.says(&["expected auto, or 5 MiB to 512 MiB"]);
    }
}

#[test]
fn parts_are_as_large_as_was_said_and_shown() {
    let scene = Scene::new();
    fs::create_dir(scene.path("tree")).unwrap();
    fs::write(scene.path("tree/large"), vec![7; 17 << 20]).unwrap();
    fs::write(scene.path("tree/small"), vec![7; 1 << 20]).unwrap();
    let told = stage(&scene, &["in", "tree", "a", "--part-size", "6MiB", "--json"]).with(0);
    assert_eq!(end(&told)["part_bytes"], 6 << 20);
    let told = stage(&scene, &["in", "tree", "b"]).with(0).stdout;
    assert!(told.contains(" streams, parts of 8 MiB)"), "{told}");
    let small = ["in", "tree", "c", "--exclude", "large"];
    let told = stage(&scene, &small).with(0).stdout;
    assert!(told.contains(" streams)"), "{told}");
    let told = stage(&scene, &["in", "tree", "d", "--exclude", "large", "--json"]).with(0);
    assert_eq!(end(&told)["part_bytes"], 0);
    stage(&scene, &["verify", "tree", "a"]).with(0);
}

/// Bytes of the files below a directory that a listing shows.
fn bytes_in(directory: &std::path::Path) -> u64 {
    let mut sum = 0;
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let meta = entry.metadata();
        let is_unfinished = entry.file_name().to_string_lossy().starts_with(".hayase-partial-");
        match meta {
            Ok(meta) if meta.is_dir() => sum += bytes_in(&entry.path()),
            Ok(meta) if meta.is_file() && !is_unfinished => sum += meta.len(),
            _ => {}
        }
    }
    sum
}

/// Kills a copy with SIGKILL when some of it has arrived, again and again, then lets it end.
fn killed_and_continued(args: &[&str], target: &str, from: &str, out: &[&str]) {
    const FILES: u64 = 400;
    const BYTES: u64 = 20_000;
    let scene = Scene::new();
    fs::create_dir(scene.path("tree")).unwrap();
    for number in 0..FILES {
        let data: Vec<u8> = (0..BYTES).map(|at| (at * 7 + number * 13) as u8).collect();
        fs::write(scene.path("tree").join(format!("{number:04}")), data).unwrap();
    }
    let mut slow = args.to_vec();
    slow.extend(["--bandwidth", "8MB", "--streams", "2"]);
    let mut arrived = 0;
    for _ in 0..3 {
        let mut command = scene.command(&slow);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while bytes_in(&scene.path(target)) < arrived + 700_000 {
            assert!(child.try_wait().unwrap().is_none(), "it ended before it could be killed");
            assert!(Instant::now() < deadline, "nothing arrives");
            std::thread::sleep(Duration::from_millis(5));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        arrived = bytes_in(&scene.path(target));
    }
    let mut last = args.to_vec();
    last.push("--json");
    let told = end(&done(&scene.command(&last).output().unwrap()).with(0));
    let moved = told["bytes_moved"].as_u64().unwrap();
    // What arrived includes headers and indexes of packs: 6 % here.
    let finished = arrived / 11 * 10;
    assert!(moved <= FILES * BYTES - finished, "{moved} moved, {arrived} had arrived");
    assert!(moved > 0 && told["kept"].as_u64().unwrap() > 0, "{told}");
    let check = [&["stage", "in", from, "out"], out].concat();
    done(&scene.command(&check).output().unwrap()).with(0);
    check_same(&scene.path("tree"), &scene.path("out"));
}

#[test]
fn a_copy_that_was_killed_is_continued() {
    killed_and_continued(&["stage", "in", "tree", "kept"], "kept", "kept", &[]);
}

#[test]
fn packing_that_was_killed_is_continued() {
    let args = ["stage", "out", "tree", "kept", "--pack", "200KiB"];
    killed_and_continued(&args, "kept", "kept", &[]);
}

#[test]
fn sealing_that_was_killed_is_continued() {
    let key = "printf %064d 7";
    let args = ["stage", "out", "tree", "kept", "--pack", "200KiB", "--key-command", key];
    killed_and_continued(&args, "kept", "kept", &["--key-command", key]);
}

/// `args` with `--json`, killed when `arrived` says that eight parts are there.
fn kill_in_the_middle(command: &mut Command, arrived: impl Fn() -> u64) {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(120);
    while arrived() < 8 {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it could be killed");
        assert!(Instant::now() < deadline, "nothing arrives");
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

/// A file of 256 MiB is killed by kill -9 on its way, and the next run moves only what is not there.
fn large_file_killed_and_continued(scene: &Scene, verb: &str, from: &str, to: &str) {
    const PART: u64 = 8 << 20;
    const BYTES: u64 = 256 << 20;
    fs::create_dir(scene.path("tree")).unwrap();
    let data: Vec<u8> = (0..BYTES / 8).flat_map(|at| (at * 0x9e37_79b9).to_le_bytes()).collect();
    fs::write(scene.path("tree/large"), &data).unwrap();
    let server = Server::start(&Options::default()).unwrap();
    if verb == "in" {
        stage_s3(scene, &server, &["out", "tree", from, "--pack", "none"]).with(0);
    }
    let mut args = vec![verb, from, to];
    if verb == "out" {
        args.extend(["--pack", "none"]);
    }
    // What the target says of itself: records of 16 bytes behind the header of a journal, parts of an upload.
    let arrived = || match verb {
        "in" => journals(&scene.path(to)).map(|bytes| bytes.saturating_sub(64) / 16).sum(),
        _ => server.unfinished_parts() as u64,
    };
    let mut slow = command_s3(scene, &server, &args);
    slow.args(["--bandwidth", "64MiB", "--streams", "2"]);
    kill_in_the_middle(&mut slow, arrived);
    let there = arrived() * PART;
    assert!(there < BYTES, "all of it had arrived");
    let told =
        end(&done(&command_s3(scene, &server, &args).arg("--json").output().unwrap()).with(0));
    let number = |name: &str| told[name].as_u64().unwrap();
    assert_eq!(number("bytes_resumed") + number("bytes_moved"), BYTES, "{told}");
    // The server may have had the rest of a part still to read when its sender was killed.
    assert!((there..=there + 2 * PART).contains(&number("bytes_resumed")), "{there} there: {told}");
    if verb == "out" {
        assert_eq!(server.unfinished_uploads(), 0);
        stage_s3(scene, &server, &["in", to, "back"]).with(0);
        check_same(&scene.path("tree"), &scene.path("back"));
    } else {
        check_same(&scene.path("tree"), &scene.path(to));
        assert_eq!(fs::read_dir(scene.path(to)).unwrap().count(), 1, "something is left");
    }
}

/// Sizes of journals of unfinished files.
fn journals(top: &Path) -> impl Iterator<Item = u64> {
    let names = fs::read_dir(top).into_iter().flatten().flatten();
    let journals = names.filter(|name| name.file_name().to_string_lossy().contains("-journal-"));
    journals.filter_map(|name| Some(name.metadata().ok()?.len()))
}

#[test]
fn a_large_file_that_was_killed_on_its_way_in_is_continued() {
    large_file_killed_and_continued(&Scene::new(), "in", &format!("s3://{BUCKET}/kept"), "copy");
}

#[test]
fn a_large_file_that_was_killed_on_its_way_into_an_area_is_continued() {
    let test = "a_large_file_that_was_killed_on_its_way_into_an_area_is_continued";
    let Some(scene) = Scene::with_nodes(test) else { return };
    let mut up = scene.command(&["up", "--shared", "700M", "--local", "16M"]);
    up.arg("--storage").arg(scene.path("storage")).arg("--mount").arg(scene.path("mount"));
    done(&up.output().unwrap()).with(0);
    let area = scene.path("mount/shared/copy");
    let target = area.to_str().unwrap();
    large_file_killed_and_continued(&scene, "in", &format!("s3://{BUCKET}/kept"), target);
    scene.hayase(&["down"]).with(0);
}

#[test]
fn a_large_file_that_was_killed_on_its_way_out_is_continued() {
    large_file_killed_and_continued(&Scene::new(), "out", "tree", &format!("s3://{BUCKET}/kept"));
}

/// In a mount namespace of its own, so that nothing is left of the small file system.
#[test]
fn a_full_disk_is_told_and_the_rest_comes_when_there_is_room() {
    let test = "a_full_disk_is_told_and_the_rest_comes_when_there_is_room";
    let Some(scene) = Scene::with_own_mounts(test) else { return };
    fs::create_dir_all(scene.path("tree/sub")).unwrap();
    for number in 0..40 {
        fs::write(scene.path(&format!("tree/sub/{number}")), vec![number; 65_536]).unwrap();
    }
    // In parts.
    fs::write(scene.path("tree/large"), vec![7; 24 << 20]).unwrap();
    stage(&scene, &["out", "tree", "loose", "--pack", "none"]).with(0);
    stage(&scene, &["out", "tree", "packed", "--pack", "1MiB"]).with(0);
    fs::create_dir(scene.path("disk")).unwrap();
    let script = r#"
        mount -t tmpfs -o size=6m tmpfs disk || exit 90
        for kind in loose packed; do
            "$0" stage in $kind disk/in --exclude '/sub/[1-3]*' --exclude /large || exit 89
            "$0" stage in $kind disk/in > told 2>&1
            code=$?
            cat told
            [ $code = 3 ] || { echo "exit code $code"; exit 91; }
            grep -q "no space left there" told || exit 92
            grep -q "did not arrive" told || exit 98
            [ "$(find disk/in -type f ! -name '.hayase*' | wc -l)" -ge 6 ] || exit 99
            # What is there is whole, and nothing half written has a name.
            find disk/in -type f -printf '%P\n' | while read -r name; do
                case $name in .hayase*) continue ;; esac
                cmp "disk/in/$name" "tree/$name" || exit 93
            done || exit 93
            mount -o remount,size=64m disk || exit 94
            "$0" stage in $kind disk/in || exit 95
            diff -r tree disk/in || exit 96
            rm -r disk/in && mount -o remount,size=6m disk || exit 97
        done"#;
    let mut command = scene.program("unshare");
    command.args(["--mount", "timeout", "120", "sh", "-c", script]);
    done(&command.arg(env!("CARGO_BIN_EXE_hayase")).output().unwrap()).with(0);
}
