//! Pages and files that comments and documents name, and the sections of those pages.
//!
//! A citation is a path that ends with `.md`, then at once the sections, if any: `page.md`, "Names";
//! `page.md` "Names", "Locks"; `page.md`, section 7; `page.md` 2.1, 2.2.
//! Numbers are of headings that begin with them (`## 7. Names`).

use std::collections::BTreeSet;

use crate::tree::Tree;

/// A page that is named, and what of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Citation {
    /// As it is written.
    pub page: String,
    /// Headings and numbers, as they are written.
    pub sections: Vec<String>,
    /// Where in the text.
    pub at: usize,
}

/// Those of a text. Addresses (`https://..`) are no pages of ours.
pub fn citations(text: &str) -> Vec<Citation> {
    paths(text, ".md")
        .map(|(at, page)| Citation {
            page: page.to_owned(),
            sections: sections(&text[at + page.len()..]),
            at,
        })
        .collect()
}

/// Paths in the text that end so, each with its place.
pub fn paths<'a>(text: &'a str, end: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
    let is_path = |c: char| c.is_ascii_alphanumeric() || "/._-{}*<>~:".contains(c);
    text.match_indices(end).filter_map(move |(at, _)| {
        let after = at + end.len();
        let goes_on = text[after..].chars().next().is_some_and(|c| c.is_alphanumeric() || c == '_');
        let start = text[..at]
            .rfind(|c: char| !is_path(c))
            .map_or(0, |before| before + text[before..].chars().next().map_or(1, char::len_utf8));
        let path = &text[start..after];
        let is_plain =
            start < at && !path.contains("://") && !path.contains(['{', '*', '<', '~', ':']);
        (!goes_on && is_plain).then_some((start, path))
    })
}

fn sections(after: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = after.trim_start_matches(['`', ')', '*']);
    loop {
        let next = rest.trim_start_matches([',', ' ', '\n']);
        let next = next.strip_prefix("and ").unwrap_or(next);
        let next = ["sections ", "section ", "§"]
            .iter()
            .find_map(|word| next.strip_prefix(word))
            .unwrap_or(next);
        let Some((section, then)) = quoted(next).or_else(|| number(next)) else { return found };
        found.push(section.split_whitespace().collect::<Vec<_>>().join(" "));
        rest = then;
    }
}

/// `"Names"` at the beginning.
fn quoted(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix('"')?.split_once('"')
}

/// `7`, `2.1` at the beginning, not `4,096` or `12 files`.
fn number(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let digits = text[..end].trim_end_matches('.');
    let rest = &text[digits.len()..];
    let ends = rest.is_empty()
        || rest.starts_with(['.', ',', ')', ';', ':', '\n'])
        || rest.starts_with(" and ");
    let thousands =
        rest.strip_prefix(',').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    (!digits.is_empty() && ends && !thousands).then_some((digits, rest))
}

/// What is wrong with a citation in `file`; `None` when the page and its sections are there.
pub fn wrong(tree: &Tree, file: &str, cited: &Citation) -> Option<String> {
    let page = match find(tree, file, &cited.page) {
        Ok(page) => page,
        Err(why) => return Some(why),
    };
    let headings = headings(&tree.read(&page));
    let missing = cited.sections.iter().find(|section| !has_section(&headings, section))?;
    Some(format!("{page} has no section `{missing}`"))
}

/// The file that a path in `file` means: from the root, from the folder of `file` or one above it, or by
/// its name alone where only one file has it.
pub fn find(tree: &Tree, file: &str, path: &str) -> Result<String, String> {
    let path = path.strip_prefix("./").unwrap_or(path);
    let above = std::iter::successors(Some(file), |at| at.rsplit_once('/').map(|(above, _)| above));
    for folder in above.skip(1) {
        let near = normal(&format!("{folder}/{path}"));
        if tree.has(&near) {
            return Ok(near);
        }
    }
    let path = normal(path);
    if tree.has(&path) {
        return Ok(path);
    }
    let end = format!("/{path}");
    let same: BTreeSet<&str> = tree.paths().filter(|other| other.ends_with(&end)).collect();
    same.first().map(|found| (*found).to_owned()).ok_or_else(|| format!("there is no {path}"))
}

