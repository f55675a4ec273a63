//! Counts that may only fall: what was allowed last, against what there is now.
//!
//! The baseline is a text, one line `rule subject count` each, zeros left out; `#` begins a comment.

use std::collections::BTreeMap;

/// What a rule has counted of one subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    /// One word.
    pub rule: &'static str,
    /// One word: a crate, `crate::Type`.
    pub subject: String,
    /// What was counted, each so named that it keeps its name when lines around it change.
    pub members: Vec<String>,
}

impl Count {
    /// `rule subject`.
    pub fn key(&self) -> String {
        format!("{} {}", self.rule, self.subject)
    }
}

/// Allowed counts, by `rule subject`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Baseline(BTreeMap<String, usize>);

/// A count that is not what the baseline says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// `rule subject`.
    pub key: String,
    /// What the baseline says; 0 where it says nothing.
    pub allowed: usize,
    /// What there is.
    pub now: usize,
}

impl Change {
    /// Whether there is more than is allowed.
    pub fn is_rise(&self) -> bool {
        self.now > self.allowed
    }
}

impl Baseline {
    /// Reads the text; fails on a line that is none.
    pub fn parse(text: &str) -> Result<Self, String> {
        let lines = text.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let read = |line: &str| {
            let (key, count) = line.rsplit_once(' ')?;
            let is_key = key.split(' ').count() == 2;
            let count = count.parse().ok().filter(|&count| count > 0 && is_key)?;
            Some((key.to_owned(), count))
        };
        let mut found = BTreeMap::new();
        for line in lines {
            let (key, count) = read(line).ok_or_else(|| {
                format!("invalid line `{line}`: expected `rule subject count`, for example `circles server 42`")
            })?;
            if found.insert(key.clone(), count).is_some() {
                return Err(format!("`{key}` stands twice"));
            }
        }
        Ok(Self(found))
    }

    /// What differs, in order of key.
    pub fn changes(&self, counts: &[Count]) -> Vec<Change> {
        let now = Self::of(counts);
        let keys: std::collections::BTreeSet<_> = self.0.keys().chain(now.0.keys()).collect();
        let change = |key: &String| Change {
            key: key.clone(),
            allowed: self.0.get(key).copied().unwrap_or(0),
            now: now.0.get(key).copied().unwrap_or(0),
        };
        keys.into_iter().map(change).filter(|change| change.allowed != change.now).collect()
    }

    /// The baseline that allows just what there is.
    pub fn of(counts: &[Count]) -> Self {
        let some = counts.iter().filter(|count| !count.members.is_empty());
        Self(some.map(|count| (count.key(), count.members.len())).collect())
    }

    /// The same with every count lowered to what there is; those that have risen stay.
    pub fn lowered(&self, counts: &[Count]) -> Self {
        let now = Self::of(counts);
        let lower = |(key, &allowed): (&String, &usize)| {
            let now = now.0.get(key).copied().unwrap_or(0).min(allowed);
            (now > 0).then(|| (key.clone(), now))
        };
        Self(self.0.iter().filter_map(lower).collect())
    }

    /// The lines, in order, behind `header`.
    pub fn text(&self, header: &str) -> String {
        let lines = self.0.iter().map(|(key, count)| format!("{key} {count}\n"));
        header.to_owned() + &lines.collect::<String>()
    }
}

/// Members that are in `now` and not in `before`; each as often as it is more.
pub fn added(before: &[String], now: &[String]) -> Vec<String> {
    let mut left: BTreeMap<&String, usize> = BTreeMap::new();
    for member in before {
        *left.entry(member).or_default() += 1;
    }
    let is_new = |member: &&String| match left.get_mut(*member) {
        Some(count) if *count > 0 => {
            *count -= 1;
            false
        }
        _ => true,
    };
    now.iter().filter(is_new).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(subject: &str, members: usize) -> Count {
        let members = (0..members).map(|n| n.to_string()).collect();
        Count { rule: "circles", subject: subject.to_owned(), members }
    }

    const BEFORE: &str = "# why\ncircles mpi 3\ncircles server 2\n";

    #[test]
    fn what_differs_is_told() {
        let check = |mpi, server, wire, expected: &[(&str, usize, usize)]| {
            let counts = [count("mpi", mpi), count("server", server), count("wire", wire)];
            let changes = Baseline::parse(BEFORE).unwrap().changes(&counts);
            let told: Vec<_> = changes.iter().map(|c| (c.key.as_str(), c.allowed, c.now)).collect();
            assert_eq!(told, expected);
        };
        check(3, 2, 0, &[]);
        check(4, 2, 0, &[("circles mpi", 3, 4)]);
        check(3, 0, 0, &[("circles server", 2, 0)]);
        check(3, 2, 1, &[("circles wire", 0, 1)]);
    }

    #[test]
    fn blessing_never_raises() {
        let counts = [count("mpi", 9), count("server", 1), count("wire", 4)];
        let lowered = Baseline::parse(BEFORE).unwrap().lowered(&counts);
        assert_eq!(lowered.text("# x\n"), "# x\ncircles mpi 3\ncircles server 1\n");
        assert_eq!(Baseline::parse(BEFORE).unwrap().lowered(&[]).text(""), "");
    }

    #[test]
    fn lines_that_are_none_are_named() {
        for wrong in ["circles", "circles mpi", "circles mpi x", "circles mpi 0", "a b c 1"] {
            assert!(Baseline::parse(wrong).unwrap_err().contains(wrong));
        }
        assert_eq!(Baseline::parse("a b 1\na b 2").unwrap_err(), "`a b` stands twice");
    }

    #[test]
    fn new_members_are_told_apart() {
        let of = |names: &str| names.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(added(&of("a b b"), &of("b a c b b")), of("c b"));
    }
}
