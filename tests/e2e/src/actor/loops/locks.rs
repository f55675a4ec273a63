//! Work that only a lock keeps right.

use rustix::fs::Mode;
use rustix::io::Errno;

use super::Run;
use crate::actor::calls::lock;
use crate::actor::command::{LockAction, LockKind};
use crate::actor::errno;

pub(super) fn count(run: &mut Run<'_>, path: &str, kind: LockKind) -> Result<(), String> {
    let file =
        rustix::fs::open(path, errno::open_flags("rw")?, Mode::empty()).map_err(errno::name)?;
    while run.next().is_some() {
        let counted = run.timed(|| {
            lock(&file, kind, LockAction::Wait)?;
            let mut number = [0; 8];
            if rustix::io::pread(&file, &mut number, 0)? != number.len() {
                return Err(Errno::NODATA);
            }
            let next = u64::from_le_bytes(number) + 1;
            rustix::io::pwrite(&file, &next.to_le_bytes(), 0)?;
            lock(&file, kind, LockAction::Unlock)
        });
        if run.count(counted).is_none() {
            run.violation(format!("count under a lock: {counted:?}"));
        }
    }
    Ok(())
}
