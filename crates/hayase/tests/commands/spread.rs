//! Copies by the nodes of a job, and before and after a run.

use std::fs;
use std::process::{Child, Stdio};

use hayase_s3_server::{ACCESS_KEY, BUCKET, Options, SECRET_KEY, Server};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;

use crate::packs::make_tree;
use crate::support::{Done, Scene, done, wait_until};

/// Names of [`make_tree`].
const NAMES: u64 = 204;

fn end(done: &Done) -> Value {
    let event: Value = serde_json::from_str(done.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(event["event"], "end", "{done:?}");
    event
}

/// Runs a script on a node; fails when it does.
fn on(scene: &Scene, node: u64, script: &str) -> String {
    let node = node.to_string();
    scene.hayase(&["exec", "--node", &node, "--", "sh", "-c", script]).with(0).stdout
}

fn check_same_on(scene: &Scene, node: u64, place: &str) {
    let tree = scene.path("tree");
    on(scene, node, &format!("diff -r --no-dereference {} {place} >&2", tree.display()));
}

fn of_nodes(end: &Value, what: &str) -> Vec<u64> {
    let nodes = end["nodes"].as_array().unwrap();
    nodes.iter().map(|node| node[what].as_u64().unwrap()).collect()
}

#[test]
fn nodes_share_the_work_into_the_shared_area() {
    let Some(scene) = Scene::with_nodes("nodes_share_the_work_into_the_shared_area") else {
        return;
    };
    make_tree(&scene);
    // Three runs of several nodes: a run ends with 4 MiB.
    for number in 0..3 {
        fs::write(scene.path(&format!("tree/large-{number}")), vec![number; 3 << 20]).unwrap();
    }
    scene.up(&["--nodes", "3"]).with(0);
    let stage = |more: &[&str]| {
        let args = ["stage", "in", "tree", "shared/in", "--spread", "shard", "--json"];
        end(&scene.hayase(&[&args, more].concat()).with(0))
    };
    let dry = stage(&["--dry-run"]);
    assert_eq!((&dry["copied"], &dry["is_dry_run"]), (&(NAMES + 3).into(), &true.into()));
    let first = stage(&[]);
    assert!(of_nodes(&first, "bytes").iter().all(|&bytes| bytes >= 3 << 20), "{first}");
    let bytes: u64 = of_nodes(&first, "bytes").iter().sum();
    assert_eq!(first["bytes_moved"], bytes, "no byte twice: {first}");
    check_same_on(&scene, 1, "$HAYASE_SHARED/in");
    on(&scene, 2, "echo more > $HAYASE_SHARED/in/sub/more");
    assert_eq!(stage(&[])["copied"], 0);
    let cleaned = stage(&["--delete"]);
    assert_eq!((&cleaned["copied"], &cleaned["removed"]), (&0.into(), &1.into()), "{cleaned}");
    check_same_on(&scene, 0, "$HAYASE_SHARED/in");
}

#[test]
fn nodes_keep_their_parts_in_their_local_areas() {
    let Some(scene) = Scene::with_nodes("nodes_keep_their_parts_in_their_local_areas") else {
        return;
    };
    make_tree(&scene);
    fs::write(scene.path("tree/large"), vec![7; 5 << 20]).unwrap();
    scene.hayase(&["pack", "create", "tree", "packs", "--size", "64KiB"]).with(0);
    scene.up(&["--nodes", "3"]).with(0);
    let args = ["stage", "in", "packs", "local/part", "--spread", "shard", "--to-nodes", "2"];
    let told = end(&scene.hayase(&[&args[..], &["--json"]].concat()).with(0));
    assert_eq!(of_nodes(&told, "node"), [0, 1]);
    let list = |node| on(&scene, node, "cd $HAYASE_LOCAL/part && find . ! -type d | sort");
    let (a, b) = (list(0), list(1));
    assert!(a.lines().all(|name| !b.contains(&format!("{name}\n"))), "{a}\n{b}");
    assert_eq!(a.lines().count() + b.lines().count(), 204, "a name has two lines");
    assert!(on(&scene, 1, "ls $HAYASE_LOCAL/part/sub").contains("empty"));
    assert_eq!(on(&scene, 2, "ls $HAYASE_LOCAL"), "");
}

/// A server in the network of the job's first node, where all its nodes reach it.
struct NodeServer {
    server: Option<Server>,
    endpoint: String,
    /// Lives on that node as long as the server does.
    holder: Child,
}

impl NodeServer {
    fn start(scene: &Scene, address: &str) -> Self {
        let mut command = scene.command(&["exec", "--node", "0", "--", "sleep", "600"]);
        let holder = command.stdout(Stdio::null()).spawn().unwrap();
        let line = format!("/proc/{}/cmdline", holder.id());
        let is_there = || fs::read(&line).is_ok_and(|line| line.starts_with(b"sleep"));
        wait_until("a program runs on node 0", is_there, || line.clone());
        let network = fs::File::open(format!("/proc/{}/ns/net", holder.id())).unwrap();
        // A socket stays in the network that it was made in: of this thread.
        let start = move || {
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(std::os::fd::AsFd::as_fd(&network), kind).unwrap();
            let listen = std::net::SocketAddr::from(([0, 0, 0, 0], 0));
            Server::start(&Options { listen, ..Options::default() }).unwrap()
        };
        let server = std::thread::spawn(start).join().unwrap();
        let endpoint = format!("http://{address}:{}", server.address().port());
        Self { server: Some(server), endpoint, holder }
    }

    fn bytes_read(&self) -> u64 {
        self.server.as_ref().unwrap().bytes_read()
    }

    fn run(&self, scene: &Scene, args: &[&str]) -> Done {
        let mut command = scene.command(args);
        command.env("AWS_ENDPOINT_URL", &self.endpoint).env_remove("AWS_PROFILE");
        command.env("AWS_ACCESS_KEY_ID", ACCESS_KEY).env("AWS_SECRET_ACCESS_KEY", SECRET_KEY);
        done(&command.output().unwrap())
    }
}

impl Drop for NodeServer {
    fn drop(&mut self) {
        drop(self.server.take());
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

#[test]
fn each_node_gets_everything_and_the_bucket_is_read_once() {
    let Some(scene) = Scene::with_nodes("each_node_gets_everything_and_the_bucket_is_read_once")
    else {
        return;
    };
    make_tree(&scene);
    // Large enough to pass through `shared` as it is, beside the packs of all others.
    fs::write(scene.path("tree/large"), vec![7; 17 << 20]).unwrap();
    fs::write(scene.path("key"), "07".repeat(32)).unwrap();
    let up = scene.up(&["--nodes", "3", "--json"]).with(0).stdout;
    let up: Value = serde_json::from_str(&up).unwrap();
    let server = NodeServer::start(&scene, up["nodes"][0]["address"].as_str().unwrap());
    let url = format!("s3://{BUCKET}/kept");
    let hayase = env!("CARGO_BIN_EXE_hayase");
    let out = ["exec", "--", hayase, "stage", "out", "tree", &url, "--pack", "64KiB"];
    server.run(&scene, &[&out[..], &["--key-file", "key"]].concat()).with(0);
    let before = server.bytes_read();
    let args =
        ["stage", "in", &url, "local/all", "--spread", "copy", "--key-file", "key", "--json"];
    let told = end(&server.run(&scene, &args).with(0));
    let bytes: u64 = of_nodes(&told, "bytes").iter().sum();
    assert_eq!(told["copied"], 3 * (NAMES + 1), "{told}");
    for node in 0..3 {
        check_same_on(&scene, node, "$HAYASE_LOCAL/all");
    }
    assert_eq!(on(&scene, 0, "ls -A $HAYASE_SHARED"), "", "what passed through is gone");
    // The index and the headers of sealed packs are read by every node, the data by one.
    let read = server.bytes_read() - before;
    assert!(read < 2 * bytes, "{read} bytes were read for {bytes} bytes of files");
    let again = end(&server.run(&scene, &args).with(0));
    assert_eq!((&again["copied"], &again["bytes_moved"]), (&0.into(), &0.into()), "{again}");
    let without = ["stage", "in", &url, "local/all", "--spread", "copy"];
    server.run(&scene, &without).with(2).says(&["sealed", "--key-file"]);
}

#[test]
fn a_run_stages_in_before_and_out_after_it() {
    let Some(scene) = Scene::with_nodes("a_run_stages_in_before_and_out_after_it") else { return };
    // Few files: what comes out is synced one by one.
    fs::create_dir_all(scene.path("tree/sub")).unwrap();
    for number in 0..5 {
        fs::write(scene.path(&format!("tree/sub/file-{number:03}")), vec![number; 3000]).unwrap();
    }
    let tree = scene.path("tree");
    let script = "cp -a $HAYASE_SHARED/in $HAYASE_SHARED/out && ls $HAYASE_LOCAL/in && exit 4";
    let run = |target: &str| {
        let (into, out) = ("tree:shared/in", format!("shared/out:{target}"));
        let more = ["--nodes", "2", "--in", into, "--in", "tree/sub:local/in", "--out", &out];
        let program = ["--", "sh", "-c", script];
        done(&scene.start_command("run", &[&more[..], &program].concat()).output().unwrap())
    };
    assert!(run("results").with(4).stdout.contains("file-001"), "the program's own status");
    crate::packs::check_same(&tree, &scene.path("results"));
    scene.check_nothing_left();
    // Results that can not be kept elsewhere stay where they are.
    fs::write(scene.path("file"), "").unwrap();
    run("file/results").with(4).says(&["stays up", "hayase down"]);
    check_same_on(&scene, 1, "$HAYASE_SHARED/out");
    scene.hayase(&["down"]).with(0);
}

#[test]
fn nodes_share_the_way_out_of_the_shared_area() {
    let Some(scene) = Scene::with_nodes("nodes_share_the_way_out_of_the_shared_area") else {
        return;
    };
    make_tree(&scene);
    for number in 0..3 {
        fs::write(scene.path(&format!("tree/large-{number}")), vec![number; 3 << 20]).unwrap();
    }
    scene.up(&["--nodes", "3"]).with(0);
    let tree = scene.path("tree");
    on(&scene, 0, &format!("cp -a {} $HAYASE_SHARED/out", tree.display()));
    let stage = |more: &[&str]| {
        let args = ["stage", "out", "shared/out", "results", "--spread", "shard", "--json"];
        end(&scene.hayase(&[&args, more].concat()).with(0))
    };
    let dry = stage(&["--dry-run"]);
    assert_eq!((&dry["copied"], &dry["is_dry_run"]), (&(NAMES + 3).into(), &true.into()));
    assert!(!scene.path("results").exists());
    let first = stage(&[]);
    assert!(of_nodes(&first, "bytes").iter().all(|&bytes| bytes >= 3 << 20), "{first}");
    let bytes: u64 = of_nodes(&first, "bytes").iter().sum();
    assert_eq!(first["bytes_moved"], bytes, "no byte twice: {first}");
    crate::packs::check_same(&tree, &scene.path("results"));
    assert_eq!(stage(&[])["copied"], 0);
    on(&scene, 1, "rm $HAYASE_SHARED/out/large-1 && echo new > $HAYASE_SHARED/out/large-2");
    let changed = stage(&["--delete", "--from-nodes", "2"]);
    assert_eq!((&changed["copied"], &changed["removed"]), (&1.into(), &1.into()), "{changed}");
    assert_eq!(of_nodes(&changed, "node"), [0, 1]);
    assert!(!scene.path("results/large-1").exists());
    // Of `local` each node has its own.
    on(&scene, 1, "mkdir $HAYASE_LOCAL/own && echo 1 > $HAYASE_LOCAL/own/name");
    scene.hayase(&["stage", "out", "local/own", "own", "--spread", "shard"]).with(0);
    assert_eq!(fs::read_to_string(scene.path("own/node-1/name")).unwrap(), "1\n");
    assert!(!scene.path("own/node-0").exists());
}

/// All of them write packs of one set, sealed by one key, and one of them names what they wrote.
#[test]
fn nodes_share_the_way_out_into_packs_of_a_bucket() {
    let Some(scene) = Scene::with_nodes("nodes_share_the_way_out_into_packs_of_a_bucket") else {
        return;
    };
    make_tree(&scene);
    // Runs of several nodes, smaller than a pack and larger.
    for number in 0..12 {
        fs::write(scene.path(&format!("tree/part-{number:02}")), vec![number; 1 << 20]).unwrap();
    }
    fs::write(scene.path("tree/large"), vec![7; 5 << 20]).unwrap();
    fs::write(scene.path("key"), "07".repeat(32)).unwrap();
    let up = scene.up(&["--nodes", "3", "--json"]).with(0).stdout;
    let up: Value = serde_json::from_str(&up).unwrap();
    let server = NodeServer::start(&scene, up["nodes"][0]["address"].as_str().unwrap());
    let tree = scene.path("tree");
    on(&scene, 0, &format!("cp -a {} $HAYASE_SHARED/out", tree.display()));
    let hayase = env!("CARGO_BIN_EXE_hayase");
    for (name, more) in [("plain", &[][..]), ("sealed", &["--key-file", "key"])] {
        let url = format!("s3://{BUCKET}/{name}");
        let out = ["stage", "out", "shared/out", &url, "--spread", "shard", "--pack", "4MiB"];
        let out = [&out[..], more, &["--json"]].concat();
        let told = end(&server.run(&scene, &out).with(0));
        assert!(of_nodes(&told, "bytes").iter().all(|&bytes| bytes > 1 << 20), "{told}");
        assert_eq!(told["copied"], NAMES + 13, "{told}");
        let again = end(&server.run(&scene, &out).with(0));
        assert_eq!((&again["copied"], &again["bytes_moved"]), (&0.into(), &0.into()), "{again}");
        let back = format!("back-{name}");
        let into = ["exec", "--", hayase, "stage", "in", &url, &back];
        server.run(&scene, &[&into[..], more].concat()).with(0);
        crate::packs::check_same(&tree, &scene.path(&back));
    }
    let url = format!("s3://{BUCKET}/sealed");
    let without = ["stage", "out", "shared/out", &url, "--spread", "shard"];
    server.run(&scene, &without).with(2).says(&["sealed", "--key-file"]);
}

/// Damaged packs are made good by writing everything anew; loose files are not covered by packs.
#[test]
fn nodes_write_packs_anew_and_mix_nothing() {
    let Some(scene) = Scene::with_nodes("nodes_write_packs_anew_and_mix_nothing") else { return };
    make_tree(&scene);
    // Only files are written over by `always`.
    fs::remove_file(scene.path("tree/link")).unwrap();
    for number in 0..6 {
        fs::write(scene.path(&format!("tree/part-{number}")), vec![number; 1 << 20]).unwrap();
    }
    fs::write(scene.path("tree/large"), vec![7; 3 << 20]).unwrap();
    fs::write(scene.path("key"), "07".repeat(32)).unwrap();
    scene.up(&["--nodes", "2"]).with(0);
    let tree = scene.path("tree");
    on(&scene, 0, &format!("cp -a {} $HAYASE_SHARED/out", tree.display()));
    let stage = |target: &str, more: &[&str]| {
        let args = ["stage", "out", "shared/out", target, "--spread", "shard", "--pack", "2MiB"];
        scene.hayase(&[&args, more].concat())
    };
    stage("packs", &[]).with(0);
    scene.hayase(&["pack", "verify", "packs"]).with(0);
    // The bytes of one file lie on its node and in no other place.
    let damage = |path: &std::path::Path| {
        let mut bytes = fs::read(path).unwrap();
        for at in (600..bytes.len()).step_by(1000) {
            bytes[at] ^= 1;
        }
        fs::write(path, bytes).unwrap();
    };
    for entry in fs::read_dir(scene.path("packs/.hayase-packs")).unwrap() {
        let path = entry.unwrap().path();
        // Those of files: directories are what they were.
        let is_large = path.metadata().unwrap().len() > 100_000;
        if is_large && path.extension().is_some_and(|of| of == "tar") {
            damage(&path);
        }
    }
    damage(&scene.path("packs/large"));
    scene.hayase(&["pack", "verify", "packs"]).with(3);
    assert_eq!(
        end(&stage("packs", &["--json"]).with(0))["copied"],
        0,
        "sizes and times are the same"
    );
    let anew = end(&stage("packs", &["--overwrite", "always", "--json"]).with(0));
    let bytes: u64 = of_nodes(&anew, "bytes").iter().sum();
    assert_eq!(anew["bytes_moved"], bytes, "no byte twice: {anew}");
    assert!(anew["packs"].as_u64() >= Some(4), "{anew}");
    scene.hayase(&["pack", "verify", "packs"]).with(0);
    scene.hayase(&["stage", "in", "packs", "back"]).with(0);
    crate::packs::check_same(&tree, &scene.path("back"));
    // One new file beside packs: it is counted once.
    on(&scene, 1, "head -c 2500000 /dev/zero > $HAYASE_SHARED/out/new");
    let more = end(&stage("packs", &["--json"]).with(0));
    assert_eq!((&more["copied"], &more["bytes_moved"]), (&1.into(), &2_500_000.into()), "{more}");

    fs::create_dir(scene.path("loose")).unwrap();
    fs::write(scene.path("loose/old"), "old").unwrap();
    for more in [&[][..], &["--key-file", "key"]] {
        let said = stage("loose", more).with(2);
        assert_eq!(said.stderr.matches("not packed").count(), 1, "{said:?}");
    }
    assert!(!scene.path("loose/.hayase-packs").exists());
    let shared = on(&scene, 0, "cd $HAYASE_SHARED && pwd");
    let inside = format!("{}/out/again", shared.trim());
    scene
        .hayase(&["stage", "out", "shared/out", &inside, "--spread", "shard"])
        .with(2)
        .says(&["is inside"]);
}

#[test]
fn what_nodes_can_not_copy_is_said() {
    let scene = Scene::new();
    let check = |args: &[&str], words: &[&str]| {
        scene.hayase(args).with(2).says(words);
    };
    check(&["stage", "in", "tree", "shared/in", "--spread", "shard"], &["no job"]);
    check(&["run", "--in", "tree", "--", "true"], &["SRC:AREA/PATH"]);
    check(&["run", "--in", "tree:cache/x", "--", "true"], &["is not a path in an area"]);
    check(&["run", "--out", "cache/x:y", "--", "true"], &["is not a path in an area"]);
    let Some(scene) = Scene::with_nodes("what_nodes_can_not_copy_is_said") else { return };
    scene.up(&["--nodes", "2"]).with(0);
    make_tree(&scene);
    let stage = |target, more: &[&str], words: &[&str]| {
        scene.hayase(&[&["stage", "in", "tree", target][..], more].concat()).with(2).says(words);
    };
    stage("shared/in", &["--spread", "copy"], &["--spread shard"]);
    stage("shared/../in", &["--spread", "shard"], &["is not a path in an area"]);
    stage("shared/in", &["--to-nodes", "3"], &["the job has only 2 nodes"]);
    let none = scene.hayase(&["stage", "in", "none", "shared/in", "--spread", "shard"]);
    none.with(2).says(&["there is no directory", "none"]);
    let out = |source, more: &[&str], words: &[&str]| {
        scene.hayase(&[&["stage", "out", source, "to"][..], more].concat()).with(2).says(words);
    };
    out("shared/in", &["--spread", "copy"], &["invalid value 'copy'", "shard"]);
    out("tree", &["--spread", "shard"], &["is not a path in an area", "shared/PATH"]);
    out("shared/none", &["--spread", "shard"], &["does not exist", "relative to $HAYASE_SHARED"]);
    out("local/none", &["--from-nodes", "2"], &["does not exist"]);
    out("shared/in", &["--from-nodes", "3"], &["the job has only 2 nodes"]);
    out("shared/in", &["--spread", "shard", "--background"], &["cannot be used with"]);
}

/// Results of a run in a bucket, in packs, sealed; and what went in from sealed packs, chosen by name.
#[test]
fn a_run_chooses_names_and_keys_of_what_it_copies() {
    let name = "a_run_chooses_names_and_keys_of_what_it_copies";
    let Some(scene) = Scene::with_nodes(name) else { return };
    fs::create_dir_all(scene.path("tree/sub")).unwrap();
    for file in ["sub/a.dat", "sub/b.dat", "sub/c.tmp", "d.dat"] {
        fs::write(scene.path(&format!("tree/{file}")), file).unwrap();
    }
    fs::write(scene.path("key"), "07".repeat(32)).unwrap();
    fs::write(scene.path("other"), "08".repeat(32)).unwrap();
    scene.hayase(&["stage", "out", "tree", "in", "--pack", "64KiB", "--key-file", "key"]).with(0);
    let run = |more: &[&str], script: &str| {
        let program = ["--", "sh", "-c", script];
        let args = [&["--in", "in:shared/in"], more, &program].concat();
        done(&scene.start_command("run", &args).output().unwrap())
    };
    let keys = ["--key-file", "key", "--out-key-file", "other"];
    let which = ["--exclude", "*.tmp", "--out-exclude", "b.*"];
    let out = ["--out", "shared/in:out", "--pack", "64KiB", "--zstd"];
    let script = "find $HAYASE_SHARED/in -type f | wc -l";
    let told = run(&[&out[..], &keys, &which].concat(), script).with(0);
    assert_eq!(told.stdout.lines().find(|line| line.trim().len() == 1), Some("3"), "{told:?}");
    scene.check_nothing_left();
    scene.hayase(&["stage", "in", "out", "back", "--key-file", "key"]).with(2).says(&["wrong key"]);
    scene.hayase(&["stage", "in", "out", "back", "--key-file", "other"]).with(0);
    let mut names: Vec<_> = ["d.dat", "sub/a.dat", "sub/b.dat", "sub/c.tmp"].to_vec();
    names.retain(|name| scene.path(&format!("back/{name}")).exists());
    assert_eq!(names, ["d.dat", "sub/a.dat"]);
    // Said before anything starts, and with options that there are.
    run(&["--key-file", "key", "--out", "shared/in:plain", "--out-key-file", "other"], "false")
        .with(2)
        .says(&["only packs can be sealed", "--pack 16MiB"]);
    run(&[], "false").with(2).says(&["sealed", "--key-file"]);
    run(&["--pack", "16MiB"], "false").with(2).says(&["need --out"]);
    scene.check_nothing_left();
    // A sealed target wants its own key, and what is not there is said to be missing.
    let unsealed = ["--key-file", "key", "--out", "shared/in:out", "--pack", "64KiB"];
    run(&unsealed, "true").with(2).says(&["sealed", "--out-key-file", "stays up"]);
    scene.hayase(&["down"]).with(0);
    run(&["--key-file", "key", "--out", "shared/results:plain"], "true")
        .with(2)
        .says(&["no program created it", "ls $HAYASE_SHARED"]);
    scene.hayase(&["down"]).with(0);
}

/// What is in `local` of a node is another thing than what is in that of another.
#[test]
fn a_run_takes_what_each_node_has_of_its_own() {
    let Some(scene) = Scene::with_nodes("a_run_takes_what_each_node_has_of_its_own") else {
        return;
    };
    let hayase = env!("CARGO_BIN_EXE_hayase");
    let on = |node: u16| {
        let what = format!("mkdir $HAYASE_LOCAL/out && echo {node} > $HAYASE_LOCAL/out/name");
        format!("{hayase} exec --node {node} -- sh -c '{what}'")
    };
    let run = |nodes: &str, script: &str, target: &str| {
        let out = format!("local/out:{target}");
        let args = ["--nodes", nodes, "--out", &out, "--", "sh", "-c", script];
        done(&scene.start_command("run", &args).output().unwrap())
    };
    // The middle one has none.
    run("3", &format!("{} && {}", on(0), on(2)), "results").with(0);
    scene.check_nothing_left();
    let read = |name: &str| fs::read_to_string(scene.path(name)).ok();
    assert_eq!(read("results/node-0/name").as_deref(), Some("0\n"));
    assert!(!scene.path("results/node-1").exists());
    assert_eq!(read("results/node-2/name").as_deref(), Some("2\n"));
    run("1", &on(0), "alone").with(0);
    assert_eq!(read("alone/name").as_deref(), Some("0\n"));
    run("2", "true", "none").with(2).says(&["local/out does not exist", "stays up"]);
    scene.hayase(&["down"]).with(0);
}
