//! What the command line asks for, in libtest's words where it has them.

/// Names to run, `--exact`, `--skip NAME`, `--list`; how many groups run at once; or one group, in this process.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) list: bool,
    /// The one group that this process is for.
    pub(crate) group: Option<String>,
    /// How many groups run at once.
    pub(crate) groups: Option<usize>,
    exact: bool,
    names: Vec<String>,
    skip: Vec<String>,
}

impl Wanted {
    pub(crate) fn from_arguments(arguments: impl Iterator<Item = String>) -> Self {
        let mut wanted = Self::default();
        let mut words = arguments.flat_map(|argument| match argument.split_once('=') {
            Some((flag, value)) if flag.starts_with("--") => {
                vec![flag.to_owned(), value.to_owned()]
            }
            _ => vec![argument],
        });
        while let Some(word) = words.next() {
            match word.as_str() {
                "--list" => wanted.list = true,
                "--exact" => wanted.exact = true,
                "--skip" => wanted.skip.extend(words.next()),
                "--group" => wanted.group = words.next(),
                "--groups" | "--test-threads" => {
                    wanted.groups = words.next().and_then(|count| count.parse().ok());
                }
                // Of libtest, with a value that means nothing here.
                "--format" | "--color" => drop(words.next()),
                flag if flag.starts_with('-') => {}
                _ => wanted.names.push(word),
            }
        }
        wanted
    }

    pub(crate) fn has(&self, test: &str) -> bool {
        let matches = |name: &String| {
            if self.exact { test == name } else { test.contains(name.as_str()) }
        };
        (self.names.is_empty() || self.names.iter().any(matches)) && !self.skip.iter().any(matches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(words: &str) -> Wanted {
        Wanted::from_arguments(words.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn names_are_parts_of_names_unless_they_are_exact() {
        assert!(wanted("").has("cache_names"));
        assert!(wanted("cache direct").has("cache_names"));
        assert!(!wanted("cache --exact").has("cache_names"));
        assert!(wanted("cache_names --exact").has("cache_names"));
        assert!(!wanted("cache --skip names").has("cache_names"));
        assert!(!wanted("direct").has("cache_names"));
    }

    #[test]
    fn values_are_no_names() {
        for words in
            ["--groups 2", "--groups=2", "--test-threads=2", "--test-threads 2 --color never"]
        {
            assert_eq!(wanted(words), Wanted { groups: Some(2), ..Wanted::default() }, "{words}");
        }
        assert_eq!(wanted("--group cache").group.as_deref(), Some("cache"));
    }
}
