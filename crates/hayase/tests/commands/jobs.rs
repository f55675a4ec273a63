//! Whole jobs of simulated nodes: up, used, down; and every way in which they can end early.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

use crate::support::{PATIENCE, Scene, done, wait_until};
use rustix::process::{Pid, Signal, kill_process};

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn nodes_have_their_own_name_network_and_mounts_and_leave_nothing() {
    let Some(scene) = Scene::with_nodes("nodes_have_their_own_name_network_and_mounts") else {
        return;
    };
    let told = json(&scene.up(&["--nodes", "3", "--job", "t", "--json"]).with(0).stdout);
    assert_eq!((&told["job"], &told["kind"]), (&"t".into(), &"namespaces".into()));
    assert_eq!(told["nodes"].as_array().unwrap().len(), 3);
    assert_eq!(told["nodes"][2]["host"], "t-n2");

    let on = |node: &str, script: &str| {
        scene.hayase(&["exec", "--node", node, "--", "sh", "-c", script]).with(0).stdout
    };
    assert_eq!(on("1", "hostname").trim(), "t-n1");
    let address = on("2", "ip -4 -o address show dev eth0");
    assert!(address.contains(told["nodes"][2]["address"].as_str().unwrap()), "{address}");
    // The other nodes answer by name, and nothing else is there.
    assert!(on("2", "getent hosts n0 t-n1").lines().count() == 2);
    assert_eq!(on("0", "ip route show default"), "");
    assert_eq!(on("0", "ls /sys/class/net").split_whitespace().collect::<Vec<_>>(), ["eth0", "lo"]);

    // Mounts are the node's own, at the same path; the machine does not see them.
    on("0", "echo zero > $HAYASE_LOCAL/who");
    on("1", "echo one > $HAYASE_LOCAL/who");
    assert_eq!(on("0", "cat $HAYASE_LOCAL/who"), "zero\n");
    assert!(!scene.path("mount/local/who").exists());
    assert_eq!(
        on("0", "ls $HAYASE_JOB/self").lines().count(),
        on("1", "ls $HAYASE_JOB/self").lines().count()
    );
    assert!(on("2", "cat $HAYASE_JOB/self/supervisor.json").contains("\"node\": 2"));

    let status = json(&scene.hayase(&["status", "--json"]).with(0).stdout);
    assert_eq!(status["jobs"][0]["state"], "up", "{status:#}");
    scene.hayase(&["down"]).with(0);
    scene.check_nothing_left();
    scene.hayase(&["down", "--job", "t"]).with(2).says(&["already down"]);
}

#[test]
fn exec_passes_streams_status_directory_and_signals() {
    let Some(scene) = Scene::with_nodes("exec_passes_streams_status_directory_and_signals") else {
        return;
    };
    scene.up(&["--nodes", "2", "--job", "t"]).with(0);
    scene.hayase(&["exec", "--node", "1", "--", "sh", "-c", "exit 7"]).with(7);
    scene.hayase(&["exec", "--", "no-such-program"]).with(127).says(&["no-such-program"]);
    scene.hayase(&["exec", "--", "/etc/hosts"]).with(126);
    scene.hayase(&["exec", "--node", "2", "--", "true"]).with(2).says(&["no node 2", "it has 2"]);
    scene.hayase(&["exec", "--launcher", "elsewhere", "true"]).with(2).says(&["`elsewhere`"]);

    let here = scene.hayase(&["exec", "--", "pwd"]).with(0).stdout;
    assert_eq!(here.trim(), scene.path("").to_str().unwrap().trim_end_matches('/'));
    let text =
        scene.hayase(&["exec", "--launcher", "-x", "n1", "hostname;", "echo", "$HAYASE_NODE"]);
    assert_eq!(text.with(0).stdout, "t-n1\n1\n");

    let mut cat = scene.command(&["exec", "--node", "1", "--", "cat"]);
    let mut cat = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    cat.stdin.take().unwrap().write_all(b"through and back").unwrap();
    assert_eq!(done(&cat.wait_with_output().unwrap()).with(0).stdout, "through and back");

    let script = "trap 'exit 9' USR1; echo ready; while :; do sleep 0.01; done";
    let mut child = scene.command(&["exec", "--node", "1", "--", "sh", "-c", script]);
    let mut child = child.stdout(Stdio::piped()).spawn().unwrap();
    wait_line(&mut child);
    kill_process(Pid::from_child(&child), Signal::USR1).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(9));
}

