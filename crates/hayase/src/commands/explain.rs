//! `hayase explain`.

use std::path::{Path, PathBuf};

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

/// Tell how a file of the shared area is served, and why
#[derive(Debug, clap::Args)]
pub(crate) struct ExplainArgs {
    /// File or directory, as this node sees it
    path: PathBuf,
}

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
        .map_err(|errno| AreaPathError::new(errno, ("explain", "explain"), path, environment))?;
    Ok(serde_json::from_slice(&answer[..count])?)
}

impl Human for Explanation {
    fn write(&self, page: &mut Page) {
        page.title(&self.path.display().to_string());
        for (key, value) in self.told.as_object().into_iter().flatten() {
            page.pair(&key.replace('_', " "), &plain(value));
        }
    }
}

/// One value in one line, without the marks of JSON.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join("; "),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, value)| format!("{key} {}", plain(value)));
            fields.collect::<Vec<_>>().join(", ")
        }
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_plainly() {
        let value = serde_json::json!({"class": "local", "opens": [{"node": 1}, {"node": 2}]});
        assert_eq!(plain(&value), "class local, opens node 1; node 2");
        assert_eq!(plain(&Value::Null), "-");
    }
}
