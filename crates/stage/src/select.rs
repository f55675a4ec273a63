//! Which names of a tree take part: patterns to include and to exclude.
//!
//! A pattern without a slash is about the last name of a path, at any depth; one with a slash (other
//! than at its end) is about the path from the top. `*` and `?` do not cross slashes, `**` does. A slash at
//! the end means directories only. What a directory's pattern says holds for all below it. Exclusion wins.

use std::path::Path;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use hayase_tier::Key;

use crate::item::{Item, Kind};
use crate::limits::PARTS_BYTES_MIN;

/// A pattern that can not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid pattern `{pattern}`: {why}")]
pub struct PatternError {
    /// As given.
    pub pattern: String,
    /// What is wrong with it.
    pub why: String,
}

/// Items of which sizes take part, where large files and all the rest go different ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sizes {
    /// Everything.
    #[default]
    All,
    /// Files that are large enough to be moved in parts ([`PARTS_BYTES_MIN`]), and nothing else.
    Large,
    /// Everything else.
    Small,
}

impl Sizes {
    pub(crate) fn take(self, item: &Item) -> bool {
        let is_large = matches!(item.kind, Kind::File { bytes } if bytes >= PARTS_BYTES_MIN);
        match self {
            Self::All => true,
            Self::Large => is_large,
            Self::Small => !is_large,
        }
    }
}

/// Patterns, ready to be asked.
#[derive(Clone, Debug)]
pub struct Selection {
    /// `None`: everything that is not excluded.
    include: Option<Patterns>,
    exclude: Patterns,
}

#[derive(Clone, Debug)]
struct Patterns {
    any: GlobSet,
    directories: GlobSet,
}

impl Patterns {
    fn new(patterns: &[String]) -> Result<Self, PatternError> {
        let (mut any, mut directories) = (GlobSetBuilder::new(), GlobSetBuilder::new());
        for pattern in patterns {
            let refuse = |why: String| PatternError { pattern: pattern.clone(), why };
            let (text, set) = match pattern.strip_suffix('/') {
                Some(text) => (text, &mut directories),
                None => (pattern.as_str(), &mut any),
            };
            let text = match text.strip_prefix('/') {
                Some(anchored) => anchored.to_owned(),
                None if text.contains('/') => text.to_owned(),
                None => format!("**/{text}"),
            };
            if text.trim_start_matches("**/").is_empty() {
                return Err(refuse("it is empty".into()));
            }
            let glob =
                GlobBuilder::new(&text).literal_separator(true).backslash_escape(true).build();
            set.add(glob.map_err(|error| refuse(error.kind().to_string()))?);
        }
        let built = |set: GlobSetBuilder| {
            set.build().map_err(|error| PatternError {
                pattern: patterns.join(" "),
                why: error.kind().to_string(),
            })
        };
        Ok(Self { any: built(any)?, directories: built(directories)? })
    }

    fn matches(&self, name: &Path, is_directory: bool) -> bool {
        self.any.is_match(name) || (is_directory && self.directories.is_match(name))
    }
}

impl Selection {
    /// Everything.
    pub fn all() -> Self {
        Self::new(&[], &[]).expect("no pattern is wrong")
    }

    /// No `include` means everything.
    pub fn new(include: &[String], exclude: &[String]) -> Result<Self, PatternError> {
        let include = (!include.is_empty()).then(|| Patterns::new(include)).transpose()?;
        Ok(Self { include, exclude: Patterns::new(exclude)? })
    }

    /// Does the name take part?
    pub fn takes(&self, name: &Key, is_directory: bool) -> bool {
        !self.excludes(name, is_directory)
            && self.include.as_ref().is_none_or(|include| on_the_way(include, name, is_directory))
    }

    /// The name, or a directory on its way, is excluded: nothing below it can take part.
    pub fn excludes(&self, name: &Key, is_directory: bool) -> bool {
        on_the_way(&self.exclude, name, is_directory)
    }
}

/// Some pattern is about the name or about a directory that it lies in.
fn on_the_way(patterns: &Patterns, name: &Key, is_directory: bool) -> bool {
    if patterns.any.is_empty() && patterns.directories.is_empty() {
        return false;
    }
    let path = |bytes: &[u8]| {
        use std::os::unix::ffi::OsStrExt;
        Path::new(std::ffi::OsStr::from_bytes(bytes)).to_path_buf()
    };
    patterns.matches(Path::new(name.as_os_str()), is_directory)
        || name.ancestors().any(|ancestor| patterns.matches(&path(ancestor), true))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(include: &str, exclude: &str, taken: &str, left: &str) {
        let list = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let selection = Selection::new(&list(include), &list(exclude)).unwrap();
        for (names, expected) in [(taken, true), (left, false)] {
            for name in names.split_whitespace() {
                let (name, is_directory) = match name.strip_suffix('/') {
                    Some(name) => (name, true),
                    None => (name, false),
                };
                let key = Key::new(name).unwrap();
                assert_eq!(selection.takes(&key, is_directory), expected, "{name}");
            }
        }
    }

    #[test]
    fn patterns_are_about_names_or_paths() {
        check("", "", "a a/b d/", "");
        check("", "*.o", "a.c o d/x.oo", "x.o d/x.o d.o/");
        check("", "/build", "src/build src/build/x", "build/ build/x build");
        check("", "build/", "build src/build", "build/ build/x src/build/deep/x");
        check("", "a/*.txt", "a/b/c.txt b/a/c.txt", "a/c.txt");
        check("", "a/**", "a/ b/a/c", "a/c a/b/c");
        check("*.py", "", "x.py a/x.py", "x.c a/x.c d/");
        check("data/", "*.tmp", "data/ data/x data/d/x", "x data/x.tmp data");
        check("", "x[0-9].?", "x.c xa.c", "x1.c d/x2.h");
        check("", r"a\*b", "axb", "a*b");
    }

    #[test]
    fn a_wrong_pattern_is_named() {
        for wrong in ["[a", "", "/", "a{b"] {
            let error = Selection::new(&[], &[wrong.to_owned()]).unwrap_err();
            assert_eq!(error.pattern, wrong);
        }
    }

    #[test]
    fn names_need_not_be_utf8() {
        let selection = Selection::new(&[], &["*.o".to_owned()]).unwrap();
        assert!(!selection.takes(&Key::new(b"\xff\xfe.o").unwrap(), false));
        assert!(selection.takes(&Key::new(b"\xff\xfe").unwrap(), false));
    }
}