/// A file of the job with this content, and the checksum that belongs to it.
fn sealed(mut content: serde_json::Value) -> String {
    content.as_object_mut().unwrap().remove("checksum");
    let text = serde_json::to_string_pretty(&content).unwrap();
    let body = text.strip_suffix("\n}").unwrap();
    let sum = blake3::hash(body.as_bytes()).to_hex();
    format!("{body},\n  \"checksum\": \"{}\"\n}}\n", &sum[..32])
}

#[test]
fn a_recycled_process_number_is_not_entered() {
    let Some(scene) = Scene::with_nodes("a_recycled_process_number_is_not_entered") else { return };
    scene.up(&["--nodes", "2", "--job", "t"]).with(0);
    let path = scene.path("run/jobs/t/node-1/supervisor.json");
    let kept = fs::read_to_string(&path).unwrap();
    // As if the supervisor had ended and another process had its number now.
    let mut record = json(&kept);
    record["process"]["start"] = 1.into();
    fs::write(&path, sealed(record)).unwrap();
    scene
        .hayase(&["exec", "--node", "1", "--", "true"])
        .with(1)
        .says(&["node 1 of job t is not up"]);
    fs::write(&path, &kept).unwrap();
    scene.hayase(&["exec", "--node", "1", "--", "true"]).with(0);
    // Where that can not be read, its copy counts; where neither can, it may be up.
    fs::write(&path, "").unwrap();
    scene.hayase(&["exec", "--node", "1", "--", "true"]).with(0);
    fs::write(path.with_extension("json.copy"), "").unwrap();
    let told = scene.hayase(&["exec", "--node", "1", "--", "true"]).with(1);
    told.says(&["cannot tell whether node 1 of job t runs", path.to_str().unwrap()]);
    fs::write(&path, kept).unwrap();
}

#[test]
fn down_ends_what_it_can_judge_and_leaves_the_rest() {
    let Some(scene) = Scene::with_nodes("down_ends_what_it_can_judge") else { return };
    scene.up(&["--nodes", "2", "--job", "t"]).with(0);
    let path = scene.path("run/jobs/t/node-1/supervisor.json");
    let copy = path.with_extension("json.copy");
    let kept = fs::read(&path).unwrap();
    fs::write(&path, "{").unwrap();
    fs::write(&copy, "{").unwrap();
    let told = scene.hayase(&["down"]).with(1);
    let path = path.to_str().unwrap();
    assert!(told.stdout.contains("is down in part"), "{told:#?}");
    assert!(told.stdout.contains("cannot tell whether node 1 of job t runs"), "{told:#?}");
    assert!(told.stdout.contains(path), "{told:#?}");
    let of = |node: &str| {
        let all = scene.processes().into_iter();
        all.filter(|(_, line)| line.contains(&format!("--node {node}"))).count()
    };
    assert_eq!(of("0"), 0, "{:?}", scene.processes());
    assert!(of("1") > 0 && scene.path("storage/t/node-1").exists());
    // What reads JSON finds nothing else on standard error.
    let told = scene.hayase(&["down", "--json"]).with(1);
    assert!(told.stderr.lines().all(|line| line.starts_with('{')), "{told:#?}");
    // One of the two is enough, and a warning names the other.
    fs::write(&copy, kept).unwrap();
    let told = scene.hayase(&["down"]).with(0);
    let warned = told.stderr.lines().filter(|line| line.contains("WARN") && line.contains(path));
    assert_eq!(warned.count(), 1, "{told:#?}");
    scene.check_nothing_left();
}

#[test]
fn commands_that_go_well_warn_of_nothing() {
    let Some(scene) = Scene::with_nodes("commands_that_go_well_warn_of_nothing") else { return };
    let tier = scene.path("tier");
    fs::create_dir(&tier).unwrap();
    let up = scene.up(&["--nodes", "2", "--job", "t", "--tier", tier.to_str().unwrap()]).with(0);
    let file = scene.path("mount/cache/f");
    let script = format!("echo f > {}", file.display());
    scene.hayase(&["exec", "--node", "0", "--", "sh", "-c", &script]).with(0);
    let down = scene.hayase(&["down"]).with(0);
    for told in [up, down] {
        assert!(!told.stderr.contains("WARN"), "{told:#?}");
    }
    scene.check_nothing_left();
}

