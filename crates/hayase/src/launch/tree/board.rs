//! The files by which the servers of a job find each other, for nodes that share no directory.
//!
//! A server puts `members.d/<i>.json` into the job directory; server 0 waits for all of them and seals
//! `members.json`. Here each is carried as it is: signed with the job's secret, so that a carrier can lose it
//! but not change it.

use std::fs;
use std::path::PathBuf;

use hayase_layout::ServerId;
use hayase_wire::members::{published_path, sealed_path};

use super::message::BoardFile;
use crate::job::{JobDir, JobError, write_atomically};

/// The node whose server seals the list.
pub(crate) const SEALER: u16 = 0;

/// The board of one place.
#[derive(Debug)]
pub(crate) struct Board {
    dir: PathBuf,
    is_private: bool,
    /// Files of this node that were not told yet.
    awaited: Vec<PathBuf>,
}

impl Board {
    /// Of a node: it tells what its server writes.
    pub(crate) fn new(dir: &JobDir, node: u16, is_private: bool) -> Self {
        let mut awaited = vec![published_path(dir.path(), ServerId(node))];
        if node == SEALER {
            awaited.push(sealed_path(dir.path()));
        }
        Self { dir: dir.path().to_owned(), is_private, awaited }
    }

    /// Of the one who typed: it only collects.
    pub(crate) fn of_root(dir: &JobDir) -> Self {
        Self { dir: dir.path().to_owned(), is_private: true, awaited: Vec::new() }
    }

    /// Files that are there since the last look.
    pub(crate) fn news(&mut self) -> Vec<BoardFile> {
        let mut news = Vec::new();
        let dir = &self.dir;
        self.awaited.retain(|path| {
            let Ok(text) = fs::read_to_string(path) else { return true };
            let name = path.strip_prefix(dir).unwrap_or(path).to_string_lossy().into_owned();
            // Everybody reads the sealed list; only its writer reads the others.
            let to = path.starts_with(dir.join("members.d")).then_some(SEALER);
            news.push(BoardFile { to, name, text });
            false
        });
        news
    }

    /// Puts a file up, unless the directory is the one that it comes from.
    pub(crate) fn put(&self, file: &BoardFile) -> Result<(), JobError> {
        if !self.is_private || !is_board_name(&file.name) {
            return Ok(());
        }
        let path = self.dir.join(&file.name);
        if path.exists() {
            return Ok(());
        }
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(JobError::io("make", parent))?;
        }
        write_atomically(&path, file.text.as_bytes())
    }
}

/// Nothing else is written for somebody else, whatever was sent.
fn is_board_name(name: &str) -> bool {
    let server = name.strip_prefix("members.d/").and_then(|rest| rest.strip_suffix(".json"));
    name == "members.json" || server.is_some_and(|server| server.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_told_once_and_put_where_they_belong() {
        let top = tempfile::tempdir().unwrap();
        let (here, there) = (top.path().join("a"), top.path().join("b"));
        fs::create_dir_all(here.join("members.d")).unwrap();
        fs::create_dir_all(&there).unwrap();
        let mut board = Board::new(&JobDir::new(&here), 0, true);
        assert!(board.news().is_empty());
        fs::write(here.join("members.d/0.json"), "zero").unwrap();
        fs::write(here.join("members.json"), "sealed").unwrap();
        let news = board.news();
        assert!(board.news().is_empty());
        let other = Board::of_root(&JobDir::new(&there));
        news.iter().for_each(|file| other.put(file).unwrap());
        assert_eq!(fs::read_to_string(there.join("members.d/0.json")).unwrap(), "zero");
        assert_eq!(fs::read_to_string(there.join("members.json")).unwrap(), "sealed");
        assert_eq!((news[0].to, news[1].to), (Some(SEALER), None));
    }

    #[test]
    fn nothing_else_is_written() {
        for bad in ["secret", "../x", "members.d/../secret", "members.d/x.json", "/etc/passwd", ""]
        {
            assert!(!is_board_name(bad), "{bad}");
        }
    }
}
