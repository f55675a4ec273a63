//! Commands that messages print, typed as they are in the state in which they were printed: each works.

use std::fs;

use super::support::{Done, Scene, done, wait_until};

/// The commands in a text: between backquotes, or a line of their own.
fn printed(text: &str) -> Vec<String> {
    let quoted = text.split('`').skip(1).step_by(2);
    let lines = text.lines().map(str::trim).map(|line| line.strip_prefix("try: ").unwrap_or(line));
    let is_command = |text: &&str| text.starts_with("hayase ") || text.starts_with("export ");
    quoted.chain(lines).filter(is_command).map(str::to_owned).collect()
}

/// Types one or several lines into a shell; `CMD` stands for a program.
fn typed(scene: &Scene, lines: &str) -> Done {
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_hayase"));
    let path = std::env::var("PATH").unwrap_or_default();
    let mut shell = scene.program("sh");
    shell.env("PATH", format!("{}:{path}", binary.parent().unwrap().display()));
    done(&shell.args(["-ec", &lines.replace("CMD", "true")]).output().unwrap())
}

/// All that `text` prints, one after the other; how many there were.
fn type_all(scene: &Scene, text: &str) -> usize {
    let commands = printed(text);
    for command in &commands {
        let told = typed(scene, command);
        assert_eq!(told.code, 0, "{command}: {told:#?}");
    }
    commands.len()
}

#[test]
fn commands_are_found_in_texts() {
    let text =
        "hayase: no\n  try: hayase exec -- x\nuse `hayase a`, or `b`\nexport A=b\nhayase down\n";
    assert_eq!(printed(text), ["hayase a", "hayase exec -- x", "export A=b", "hayase down"]);
}

#[test]
fn what_up_prints_works() {
    let Some(scene) = Scene::with_nodes("what_up_prints_works") else { return };
    let up = scene.up(&["--nodes", "2", "--job", "t"]).with(0).stdout;
    assert_eq!(type_all(&scene, &up), 2, "{up}");
    // On one machine: the variables count for what is typed after them.
    let up = scene.up(&["--job", "t"]).with(0).stdout;
    let (lines, shared) = (printed(&up).join("\n"), "test -d \"$HAYASE_SHARED\"");
    let lines = lines.replace("\nhayase down", &format!("\n{shared}\nhayase down"));
    assert!(lines.contains(shared), "{up}");
    typed(&scene, &lines).with(0);
    scene.check_nothing_left();
}

#[test]
fn what_stands_in_the_way_of_up_goes_with_what_is_printed() {
    let Some(scene) = Scene::with_nodes("what_stands_in_the_way_of_up") else { return };
    scene.up(&["--nodes", "1", "--job", "t"]).with(0);
    let refused = scene.up(&["--nodes", "1", "--job", "t"]).with(2).stderr;
    assert_eq!(type_all(&scene, &refused), 1, "{refused}");
    let tier = scene.path("tier");
    fs::create_dir(&tier).unwrap();
    // One that has ended with something that the tier does not have stays, and keeps its mount point.
    let options = ["--nodes", "1", "--job", "t", "--tier", tier.to_str().unwrap()];
    scene.up(&options).with(0);
    let file = scene.path("mount/cache/f").display().to_string();
    let hold = format!("echo x >{file}; exec sleep 300 >>{file}");
    let mut program =
        scene.command(&["exec", "--job", "t", "--", "sh", "-c", &hold]).spawn().unwrap();
    wait_until(
        "a program has the file open",
        || typed(&scene, "hayase status --job t --json").stdout.contains("\"open_files\": 1"),
        || typed(&scene, "hayase status --job t").stdout,
    );
    scene.kill_supervisors("t", 0..1);
    let refused = scene.up(&["--nodes", "1", "--job", "other"]).with(2).stderr;
    let commands = printed(&refused);
    assert!(!commands.is_empty(), "{refused}");
    let told = typed(&scene, &commands[0]).with(3);
    assert!(told.stdout.contains("job t is down ("), "{told:#?}");
    program.wait().unwrap();
    assert_eq!(type_all(&scene, &told.stdout), 1, "{told:#?}");
    assert_eq!(fs::read(tier.join("f")).unwrap(), b"x\n");
    scene.up(&["--nodes", "1", "--job", "other"]).with(0);
}

#[test]
fn what_is_printed_of_dead_nodes_works() {
    let Some(scene) = Scene::with_nodes("what_is_printed_of_dead_nodes") else { return };
    scene.up(&["--nodes", "2", "--job", "t"]).with(0);
    scene.kill_supervisors("t", 1..2);
    let refused = scene.hayase(&["exec", "--job", "t", "--node", "1", "--", "true"]).with(1).stderr;
    assert_eq!(type_all(&scene, &refused), 1, "{refused}");
    scene.kill_supervisors("t", 0..1);
    let refused = scene.hayase(&["exec", "--job", "t", "--", "true"]).with(1).stderr;
    assert_eq!(type_all(&scene, &refused), 1, "{refused}");
    scene.check_nothing_left();
}

/// Beside simulated nodes: the areas are seen on the nodes only.
#[test]
fn what_is_printed_of_paths_on_nodes_works() {
    let Some(scene) = Scene::with_nodes("what_is_printed_of_paths_on_nodes") else { return };
    let tier = scene.path("tier");
    fs::create_dir(&tier).unwrap();
    scene.up(&["--nodes", "2", "--job", "t", "--tier", tier.to_str().unwrap()]).with(0);
    let (shared, cache) = (scene.path("mount/shared"), scene.path("mount/cache"));
    let fill =
        format!("echo x >{0}/f; mkdir {0}/d; echo y >{1}/g", shared.display(), cache.display());
    scene.hayase(&["exec", "--job", "t", "--", "sh", "-c", &fill]).with(0);
    typed(&scene, "hayase flush --job t").with(0);
    let on_host = |words: &[&str]| scene.hayase(words).with(2).stderr;
    let (d, g) = (shared.join("d").display().to_string(), cache.display().to_string());
    for words in [
        &["explain", &d][..],
        &["layout", "get", &d],
        &["layout", "set", "--stripe", "1MiB", &d],
        &["flush", &g],
        &["evict", &g],
    ] {
        let refused = on_host(words);
        assert_eq!(type_all(&scene, &refused), 1, "{words:?}: {refused}");
    }
    // What covers the area on the host is not taken for it.
    fs::create_dir(scene.path("tree")).unwrap();
    let target = tier.join("out").display().to_string();
    let refused = on_host(&["stage", "out", "--background", "tree", &target]);
    assert!(refused.contains("run the command on a node of the job"), "{refused}");
}