#[test]
fn run_gives_the_status_of_its_program() {
    let Some(scene) = Scene::with_nodes("run_gives_the_status_of_its_program") else { return };
    let script = "hostname; test -d $HAYASE_SHARED -a -d $HAYASE_LOCAL && exit 5";
    let run = scene.start_command("run", &["--nodes", "2", "--job", "t", "--", "sh", "-c", script]);
    let ran = done(&{ run }.output().unwrap()).with(5);
    assert_eq!(ran.stdout, "t-n0\n");
    scene.check_nothing_left();
    let run = scene.start_command("run", &["--nodes", "2", "--", "sh", "-c", "kill -TERM $$"]);
    done(&{ run }.output().unwrap()).with(128 + 15);
    scene.check_nothing_left();
    let run = scene.start_command("run", &["--nodes", "2", "--", "no-such-program"]);
    done(&{ run }.output().unwrap()).with(127);
    scene.check_nothing_left();
}

#[test]
fn run_forwards_signals_and_takes_down_after_its_program() {
    let Some(scene) = Scene::with_nodes("run_forwards_signals_and_takes_down") else { return };
    let script = "trap 'echo caught; exit 4' TERM; echo ready; while :; do sleep 0.01; done";
    let mut run = scene.start_command("run", &["--nodes", "2", "--", "sh", "-c", script]);
    let mut run = run.stdout(Stdio::piped()).spawn().unwrap();
    wait_line(&mut run);
    kill_process(Pid::from_child(&run), Signal::TERM).unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(4));
    scene.check_nothing_left();
}

#[test]
fn a_launcher_that_is_killed_leaves_nothing() {
    let Some(scene) = Scene::with_nodes("a_launcher_that_is_killed_leaves_nothing") else { return };
    // In the middle of `run`, with a program that does not want to end.
    let script = "trap '' TERM INT HUP; echo ready; while :; do sleep 0.01; done";
    let mut run = scene.start_command("run", &["--nodes", "3", "--", "sh", "-c", script]);
    let mut run = run.stdout(Stdio::piped()).spawn().unwrap();
    wait_line(&mut run);
    run.kill().unwrap();
    run.wait().unwrap();
    scene.check_nothing_left();

    // In the middle of `up`, at many moments.
    for step in 0..8 {
        let mut up = scene.start_command("up", &["--nodes", "3"]);
        let mut up = up.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(step * 40));
        up.kill().unwrap();
        let ended = up.wait().unwrap();
        if ended.success() {
            // It was faster than the signal.
            scene.hayase(&["down"]).with(0);
        }
        // What the launcher itself had made and no node knows of is removed by the next command.
        for job in scene.jobs() {
            wait_until(
                "the nodes end",
                || scene.processes().is_empty(),
                || format!("{:?}", scene.processes()),
            );
            let _ = scene.hayase(&["down", "--job", &job]);
        }
        let _ = scene.hayase(&["status"]);
        scene.check_nothing_left();
    }
}

#[test]
fn up_that_is_interrupted_says_so_and_leaves_nothing() {
    let Some(scene) = Scene::with_nodes("up_that_is_interrupted_says_so") else { return };
    let mut up = scene.start_command("up", &["--nodes", "3"]);
    let up = up.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("a node begins", || !scene.jobs().is_empty(), String::new);
    kill_process(Pid::from_child(&up), Signal::INT).unwrap();
    let ended = done(&up.wait_with_output().unwrap());
    if ended.code != 0 {
        ended.with(1).says(&["interrupted"]);
        scene.check_nothing_left();
    }
}

