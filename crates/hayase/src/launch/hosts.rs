//! Lists of hosts, as people and batch systems write them.
//!
//! Here: `--hosts a,n[01-04]`, host files (one in a line, with the slots that MPI machine files add), what the
//! batch systems leave in files; every host once, in the order of its first appearance. Pure.
//! Not here: where a list comes from ([`super::allocation`]), reaching the hosts ([`super::tree`]).
//!
//! Rooms: [`ranges`] (`n[01-04,7]`). Sources: hostlist in scontrol(1), mpirun(1) of Open MPI ("slots="),
//! mpiexec(1) of MPICH ("host:slots"), pbs_resources(7) (`PBS_NODEFILE`).

mod ranges;

pub(crate) use ranges::expand;

/// Hosts of one job.
pub(crate) const HOSTS_MAX: usize = 4096;

/// Longest name of a host: that of a domain name, a user before it included.
const NAME_BYTES_MAX: usize = 320;

/// Why a text is no list of hosts.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HostsError {
    /// Part of it can not be understood.
    #[error("invalid list of hosts `{text}`: {why}")]
    Malformed {
        /// The part.
        text: String,
        /// In words.
        why: String,
    },
    /// A line of a file can not be understood.
    #[error("line {line}: {source}")]
    Line {
        /// From 1.
        line: usize,
        /// What is wrong in it.
        source: Box<HostsError>,
    },
    /// Nothing in it.
    #[error("the list of hosts is empty")]
    Empty,
    /// More than a job can have.
    #[error("the list has more than {HOSTS_MAX} hosts")]
    TooMany,
}

impl HostsError {
    fn malformed(text: &str, why: impl Into<String>) -> Self {
        Self::Malformed { text: text.to_owned(), why: why.into() }
    }
}

/// Reads a list in one line: names and ranges with commas between them.
pub(crate) fn parse_list(text: &str) -> Result<Vec<String>, HostsError> {
    finish(expand(text)?)
}

/// Reads a file: a host (or a list of ranges) in each line, `#` before comments; what MPI machine files say of
/// slots is passed over, since a node has one server however many ranks it runs.
pub(crate) fn parse_file(text: &str) -> Result<Vec<String>, HostsError> {
    let mut hosts = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let wrong = |source| HostsError::Line { line: index + 1, source: Box::new(source) };
        hosts.extend(parse_line(line).map_err(wrong)?);
        if hosts.len() > HOSTS_MAX * SLOTS_MAX {
            return Err(HostsError::TooMany);
        }
    }
    finish(hosts)
}

/// A file of a batch system repeats a host for each of its slots; bounded like everything that is read.
const SLOTS_MAX: usize = 256;

fn parse_line(line: &str) -> Result<Vec<String>, HostsError> {
    let line = line.split('#').next().unwrap_or_default();
    let mut words = line.split_ascii_whitespace();
    let Some(first) = words.next() else { return Ok(Vec::new()) };
    if let Some(word) = words.find(|word| !is_slots(word)) {
        return Err(HostsError::malformed(word, "only the number of slots may follow a host"));
    }
    expand(without_slots(first))
}

/// `slots=4`, `max_slots=8`, `ifhn=ib0`, `4`.
fn is_slots(word: &str) -> bool {
    let is_key =
        |key: &str| key.bytes().all(|b| b.is_ascii_alphabetic() || matches!(b, b'_' | b'-'));
    let is_number = word.bytes().all(|b| b.is_ascii_digit());
    is_number || word.split_once('=').is_some_and(|(key, _)| !key.is_empty() && is_key(key))
}

/// `host:4` is `host`; the colons of an IPv6 address are its own.
fn without_slots(word: &str) -> &str {
    match word.split_once(':') {
        Some((host, slots)) if !slots.is_empty() && slots.bytes().all(|b| b.is_ascii_digit()) => {
            host
        }
        _ => word,
    }
}

/// Every host once; names that could be something else to a program are refused.
fn finish(hosts: Vec<String>) -> Result<Vec<String>, HostsError> {
    let mut seen = std::collections::HashSet::new();
    let mut list = Vec::new();
    for host in hosts {
        check_name(&host)?;
        if seen.insert(host.clone()) {
            list.push(host);
        }
    }
    match list.len() {
        0 => Err(HostsError::Empty),
        n if n > HOSTS_MAX => Err(HostsError::TooMany),
        _ => Ok(list),
    }
}

/// A name stands in the command line of ssh: it must not look like an option, nor like shell.
fn check_name(host: &str) -> Result<(), HostsError> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b".-_:@%".contains(&b);
    let wrong = |why: &str| Err(HostsError::malformed(host, why));
    if host.is_empty() {
        return wrong("a name is empty");
    }
    if host.len() > NAME_BYTES_MAX {
        return wrong("a name is too long");
    }
    if !host.bytes().all(fits) {
        return wrong("a host name has an invalid character");
    }
    if host.starts_with('-') || host.contains("@-") {
        return wrong("a host name cannot begin with `-`");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(hosts: Result<Vec<String>, HostsError>) -> String {
        hosts.map_or_else(|error| format!("error: {error}"), |hosts| hosts.join(" "))
    }

    #[test]
    fn lists_are_read() {
        let check = |text: &str, expected: &str| {
            assert_eq!(list(parse_list(text)), expected, "{text}");
        };
        check("a", "a");
        check("a,b,a,c", "a b c");
        check("n[01-03,7],x", "n01 n02 n03 n7 x");
        check(" a , b ", "a b");
        check("me@a.example.org,10.0.0.1,fe80::1", "me@a.example.org 10.0.0.1 fe80::1");
        check("", "error: the list of hosts is empty");
        check(",", "error: the list of hosts is empty");
        check(
            "-oProxyCommand=x",
            "error: invalid list of hosts `-oProxyCommand=x`: a host name has an invalid character",
        );
        check("-v", "error: invalid list of hosts `-v`: a host name cannot begin with `-`");
        check("a;b", "error: invalid list of hosts `a;b`: a host name has an invalid character");
        check("n[0-5000]", "error: the list has more than 4096 hosts");
    }

    #[test]
    fn files_are_read() {
        let check = |text: &str, expected: &str| {
            assert_eq!(list(parse_file(text)), expected, "{text:?}");
        };
        check("a\nb\n", "a b");
        check("# all of them\n\n a  # first\r\n\tb\n", "a b");
        check("a slots=4 max_slots=8\nb:16\nc 2\n", "a b c");
        check("a\na\nb\nb\n", "a b");
        check("n[1-2]:4\n", "n1 n2");
        check("10.0.0.1\nfe80::1:2\n", "10.0.0.1 fe80::1:2");
        check("# nothing\n", "error: the list of hosts is empty");
        check(
            "a\nb c\n",
            "error: line 2: invalid list of hosts `c`: only the number of slots may follow a host",
        );
        check("a\nn[1\n", "error: line 2: invalid list of hosts `n[1`: `[` without `]`");
    }
}
