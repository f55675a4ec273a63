//! Moving them, and giving them back.
//!
//! What was before is written down before anything changes, in a file that is locked for as long as it is so: one job
//! of a machine at a time, and who finds the file unlocked knows that its keeper was killed. Only what is still
//! as we set it is put back.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use anyhow::{Context, bail};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::{Machine, knobs};
use crate::processors::Processors;

/// Tries for a record that others remove meanwhile.
const LOCK_TRIES: usize = 16;

/// Held until they are given back.
#[derive(Debug)]
pub(crate) struct Moved {
    machine: Machine,
    record: File,
    changes: Vec<Change>,
}

/// One file of the kernel that was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Change {
    path: PathBuf,
    before: String,
    after: String,
}

/// What became of it, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Told {
    /// How many are on the processors of the daemons now.
    pub(crate) moved: usize,
    /// Those that are not, and why.
    pub(crate) not_moved: Vec<String>,
}

impl Moved {
    /// Moves what can be moved to `processors`. What a killed job had moved is put back first.
    ///
    /// # Errors
    /// When another job on this machine has moved them, or what was before can not be written down.
    pub(crate) fn begin(machine: Machine, processors: &Processors) -> anyhow::Result<(Self, Told)> {
        let Some(record) = lock(&machine)? else {
            bail!("another job on this machine has moved them");
        };
        let mut moved = Self { machine, record, changes: Vec::new() };
        for note in put_back(&moved.read()?) {
            tracing::warn!("{note}");
        }
        let mut told = Told::default();
        let mut wanted = Vec::new();
        for knob in knobs::all(&moved.machine) {
            let after = knob.form.write(processors);
            match read(&knob.path) {
                Ok(before) => wanted.push((knob.what, Change { path: knob.path, before, after })),
                Err(error) => told.not_moved.push(format!("{}: {error}", knob.what)),
            }
        }
        moved.changes = wanted.iter().map(|(_, change)| change.clone()).collect();
        moved.write()?;
        for (what, change) in wanted {
            // The kernel may take a write and do otherwise; what it shows then is what counts when it is put back.
            let set = fs::write(&change.path, &change.after).and_then(|()| read(&change.path));
            let place = moved.changes.iter().position(|one| one.path == change.path);
            match (set, place) {
                (Ok(after), Some(place)) => {
                    moved.changes[place].after = after;
                    told.moved += 1;
                }
                (Err(error), Some(place)) => {
                    moved.changes.remove(place);
                    told.not_moved.push(format!("{what}: {error}"));
                }
                (_, None) => {}
            }
        }
        moved.write()?;
        if has_balancer(&moved.machine) {
            told.not_moved.push("irqbalance runs here, and may move them again".to_owned());
        }
        Ok((moved, told))
    }

    /// Puts all of them back; what could not be.
    pub(crate) fn give_back(self) -> Vec<String> {
        let notes = put_back(&self.changes);
        if let Err(error) = fs::remove_file(&self.machine.record) {
            tracing::warn!("remove {}: {error}", self.machine.record.display());
        }
        notes
    }

    fn read(&mut self) -> anyhow::Result<Vec<Change>> {
        let mut text = String::new();
        self.record.rewind()?;
        self.record.read_to_string(&mut text).context("read what an earlier job had moved")?;
        // Nothing of a record that was not finished had happened yet.
        Ok(serde_json::from_str(&text).unwrap_or_default())
    }

    fn write(&mut self) -> anyhow::Result<()> {
        let text = serde_json::to_vec(&self.changes).expect("changes are plain data");
        self.record.set_len(0)?;
        self.record.rewind()?;
        self.record.write_all(&text).context("write down where interrupts were")
    }
}

/// Puts back what a job had moved that was killed since; nothing where none was.
pub(crate) fn give_back_left(machine: Machine) {
    if !machine.record.exists() {
        return;
    }
    let Ok(Some(record)) = lock(&machine) else { return };
    let mut moved = Moved { machine, record, changes: Vec::new() };
    if let Ok(changes) = moved.read() {
        moved.changes = changes;
        for note in moved.give_back() {
            tracing::warn!("{note}");
        }
    }
}

/// The record, locked; `None` while somebody else has it.
fn lock(machine: &Machine) -> anyhow::Result<Option<File>> {
    let path = &machine.record;
    let failed = || format!("open {}", path.display());
    for _ in 0..LOCK_TRIES {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(path).with_context(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(error).with_context(failed),
        }
        // Its keeper may have removed it in between.
        let held = file.metadata().with_context(failed)?;
        match fs::symlink_metadata(path) {
            Ok(found) if (found.dev(), found.ino()) == (held.dev(), held.ino()) => {
                return Ok(Some(file));
            }
            _ => {}
        }
    }
    bail!("{} is created and removed repeatedly", path.display())
}

