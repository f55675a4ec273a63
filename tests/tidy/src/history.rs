//! What git knows of the repository: an earlier tree, how many commits touched some folders.
//!
//! Everything here may be missing: no git, no repository, a shallow clone. Then it is `None`.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::tree::Tree;

/// The history of the repository at a path.
#[derive(Debug)]
pub struct History<'a>(pub &'a Path);

impl History<'_> {
    /// The last commit that changed `path`, as its whole hash.
    pub fn last_change(&self, path: &str) -> Option<String> {
        self.git(&["log", "-1", "--format=%H", "--", path]).filter(|hash| !hash.is_empty())
    }

    /// How many commits since `commit` changed any of `paths`.
    pub fn commits_since(&self, commit: &str, paths: &[String]) -> Option<usize> {
        // Without it `rev-list` would take a commit that is not there for a path.
        self.git(&["cat-file", "-e", &format!("{commit}^{{commit}}")])?;
        let range = format!("{commit}..HEAD");
        let paths = paths.iter().map(String::as_str);
        let args: Vec<_> = ["rev-list", "--count", &range, "--"].into_iter().chain(paths).collect();
        self.git(&args)?.parse().ok()
    }

    /// The files of `commit` that end so.
    pub fn tree(&self, commit: &str, end: &str) -> Option<Tree> {
        let listed = self.git(&["ls-tree", "-r", "--name-only", commit])?;
        let files: Vec<&str> = listed.lines().filter(|path| path.ends_with(end)).collect();
        let asked: String = files.iter().map(|path| format!("{commit}:{path}\n")).collect();
        let told = self.told(&["cat-file", "--batch"], asked)?;
        objects(&told, &files).map(Tree::of)
    }

    fn git(&self, args: &[&str]) -> Option<String> {
        let told = self.told(args, String::new())?;
        Some(String::from_utf8_lossy(&told).trim().to_owned())
    }

    /// Standard output of a command that succeeds.
    fn told(&self, args: &[&str], input: String) -> Option<Vec<u8>> {
        let mut command = Command::new("git");
        command.arg("-C").arg(self.0).args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().ok()?;
        let mut stdin = child.stdin.take()?;
        // In a thread of its own: otherwise both sides would block once a pipe is full.
        let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
        let output = child.wait_with_output().ok()?;
        let _ = writer.join();
        output.status.success().then_some(output.stdout)
    }
}

/// What `git cat-file --batch` tells: for each file a line `<hash> blob <size>`, its bytes, a line end.
fn objects(mut told: &[u8], files: &[&str]) -> Option<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    for file in files {
        let end = told.iter().position(|&byte| byte == b'\n')?;
        let size =
            std::str::from_utf8(&told[..end]).ok()?.rsplit(' ').next()?.parse::<usize>().ok()?;
        let text = told.get(end + 1..end + 1 + size)?;
        found.insert((*file).to_owned(), String::from_utf8_lossy(text).into_owned());
        told = told.get(end + size + 2..)?;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_of_files_is_read() {
        let found = objects(b"12ab blob 3\na\nb\n34cd blob 0\n\n", &["x", "y"]).unwrap();
        assert_eq!(found["x"], "a\nb");
        assert_eq!(found["y"], "");
        assert!(objects(b"x missing\n", &["x"]).is_none());
    }

    #[test]
    fn where_nothing_is_known_nothing_is_told() {
        let history = History(Path::new("/nowhere/at/all"));
        assert_eq!(history.last_change("x"), None);
        assert_eq!(history.commits_since("0123456789ab", &[]), None);
        assert!(history.tree("HEAD", ".rs").is_none());
    }
}
