//! What each command says of itself: help and manual pages, kept as snapshots.

use crate::support::{Scene, check_snapshot};

const VERBS: &[&str] = &[
    "up",
    "down",
    "run",
    "exec",
    "status",
    "flush",
    "evict",
    "resume",
    "explain",
    "layout",
    "container",
    "mount",
    "stage",
    "pack",
    "doctor",
    "noise",
    "serve",
    "serve-mount",
];

/// Verbs of verbs.
const DEEPER: &[(&str, &str)] = &[
    ("container", "enable"),
    ("container", "show"),
    ("container", "check"),
    ("container", "export"),
    ("container", "compact"),
    ("stage", "in"),
    ("stage", "out"),
    ("stage", "verify"),
    ("pack", "create"),
    ("pack", "list"),
    ("pack", "extract"),
    ("pack", "verify"),
    ("pack", "rekey"),
];

#[test]
fn help_is_what_it_was() {
    let scene = Scene::new();
    check_snapshot("help.txt", &scene.hayase(&["--help"]).with(0).stdout);
    for verb in VERBS {
        let told = scene.hayase(&[verb, "--help"]).with(0).stdout;
        check_snapshot(&format!("help-{verb}.txt"), &told);
    }
    for (verb, deeper) in DEEPER {
        let told = scene.hayase(&[verb, deeper, "--help"]).with(0).stdout;
        check_snapshot(&format!("help-{verb}-{deeper}.txt"), &told);
    }
}

#[test]
fn manual_pages_and_completions_know_every_verb() {
    let scene = Scene::new();
    let man = scene.path("man");
    scene.hayase(&["man", man.to_str().unwrap()]).with(0);
    for verb in VERBS {
        assert!(man.join(format!("hayase-{verb}.1")).exists(), "{verb}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let script = scene.hayase(&["completions", shell]).with(0).stdout;
        for verb in VERBS {
            assert!(script.contains(verb), "{shell}: {verb}");
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
        "needs a directory, a bucket or a Gfarm",
        "s3://",
        "gfarm:///",
    ]);
    scene.hayase(&["up", "--shared", "lots"]).with(2).says(&["is no size", "300MiB"]);
    scene.hayase(&["up", "--shared", "5parsecs"]).with(2).says(&["is no unit"]);
    scene.hayase(&["up", "--kernel-profile", "2.4"]).with(2).says(&["4.18", "6.9"]);
    scene.hayase(&["up", "--no-namespaces"]).with(2).says(&["--nodes"]);
    scene.hayase(&["up", "--job", "Not_A_Name"]).with(2).says(&["can not name a job"]);
    scene.hayase(&["run"]).with(2).says(&["CMD"]);
}
