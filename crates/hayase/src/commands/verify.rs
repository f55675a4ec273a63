//! `--verify` of `flush` and `resume`: the tier is read back and compared with what was sent.
//!
//! Here: which versions there should be, from servers or ledgers, and what became of them.
//! Not here: the reading itself ([`crate::wiring::verify`]).

use std::collections::HashMap;
use std::time::Duration;

use hayase_layout::ByteCount;
use serde::Serialize;

use crate::count::counted;
use crate::job::{Job, Settings, ledgers};
use crate::launch::tree::{Answer, JOIN_PATIENCE, Session};
use crate::output::{Output, Page};
use crate::status::{CHECKSUMS_PATIENCE, checksums_of_node};
use crate::supervisor::control::Request;
use crate::wiring::status::ChecksumLine;
use crate::wiring::verify::{Reader, Verified, checksum_line};

/// So often the job may bring a newer version of a file to the tier while it is read back.
const TRIES_MAX: u32 = 16;

/// Before a server is asked about a file again: it may be in the middle of a commit or a rename.
const PAUSE: Duration = Duration::from_millis(10);

/// What was found in the tier.
#[derive(Debug, Default, Serialize)]
pub(crate) struct VerifyTold {
    /// Files that hold what was sent, and their bytes.
    pub(crate) same_files: u64,
    pub(crate) same_bytes: u64,
    /// Files that do not.
    pub(crate) wrong: Vec<WrongFile>,
    /// Files that were sent, of which nobody knows what the version that the tier has now should hold: it
    /// is none that was sent, or it gets another one just now.
    pub(crate) unchecked_files: u64,
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
    /// Everything that was sent is there: where nobody could look, nobody says so.
    pub(crate) fn is_right(&self) -> bool {
        self.wrong.is_empty() && self.unknown.is_empty() && self.unchecked_files == 0
    }

    /// For people.
    pub(crate) fn write(&self, page: &mut Page) {
        let (files, bytes) = (self.same_files, ByteCount(self.same_bytes));
        page.line(&format!("verified: {}, {bytes}, read back as sent", counted(files, "file")));
        for file in &self.wrong {
            page.line(&format!("not as it was sent: {}: {}", file.path, file.what));
        }
        if self.unchecked_files > 0 {
            let files = self.unchecked_files;
            page.line(&format!(
                "not compared, because the checksum is unknown: {}",
                counted(files, "file")
            ));
        }
        for node in &self.unknown {
            page.line(&format!("node {node}: it is unknown what it sent"));
        }
    }
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
        match Asked::of(job, node).lines() {
            Ok(of_node) => lines.extend(of_node.into_iter().map(|line| (node, line))),
            Err(error) => told.can_not_say(node, &error),
        }
    }
    lines.retain(|(_, line)| below.is_none_or(|below| is_below(&line.path, below)));
    let mut asked: Option<Asked<'_>> = None;
    let mut again = |node: u16, ino: u64| {
        std::thread::sleep(PAUSE);
        // Lines are in the order of nodes.
        let asked = match asked.take().filter(|asked| asked.node == node) {
            Some(same) => asked.insert(same),
            None => asked.insert(Asked::of(job, node)),
        };
        asked.line(ino)
    };
    told.read(&job.settings, &lines, &mut again, output)?;
    Ok(told)
}

/// The server of one node.
struct Asked<'a> {
    job: &'a Job,
    node: u16,
    /// To a node of another machine.
    session: Option<Session>,
}

impl<'a> Asked<'a> {
    fn of(job: &'a Job, node: u16) -> Self {
        let is_elsewhere = job.nodes_elsewhere().contains(&node);
        Self { job, node, session: is_elsewhere.then(|| Session::open(job, &[node])) }
    }

