//! What a page of results says of the sources that were measured.
//!
//! Two lines, written by a bench: ``Measured commit: `0123456789ab` `` and
//! ``Measured crates: `crates/a`, `crates/b` ``. A page may have several pairs, one for each bench.

/// Sources that were measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasuredSources {
    /// The first twelve digits of the commit.
    pub commit: String,
    /// Folders whose changes change what was measured.
    pub crates: Vec<String>,
}

/// All pairs of a page in order. Fails on a line that is cut short, or that has no second one.
pub fn measured_sources(page: &str) -> Result<Vec<MeasuredSources>, String> {
    let mut found = Vec::new();
    let mut commit = None;
    for line in page.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("Measured commit:") {
            if commit.is_some() {
                return Err("two lines `Measured commit` without `Measured crates`".to_owned());
            }
            let word = in_backticks(rest).pop().filter(|word| is_commit(word));
            let wrong =
                || format!("invalid line `{line}`: expected a commit of 12 hexadecimal digits");
            commit = Some(word.ok_or_else(wrong)?);
        } else if let Some(rest) = line.strip_prefix("Measured crates:") {
            let crates = in_backticks(rest);
            let commit = commit.take().ok_or("`Measured crates` without `Measured commit`")?;
            if crates.is_empty() {
                return Err(format!("invalid line `{line}`: expected folders in backticks"));
            }
            found.push(MeasuredSources { commit, crates });
        }
    }
    match commit {
        Some(_) => Err("`Measured commit` without `Measured crates`".to_owned()),
        None => Ok(found),
    }
}

fn in_backticks(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn is_commit(word: &str) -> bool {
    word.len() == 12 && word.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_of_lines_are_read() {
        let page =
            "# A\nMeasured commit: `0123456789ab`\nMeasured crates: `crates/a`, `crates/b`\n";
        let crates = vec!["crates/a".to_owned(), "crates/b".to_owned()];
        let one = MeasuredSources { commit: "0123456789ab".to_owned(), crates };
        assert_eq!(measured_sources(page), Ok(vec![one.clone()]));
        assert_eq!(measured_sources(&page.repeat(2)), Ok(vec![one.clone(), one]));
        assert_eq!(measured_sources("# A\nNothing.\n"), Ok(vec![]));
    }

    #[test]
    fn half_a_pair_is_refused() {
        let commit = "Measured commit: `0123456789ab`\n";
        for page in [
            commit,
            "Measured crates: `crates/a`\n",
            "Measured commit: `012`\nMeasured crates: `crates/a`\n",
            &format!("{commit}{commit}Measured crates: `crates/a`\n"),
            &format!("{commit}Measured crates: none\n"),
        ] {
            assert!(measured_sources(page).is_err(), "{page}");
        }
    }
}
