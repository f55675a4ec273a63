//! `--verify` of `flush` and `resume`: the tier is read back and compared with what was sent.
//!
//! Here: which versions there should be, from servers or ledgers, and what became of them.
//! Not here: the reading itself ([`crate::wiring::verify`]).

use std::time::Duration;

use hayase_layout::ByteCount;
use serde::Serialize;

use crate::job::{Job, Settings, ledgers};
use crate::launch::tree::{Answer, JOIN_PATIENCE, Session};
use crate::output::{Output, Page};
use crate::supervisor::control::Request;
use crate::wiring::status::{ChecksumLine, server_checksums};
use crate::wiring::verify::{Reader, Verified};

/// How long a server may take for a page of its ledger.
const PATIENCE: Duration = Duration::from_secs(10);

/// What was found in the tier.
#[derive(Debug, Default, Serialize)]
pub(crate) struct VerifyTold {
    /// Files that hold what was sent, and their bytes.
    pub(crate) same_files: u64,
    pub(crate) same_bytes: u64,
    /// Files that do not.
    pub(crate) wrong: Vec<WrongFile>,
    /// Nodes that can not say what they sent.
    pub(crate) unknown: Vec<u16>,
}

/// A file that does not hold what was sent.
#[derive(Debug, Serialize)]
pub(crate) struct WrongFile {
    /// From the tier's root.
    path: String,
    /// In words.
    what: String,
}

impl VerifyTold {
    /// Everything that is known to have been sent is there.
    pub(crate) fn is_right(&self) -> bool {
        self.wrong.is_empty() && self.unknown.is_empty()
    }

    /// For people.
    pub(crate) fn write(&self, page: &mut Page) {
        let (files, bytes) = (self.same_files, ByteCount(self.same_bytes));
        page.line(&format!("verified: {files} files, {bytes}, were read back as they were sent"));
        for file in &self.wrong {
            page.line(&format!("not as it was sent: {}: {}", file.path, file.what));
        }
        for node in &self.unknown {
            page.line(&format!("node {node}: nobody can say what it sent"));
        }
    }
}

/// A page of what the server of a node of this machine has sent.
pub(crate) fn checksums_of_node(
    job: &Job,
    node: u16,
    after: u64,
) -> anyhow::Result<Vec<ChecksumLine>> {
    server_checksums(&job.dir.node(node).server_socket(), after, PATIENCE)
}

/// Reads back what the servers of a running job have sent, below the directory or file `below` of the tier.
pub(crate) fn verify_job(
    job: &Job,
    below: Option<&[u8]>,
    output: &Output,
) -> anyhow::Result<VerifyTold> {
    let mut told = VerifyTold::default();
    let mut lines = Vec::new();
    for node in 0..job.settings.nodes {
        match lines_of(job, node) {
            Ok(of_node) => lines.extend(of_node),
            Err(error) => {
                tracing::warn!(node, "{error:#}");
                told.unknown.push(node);
            }
        }
    }
    lines.retain(|line| below.is_none_or(|below| is_below(&line.path, below)));
    told.read(&job.settings, &lines, output)?;
    Ok(told)
}

/// Everything that one node has sent.
fn lines_of(job: &Job, node: u16) -> anyhow::Result<Vec<ChecksumLine>> {
    let is_elsewhere = job.nodes_elsewhere().contains(&node);
    let mut session = is_elsewhere.then(|| Session::open(job, &[node]));
    let mut all: Vec<ChecksumLine> = Vec::new();
    loop {
        let after = all.last().map_or(0, |line| line.ino);
        let page = match &mut session {
            None => checksums_of_node(job, node, after)?,
            Some(session) => {
                let request = Request::Checksums { after };
                let mut answers = session.ask(&request, JOIN_PATIENCE + PATIENCE);
                match answers.remove(&node) {
                    Some(Ok(Answer::Status(value))) => serde_json::from_value(value)?,
                    other => anyhow::bail!("unexpected answer {other:?}"),
                }
            }
        };
        if page.is_empty() {
            return Ok(all);
        }
        all.extend(page);
    }
}

/// Reads back what a job whose servers are gone has sent, as its ledgers on this machine know it.
pub(crate) fn verify_ledgers(settings: &Settings, output: &Output) -> anyhow::Result<VerifyTold> {
    let mut told = VerifyTold::default();
    let line = |record: hayase_store::LedgerRecord| {
        let checksum = record.known_checksum().filter(|_| !record.is_nameless)?;
        let version = record.version.filter(|_| record.state.is_safe())?;
        let (ino, identity, bytes) = (record.ino.0, version.identity, version.size);
        Some(ChecksumLine { ino, path: record.path, identity, bytes, checksum })
    };
    let lines: Vec<_> = ledgers::all(settings)?.into_iter().filter_map(line).collect();
    told.read(settings, &lines, output)?;
    Ok(told)
}

impl VerifyTold {
    fn read(
        &mut self,
        settings: &Settings,
        lines: &[ChecksumLine],
        output: &Output,
    ) -> anyhow::Result<()> {
        let reader = Reader::open(settings)?;
        let (bar, wanted) = (output.transfer(), lines.iter().map(|line| line.bytes).sum::<u64>());
        let mut moved = 0;
        for line in lines {
            let verified = reader.verify(line, |bytes| {
                moved += bytes;
                bar.set(moved, wanted, true);
            });
            let what = match verified {
                Verified::Same => {
                    self.same_files += 1;
                    self.same_bytes += line.bytes;
                    continue;
                }
                Verified::Differs { found } => {
                    format!("checksum {found:016x} where {:016x} was sent", line.checksum)
                }
                Verified::Changed => "somebody has changed it since".to_owned(),
                Verified::Missing => "it is not there any more".to_owned(),
                Verified::Unreadable(refused) => format!("it can not be read: {refused}"),
            };
            let path = String::from_utf8_lossy(&line.path).into_owned();
            self.wrong.push(WrongFile { path, what });
        }
        Ok(())
    }
}

/// `path` itself or something in the directory of that name; the root has no name.
fn is_below(path: &[u8], below: &[u8]) -> bool {
    let rest = path.strip_prefix(below);
    below.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_not_below_its_own_beginning() {
        assert!(is_below(b"a/b", b"a") && is_below(b"a", b"a") && is_below(b"x", b""));
        assert!(!is_below(b"ab", b"a") && !is_below(b"a", b"a/b"));
    }
}
