//! Tables for people: columns of words and figures, as text and as Markdown.

use std::fmt::Write;

use super::plot::Plot;

/// A title, a head and rows of the same width.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// Above it.
    pub(crate) title: String,
    head: Vec<String>,
    rows: Vec<Vec<String>>,
    /// The same, drawn.
    pub(crate) plot: Option<Plot>,
}

impl Table {
    /// Without rows.
    pub(crate) fn new(title: impl Into<String>, head: &[&str]) -> Self {
        let head = head.iter().map(|&cell| cell.to_owned()).collect();
        Self { title: title.into(), head, rows: Vec::new(), plot: None }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// In the row that begins with `row`, below `column`.
    pub(crate) fn cell(&self, row: &str, column: &str) -> Option<&str> {
        let column = self.head.iter().position(|cell| cell == column)?;
        let row = self.rows.iter().find(|cells| cells.first().is_some_and(|cell| cell == row))?;
        row.get(column).map(String::as_str)
    }

    /// Lined up in columns: the first to the left, figures to the right.
    pub(crate) fn to_text(&self) -> String {
        let rows = || std::iter::once(&self.head).chain(&self.rows);
        let width = |column: usize| {
            let cells = rows().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        let mut text = format!("{}\n", self.title);
        for row in rows() {
            let mut line = String::new();
            for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                let padding = " ".repeat(width.saturating_sub(cell.chars().count()));
                let (before, after) =
                    if column == 0 { ("", padding.as_str()) } else { (padding.as_str(), "") };
                let _ = write!(line, "  {before}{cell}{after}");
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }

    /// As a table of Markdown, under its title in bold.
    pub(crate) fn to_markdown(&self) -> String {
        let mut text = format!("**{}**\n\n", self.title);
        let line = |cells: &[String]| -> String {
            let cells: Vec<_> = cells.iter().map(|cell| cell_text(cell)).collect();
            format!("| {} |", cells.join(" | "))
        };
        let _ = writeln!(text, "{}", line(&self.head));
        let marks = (0..self.head.len()).map(|column| if column == 0 { "---" } else { "---:" });
        let _ = writeln!(text, "|{}|", marks.collect::<Vec<_>>().join("|"));
        for row in &self.rows {
            let _ = writeln!(text, "{}", line(row));
        }
        text
    }
}

/// As it stands in a table of Markdown.
pub(crate) fn cell_text(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_ends_no_cell() {
        let mut table = Table::new("Speed", &["what", "tar | tar"]);
        table.row(vec!["tar | tar".to_owned(), "1".to_owned()]);
        let text = table.to_markdown();
        assert!(
            text.ends_with("| what | tar \\| tar |\n|---|---:|\n| tar \\| tar | 1 |\n"),
            "{text}"
        );
    }

    #[test]
    fn columns_line_up() {
        let mut table = Table::new("Speed", &["what", "MiB/s"]);
        table.row(vec!["read".to_owned(), "12345".to_owned()]);
        table.row(vec!["a longer one".to_owned(), "7".to_owned()]);
        let text = "Speed\n  what          MiB/s\n  read          12345\n  a longer one      7\n";
        assert_eq!(table.to_text(), text);
        let markdown = "**Speed**\n\n| what | MiB/s |\n|---|---:|\n| read | 12345 |\n\
                        | a longer one | 7 |\n";
        assert_eq!(table.to_markdown(), markdown);
    }
}
