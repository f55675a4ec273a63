//! Names that come and go.

use rustix::fs::Mode;
use rustix::io::Errno;

use super::Run;
use crate::actor::errno;

pub(super) fn rename(run: &mut Run<'_>, from: &str, to: &str) {
    while run.next().is_some() {
        let result = run.timed(|| rustix::fs::rename(from, to));
        match (run.count(result), result) {
            (Some(()), _) => {}
            // The other side has not brought it back yet: no round.
            (None, Err(Errno::NOENT)) => {
                run.take_back();
                std::thread::yield_now();
            }
            (None, _) => run.violation(format!("rename: {result:?}")),
        }
    }
}

pub(super) fn create_unlink(run: &mut Run<'_>, create: &str, unlink: &str) {
    let flags = errno::open_flags("w+creat+excl").expect("these are flags");
    while let Some(round) = run.next() {
        let path = format!("{create}{round}");
        let made =
            run.timed(|| rustix::fs::open(&path, flags, Mode::from_raw_mode(0o644)).map(drop));
        if run.count(made).is_none() {
            run.violation(format!("create {path}: {made:?}"));
        }
        let path = format!("{unlink}{round}");
        let gone = run.timed(|| rustix::fs::unlink(&path));
        if run.count(gone).is_none() && gone != Err(Errno::NOENT) {
            run.violation(format!("unlink {path}: {gone:?}"));
        }
    }
}
