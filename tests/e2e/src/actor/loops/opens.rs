//! Opening and closing one file as fast as it goes.

use rustix::fs::{Mode, OFlags};

use super::{Report, Run};
use crate::actor::errno;

pub(super) fn reopen(
    run: &mut Run<'_>,
    path: &str,
    flags: &str,
    threads: u32,
) -> Result<(), String> {
    let flags = errno::open_flags(flags)?;
    let share = run.rounds_left().div_ceil(u64::from(threads.max(1)));
    let parts: Vec<Run<'_>> = (0..threads).map(|_| run.part(share)).collect();
    let reports: Vec<Report> = std::thread::scope(|scope| {
        let workers: Vec<_> = parts
            .into_iter()
            .map(|part| scope.spawn(move || reopen_here(part, path, flags)))
            .collect();
        workers.into_iter().filter_map(|worker| worker.join().ok()).collect()
    });
    if reports.len() != threads as usize {
        return Err("a thread panicked".into());
    }
    reports.into_iter().for_each(|report| run.join(report));
    Ok(())
}

fn reopen_here(mut run: Run<'_>, path: &str, flags: OFlags) -> Report {
    while run.next().is_some() {
        let opened = run.timed(|| rustix::fs::open(path, flags, Mode::empty()).map(drop));
        if run.count(opened).is_none() {
            run.violation(format!("open: {opened:?}"));
        }
    }
    run.finish()
}
