//! Each kind of bad input has its own words, an exit code of 2, and leaves nothing behind.

use std::fs;

use crate::support::{Scene, check_snapshot};

#[test]
fn jobs_that_are_not_there() {
    let scene = Scene::new();
    let mut told = String::new();
    let no_job = scene.path("nothing");
    let no_job = no_job.to_str().unwrap();
    for args in [
        &["down"][..],
        &["down", "--job", "gone"],
        &["down", "--job", no_job],
        &["exec", "--", "true"],
        &["exec", "--job", scene.path("storage").to_str().unwrap(), "--", "true"],
        &["status", "--job", "gone"],
        &["explain", scene.path("storage").to_str().unwrap()],
        &["layout", "get", scene.path("storage").to_str().unwrap()],
        &["layout", "set", scene.path("storage").to_str().unwrap()],
        &["layout", "unset", scene.path("storage").to_str().unwrap()],
        &["flush", scene.path("storage").to_str().unwrap()],
    ] {
        let done = scene.hayase(args).with(2);
        told.push_str(&format!("$ hayase {}\n{}", args.join(" "), done.stderr));
    }
    check_snapshot("no-job.txt", &scene.plain(&told));
    let from_environment = scene.command(&["down"]).env("HAYASE_JOB", no_job).output().unwrap();
    crate::support::done(&from_environment).with(2).says(&["HAYASE_JOB names it"]);
    let jobs = scene.hayase(&["status", "--json"]).with(0).stdout;
    assert_eq!(jobs, "{\n  \"jobs\": []\n}\n");
}

#[test]
fn errors_are_json_when_asked_for() {
    let scene = Scene::new();
    let done = scene.hayase(&["down", "--json"]).with(2);
    assert_eq!(done.stdout, "");
    let told: serde_json::Value = serde_json::from_str(&done.stderr).unwrap();
    assert_eq!(told["error"]["exit"], 2);
    assert!(told["error"]["message"].as_str().unwrap().contains("no job"));
    assert!(told["error"]["help"].as_str().unwrap().contains("hayase up"));
    // Also of arguments that were not understood.
    let done = scene.hayase(&["stage", "in", "--json", "--streams", "none", "a", "b"]).with(2);
    let told: serde_json::Value = serde_json::from_str(&done.stderr).unwrap();
    assert_eq!(told["error"]["exit"], 2);
    assert!(told["error"]["message"].as_str().unwrap().contains("invalid value"), "{told}");
}

#[test]
fn storage_that_can_not_be_used() {
    let scene = Scene::new();
    let up = |storage: &str, more: &[&str]| {
        let args = [&["up", "--storage", storage][..], more].concat();
        scene.hayase(&args).with(2)
    };
    up("/no/such/storage", &[]).says(&["storage /no/such/storage", "no such file", "--storage"]);
    fs::write(scene.path("file"), "").unwrap();
    up(scene.path("file").to_str().unwrap(), &[]).says(&["not a directory"]);
    let storage = scene.path("storage");
    let storage = storage.to_str().unwrap();
    up(storage, &["--shared", "900T"]).says(&["not enough space in storage", "smaller --shared"]);
    up(storage, &["--shared", "1K"]).says(&["--shared 1 KiB is too small", "16 MiB"]);
    up(storage, &["--shared", "0"]).says(&["an area needs at least 16 MiB"]);
    up(storage, &["--nodes", "100000"]).says(&["expected 1 to 200"]);
    up("/proc", &[]).says(&["storage /proc: its file system stores no files"]);
    up(storage, &["--tier", "s3:/bucket/x"]).says(&["did you mean s3://bucket/x?"]);
    up(storage, &["--nodes", "0"]).says(&["--nodes 0"]);
    up(storage, &["--nodes", "5000"]).says(&["--nodes 5000"]);
    up(storage, &["--endpoint", "http://127.0.0.1:9"])
        .says(&["--endpoint needs --tier", "--tier s3://"]);
    up(storage, &["--stripe", "1000"])
        .says(&["--stripe: a stripe of 1000 bytes", "multiple of 4 KiB"]);
    up(storage, &["--nodes", "2", "--width", "3"]).says(&["--width 3", "2 nodes"]);
    scene.check_nothing_left();
}

#[test]
fn mount_points_that_can_not_be_used() {
    let scene = Scene::new();
    let up = |mount: &str| {
        let storage = scene.path("storage");
        scene.hayase(&["up", "--storage", storage.to_str().unwrap(), "--mount", mount]).with(2)
    };
    fs::write(scene.path("file"), "").unwrap();
    up(scene.path("file").to_str().unwrap()).says(&[
        "mount point",
        "file/shared",
        "not a directory",
    ]);
    let full = scene.path("full");
    fs::create_dir_all(full.join("shared/something")).unwrap();
    up(full.to_str().unwrap()).says(&["not empty", "hide what is in it", "--mount"]);
    // No directory can be made there.
    up("/proc/nowhere").says(&["mount point /proc/nowhere/shared"]);
    scene.check_nothing_left();
}

#[test]
fn a_mount_point_that_is_a_mount() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIP a_mount_point_that_is_a_mount: needs root");
        return;
    }
    struct Bound(std::path::PathBuf);
    impl Drop for Bound {
        fn drop(&mut self) {
            let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
        }
    }
    let scene = Scene::new();
    let shared = scene.path("bound/shared");
    fs::create_dir_all(&shared).unwrap();
    rustix::mount::mount_bind(&shared, &shared).unwrap();
    let bound = Bound(shared);
    let storage = scene.path("storage");
    let mount = scene.path("bound");
    let args = ["up", "--storage", storage.to_str().unwrap(), "--mount", mount.to_str().unwrap()];
    scene.hayase(&args).with(2).says(&["something is mounted there already"]);
    drop(bound);
}

#[test]
fn a_registry_that_others_can_enter() {
    use std::os::unix::fs::PermissionsExt;
    let scene = Scene::new();
    fs::create_dir(scene.path("run")).unwrap();
    fs::set_permissions(scene.path("run"), fs::Permissions::from_mode(0o777)).unwrap();
    scene.up(&[]).with(2).says(&["or others can enter it", "HAYASE_RUNTIME_DIR"]);
}

#[test]
fn paths_that_are_nearly_right() {
    let scene = Scene::new();
    let (file, target) = (scene.path("f"), scene.path("to"));
    fs::write(&file, "x").unwrap();
    let stage =
        |verb: &str, source: &str| scene.hayase(&["stage", verb, source, target.to_str().unwrap()]);
    stage("verify", file.to_str().unwrap()).with(2).says(&["is not a directory", "--include NAME"]);
    stage("in", "s3:bucket/data").with(2).says(&["did you mean s3://bucket/data?"]);
    scene
        .hayase(&["noise", "--processors", "1000"])
        .with(2)
        .says(&["processors 1000 cannot be used here"]);
}
