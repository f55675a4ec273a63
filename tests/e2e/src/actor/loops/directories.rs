//! Directories that are listed while they change, or that come and go.

use std::collections::HashMap;
use std::time::Duration;

use rustix::fs::Mode;
use rustix::io::Errno;

use super::Run;
use crate::actor::calls;
use crate::actor::errno;

pub(super) fn list(run: &mut Run<'_>, path: &str, stable: u64, pause: Duration) {
    while run.next().is_some() {
        std::thread::sleep(pause);
        let entries = match run.timed(|| calls::list(path)) {
            Ok(entries) => entries,
            Err(error) => {
                run.violation(format!("list: {error}"));
                continue;
            }
        };
        run.count(Ok(()));
        let mut seen: HashMap<&str, u64> = HashMap::new();
        for entry in &entries {
            *seen.entry(&entry.name).or_default() += 1;
        }
        for (name, times) in &seen {
            if *times > 1 {
                run.violation(format!("{name} is listed {times} times"));
            }
        }
        let found = seen.keys().filter(|name| name.starts_with('s')).count() as u64;
        if found != stable {
            run.violation(format!("{found} of {stable} stable names are listed"));
        }
    }
}

pub(super) fn make_remove(run: &mut Run<'_>, path: &str) {
    while run.next().is_some() {
        let made = rustix::fs::mkdir(path, Mode::from_raw_mode(0o755));
        if run.count(made).is_none() && made != Err(Errno::EXIST) {
            run.violation(format!("mkdir: {made:?}"));
        }
        let removed = rustix::fs::rmdir(path);
        if run.count(removed).is_none() && removed != Err(Errno::NOTEMPTY) {
            run.violation(format!("rmdir: {removed:?}"));
        }
    }
}

pub(super) fn create_inside(run: &mut Run<'_>, path: &str, name: &str) {
    let flags = errno::open_flags("w+creat+excl").expect("these are flags");
    while let Some(round) = run.next() {
        let file = format!("{path}/{name}{round}");
        let made = rustix::fs::open(&file, flags, Mode::from_raw_mode(0o644)).map(drop);
        if run.count(made).is_none() {
            if !matches!(made, Err(Errno::NOENT | Errno::STALE)) {
                run.violation(format!("create: {made:?}"));
            }
            continue;
        }
        // It was created, so its directory can not have been removed since.
        let removed = rustix::fs::unlink(&file);
        if run.count(removed).is_none() {
            run.violation(format!("{file} was created and is gone: {removed:?}"));
        }
    }
}
