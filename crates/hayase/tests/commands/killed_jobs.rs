//! What the commands do for a job whose processes were all killed, or that is just being closed by its programs.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Scene, wait_until};

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

#[test]
fn the_command_that_down_prints_for_a_killed_job_resumes_it() {
    let Some(scene) = Scene::with_nodes("the_command_that_down_prints") else { return };
    up(&scene);
    let mut open = Vec::new();
    for node in 0..2 {
        let path = scene.path(&format!("mount/node-{node}/cache/file-{node}"));
        let mut file = fs::File::create(path).unwrap();
        write!(file, "of node {node}").unwrap();
        file.sync_all().unwrap();
        open.push(file); // so that none is flushed
    }
    kill_all(&scene);
    drop(open);
    let told = scene.hayase(&["down", "--job", "t"]).with(3).stdout;
    let command = told.lines().find_map(|line| line.trim().strip_prefix("hayase resume "));
    let kept = command.unwrap_or_else(|| panic!("{told}"));
    let list = fs::read_to_string(Path::new(kept).join("not-in-tier-1.json")).unwrap();
    assert!(list.contains("file-1"), "{list}");
    scene.hayase(&["resume", kept]).with(0);
    for node in 0..2 {
        let file = scene.path(&format!("tier/file-{node}"));
        assert_eq!(fs::read_to_string(file).unwrap(), format!("of node {node}"));
    }
}

/// close(2) of a mount returns before the mount is told that nobody has the file any more.
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
