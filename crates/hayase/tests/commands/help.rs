//! What each command says of itself: help and manual pages, kept as snapshots.
//!
//! Which commands there are is read from the help itself: no list is kept here.

use std::path::Path;

use crate::support::{Scene, check_file, check_snapshot, snapshots_of};

/// A command as words: `["container", "check"]`; none is `hayase` itself.
type Words = Vec<String>;

/// Every command that help shows, with its help: `hayase`, then each below it.
fn commands(scene: &Scene) -> Vec<(Words, String)> {
    let mut found = Vec::new();
    let mut waiting: Vec<Words> = vec![Vec::new()];
    while let Some(words) = waiting.pop() {
        let typed = words.iter().map(String::as_str).chain(["--help"]);
        let help = scene.hayase(&typed.collect::<Vec<_>>()).with(0).stdout;
        let deeper = subcommands(&help).into_iter().map(|name| [&words[..], &[name]].concat());
        waiting.extend(deeper);
        found.push((words, help));
    }
    found
}

/// Names in the section `Commands:` of a help text, without `help` itself.
fn subcommands(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let entries = lines.take_while(|line| !line.is_empty());
    // A name stands two columns in; the rest of a long description stands further in.
    let names = entries.filter_map(|line| line.strip_prefix("  ").filter(|l| !l.starts_with(' ')));
    let names = names.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

/// `help.txt`, `help-container-check.txt`.
fn snapshot_of(words: &Words) -> String {
    format!("{}.txt", [&["help".to_owned()], &words[..]].concat().join("-"))
}

#[test]
fn commands_are_read_from_help() {
    let help = "Does\n\nUsage: x\n\nCommands:\n  up    Start, in\n        two lines\n  stage-in\n  help  This\n\nOptions:\n  -x  y\n";
    assert_eq!(subcommands(help), ["up", "stage-in"]);
    assert!(subcommands("Usage: x\n\nOptions:\n  -x  y\n").is_empty());
}

#[test]
fn help_is_what_it_was() {
    let scene = Scene::new();
    let commands = commands(&scene);
    assert!(commands.len() > 30, "only {} commands were found", commands.len());
    for (words, help) in &commands {
        check_snapshot(&snapshot_of(words), help);
    }
    let known: Vec<_> = commands.iter().map(|(words, _)| snapshot_of(words)).collect();
    for kept in snapshots_of("help") {
        assert!(known.contains(&kept), "{kept} is of a command that does not exist: remove it");
    }
}

/// The page of the reference: what each command says of itself.
fn reference(mut commands: Vec<(Words, String)>) -> String {
    commands.sort();
    let section = |(words, help): &(Words, String)| {
        let name = [&["hayase".to_owned()], &words[..]].concat().join(" ");
        format!("\n## {name}\n\n```text\n{}\n```\n", help.trim_end())
    };
    let sections: String = commands.iter().map(section).collect();
    format!(
        "# Commands and options\n\n\
         What `hayase --help` and `hayase COMMAND --help` print, written by the program.\n\
         Do not edit this page: `UPDATE_SNAPSHOTS=1 cargo test -p hayase --test commands help` writes it again.\n{sections}"
    )
}

#[test]
fn the_reference_says_what_help_says() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/commands.md");
    check_file(&page, &reference(commands(&Scene::new())));
}

#[test]
fn manual_pages_and_completions_know_every_command() {
    let scene = Scene::new();
    let man = scene.path("man");
    scene.hayase(&["man", man.to_str().unwrap()]).with(0);
    let commands = commands(&scene);
    for (words, _) in &commands {
        let page = [&["hayase".to_owned()], &words[..]].concat().join("-");
        assert!(man.join(format!("{page}.1")).exists(), "{page}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let script = scene.hayase(&["completions", shell]).with(0).stdout;
        for name in commands.iter().filter_map(|(words, _)| words.last()) {
            assert!(script.contains(name.as_str()), "{shell}: {name}");
        }
    }
}

#[test]
fn a_missing_or_unknown_verb_is_wrong_usage() {
    let scene = Scene::new();
    scene.hayase(&[]).with(2);
    scene.hayase(&["upp"]).with(2).says(&["unrecognized subcommand 'upp'", "'up'"]);
    scene.hayase(&["up", "--tire", "/x"]).with(2).says(&["unexpected argument '--tire'"]);
    scene.hayase(&["up", "--deadline", "5"]).with(2).says(&["--tier"]);
    scene.hayase(&["up", "--tier", "ftp://a/b"]).with(2).says(&[
        "expected a directory, a bucket or a Gfarm",
        "s3://",
        "gfarm:///",
    ]);
    scene
        .hayase(&["up", "--shared", "lots"])
        .with(2)
        .says(&["expected a number with a unit", "300MiB"]);
    scene.hayase(&["up", "--shared", "5parsecs"]).with(2).says(&["unknown unit `parsecs`"]);
    scene.hayase(&["up", "--kernel-profile", "2.4"]).with(2).says(&["4.18", "6.9"]);
    scene.hayase(&["up", "--no-namespaces"]).with(2).says(&["--nodes"]);
    scene.hayase(&["up", "--job", "Not_A_Name"]).with(2).says(&["invalid job name"]);
    scene.hayase(&["run"]).with(2).says(&["CMD"]);
}

#[test]
fn how_a_command_talks_is_an_option_of_all() {
    let scene = Scene::new();
    let coloured = |words: &[&str]| scene.hayase(words).with(0).stdout.contains('\x1b');
    assert!(coloured(&["--color", "always", "up", "--help"]));
    assert!(coloured(&["up", "--color=always", "--help"]));
    assert!(!coloured(&["up", "--color=never", "--help"]));
    scene.hayase(&["status", "-q"]).with(0);
    scene.hayase(&["-vv", "status", "--no-progress"]).with(0);
    scene.hayase(&["status", "-q", "-v"]).with(2).says(&["cannot be used with"]);
    // What follows belongs to the program.
    scene.hayase(&["exec", "true", "-q", "-v"]).with(2).says(&["no job"]);
    scene.hayase(&["exec", "--", "-q", "-v"]).with(2).says(&["no job"]);
}
