//! What `hayase resume --salvage` tells.

use std::path::PathBuf;

use hayase_layout::ByteCount;
use hayase_server::{SalvagedFile, Salvaging};
use hayase_store::Damage;
use serde::Serialize;

use crate::count::counted;
use crate::output::{Human, Page};

#[derive(Debug, Default, Serialize)]
pub(super) struct SalvageTold {
    pub(super) took_ms: u64,
    /// Files that are in the tier now, those included that were there.
    salvaged_files: u64,
    salvaged_bytes: u64,
    files: Vec<File>,
    not_salvaged: Vec<File>,
    /// Places of ledgers that neither copy tells.
    damage: Vec<Place>,
    /// Nodes whose storage is not on this machine.
    not_here: Vec<u16>,
    pub(super) removed: bool,
    storage: PathBuf,
    /// What `--salvage --discard` takes to remove the storage.
    dir: PathBuf,
}

#[derive(Debug, Serialize)]
struct File {
    node: u16,
    inode: String,
    path: String,
    bytes: u64,
    /// `brought`, `conflict`, `same`; or why it was not brought.
    what: String,
}

#[derive(Debug, Serialize)]
struct Place {
    file: PathBuf,
    offset: u64,
}

impl SalvageTold {
    /// Nothing yet, of a job that was named as `dir`, kept its bytes in `storage` and of whose nodes these are not here.
    pub(super) fn new(dir: PathBuf, storage: PathBuf, not_here: Vec<u16>) -> Self {
        Self { dir, storage, not_here, ..Self::default() }
    }

    /// What became of the storage, and what can be done with it.
    fn end(&self) -> String {
        let (storage, dir) = (self.storage.display(), self.dir.display());
        match (self.removed, self.is_all()) {
            (true, _) => "the job's storage was removed".to_owned(),
            (false, true) => format!(
                "the job's storage is kept: {storage}; look at the tier, then remove it with `hayase resume --salvage \
                 --discard {dir}`"
            ),
            (false, false) => format!(
                "the job's storage is kept, with what was not salvaged: {storage}; --discard does not remove it"
            ),
        }
    }

    /// Everything that was found is in the tier, and nothing is elsewhere.
    pub(super) fn is_all(&self) -> bool {
        self.not_salvaged.is_empty() && self.not_here.is_empty()
    }

    pub(super) fn add_damage(&mut self, damage: Vec<Damage>) {
        let place = |Damage { file, offset }| Place { file, offset };
        self.damage.extend(damage.into_iter().map(place));
    }

    pub(super) fn add(&mut self, node: u16, file: &SalvagedFile) {
        let what = match &file.what {
            Salvaging::Brought => "brought".to_owned(),
            Salvaging::Conflict => "conflict".to_owned(),
            Salvaging::Same => "same".to_owned(),
            Salvaging::Lost(refused) => refused.to_string(),
        };
        let path = String::from_utf8_lossy(&file.path).into_owned();
        let inode = format!("{:016x}", file.ino.0);
        let is_lost = matches!(file.what, Salvaging::Lost(_));
        let line = File { node, inode, path, bytes: file.bytes, what };
        if is_lost {
            return self.not_salvaged.push(line);
        }
        self.salvaged_files += 1;
        self.salvaged_bytes += file.bytes;
        self.files.push(line);
    }
}

impl Human for SalvageTold {
    fn write(&self, page: &mut Page) {
        for Place { file, offset } in &self.damage {
            page.line(&format!("damaged: {} at byte {offset}", file.display()));
        }
        for File { path, what, .. } in &self.files {
            page.line(&match what.as_str() {
                "conflict" => format!("the tier has something else under its name: {path}"),
                "same" => format!("the tier had it: {path}"),
                _ => format!("brought: {path}"),
            });
        }
        for File { node, inode, path, what, .. } in &self.not_salvaged {
            page.line(&format!("not salvaged: inode {inode} of node {node} ({path}): {what}"));
        }
        for node in &self.not_here {
            page.line(&format!("node {node}: its storage is not on this machine"));
        }
        let (files, bytes) = (self.salvaged_files, ByteCount(self.salvaged_bytes));
        page.line(&format!("in the tier now: {}, {bytes}", counted(files, "file")));
        page.line(&self.end());
    }
}

#[cfg(test)]
mod tests {
    use hayase_layout::InodeId;
    use hayase_wire::message::Refused;

    use super::*;

    #[test]
    fn the_end_says_what_removes_the_storage_and_what_does_not() {
        let told = || SalvageTold::new("/jobs/j".into(), "/scratch/j".into(), Vec::new());
        let check = |told: SalvageTold, expected: &str| assert_eq!(told.end(), expected);
        check(
            told(),
            "the job's storage is kept: /scratch/j; look at the tier, then remove it with `hayase resume --salvage \
             --discard /jobs/j`",
        );
        check(SalvageTold { removed: true, ..told() }, "the job's storage was removed");
        let mut partly = told();
        let what = Salvaging::Lost(Refused::because(5, "why"));
        partly.add(0, &SalvagedFile { ino: InodeId(7), path: b"f".to_vec(), bytes: 1, what });
        check(
            partly,
            "the job's storage is kept, with what was not salvaged: /scratch/j; --discard does not remove it",
        );
    }
}