#[test]
fn a_supervisor_that_gets_a_signal_takes_its_node_down_and_down_the_rest() {
    let Some(scene) = Scene::with_nodes("a_supervisor_that_gets_a_signal") else { return };
    for signal in [Signal::TERM, Signal::KILL] {
        scene.up(&["--nodes", "2", "--job", "t"]).with(0);
        let record = fs::read_to_string(scene.path("run/jobs/t/node-1/supervisor.json")).unwrap();
        let pid = json(&record)["process"]["pid"].as_i64().unwrap() as i32;
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
        let of_node = || {
            let all = scene.processes().into_iter();
            all.filter(|(_, line)| line.contains("--node 1")).collect::<Vec<_>>()
        };
        wait_until("its daemons end", || of_node().is_empty(), || format!("{:?}", of_node()));
        let status = json(&scene.hayase(&["status", "--json"]).with(0).stdout);
        assert_eq!(status["jobs"][0]["state"], "damaged", "{status:#}");
        let told = scene.hayase(&["down"]).with(0);
        assert!(told.stdout.contains("node 1: its supervisor had ended"), "{told:#?}");
        scene.check_nothing_left();
    }
}

#[test]
fn a_dead_job_is_seen_as_such_and_cleaned_by_the_next_up() {
    let Some(scene) = Scene::with_nodes("a_dead_job_is_seen_as_such") else { return };
    scene.up(&["--job", "dead"]).with(0);
    let record = fs::read_to_string(scene.path("run/jobs/dead/node-0/supervisor.json")).unwrap();
    let pid = json(&record)["process"]["pid"].as_i64().unwrap() as i32;
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    wait_until(
        "its daemons end",
        || scene.processes().is_empty(),
        || format!("{:?}", scene.processes()),
    );
    let status = json(&scene.hayase(&["status", "--json"]).with(0).stdout);
    assert_eq!(status["jobs"][0]["state"], "dead", "{status:#}");
    scene.hayase(&["exec", "--", "true"]).with(1).says(&["not running any more", "hayase down"]);
    scene.up(&["--job", "next"]).with(0).says(&["removed what job dead had left"]);
    assert_eq!(scene.jobs(), ["next"]);
}

#[test]
fn of_a_dead_job_with_a_tier_nothing_is_said_to_be_there() {
    let Some(scene) = Scene::with_nodes("of_a_dead_job_with_a_tier") else { return };
    let tier = scene.path("tier");
    fs::create_dir(&tier).unwrap();
    scene.up(&["--nodes", "2", "--job", "t", "--tier", tier.to_str().unwrap()]).with(0);
    let up = scene.hayase(&["top", "--count", "1"]).with(0).stdout;
    assert!(up.contains("everything is in the tier"), "{up}");
    let report = || {
        let page = scene.path("report.html");
        scene.hayase(&["report", "--output", page.to_str().unwrap()]).with(0);
        fs::read_to_string(page).unwrap()
    };
    assert!(report().contains("None: the tier has everything."));
    scene.kill_supervisors("t", 1..2);
    let half = scene.hayase(&["status"]).with(0).stdout;
    assert!(half.contains("1 node does not answer, and what it has may not be in"), "{half}");
    assert!(half.contains("node 1: its ledger says that the tier has all of its files"), "{half}");
    let html = report();
    assert!(html.contains(">at least "), "{html}");
    scene.kill_supervisors("t", 0..1);
    let servers = || {
        let all = scene.processes().into_iter();
        all.filter(|(_, line)| line.contains("hayase serve ")).collect::<Vec<_>>()
    };
    wait_until("its servers end", || servers().is_empty(), || format!("{:?}", servers()));
    let unknown = "it is unknown whether everything is in the tier; 2 nodes do not answer";
    for command in [&["top", "--count", "1"][..], &["status"]] {
        let told = scene.hayase(command).with(0).stdout;
        // The name of the scene's directory may end with a B.
        let without_paths = told.replace(scene.path("").to_str().unwrap(), "");
        assert!(told.contains(unknown) && !without_paths.contains("B/s"), "{told}");
    }
    let told = scene.hayase(&["status"]).with(0).stdout;
    let job_dir = scene.path("run/jobs/t");
    assert!(told.contains(&format!("`hayase down --job {}`", job_dir.display())), "{told}");
    let html = report();
    assert!(html.contains(">not known<") && !html.contains("<b class=\"\">0 B<"), "{html}");
    let json = json(&scene.hayase(&["status", "--json"]).with(0).stdout);
    assert_eq!(json["jobs"][0]["drain"]["unknown_nodes"], 2, "{json:#}");
    // What is printed works.
    let down = scene.hayase(&["down", "--job", job_dir.to_str().unwrap()]).with(0).stdout;
    assert!(down.contains("job t is down ("), "{down}");
}