fn read(path: &std::path::Path) -> io::Result<String> {
    Ok(fs::read_to_string(path)?.trim().to_owned())
}

/// In the opposite order. Somebody who has changed one since knows better.
fn put_back(changes: &[Change]) -> Vec<String> {
    let mut notes = Vec::new();
    for Change { path, before, after } in changes.iter().rev() {
        let put = match read(path) {
            Ok(now) if now == *after && now != *before => fs::write(path, before),
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = put {
            notes.push(format!("put {} back to {before}: {error}", path.display()));
        }
    }
    notes
}

fn has_balancer(machine: &Machine) -> bool {
    let processes = fs::read_dir(&machine.proc).into_iter().flatten().flatten();
    let is_one = |comm: String| comm.trim() == "irqbalance";
    processes
        .filter(|entry| entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit))
        .any(|entry| fs::read_to_string(entry.path().join("comm")).is_ok_and(is_one))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start() -> (tempfile::TempDir, Machine, Processors) {
        let top = tempfile::tempdir().unwrap();
        let machine = super::super::sample(&fs::canonicalize(top.path()).unwrap());
        (top, machine, "1".parse().unwrap())
    }

    fn list(machine: &Machine, number: u32) -> String {
        read(&machine.proc.join(format!("irq/{number}/smp_affinity_list"))).unwrap()
    }

    fn workers(machine: &Machine) -> String {
        read(&machine.sys.join("devices/virtual/workqueue/cpumask")).unwrap()
    }

    #[test]
    fn they_go_and_come_back() {
        let (_top, machine, one) = start();
        let (moved, told) = Moved::begin(machine.clone(), &one).unwrap();
        assert_eq!(told, Told { moved: 5, not_moved: Vec::new() });
        assert_eq!((list(&machine, 36), list(&machine, 39)), ("1".to_owned(), "1".to_owned()));
        assert_eq!(workers(&machine), "00000002");
        // Somebody else knows better.
        fs::write(machine.proc.join("irq/38/smp_affinity_list"), "0\n").unwrap();
        assert_eq!(moved.give_back(), Vec::<String>::new());
        assert_eq!((list(&machine, 36), list(&machine, 38)), ("0-1".to_owned(), "0".to_owned()));
        assert_eq!(workers(&machine), "3");
        assert!(!machine.record.exists());
    }

    #[test]
    fn what_can_not_be_moved_is_told() {
        let (_top, machine, one) = start();
        // Neither can be written as a file.
        let place = machine.proc.join("irq/36/smp_affinity_list");
        fs::remove_file(&place).unwrap();
        fs::create_dir(&place).unwrap();
        let (moved, told) = Moved::begin(machine, &one).unwrap();
        assert_eq!((told.moved, told.not_moved.len()), (4, 1));
        assert!(told.not_moved[0].starts_with("36 ("), "{told:?}");
        assert_eq!(moved.give_back(), Vec::<String>::new());
    }

    #[test]
    fn one_job_at_a_time_has_them() {
        let (_top, machine, one) = start();
        let (moved, _) = Moved::begin(machine.clone(), &one).unwrap();
        let error = Moved::begin(machine.clone(), &one).unwrap_err().to_string();
        assert!(error.contains("another job"), "{error}");
        give_back_left(machine.clone());
        assert_eq!(list(&machine, 36), "1", "its job lives");
        moved.give_back();
        Moved::begin(machine, &one).unwrap().0.give_back();
    }

    #[test]
    fn a_killed_job_s_are_put_back_by_the_next() {
        let (_top, machine, one) = start();
        // Dropped without a word: as after a kill.
        drop(Moved::begin(machine.clone(), &one).unwrap());
        assert_eq!(list(&machine, 36), "1");
        let (moved, _) = Moved::begin(machine.clone(), &"0".parse().unwrap()).unwrap();
        assert_eq!(list(&machine, 36), "0");
        moved.give_back();
        assert_eq!(list(&machine, 36), "0-1", "as before both");
        drop(Moved::begin(machine.clone(), &one).unwrap());
        give_back_left(machine.clone());
        assert_eq!((list(&machine, 36), machine.record.exists()), ("0-1".to_owned(), false));
    }
}
