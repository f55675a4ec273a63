//! What a page of results says first: what was measured, what came out, which goals are missed.
//!
//! Here: the three sentences, and how figures come into them. Not here: how it was measured (the introduction of each bench).

use super::Outcome;
use super::goal::{Goal, Verdict, Wanted};

/// Goals that do not hold and are named, of each kind; further ones are counted.
const NAMED_MAX: usize = 4;

/// The first paragraph of a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Summary {
    /// The first sentence, without figures.
    pub(crate) measured: &'static str,
    /// Clauses of the second sentence, the weak sides too. `{goal}` stands for its figures, `{table|row|column}` for a cell.
    /// A clause that lacks a figure, or names a goal that was too uneven to be judged, is left out.
    pub(crate) found: &'static [&'static str],
}

impl Summary {
    /// The sentences, a line each.
    pub(crate) fn text(&self, groups: &[(&str, Outcome)]) -> String {
        let clauses: Vec<_> =
            self.found.iter().filter_map(|clause| filled(clause, groups)).collect();
        let mut lines = vec![self.measured.to_owned()];
        if !clauses.is_empty() {
            lines.push(sentence(&clauses.join("; ")));
        }
        lines.push(verdicts(groups));
        lines.join("\n")
    }
}

/// The clause with its figures.
fn filled(clause: &str, groups: &[(&str, Outcome)]) -> Option<String> {
    let mut text = String::new();
    let mut rest = clause;
    while let Some((before, after)) = rest.split_once('{') {
        let (name, behind) = after.split_once('}')?;
        text += before;
        text += &figure(name, groups)?;
        rest = behind;
    }
    Some(text + rest)
}

fn figure(name: &str, groups: &[(&str, Outcome)]) -> Option<String> {
    let outcomes = || groups.iter().map(|(_, outcome)| outcome);
    match name.split('|').collect::<Vec<_>>()[..] {
        [table, row, column] => {
            let tables = outcomes().flat_map(|outcome| &outcome.tables);
            let found = tables.filter(|other| other.title == table);
            found.filter_map(|table| table.cell(row, column)).next().map(str::to_owned)
        }
        _ => {
            let goal =
                outcomes().flat_map(|outcome| &outcome.goals).find(|goal| goal.what == name)?;
            let is_known = !matches!(goal.verdict(), Verdict::Noisy | Verdict::Failed);
            is_known.then(|| goal.figures())
        }
    }
}

/// How many goals hold, and which do not.
fn verdicts(groups: &[(&str, Outcome)]) -> String {
    let goals = groups.iter().flat_map(|(_, outcome)| &outcome.goals);
    let judged: Vec<&Goal> = goals.filter(|goal| goal.wanted != Wanted::Told).collect();
    let of = |is: fn(Verdict) -> bool| -> Vec<&Goal> {
        judged.iter().copied().filter(|goal| is(goal.verdict())).collect()
    };
    let held = of(|verdict| verdict == Verdict::Holds);
    let noisy = of(|verdict| verdict == Verdict::Noisy);
    let missed = of(|verdict| !matches!(verdict, Verdict::Holds | Verdict::Noisy));
    if held.len() == judged.len() {
        return format!("All {} goals hold.", held.len());
    }
    let mut text = format!("{} of {} goals hold", held.len(), judged.len());
    for (what, goals) in [("missed", missed), ("too uneven to be judged", noisy)] {
        if !goals.is_empty() {
            text += &format!("; {what}: {}", named(&goals));
        }
    }
    text + "."
}

/// With their figures.
fn named(goals: &[&Goal]) -> String {
    let name = |goal: &&Goal| match goal.verdict() {
        Verdict::Failed => format!("{} (not measured)", goal.what),
        _ => format!("{} ({}, wanted {})", goal.what, goal.figures(), goal.wanted),
    };
    let mut names: Vec<_> = goals.iter().take(NAMED_MAX).map(name).collect();
    if let Some(more @ 1..) = goals.len().checked_sub(NAMED_MAX) {
        names.push(format!("and {more} more"));
    }
    names.join(", ")
}

/// With a capital and a full stop.
fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", chars.as_str())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::table::Table;
    use super::*;

    const SUMMARY: Summary = Summary {
        measured: "Files are read and written.",
        found: &[
            "read at {read} of native",
            "at {Rates|write|mount} MiB/s written",
            "renamed in {rename}",
            "removed at {remove}",
        ],
    };

    fn goal(what: &str, figure: f64, same: f64) -> Goal {
        Goal::new(what, figure, "", Wanted::AtLeast(0.5)).same_as(vec![same])
    }

    fn text(goals: Vec<Goal>) -> String {
        let mut table = Table::new("Rates", &["work", "native", "mount"]);
        table.row(vec!["write".to_owned(), "90".to_owned(), "80".to_owned()]);
        let outcome = Outcome { goals, tables: vec![table], ..Outcome::default() };
        SUMMARY.text(&[("Group", outcome)])
    }

    #[test]
    fn three_sentences_say_what_was_found() {
        let found = text(vec![goal("read", 0.9, 1.0), goal("remove", 0.7, 1.0)]);
        let expected = "Files are read and written.\n\
                        Read at 0.90 of native; at 80 MiB/s written; removed at 0.70.\n\
                        All 2 goals hold.";
        assert_eq!(found, expected);
    }

    #[test]
    fn what_is_missed_is_named_and_uneven_figures_are_left_out() {
        let found = text(vec![goal("read", 0.4, 1.0), goal("remove", 0.7, 1.5)]);
        let expected = "Files are read and written.\n\
                        Read at 0.40 of native; at 80 MiB/s written.\n\
                        0 of 2 goals hold; missed: read (0.40, wanted at least 0.50); \
                        too uneven to be judged: remove (0.70, wanted at least 0.50).";
        assert_eq!(found, expected);
        let many = (0..6).map(|number| goal(&format!("goal {number}"), 0.1, 1.0)).collect();
        assert!(text(many).ends_with("goal 3 (0.10, wanted at least 0.50), and 2 more."));
    }

    /// A goal or table that was renamed would silently leave its clause out.
    #[test]
    fn every_figure_of_a_summary_is_on_its_page() {
        let pages = [
            ("dataplane", crate::dataplane::SUMMARY),
            ("flush", crate::flush::SUMMARY),
            ("foundation", crate::foundation::SUMMARY),
            ("gfarm", crate::gfarm::SUMMARY),
            ("mpiio", crate::mpiio::SUMMARY),
            ("mpiio-nodes", crate::mpiio::NODES_SUMMARY),
            ("nodes", crate::nodes::SUMMARY),
            ("stage", crate::stage::SUMMARY),
        ];
        for (page, summary) in pages {
            let path = format!("{}/../docs/results/{page}.md", env!("CARGO_MANIFEST_DIR"));
            let text = std::fs::read_to_string(Path::new(&path)).unwrap();
            let names = summary.found.iter().flat_map(|clause| clause.split('{').skip(1));
            for name in names.map(|name| name.split('}').next().unwrap()) {
                let is_there = match name.split('|').collect::<Vec<_>>()[..] {
                    [table, row, column] => {
                        let rest = text.split_once(&format!("**{table}**")).map(|(_, rest)| rest);
                        rest.is_some_and(|rest| {
                            rest.contains(&format!("\n| {row} | "))
                                && rest.contains(&format!("| {column} |"))
                        })
                    }
                    // A page may say more of a goal that was measured apart.
                    _ => text.contains(&format!("\n| {name} ")),
                };
                assert!(is_there, "{page}: there is no {name}");
            }
        }
    }
}
