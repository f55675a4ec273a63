//! `hayase explain`.

use std::path::{Path, PathBuf};

use hayase_layout::ByteCount;
use serde::Serialize;
use serde_json::Value;

use super::AreaPathError;
use crate::config::Environment;
use crate::exit::Status;
use crate::output::{Human, Output, Page};

/// The mount answers with one JSON object.
const EXPLAIN: &str = "user.hayase.explain";

/// Largest answer.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Show how a file is served and why
///
/// For a file of the shared or the cache area: whether the kernel, the mount or the servers serve its data on this
/// node, its layout, its home, which nodes have it open, and whether the tier has it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExplainArgs {
    /// File or directory of the shared or the cache area
    path: PathBuf,
}

const EXAMPLES: &str = "\
Examples:
  hayase explain /tmp/areas/shared/checkpoint
  hayase exec --node 1 -- hayase explain /tmp/areas/cache/input.nc

See also:
  hayase layout, hayase status";

#[derive(Debug, Serialize)]
struct Explanation {
    path: PathBuf,
    #[serde(flatten)]
    told: Value,
}

/// Asks the mount.
pub(crate) fn run(
    args: &ExplainArgs,
    environment: &Environment,
    output: &Output,
) -> anyhow::Result<Status> {
    let told = ask(&args.path, environment)?;
    output.show(&Explanation { path: args.path.clone(), told })?;
    Ok(Status::Done)
}

fn ask(path: &Path, environment: &Environment) -> anyhow::Result<Value> {
    let mut answer = vec![0; ANSWER_BYTES_MAX];
    let count = rustix::fs::getxattr(path, EXPLAIN, &mut answer[..])
        .map_err(|errno| AreaPathError::new(errno, "explain", path, environment))?;
    Ok(serde_json::from_slice(&answer[..count])?)
}

impl Human for Explanation {
    fn write(&self, page: &mut Page) {
        let told = &self.told;
        page.title(&self.path.display().to_string());
        page.pair(
            "served here",
            &format!("{}: {}", class(&told["here"]), plain(&told["here"]["why"])),
        );
        page.pair("kernel cache", if told["here"]["cache"] == true { &"yes" } else { &"no" });
        page.pair("passthrough", &plain(&told["here"]["passthrough"]));
        page.pair("layout", &plain(&told["layout"]));
        page.pair("size", &ByteCount(told["size"].as_u64().unwrap_or(0)));
        if let Some(state) = told["tier"]["state"].as_str() {
            page.pair("tier", &in_tier(state, &told["tier"]));
        }
        page.pair("home", &format!("server {}, inode {}", told["home"], told["ino"]));
        page.pair("state", &plain(&told["state"]));
        for open in told["opens"].as_array().into_iter().flatten() {
            let how: Vec<_> =
                ["read", "write"].into_iter().filter(|&way| open[way] == true).collect();
            let (node, how) = (&open["node"], how.join(" and "));
            page.pair("open", &format!("on node {node}, to {how}, {}", plain(&open["class"])));
        }
        for part in told["parts"].as_array().into_iter().flatten() {
            let bytes = ByteCount(part["bytes_allocated"].as_u64().unwrap_or(0));
            page.pair("part", &format!("on server {}, {bytes} allocated", part["server"]));
        }
    }
}

fn class(here: &Value) -> &'static str {
    match here["class"].as_str() {
        Some("local") if here["passthrough"] == "used" => "by the kernel, from the part itself",
        Some("local") => "by the mount, from the part itself",
        Some(_) => "through the servers",
        None => "not open",
    }
}

/// What the tier has of a file.
fn in_tier(state: &str, told: &Value) -> String {
    match state {
        "in-tier" => {
            "has it; no bytes of it are here: they are fetched when they are read".to_owned()
        }
        "clean" | "durable" => {
            "has it; the copy here can be given back (`hayase evict`)".to_owned()
        }
        "dirty" => "does not have this version yet".to_owned(),
        "flushing" => "is getting this version now".to_owned(),
        "failed" => {
            let errno = told["errno"].as_i64().and_then(|errno| i32::try_from(errno).ok());
            let why = std::io::Error::from_raw_os_error(errno.unwrap_or_default());
            format!("did not take this version: {why} (failures in a row: {})", told["attempts"])
        }
        other => other.to_owned(),
    }
}

/// A text without the marks of JSON.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_tier_has_is_told_in_words() {
        let told = |state: &str| in_tier(state, &serde_json::json!({"errno": 28, "attempts": 3}));
        assert!(told("in-tier").starts_with("has it; no bytes of it are here"));
        assert!(told("clean").contains("`hayase evict`"));
        assert_eq!(told("dirty"), "does not have this version yet");
        let failed = told("failed");
        assert!(failed.contains("No space left") && failed.contains("in a row: 3"), "{failed}");
    }

    #[test]
    fn the_answer_of_a_mount_is_told_in_words() {
        let told = serde_json::json!({
            "ino": 2, "home": 0, "layout": "whole", "size": 3, "state": "writing",
            "opens": [{"node": 1, "read": true, "write": true, "class": "local"}],
            "parts": [{"server": 0, "bytes_allocated": 4096}],
            "here": {"class": "local", "why": "its part is on this node", "readers": 0,
                     "writers": 1, "cache": false, "passthrough": "used"},
        });
        let mut page = Page::new(false);
        Explanation { path: "f".into(), told }.write(&mut page);
        for line in [
            "served here     by the kernel, from the part itself: its part is on this node",
            "open            on node 1, to read and write, local",
            "part            on server 0, 4 KiB allocated",
        ] {
            assert!(page.text().contains(line), "{line}: {}", page.text());
        }
    }
}
