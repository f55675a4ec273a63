//! Everything that was measured, as JSON, and what was drawn of it, in `bench/out/`, so that nobody has to believe a median.

use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::{Value, json};

use super::Outcome;
use super::conditions::Conditions;
use super::goal::Goal;

/// Below the root of the sources.
const DIRECTORY: &str = "bench/out";

/// Writes a run; the path of the file.
pub(crate) fn write(
    name: &str,
    conditions: &Conditions,
    groups: &[(&str, Outcome)],
) -> anyhow::Result<PathBuf> {
    let tables = groups.iter().flat_map(|(_, outcome)| &outcome.tables);
    let groups: Vec<Value> = groups.iter().map(|(name, outcome)| group(name, outcome)).collect();
    let run = json!({ "bench": name, "conditions": conditions, "groups": groups });
    let stamp: String = conditions.date.chars().filter(char::is_ascii_digit).collect();
    let path = Path::new(DIRECTORY).join(format!("{name}-{stamp}-{}.json", std::process::id()));
    std::fs::create_dir_all(DIRECTORY).with_context(|| format!("make {DIRECTORY}"))?;
    std::fs::write(&path, serde_json::to_vec_pretty(&run)?)
        .with_context(|| format!("write {}", path.display()))?;
    for plot in tables.filter_map(|table| table.plot.as_ref()) {
        let path = path.with_file_name(format!("{name}-{stamp}-{}.svg", plot.name));
        std::fs::write(&path, plot.to_svg())
            .with_context(|| format!("write {}", path.display()))?;
    }
    Ok(path)
}

fn group(name: &str, outcome: &Outcome) -> Value {
    let goals: Vec<Value> = outcome.goals.iter().map(goal).collect();
    json!({ "name": name, "goals": goals, "notes": outcome.notes, "samples": outcome.samples })
}

fn goal(goal: &Goal) -> Value {
    json!({
        "what": goal.what,
        "figure": goal.figure,
        "unit": goal.unit,
        "wanted": goal.wanted,
        "a_against_a": goal.same,
        "verdict": goal.verdict(),
        "interval_95": goal.interval,
        "repetitions": goal.repetitions().map(repetition).collect::<Vec<_>>(),
        "trouble": goal.trouble,
    })
}

fn repetition(goal: &Goal) -> Value {
    json!({ "figure": goal.figure, "a_against_a": goal.same, "trouble": goal.trouble })
}