/// On the machine of simulated nodes; also where all that could end the job was killed.
#[test]
fn where_areas_are_mounted_on_nodes_only_nothing_is_written() {
    let Some(scene) = Scene::with_nodes("where_areas_are_mounted_on_nodes_only") else { return };
    scene.up(&["--nodes", "2", "--job", "t"]).with(0);
    for area in ["shared", "local"] {
        let place = scene.path("mount").join(area);
        let refused = fs::write(place.join("lost"), "by a program that runs here").unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem, "{refused}");
        let notice = fs::read_to_string(place.join("NOT-MOUNTED-HERE")).unwrap();
        assert!(notice.contains("hayase exec --job t"), "{notice}");
    }
    let write = format!("cd {}; echo x >f; ls", scene.path("mount/shared").display());
    let told = scene.hayase(&["exec", "--node", "1", "--", "sh", "-c", &write]).with(0).stdout;
    assert_eq!(told, "f\n");
    scene.hayase(&["down"]).with(0);
    scene.check_nothing_left();
    scene.up(&["--nodes", "2", "--job", "t"]).with(0);
    scene.kill_supervisors("t", 0..2);
    scene.hayase(&["down", "--job", "t"]).with(0);
    scene.check_nothing_left();
    // A directory that was there before is somebody's.
    fs::create_dir_all(scene.path("mount/shared")).unwrap();
    scene.up(&["--nodes", "1", "--job", "t"]).with(0);
    fs::write(scene.path("mount/shared/f"), "x").unwrap();
    scene.hayase(&["down"]).with(0);
    assert!(scene.path("mount/shared/f").exists());
    fs::remove_dir_all(scene.path("mount")).unwrap();
}

#[test]
fn flush_in_a_job_without_a_tier_says_so() {
    let Some(scene) = Scene::with_nodes("flush_in_a_job_without_a_tier") else { return };
    scene.up(&["--job", "t"]).with(0);
    let shared = scene.path("mount/shared");
    for path in [None, shared.to_str()] {
        let args: Vec<_> = ["flush"].into_iter().chain(path).collect();
        let told = scene.hayase(&args).with(2);
        told.says(&["job t has no tier", "files in `shared` are removed", "stage out", "--tier"]);
    }
}

#[test]
fn a_layout_is_set_where_it_means_something_and_nowhere_else() {
    let Some(scene) = Scene::with_nodes("a_layout_is_set_where_it_means_something") else { return };
    scene.up(&["--nodes", "2", "--job", "t"]).with(0);
    let shared = scene.path("mount/shared");
    let path = |name: &str| shared.join(name).display().to_string();
    let set = ["layout", "set", "--stripe", "64KiB"];
    // On the host of simulated nodes there is nothing but an empty directory.
    scene
        .hayase(&[&set[..], &[shared.to_str().unwrap()]].concat())
        .with(2)
        .says(&["which is visible only on its nodes", "hayase exec --job t"]);
    let on_node = |args: &[&str]| {
        let exec = ["exec", "--node", "0", "--", env!("CARGO_BIN_EXE_hayase")];
        scene.hayase(&[&exec[..], args].concat())
    };
    let set_on = |path: &str| on_node(&[&set[..], &[path]].concat());
    let script = format!("cd {}; echo 1 >full; : >empty; ln -s / out", path(""));
    scene.hayase(&["exec", "--node", "0", "--", "sh", "-c", &script]).with(0);
    for file in ["full", "empty"] {
        set_on(&path(file)).with(2).says(&["is not a directory", "create a directory"]);
        on_node(&["layout", "unset", &path(file)]).with(2).says(&["is not a directory"]);
    }
    set_on(&path("out/var")).with(2).says(&["/var is not in an area of any job"]);
    set_on(&scene.path("mount/local").display().to_string()).with(2).says(&["in the local area"]);
    set_on(&path("gone")).with(1).says(&["No such file"]);
    let wide = on_node(&["layout", "set", "--width", "9", &path("")]).with(2);
    wide.says(&["cannot stripe over 9 nodes", "--width 0"]);
    set_on(&path("")).with(0);
    let got = on_node(&["layout", "get", &path("")]).with(0).stdout;
    assert!(got.contains("striped, 64 KiB over all nodes"), "{got}");
    on_node(&["layout", "unset", &path("")]).with(0);
}

