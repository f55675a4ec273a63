//! Paths of modules that comments name: [`crate::a::b`], `hayase_layout::run`.

/// A path in backticks that begins with `crate`, `super` or a crate of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its words, generics and calls left out.
    pub path: Vec<String>,
    /// Where in the text.
    pub at: usize,
}

/// Those of the text of a comment.
pub fn module_links(text: &str) -> Vec<Link> {
    let mut found = Vec::new();
    let mut at = 0;
    for (number, part) in text.split('`').enumerate() {
        let path = if number % 2 == 1 { path(part) } else { Vec::new() };
        if path.len() > 1 && is_ours(&path[0]) {
            found.push(Link { path, at });
        }
        at += part.len() + 1;
    }
    found
}

fn path(text: &str) -> Vec<String> {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':');
    let words = text[..end.unwrap_or(text.len())].split("::");
    words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

fn is_ours(first: &str) -> bool {
    first == "crate" || first == "super" || first.starts_with("hayase_")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&str]) {
        let found: Vec<_> = module_links(text).iter().map(|link| link.path.join("/")).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn paths_of_ours_are_found() {
        check("see [`crate::a::B`] and `super::c`", &["crate/a/B", "super/c"]);
        check(
            "`hayase_layout::run` (`crate::a::f(x)`, `crate::A<T>::g`)",
            &["hayase_layout/run", "crate/a/f", "crate/A"],
        );
        check("`std::fs`, `crate`, crate::a, `x`", &[]);
    }
}
