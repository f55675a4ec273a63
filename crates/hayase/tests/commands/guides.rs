//! Blocks of shell in documents, run as they stand: README and every page below `docs/`.
//!
//! A block that begins with ```` ```sh ```` runs; one with a reason (```` ```sh,needs-slurm ````) does not, and its
//! commands are only parsed (`src/cli/documents.rs`). The blocks of a page run in order in one shell that ends at the
//! first failure, in an empty home directory, next to an S3 server with one bucket.

use std::fs;
use std::path::{Path, PathBuf};

use hayase_s3_server::{ACCESS_KEY, Options, SECRET_KEY, Server};

use crate::support::{Scene, done};

/// Pages that must have blocks that run: the start, and every tutorial but those of programs that this machine lacks.
const PAGES: [&str; 3] =
    ["docs/guide/start.md", "docs/tutorials/small-files.md", "docs/tutorials/time-limit.md"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What of a page runs.
fn script(page: &str) -> String {
    let mut script = String::new();
    let mut info = None;
    for line in page.lines() {
        match (line.trim_start().strip_prefix("```"), info) {
            (Some(opened), None) => info = Some(opened.trim()),
            (Some(_), Some(_)) => info = None,
            (None, Some("sh")) => {
                script.push_str(line);
                script.push('\n');
            }
            (None, _) => {}
        }
    }
    script
}

/// Every page that has something to run, by its path in the repository.
fn pages() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut waiting = vec![root().join("docs"), root().join("README.md")];
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            waiting.extend(fs::read_dir(path).unwrap().flatten().map(|entry| entry.path()));
        } else if path.extension().is_some_and(|end| end == "md") {
            let script = script(&fs::read_to_string(&path).unwrap());
            let name = path.strip_prefix(root()).unwrap().display().to_string();
            found.extend((!script.is_empty()).then_some((name, script)));
        }
    }
    found.sort();
    found
}

#[test]
fn blocks_without_a_reason_run() {
    let page =
        "a\n```sh\nb\n```\n```sh,needs-slurm\nc\n```\n```text\nd\n```\n  ```sh\n  e\n  ```\n";
    assert_eq!(script(page), "b\n  e\n");
}

#[test]
fn documents_run_as_they_stand() {
    let pages = pages();
    for wanted in PAGES {
        assert!(pages.iter().any(|(name, _)| name == wanted), "nothing of {wanted} runs");
    }
    let binary = Path::new(env!("CARGO_BIN_EXE_hayase")).parent().unwrap().display().to_string();
    let search = format!("{binary}:{}", std::env::var("PATH").unwrap_or_default());
    for (name, script) in pages {
        let Some(scene) = Scene::with_nodes(&format!("documents_run_as_they_stand {name}")) else {
            return;
        };
        let server = Server::start(&Options::default()).unwrap();
        let mut shell = scene.program("bash");
        shell.args(["-euc", &script]).env("PATH", &search).env("HOME", scene.path(""));
        shell.env("AWS_ENDPOINT_URL", server.endpoint()).env_remove("AWS_PROFILE");
        shell.env("AWS_ACCESS_KEY_ID", ACCESS_KEY).env("AWS_SECRET_ACCESS_KEY", SECRET_KEY);
        println!("{name}");
        let ended = done(&shell.output().unwrap());
        assert_eq!(ended.code, 0, "{name}:\n{script}\n{}\n{}", ended.stdout, ended.stderr);
        scene.check_nothing_left();
    }
}
