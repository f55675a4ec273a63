//! `down`, `resume` and `flush` where processes of the job were killed, or a program is just closing a file.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Scene, done, wait_until};

/// A job with a tier on two nodes that are plain processes.
fn up(scene: &Scene) {
    let tier = scene.path("tier");
    fs::create_dir(&tier).unwrap();
    let options = ["--nodes", "2", "--no-namespaces", "--no-image", "--job", "t", "--tier"];
    scene.up(&[&options[..], &[tier.to_str().unwrap()]].concat()).with(0);
}

fn kill_all(scene: &Scene) {
    for (pid, _) in scene.processes() {
        let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
    }
    let left = || format!("{:?}", scene.processes());
    wait_until("all processes end", || scene.processes().is_empty(), left);
}

/// A synced file of each node, held open so that it is not flushed.
fn write_on_both(scene: &Scene) -> Vec<fs::File> {
    let write = |node: u16| {
        let path = scene.path(&format!("mount/node-{node}/cache/file-{node}"));
        let mut file = fs::File::create(path).unwrap();
        write!(file, "of node {node}").unwrap();
        file.sync_all().unwrap();
        file
    };
    (0..2).map(write).collect()
}

/// The directory that `hayase down` tells to resume.
fn kept_by_down(scene: &Scene) -> String {
    // The default waits until the dead node counts as lost.
    let told = scene.hayase(&["down", "--job", "t", "--drain", "1"]).with(3).stdout;
    let command = told.lines().find_map(|line| line.trim().strip_prefix("hayase resume "));
    command.unwrap_or_else(|| panic!("{told}")).to_owned()
}

/// A job whose processes were all killed, with a synced file of each node that the tier does not have.
fn killed(test: &str) -> Option<Scene> {
    let scene = Scene::with_nodes(test)?;
    up(&scene);
    let open = write_on_both(&scene);
    kill_all(&scene);
    drop(open);
    Some(scene)
}

/// The job is forgotten, and what was kept of it is enough to bring both files to the tier.
fn expect_resumed(scene: &Scene, kept: &str) {
    assert!(scene.jobs().is_empty(), "{:?}", scene.jobs());
    scene.hayase(&["resume", kept]).with(0);
    for node in 0..2 {
        let file = scene.path(&format!("tier/file-{node}"));
        assert_eq!(fs::read_to_string(file).unwrap(), format!("of node {node}"));
    }
}

/// In a container with process numbers of its own nothing of a running job is removed, and it is not called dead.
#[test]
fn a_running_job_is_not_dead_in_another_pid_namespace() {
    let Some(scene) = Scene::with_nodes("a_running_job_is_not_dead") else { return };
    let container = ["--pid", "--fork", "--mount-proc", "--propagation", "private"];
    let can = scene.program("unshare").args(container).arg("true").output();
    if !can.is_ok_and(|done| done.status.success()) {
        println!("SKIP a_running_job_is_not_dead_in_another_pid_namespace: no PID namespace here");
        return;
    }
    up(&scene);
    let open = write_on_both(&scene);
    let directory = scene.path("run/jobs/t");
    for args in [
        &["resume", directory.to_str().unwrap()][..],
        &["resume", "--discard", scene.path("storage/t").to_str().unwrap()],
        &["status", "--job", "t"],
        &["status"],
        &["down", "--job", "t", "--drain", "1"],
    ] {
        let mut command = scene.program("unshare");
        command.args(container).arg(env!("CARGO_BIN_EXE_hayase")).args(args);
        let said = done(&command.output().unwrap());
        assert_ne!(said.code, 0, "{args:?}: {said:?}");
        assert!(!said.stdout.contains("dead"), "{args:?}: {said:?}");
    }
    drop(open);
    scene.hayase(&["flush", "--job", "t"]).with(0);
    scene.hayase(&["down", "--job", "t"]).with(0);
    for node in 0..2 {
        let file = scene.path(&format!("tier/file-{node}"));
        assert_eq!(fs::read_to_string(file).unwrap(), format!("of node {node}"));
    }
}

#[test]
fn the_command_that_down_prints_for_a_killed_job_resumes_it() {
    let Some(scene) = killed("the_command_that_down_prints") else { return };
    let kept = kept_by_down(&scene);
    let list = fs::read_to_string(Path::new(&kept).join("not-in-tier-1.json")).unwrap();
    assert!(list.contains("file-1"), "{list}");
    expect_resumed(&scene, &kept);
}

#[test]
fn a_half_dead_job_is_resumed_by_the_command_that_down_prints() {
    let Some(scene) = Scene::with_nodes("a_half_dead_job_is_resumed") else { return };
    up(&scene);
    let open = write_on_both(&scene);
    let of_node = |line: &str| line.contains("node-1") || line.contains("--node 1");
    let record = fs::read_to_string(scene.path("run/jobs/t/node-1/supervisor.json")).unwrap();
    let record: serde_json::Value = serde_json::from_str(&record).unwrap();
    let supervisor = record["process"]["pid"].as_i64().unwrap() as i32;
    for (pid, line) in scene.processes() {
        if pid == supervisor || of_node(&line) {
            let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
        }
    }
    let lives = || scene.processes().iter().any(|(pid, _)| *pid == supervisor);
    wait_until("its supervisor ends", || !lives(), || format!("{:?}", scene.processes()));
    drop(open);
    expect_resumed(&scene, &kept_by_down(&scene));
}

/// Until `resume.json` is written only the directory of the job says what the storage is.
#[test]
fn a_killed_job_whose_storage_is_not_there_is_not_forgotten() {
    let Some(scene) = killed("a_killed_job_whose_storage") else { return };
    let (storage, away) = (scene.path("storage/t/node-1"), scene.path("away"));
    fs::rename(&storage, &away).unwrap();
    let told = scene.hayase(&["down", "--job", "t"]).with(3).stdout;
    assert!(told.contains("is not there: is it mounted?"), "{told}");
    assert_eq!(scene.jobs(), ["t"]);
    fs::rename(&away, &storage).unwrap();
    expect_resumed(&scene, &kept_by_down(&scene));
}

/// close(2) returns before the kernel reports the last close to the mount.
#[test]
fn a_file_that_is_just_being_closed_is_flushed() {
    let Some(scene) = Scene::with_nodes("a_file_that_is_just_being_closed") else { return };
    up(&scene);
    let path = scene.path("mount/node-0/cache/file");
    let mut file = fs::File::create(&path).unwrap();
    file.write_all(b"bytes").unwrap();
    let closing = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(500));
        drop(file);
    });
    scene.hayase(&["flush", path.to_str().unwrap()]).with(0);
    closing.join().unwrap();
    assert_eq!(fs::read(scene.path("tier/file")).unwrap(), b"bytes");
    let open = fs::File::options().append(true).open(&path).unwrap();
    (&open).write_all(b" and more").unwrap();
    let told = scene.hayase(&["flush", path.to_str().unwrap()]).with(3).stdout;
    assert!(told.contains("cache/file  open"), "{told}");
}