#[test]
fn a_file_of_an_mpi_program_keeps_its_layout() {
    let Some(scene) = Scene::with_nodes("a_file_of_an_mpi_program") else { return };
    scene.up(&["--job", "t"]).with(0);
    let file = scene.path("mount/shared/file");
    fs::write(&file, "").unwrap();
    // As the library does for an MPI program.
    let of_file = format!("{:016x}", fs::metadata(&file).unwrap().ino());
    let dir = scene.path("mount/shared/.hayase-recorded").join(of_file);
    fs::create_dir_all(&dir).unwrap();
    let recorded = format!("recorded:{}", fs::metadata(&dir).unwrap().ino());
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(&file, "user.hayase.layout", recorded.as_bytes(), flags).unwrap();
    let file = file.to_str().unwrap();
    for verb in ["set", "unset"] {
        let told = scene.hayase(&["layout", verb, file]).with(2);
        told.says(&["is a container", "create a directory"]);
    }
    assert!(scene.hayase(&["layout", "get", file]).with(0).stdout.contains(": recorded"));
}

#[test]
fn one_name_one_job_one_storage() {
    let Some(scene) = Scene::with_nodes("one_name_one_job_one_storage") else { return };
    scene.up(&["--nodes", "2", "--job", "t"]).with(0);
    scene
        .up(&["--nodes", "2", "--job", "t"])
        .with(2)
        .says(&["job t exists", "hayase down --job t"]);
    // Another registry (another user, say), the same storage.
    let mut other = scene.start_command("up", &["--nodes", "2", "--job", "t"]);
    other.env("HAYASE_RUNTIME_DIR", scene.path("other")).args(["--json"]);
    let told = done(&other.output().unwrap()).with(2);
    assert!(told.stderr.contains("already has a job named t"), "{told:#?}");
    // Another name, the same mount point.
    scene.up(&["--nodes", "2", "--job", "u"]).with(2).says(&["job t has its areas there"]);
    let status = json(&scene.hayase(&["status", "--json"]).with(0).stdout);
    assert_eq!(status["jobs"][0]["state"], "up", "the first job is as it was: {status:#}");
    let _ = fs::remove_dir_all(scene.path("other"));
}

