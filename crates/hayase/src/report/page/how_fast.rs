//! How fast bytes moved: the section of rates.

use super::super::{JobReport, rates, series};
use super::Html;
use crate::wiring::status::Sample;

/// Its table, with a note of what the figures are of.
pub(super) fn section(page: &mut Html, report: &JobReport) {
    page.title("Rates");
    page.line(
        "soft",
        "Of all nodes together. An average is taken over the time between looks at the counters in which bytes moved: while they moved it was this or higher. The highest rate is that of a second or more.",
    );
    let mut rows = Vec::new();
    let mut row = |what: &str, value: fn(&Sample) -> u64| rows.push(report.rate_row(what, value));
    if report.counts_areas() {
        row("written to the areas", |s| s.area.map_or(0, |area| area.written));
        row("read from the areas", |s| s.area.map_or(0, |area| area.read));
    }
    row("written through servers", |s| s.bytes_written);
    row("read through servers", |s| s.bytes_read);
    if report.settings.tier.is_some() {
        row("sent to the tier", |s| s.flushed_bytes);
        row("fetched from the tier", |s| s.fetched_bytes);
    }
    page.table(&["bytes", "#moved", "#average", "#highest"], &rows);
}

impl JobReport {
    /// What moved, and how fast; "not known" where bytes moved and nobody looked meanwhile.
    fn rate_row(&self, what: &str, value: fn(&Sample) -> u64) -> Vec<String> {
        let moved: u64 = self.last().map(|last| value(&last)).sum();
        let grown: Vec<_> =
            self.known().map(|(_, history)| rates::growth(history, value)).collect();
        let found = rates::rates(&series::sum(&grown));
        let is_part = self.last().count() < self.histories.len();
        let (average, highest) = match found {
            // What the other nodes moved may have taken longer.
            Some(found) if is_part => {
                ("not known".to_owned(), format!("at least {}", rates::in_words(found.highest)))
            }
            Some(found) => (rates::in_words(found.average), rates::in_words(found.highest)),
            None if moved == 0 && !is_part => ("-".to_owned(), "-".to_owned()),
            None => ("not known".to_owned(), "not known".to_owned()),
        };
        vec![what.to_owned(), self.told(moved), average, highest]
    }
}

#[cfg(test)]
mod tests {
    use super::super::html;
    use super::super::tests::{report, tier};
    use super::*;

    /// The cells of a line of the table of rates.
    fn rates_of(report: &JobReport, what: &str) -> Vec<String> {
        let html = html(report);
        let table = html.split_once("<h2>Rates</h2>").unwrap().1;
        let row = table.split_once(&format!("<td class=\"\">{what}</td>")).unwrap().1;
        let cells = row.lines().next().unwrap().split("<td class=\"n\">").skip(1);
        cells.map(|cell| cell.split('<').next().unwrap().to_owned()).collect()
    }

    #[test]
    fn rates_are_those_of_the_time_in_which_bytes_moved() {
        let mut report = report(2);
        let moved = |second: u64, mib: u64| Sample {
            at_ms: second * 1000,
            bytes_written: mib << 20,
            ..Sample::default()
        };
        let one = vec![moved(0, 0), moved(2, 40), moved(62, 40), moved(63, 100)];
        report.histories = vec![(0, Ok(one)), (1, Ok(vec![moved(0, 0), moved(63, 0)]))];
        let written = rates_of(&report, "written through servers");
        assert_eq!(written[0], "100 MiB");
        assert!(written[1].ends_with("MiB/s") && written[2].ends_with("MiB/s"), "{written:?}");
        assert_eq!(rates_of(&report, "read through servers"), ["0 B", "-", "-"]);
        report.histories[1].1 = Err("no answer".to_owned());
        let part = ["at least 100 MiB", "not known", "at least 60 MiB/s"];
        assert_eq!(rates_of(&report, "written through servers"), part);
        assert_eq!(rates_of(&report, "read through servers")[1..], ["not known", "not known"]);
    }

    #[test]
    fn a_rate_of_no_known_time_is_not_known() {
        let mut report = report(1);
        let moved =
            |at_ms: u64, bytes_written| Sample { at_ms, bytes_written, ..Sample::default() };
        for looks in [vec![moved(5, 100)], vec![moved(5, 0), moved(5, 100)]] {
            report.histories[0].1 = Ok(looks);
            let written = rates_of(&report, "written through servers");
            assert_eq!(written, ["100 B", "not known", "not known"]);
        }
        report.histories[0].1 = Err("no answer".to_owned());
        let unknown = rates_of(&report, "written through servers");
        assert_eq!(unknown, ["not known", "not known", "not known"]);
    }

    #[test]
    fn a_tier_has_its_rates() {
        let mut report = report(1);
        report.settings.tier = Some(tier());
        let sent = |second: u64, mib: u64| Sample {
            at_ms: second * 1000,
            flushed_bytes: mib << 20,
            ..Sample::default()
        };
        report.histories[0].1 = Ok(vec![sent(0, 0), sent(4, 20)]);
        assert_eq!(rates_of(&report, "sent to the tier"), ["20 MiB", "5 MiB/s", "5 MiB/s"]);
        assert_eq!(rates_of(&report, "fetched from the tier"), ["0 B", "-", "-"]);
    }
}
