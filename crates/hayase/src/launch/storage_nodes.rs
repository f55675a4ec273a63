//! `--storage-nodes`: which nodes of a job carry its storage.
//!
//! Here: from what was typed (how many, or which by number or host) to node numbers. Pure.
//! Not here: who uses whose storage ([`hayase_layout::Groups`]).

use hayase_layout::{Groups, GroupsError};

use super::hosts::{HostsError, parse_list};
use crate::advice::{Advice, Advise};

/// Why a text names no storage nodes of this job.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StorageNodesError {
    /// Part of it is neither a number nor a range.
    #[error("--storage-nodes {text}: `{part}` is not a node number or a range")]
    Range {
        /// All of it.
        text: String,
        /// What is wrong.
        part: String,
    },
    /// No list of hosts.
    #[error("--storage-nodes {text}")]
    List {
        /// All of it.
        text: String,
        /// Why.
        source: HostsError,
    },
    /// A host that is no node.
    #[error("--storage-nodes {text}: no node of the job is called `{host}`")]
    NoSuchHost {
        /// All of it.
        text: String,
        /// Which.
        host: String,
    },
    /// Numbers that do not fit.
    #[error("--storage-nodes {text}")]
    Groups {
        /// All of it.
        text: String,
        /// Why.
        source: GroupsError,
    },
}

impl StorageNodesError {
    /// What the user can try next.
    pub(crate) fn help(&self) -> Option<&'static str> {
        match self {
            Self::List { .. } => None,
            _ => Some(
                "give a number of nodes, for example 2, or a list of node numbers or hosts, for example 0,4-5 or n[01-02]; \
                 nodes are numbered from 0",
            ),
        }
    }
}

impl Advise for StorageNodesError {
    fn advice(&self) -> Option<Advice> {
        Some(Advice::usage(self.help().map(str::to_owned)))
    }
}

/// The numbers of the nodes with storage, ascending. One number is how many, spread over the job; a list of
/// numbers and ranges, or of hosts as `node_of` knows them, says which.
pub(crate) fn parse(
    text: &str,
    nodes: u16,
    node_of: impl Fn(&str) -> Option<u16>,
) -> Result<Vec<u16>, StorageNodesError> {
    let all = || text.to_owned();
    let parts: Vec<_> = text.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
    let is_number = |c: char| c.is_ascii_digit() || c == '-';
    let groups = if let Ok(count) = text.trim().parse::<u16>() {
        Groups::spread(nodes, count)
    } else if parts.iter().all(|part| part.chars().all(is_number)) {
        let mut numbers = Vec::new();
        for part in &parts {
            let range = range(part, nodes);
            let wrong = || StorageNodesError::Range { text: all(), part: (*part).to_owned() };
            numbers.extend(range.ok_or_else(wrong)?);
        }
        Groups::new(nodes, &numbers)
    } else {
        let hosts = parse_list(text);
        let hosts = hosts.map_err(|source| StorageNodesError::List { text: all(), source })?;
        let number = |host: String| match node_of(&host) {
            Some(node) => Ok(node),
            None => Err(StorageNodesError::NoSuchHost { text: all(), host }),
        };
        let numbers: Vec<_> = hosts.into_iter().map(number).collect::<Result<_, _>>()?;
        Groups::new(nodes, &numbers)
    };
    let groups = groups.map_err(|source| StorageNodesError::Groups { text: all(), source })?;
    Ok(groups.servers().iter().map(|server| server.0).collect())
}

/// `4` or `4-7`, both ends included as people write them; an end beyond the job's nodes is cut to one beyond them.
fn range(part: &str, nodes: u16) -> Option<std::ops::RangeInclusive<u16>> {
    let (first, last) = part.split_once('-').unwrap_or((part, part));
    let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last).then(|| first..=last.min(nodes.max(first)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, nodes: u16) -> Result<Vec<u16>, String> {
        let node_of =
            |host: &str| host.strip_prefix('n')?.parse().ok().filter(|node| *node < nodes);
        let told = |error: StorageNodesError| match std::error::Error::source(&error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        };
        parse(text, nodes, node_of).map_err(told)
    }

    #[test]
    fn a_number_is_how_many_and_a_list_is_which() {
        for (text, nodes, expected) in [
            ("2", 8, &[0, 4][..]),
            ("8", 8, &[0, 1, 2, 3, 4, 5, 6, 7]),
            ("4,", 8, &[4]),
            ("5,0,5", 8, &[0, 5]),
            ("0,4-6", 8, &[0, 4, 5, 6]),
            ("n3,n1", 8, &[1, 3]),
            ("n[0-1]", 8, &[0, 1]),
        ] {
            assert_eq!(found(text, nodes).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, expected) in [
            ("0", "--storage-nodes 0: no node stores files"),
            ("9", "9 nodes cannot store files: the job has only 8"),
            ("7-8", "there is no node 8: the last of the job is node 7"),
            ("7-65535", "there is no node 8"),
            ("3-1", "`3-1` is not a node number or a range"),
            ("1,-", "`-` is not a node number or a range"),
            ("99999,1", "`99999` is not a node number or a range"),
            (",", "no node stores files"),
            ("n1,x", "no node of the job is called `x`"),
            ("n[1", "invalid list of hosts"),
        ] {
            let error = found(text, 8).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