/// Without `x/..`.
fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Texts of the headings of a page, without their signs; those of fenced blocks are none.
pub fn headings(page: &str) -> Vec<String> {
    let mut fenced = false;
    let mut found = Vec::new();
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced && line.starts_with('#') {
            found.push(line.trim_start_matches('#').trim().to_owned());
        }
    }
    found
}

fn has_section(headings: &[String], section: &str) -> bool {
    let is_number = section.starts_with(|c: char| c.is_ascii_digit());
    headings.iter().any(|heading| {
        let numbered = || heading.split([' ', ':']).next().map(|first| first.trim_end_matches('.'));
        heading.trim_matches('`') == section || (is_number && numbered() == Some(section))
    })
}

/// The name by which a link leads to a heading (`page.md#what-an-open-returns`), as mdBook makes it.
pub fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[(&str, &[&str])]) {
        let found = citations(text);
        let told: Vec<(&str, Vec<&str>)> = found
            .iter()
            .map(|c| (c.page.as_str(), c.sections.iter().map(String::as_str).collect()))
            .collect();
        let expected: Vec<_> = expected.iter().map(|(page, of)| (*page, of.to_vec())).collect();
        assert_eq!(told, expected, "{text}");
    }

    #[test]
    fn pages_and_sections_are_read() {
        check("Source: `docs/a.md` 8.", &[("docs/a.md", &["8"])]);
        check("(`docs/a.md` 2.1, 2.2, 2.5).", &[("docs/a.md", &["2.1", "2.2", "2.5"])]);
        check("`a.md` sections 2 and 3.", &[("a.md", &["2", "3"])]);
        check("`a.md`, section 7; `b.md`.", &[("a.md", &["7"]), ("b.md", &[])]);
        check("`a.md`, \"Small\nwrites\"; RFC 8881, 8.4", &[("a.md", &["Small writes"])]);
        check("`a.md` \"Names\", \"Locks\" and more", &[("a.md", &["Names", "Locks"])]);
        check("a.md 2.5: kernels", &[("a.md", &["2.5"])]);
        check("`a.md`, 4,096 names; b.md has 3 tables", &[("a.md", &[]), ("b.md", &[])]);
        check("https://x.org/a.md, *.md, self.md5, {name}.md", &[]);
    }

    #[test]
    fn a_page_is_found_and_its_sections_are() {
        let page = "# 1: Page\n## Names\n## 2. Locks\n```\n# no heading\n```\n### `secret`\n";
        let files = [("docs/a.md", page), ("crates/x/FORMAT.md", ""), ("crates/x/src/a.rs", "")];
        let tree = Tree::of(files.iter().map(|(f, t)| ((*f).into(), (*t).into())).collect());
        let check = |cited: &str, expected: Option<&str>| {
            let found = wrong(&tree, "crates/x/src/a.rs", &citations(cited)[0]);
            assert_eq!(found.as_deref(), expected, "{cited}");
        };
        check("`docs/a.md`, \"Names\"", None);
        check("`docs/a.md` 2.", None);
        check("`docs/a.md`, \"secret\"", None);
        check("`FORMAT.md`", None);
        check("`a.md`", None);
        check("`docs/a.md` 3.", Some("docs/a.md has no section `3`"));
        check("`docs/a.md`, \"no heading\"", Some("docs/a.md has no section `no heading`"));
        check("`notes/a.md`", Some("there is no notes/a.md"));
    }

    #[test]
    fn anchors_are_those_of_the_book() {
        assert_eq!(anchor("What comes to the tier, and when"), "what-comes-to-the-tier-and-when");
        assert_eq!(anchor("`members.d/<server>.json`"), "membersdserverjson");
    }
}