    /// Some of what it has sent, `most` at most, of inodes above `after`; nothing at the end.
    fn page(&mut self, after: u64, most: u16) -> anyhow::Result<Vec<ChecksumLine>> {
        let Some(session) = &mut self.session else {
            return checksums_of_node(self.job, self.node, after, most);
        };
        let request = Request::Checksums { after, most };
        let mut answers = session.ask(&request, JOIN_PATIENCE + CHECKSUMS_PATIENCE);
        match answers.remove(&self.node) {
            Some(Ok(Answer::Status(value))) => Ok(serde_json::from_value(value)?),
            other => anyhow::bail!("unexpected answer {other:?}"),
        }
    }

    /// Everything that it has sent.
    fn lines(&mut self) -> anyhow::Result<Vec<ChecksumLine>> {
        let mut all: Vec<ChecksumLine> = Vec::new();
        loop {
            let page = self.page(all.last().map_or(0, |line| line.ino), u16::MAX)?;
            if page.is_empty() {
                return Ok(all);
            }
            all.extend(page);
        }
    }

    /// What it has sent of one file.
    fn line(&mut self, ino: u64) -> anyhow::Result<Option<ChecksumLine>> {
        let page = self.page(ino.saturating_sub(1), 1)?;
        Ok(page.into_iter().next().filter(|line| line.ino == ino))
    }
}

/// Reads back what a job whose servers are gone has sent, as its ledgers on this machine know it.
pub(crate) fn verify_ledgers(settings: &Settings, output: &Output) -> anyhow::Result<VerifyTold> {
    let mut told = VerifyTold::default();
    let records = ledgers::all(settings)?;
    let lines: Vec<_> = records.iter().filter_map(checksum_line).map(|line| (0, line)).collect();
    let known: HashMap<u64, &ChecksumLine> =
        lines.iter().map(|(_, line)| (line.ino, line)).collect();
    let mut again = |_, ino| Ok(known.get(&ino).copied().cloned());
    told.read(settings, &lines, &mut again, output)?;
    Ok(told)
}

/// What is known now of the file of this node with this inode number.
type Again<'a> = &'a mut dyn FnMut(u16, u64) -> anyhow::Result<Option<ChecksumLine>>;

/// What became of one file.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// Of a version that was sent, and its checksum.
    Read(u64, Verified),
    /// Nobody knows what it should hold.
    Unchecked,
    /// The job has removed it since, or writes it anew.
    Gone,
}

/// Reads what `line` tells of. Where the tier has another version, or none, the job may have brought or
/// removed it, and where it has no checksum the job may be about to: then `again` knows of another line.
fn found(
    line: &ChecksumLine,
    mut read: impl FnMut(&ChecksumLine, u64) -> Verified,
    mut again: impl FnMut() -> anyhow::Result<Option<ChecksumLine>>,
) -> anyhow::Result<Found> {
    let mut line = line.clone();
    for _ in 0..TRIES_MAX {
        let found = line.checksum.map(|checksum| (checksum, read(&line, checksum)));
        let is_over =
            |(_, found): &(u64, Verified)| !matches!(found, Verified::Changed | Verified::Missing);
        if let Some((checksum, verified)) = found.clone().filter(is_over) {
            return Ok(Found::Read(checksum, verified));
        }
        match (again()?, found) {
            (None, _) => return Ok(Found::Gone),
            (Some(now), Some((checksum, verified))) if now == line => {
                return Ok(Found::Read(checksum, verified));
            }
            (Some(now), _) => line = now,
        }
    }
    Ok(Found::Unchecked)
}

impl VerifyTold {
    fn read(
        &mut self,
        settings: &Settings,
        lines: &[(u16, ChecksumLine)],
        again: Again<'_>,
        output: &Output,
    ) -> anyhow::Result<()> {
        let reader = Reader::open(settings)?;
        let wanted = lines.iter().map(|(_, line)| line.bytes).sum::<u64>();
        let (bar, mut moved) = (output.progress("Verifying"), 0);
        for (node, line) in lines {
            let read = |line: &ChecksumLine, checksum| {
                reader.verify(line, checksum, |bytes| {
                    moved += bytes;
                    bar.bytes(moved, wanted);
                })
            };
            match found(line, read, || again(*node, line.ino)) {
                Ok(found) => self.add(line, found),
                Err(error) => self.can_not_say(*node, &error),
            }
        }
        Ok(())
    }