#[test]
fn who_holds_a_mount_is_named_and_left_alone_unless_it_is_of_the_job() {
    let Some(scene) = Scene::with_nodes("who_holds_a_mount_is_named") else { return };
    scene.up(&["--job", "t"]).with(0);
    let local = scene.path("mount/local");
    let mut stranger =
        std::process::Command::new("sleep").arg("60").current_dir(&local).spawn().unwrap();
    let program = "cd $HAYASE_LOCAL; echo ready; exec sleep 60";
    let mut ours = scene.command(&["exec", "--", "sh", "-c", program]);
    let mut ours = ours.stdout(Stdio::piped()).spawn().unwrap();
    wait_line(&mut ours);
    // The shell says that it is ready before it becomes the program.
    let name = || fs::read_to_string(format!("/proc/{}/comm", ours.id())).unwrap();
    wait_until("the shell has become `sleep`", || name() == "sleep\n", name);
    let told = scene.hayase(&["down"]).with(0).stdout;
    assert!(told.contains(&format!("ended programs of the job: {} (sleep)", ours.id())), "{told}");
    assert!(told.contains(&format!("{} (sleep, cwd)", stranger.id())), "{told}");
    assert!(stranger.try_wait().unwrap().is_none(), "a stranger was ended");
    assert!(ours.wait().unwrap().code().is_none(), "by a signal");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

#[test]
fn a_mount_that_was_killed_waits_for_what_is_mounted_over_it() {
    let Some(scene) = Scene::with_nodes("a_mount_that_was_killed_waits") else { return };
    scene.up(&["--job", "t"]).with(0);
    let shared = scene.path("mount/shared");
    fs::write(shared.join("ours"), "ours").unwrap();
    let over = Command::new("mount").args(["-t", "tmpfs", "over"]).arg(&shared).status();
    assert!(over.unwrap().success());
    fs::write(shared.join("file"), "over").unwrap();
    let mounts = || {
        let all = scene.processes().into_iter();
        all.filter(|(_, line)| line.contains("hayase serve-mount ")).collect::<Vec<_>>()
    };
    let [(pid, _)] = mounts()[..] else { panic!("{:?}", mounts()) };
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    let log = || fs::read_to_string(scene.path("run/jobs/t/node-0/supervisor.log")).unwrap();
    let waits =
        || log().contains("is not started again yet: a file system (tmpfs) is mounted over");
    wait_until("it waits", waits, log);
    assert_eq!(fs::read(shared.join("file")).unwrap(), b"over");
    assert!(Command::new("umount").arg(&shared).status().unwrap().success());
    let is_back = || fs::read(shared.join("ours")).is_ok_and(|bytes| bytes == b"ours");
    wait_until("it is back", is_back, log);
}

#[test]
fn down_keeps_the_storage_when_asked() {
    let Some(scene) = Scene::with_nodes("down_keeps_the_storage_when_asked") else { return };
    scene.up(&["--nodes", "2", "--job", "t"]).with(0);
    let told = json(&scene.hayase(&["down", "--keep", "--json"]).with(0).stdout);
    assert_eq!(told["kept"], scene.path("storage/t").to_str().unwrap());
    assert!(scene.path("storage/t/node-1/shared.img").exists());
    scene.up(&["--nodes", "2", "--job", "t"]).with(2).says(&["already has a job named t"]);
    fs::remove_dir_all(scene.path("storage/t")).unwrap();
}

#[test]
fn nodes_without_namespaces_have_their_own_paths() {
    let Some(scene) = Scene::with_nodes("nodes_without_namespaces_have_their_own_paths") else {
        return;
    };
    let args = ["--nodes", "2", "--no-namespaces", "--no-image", "--job", "t", "--json"];
    let told = json(&scene.up(&args).with(0).stdout);
    assert_eq!(told["kind"], "loopback");
    assert!(told["nodes"][1]["address"].as_str().unwrap().starts_with("127."));
    let local = scene.path("mount/node-1/local");
    assert_eq!(told["nodes"][1]["local"], local.to_str().unwrap());
    let seen = scene.hayase(&["exec", "--node", "1", "--", "sh", "-c", "echo x > $HAYASE_LOCAL/f"]);
    seen.with(0);
    assert_eq!(fs::read_to_string(local.join("f")).unwrap(), "x\n");
}

#[test]
fn a_node_that_does_not_come_up_is_named_with_its_reason() {
    let Some(scene) = Scene::with_nodes("a_node_that_does_not_come_up_is_named") else { return };
    // No program that makes the file system of an area.
    let mut up = scene.start_command("up", &["--nodes", "2"]);
    up.args(["--timeout", "0"]);
    done(&up.output().unwrap()).with(1).says(&["within 0 s", "--timeout"]);
    scene.check_nothing_left();
}

#[test]
fn strict_names_are_asked_for_each_time() {
    let Some(scene) = Scene::with_nodes("strict_names_are_asked_for_each_time") else { return };
    let requests_of_looks = |names: &str| {
        scene.up(&["--nodes", "2", "--job", "t", "--names", names]).with(0);
        scene.hayase(&["exec", "--", "sh", "-c", "echo > $HAYASE_SHARED/f"]).with(0);
        let requests = || {
            let status = json(&scene.hayase(&["status", "--json"]).with(0).stdout);
            status["jobs"][0]["nodes"][1]["server"]["requests"].as_u64().unwrap()
        };
        let look = || {
            let before = requests();
            let script = "for i in $(seq 200); do test -e $HAYASE_SHARED/f; done";
            scene.hayase(&["exec", "--node", "1", "--", "sh", "-c", script]).with(0);
            requests() - before
        };
        // Nothing is remembered of a file while who made it may still write.
        let asked = (0..5).map(|_| look()).min().unwrap();
        scene.hayase(&["down"]).with(0);
        asked
    };
    let (cached, strict) = (requests_of_looks("cached"), requests_of_looks("strict"));
    assert!(strict >= 200, "{strict}");
    assert!(cached < 100, "{cached}");
}

#[test]
fn shared_mappings_can_be_refused_off_the_home_node() {
    let test = "shared_mappings_can_be_refused_off_the_home_node";
    let Some(scene) = Scene::with_nodes(test) else { return };
    let source = r#"
        #include <errno.h>
        #include <fcntl.h>
        #include <stdio.h>
        #include <string.h>
        #include <sys/mman.h>
        int main(int argc, char **argv) {
            int fd = open(argv[1], O_RDWR);
            char *p = mmap(0, 4, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            puts(p == MAP_FAILED ? strerror(errno) : "mapped");
            return 0;
        }"#;
    fs::write(scene.path("map.c"), source).unwrap();
    let mut cc = std::process::Command::new("cc");
    let built = cc.args(["-o", "map", "map.c"]).current_dir(scene.path("")).status();
    if !built.is_ok_and(|status| status.success()) {
        println!("SKIP {test}: needs a C compiler");
        return;
    }
    for (option, expected) in [("everywhere", "mapped\n"), ("home", "No such device\n")] {
        scene.up(&["--nodes", "2", "--job", "t", "--mmap-shared", option]).with(0);
        let on = |node: &str, script: &str| {
            scene.hayase(&["exec", "--node", node, "--", "sh", "-c", script]).with(0).stdout
        };
        on("0", "echo text > $HAYASE_SHARED/f");
        assert_eq!(on("1", "./map $HAYASE_SHARED/f"), expected, "{option}");
        assert_eq!(on("0", "./map $HAYASE_SHARED/f"), "mapped\n", "{option}");
        scene.hayase(&["down"]).with(0);
    }
}

#[test]
fn mpi_runs_over_the_nodes_without_options() {
    let Some(scene) = Scene::with_nodes("mpi_runs_over_the_nodes_without_options") else { return };
    let has = |program| std::process::Command::new(program).arg("--version").output().is_ok();
    if !has("mpicc.mpich") || !has("mpiexec.hydra") {
        println!("SKIP mpi_runs_over_the_nodes_without_options: needs MPICH");
        return;
    }
    let source = r#"
        #include <mpi.h>
        #include <stdio.h>
        #include <unistd.h>
        int main(int argc, char **argv) {
            int rank, size, sum; char host[64];
            MPI_Init(&argc, &argv);
            MPI_Comm_rank(MPI_COMM_WORLD, &rank);
            MPI_Comm_size(MPI_COMM_WORLD, &size);
            MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
            gethostname(host, sizeof host);
            printf("%d/%d %s %d\n", rank, size, host, sum);
            MPI_Finalize();
        }"#;
    fs::write(scene.path("ring.c"), source).unwrap();
    let built = std::process::Command::new("mpicc.mpich")
        .args(["-o", "ring", "ring.c"])
        .current_dir(scene.path(""))
        .status()
        .unwrap();
    assert!(built.success());
    scene.up(&["--nodes", "3", "--job", "t"]).with(0);
    let sorted = |text: String| {
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let whole = scene.hayase(&["exec", "--", "mpiexec.hydra", "-n", "3", "./ring"]).with(0);
    assert_eq!(sorted(whole.stdout), ["0/3 t-n0 3", "1/3 t-n1 3", "2/3 t-n2 3"]);

    // And with an mpiexec that knows nothing of nodes.
    let hayase = env!("CARGO_BIN_EXE_hayase");
    let mut mpiexec = std::process::Command::new("mpiexec.hydra");
    for node in ["0", "1"] {
        if node == "1" {
            mpiexec.arg(":");
        }
        mpiexec.args(["-n", "1", hayase, "exec", "--node", node, "--", "./ring"]);
    }
    mpiexec.current_dir(scene.path("")).env("HAYASE_RUNTIME_DIR", scene.path("run"));
    let split = done(&mpiexec.output().unwrap()).with(0);
    assert_eq!(sorted(split.stdout), ["0/2 t-n0 1", "1/2 t-n1 1"]);
}

/// Waits for the first line of a child's standard output, which stays open.
fn wait_line(child: &mut std::process::Child) {
    let stdout = child.stdout.as_mut().expect("stdout is a pipe");
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n", "within {PATIENCE:?}");
}
