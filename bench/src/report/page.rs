//! The page of a run in `docs/results/`: goals, conditions, tables, also where we lose.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::Outcome;
use super::conditions::Conditions;
use super::subjects::crates_of;
use super::summary::Summary;
use super::table::cell_text;

/// Below the root of the sources.
const DIRECTORY: &str = "docs/results";

/// Writes the page; its path.
pub(crate) fn write(
    name: &str,
    summary: &Summary,
    intro: &str,
    conditions: &Conditions,
    groups: &[(&str, Outcome)],
) -> anyhow::Result<PathBuf> {
    let path = Path::new(DIRECTORY).join(format!("{name}.md"));
    std::fs::create_dir_all(DIRECTORY).with_context(|| format!("make {DIRECTORY}"))?;
    let tables = groups.iter().flat_map(|(_, outcome)| &outcome.tables);
    for plot in tables.filter_map(|table| table.plot.as_ref()) {
        let path = Path::new(DIRECTORY).join(format!("{name}-{}.svg", plot.name));
        std::fs::write(&path, plot.to_svg())
            .with_context(|| format!("write {}", path.display()))?;
    }
    std::fs::write(&path, text(name, summary, intro, conditions, groups))
        .with_context(|| format!("write {}", path.display()))?;
    Ok(path)
}

fn text(
    name: &str,
    summary: &Summary,
    intro: &str,
    conditions: &Conditions,
    groups: &[(&str, Outcome)],
) -> String {
    let mut text = head(name, &summary.text(groups), conditions);
    let _ = write!(text, "\n{intro}\n\n## Goals\n\n");
    text += "| goal | figure | wanted | A against A | verdict |\n|---|---:|---:|---:|---|\n";
    for goal in groups.iter().flat_map(|(_, outcome)| &outcome.goals) {
        let again = if goal.again.is_empty() { "" } else { " (two tries)" };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {}{again} |",
            cell_text(&goal.what),
            goal.figures(),
            goal.wanted,
            goal.sames().unwrap_or_else(|| "-".to_owned()),
            goal.verdict(),
        );
    }
    text += "\n## Conditions\n\n";
    for (what, value) in conditions.pairs() {
        let _ = writeln!(text, "- {what}: {value}");
    }
    for (title, outcome) in groups {
        let _ = writeln!(text, "\n## {title}\n");
        for note in &outcome.notes {
            let _ = writeln!(text, "{note}");
        }
        for table in &outcome.tables {
            let _ = write!(text, "\n{}", table.to_markdown());
        }
        for plot in outcome.tables.iter().filter_map(|table| table.plot.as_ref()) {
            let _ = write!(text, "\n![{}]({name}-{}.svg)\n", plot.title, plot.name);
        }
    }
    text
}

/// The heading, the summary, and the lines that tidy reads: when many commits have changed what a page speaks of, it is old.
fn head(name: &str, summary: &str, conditions: &Conditions) -> String {
    let quick = if conditions.quick { " (quick run)" } else { "" };
    let mut head = format!("# Results: {name}{quick}\n\n{summary}\n\n");
    let _ = writeln!(head, "Measured commit: `{}`\n", commit_in(&conditions.commit));
    if let Some(before) = &conditions.before {
        let _ = writeln!(head, "Compared with commit: `{}`\n", commit_in(before));
    }
    let crates: Vec<_> = crates_of(name).iter().map(|name| format!("`crates/{name}`")).collect();
    let _ = writeln!(head, "Measured crates: {}", crates.join(", "));
    head
}

/// The commit with which a text begins, without what is said about it.
fn commit_in(text: &str) -> &str {
    let word = text.split(' ').next().unwrap_or(text);
    let is_commit = word.len() >= 12 && word.bytes().all(|c| c.is_ascii_hexdigit());
    if is_commit { word } else { "unknown" }
}

#[cfg(test)]
mod tests {
    use super::super::goal::{Goal, Wanted};
    use super::super::table::Table;
    use super::*;

    #[test]
    fn a_page_tells_what_falls_short() {
        let goal = Goal::new("remote read", 0.4, "", Wanted::AtLeast(0.5)).same_as(vec![1.01]);
        let outcome = Outcome {
            goals: vec![goal],
            tables: vec![Table::new("Remote", &["what"])],
            notes: vec!["Blocks of 1 MiB.".to_owned()],
            samples: Vec::new(),
        };
        let mut conditions = Conditions::now(Path::new("/tmp"), true, None);
        conditions.commit = "0123456789ab + changes".to_owned();
        let summary = Summary { measured: "Files are read.", found: &[] };
        let page =
            text("foundation", &summary, "Intro.", &conditions, &[("Remote files", outcome)]);
        let head = "# Results: foundation (quick run)\n\nFiles are read.\n\
                    0 of 1 goals hold; missed: remote read (0.40, wanted at least 0.50).\n\n\
                    Measured commit: `0123456789ab`\n\n\
                    Measured crates: `crates/client`, `crates/fuse`,";
        assert!(page.starts_with(head), "{page}");
        assert!(page.contains("| remote read | 0.40 | at least 0.50 | 1.01 | short |"), "{page}");
        assert!(page.contains("## Remote files\n\nBlocks of 1 MiB.\n\n**Remote**"), "{page}");
        assert!(page.contains("- kernel: Linux"), "{page}");
        conditions.before = Some("ba9876543210 in /there/hayase".to_owned());
        let page = text("foundation-against", &summary, "Intro.", &conditions, &[]);
        assert!(page.contains("\nCompared with commit: `ba9876543210`\n"), "{page}");
        assert!(page.contains("- compared with: ba9876543210 in /there/hayase"), "{page}");
        assert_eq!(commit_in("hayase 0.1.0 in /there/hayase"), "unknown");
    }
}