    fn add(&mut self, line: &ChecksumLine, found: Found) {
        let what = match found {
            Found::Read(_, Verified::Same) => {
                self.same_files += 1;
                self.same_bytes += line.bytes;
                return;
            }
            Found::Unchecked => {
                self.unchecked_files += 1;
                return;
            }
            Found::Gone => return,
            Found::Read(checksum, Verified::Differs { found }) => {
                format!("checksum {found:016x} where {checksum:016x} was sent")
            }
            Found::Read(_, Verified::Changed) => "somebody has changed it since".to_owned(),
            Found::Read(_, Verified::Missing) => "it is not there any more".to_owned(),
            Found::Read(_, Verified::Unreadable(refused)) => {
                format!("it can not be read: {refused}")
            }
        };
        let path = String::from_utf8_lossy(&line.path).into_owned();
        self.wrong.push(WrongFile { path, what });
    }

    fn can_not_say(&mut self, node: u16, error: &anyhow::Error) {
        tracing::warn!(node, "{error:#}");
        if !self.unknown.contains(&node) {
            self.unknown.push(node);
        }
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

    fn line(identity: u64, checksum: Option<u64>) -> ChecksumLine {
        ChecksumLine { ino: 7, path: b"f".to_vec(), identity, bytes: 3, checksum }
    }

    /// A tier that has version 2, and a server that tells `now` when it is asked again.
    fn check(told: &ChecksumLine, now: Option<&ChecksumLine>, expected: &Found) {
        let read = |line: &ChecksumLine, checksum| match (line.identity, checksum) {
            (2, 22) => Verified::Same,
            (2, _) => Verified::Differs { found: 22 },
            _ => Verified::Changed,
        };
        let found = found(told, read, || Ok(now.cloned())).unwrap();
        assert_eq!(&found, expected, "{told:?} {now:?}");
    }

    #[test]
    fn what_the_job_itself_brings_meanwhile_is_not_wrong() {
        let (before, now, other) = (line(1, Some(11)), line(2, Some(22)), line(2, Some(33)));
        let differs = Verified::Differs { found: 22 };
        check(&now, None, &Found::Read(22, Verified::Same));
        check(&before, Some(&now), &Found::Read(22, Verified::Same));
        check(&before, None, &Found::Gone);
        check(&before, Some(&line(1, None)), &Found::Unchecked);
        check(&before, Some(&before), &Found::Read(11, Verified::Changed));
        check(&other, None, &Found::Read(33, differs));
        check(&line(1, None), None, &Found::Gone);
        check(&line(1, None), Some(&line(1, None)), &Found::Unchecked);
        check(&line(1, None), Some(&now), &Found::Read(22, Verified::Same));
    }

    #[test]
    fn only_what_was_compared_is_right() {
        let mut told = VerifyTold::default();
        told.add(&line(2, Some(22)), Found::Read(22, Verified::Same));
        told.add(&line(2, Some(22)), Found::Gone);
        assert!(told.is_right() && told.same_files == 1);
        told.add(&line(2, None), Found::Unchecked);
        assert!(!told.is_right());
    }

    #[test]
    fn a_file_that_changes_all_the_time_is_not_compared() {
        let mut identity = 0;
        let mut next = || {
            identity += 1;
            Ok(Some(line(identity, Some(identity))))
        };
        let told = next().unwrap().unwrap();
        let found = found(&told, |_, _| Verified::Missing, next).unwrap();
        assert_eq!(found, Found::Unchecked);
    }
}
