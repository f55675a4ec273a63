//! Numbers of things as people read them: `1 file`, `21 files`, `2 entries`.

use std::fmt::Display;

/// `count` of `thing`, which is a noun in the singular.
pub(crate) fn counted(count: impl Display, thing: &str) -> String {
    let count = count.to_string();
    match (count.as_str(), thing.strip_suffix('y')) {
        ("1", _) => format!("1 {thing}"),
        (_, Some(stem)) => format!("{count} {stem}ies"),
        _ if thing.ends_with('x') => format!("{count} {thing}es"),
        _ => format!("{count} {thing}s"),
    }
}

/// The form of a verb after [`counted`]: `1 file is`, `2 files are`.
pub(crate) fn verb<'a>(count: impl Display, one: &'a str, many: &'a str) -> &'a str {
    if count.to_string() == "1" { one } else { many }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular() {
        assert_eq!(counted(1_u64, "file"), "1 file");
        assert_eq!(counted(0, "file"), "0 files");
        assert_eq!(counted(21_usize, "pack"), "21 packs");
        assert_eq!(counted(2, "entry"), "2 entries");
        assert_eq!(counted(3, "index"), "3 indexes");
        assert_eq!([verb(1, "is", "are"), verb(0, "is", "are")], ["is", "are"]);
    }
}
