//! Pages of text: titles, pairs, tables.

use std::fmt::{Display, Write};

/// Something that can be shown to a person.
pub(crate) trait Human {
    /// Writes itself.
    fn write(&self, page: &mut Page);
}

/// Text in the making.
#[derive(Debug)]
pub(crate) struct Page {
    text: String,
    has_colour: bool,
}

/// Columns of the keys of [`Page::pair`].
const KEY_WIDTH: usize = 15;

impl Page {
    /// Empty.
    pub(crate) fn new(has_colour: bool) -> Self {
        Self { text: String::new(), has_colour }
    }

    /// What has been written.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// A line that stands out.
    pub(crate) fn title(&mut self, text: &str) {
        let line = self.paint(text, "1");
        self.line(&line);
    }

    /// A plain line.
    pub(crate) fn line(&mut self, text: &str) {
        self.text.push_str(text);
        self.text.push('\n');
    }

    /// An empty line.
    pub(crate) fn blank(&mut self) {
        self.line("");
    }

    /// A key and its value.
    pub(crate) fn pair(&mut self, key: &str, value: &dyn Display) {
        let _ = writeln!(self.text, "  {key:<KEY_WIDTH$} {value}");
    }

    /// `text` in a colour of the terminal, where there are colours.
    pub(crate) fn paint(&self, text: &str, code: &str) -> String {
        if self.has_colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Columns as wide as they must be; no spaces at the ends of lines.
    pub(crate) fn table(&mut self, head: &[&str], rows: Vec<Vec<String>>) {
        let mut lines = vec![head.iter().map(|&cell| cell.to_owned()).collect::<Vec<_>>()];
        lines.extend(rows);
        let width = |column: usize| {
            lines.iter().filter_map(|row| row.get(column)).map(|c| c.chars().count()).max()
        };
        let widths: Vec<_> = (0..head.len()).map(|column| width(column).unwrap_or(0)).collect();
        for row in &lines {
            let cells: Vec<_> =
                row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}")).collect();
            let line = format!("  {}", cells.join("  "));
            self.line(line.trim_end());
        }
    }
}

/// `text` over what a terminal shows: from its upper left corner, each line to its end, nothing below it.
/// Source: ECMA-48 (CUP, EL, ED).
pub(super) fn redrawn(text: &str) -> String {
    format!("\x1b[H{}\x1b[J", text.replace('\n', "\x1b[K\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_drawn_over_the_one_before() {
        assert_eq!(redrawn("a\nb\n"), "\x1b[Ha\x1b[K\nb\x1b[K\n\x1b[J");
    }

    #[test]
    fn tables_are_aligned_without_trailing_spaces() {
        let mut page = Page::new(false);
        page.table(
            &["a", "long"],
            vec![vec!["first".into(), "x".into()], vec!["b".into(), "".into()]],
        );
        assert_eq!(page.text(), "  a      long\n  first  x\n  b\n");
    }

    #[test]
    fn colour_is_only_paint() {
        assert_eq!(Page::new(false).paint("x", "1"), "x");
        assert_eq!(Page::new(true).paint("x", "1"), "\x1b[1mx\x1b[0m");
    }
}
