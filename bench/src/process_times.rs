//! What `/proc` knows of other processes: CPU time, wake-ups, calls, memory.
//!
//! CPU time is the sum of `task/*/schedstat`, in nanoseconds: clock ticks of `stat` (10 ms) are too
//! coarse for blocks of 100 ms. A thread that ends between two readings is not counted; the daemons
//! keep theirs much longer than a block.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

/// CPU time of a set of processes at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct CpuTimes {
    by_thread: BTreeMap<u32, u64>,
}

impl CpuTimes {
    /// Of all threads of `processes`; one that has ended has none.
    pub(crate) fn of(processes: &[u32]) -> Self {
        let mut by_thread = BTreeMap::new();
        for process in processes {
            for thread in threads(*process) {
                let path = format!("/proc/{process}/task/{thread}/schedstat");
                let text = fs::read_to_string(path).unwrap_or_default();
                let ran = text.split(' ').next().and_then(|field| field.parse().ok());
                by_thread.insert(thread, ran.unwrap_or(0));
            }
        }
        Self { by_thread }
    }

    /// Seconds of CPU since `earlier`, of the threads that are there now.
    pub(crate) fn since(&self, earlier: &Self) -> f64 {
        let ran = self.by_thread.iter().map(|(thread, now)| {
            now.saturating_sub(earlier.by_thread.get(thread).copied().unwrap_or(0))
        });
        ran.sum::<u64>() as f64 / 1e9
    }
}

fn threads(process: u32) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// A process, those that it has started, and theirs.
pub(crate) fn with_children(process: u32) -> Vec<u32> {
    let mut all = vec![process];
    let mut next = 0;
    while let Some(&process) = all.get(next) {
        all.extend(children(process));
        next += 1;
    }
    all
}

/// Of all its threads.
fn children(process: u32) -> Vec<u32> {
    let read = |thread| fs::read_to_string(format!("/proc/{process}/task/{thread}/children"));
    let words = |text: String| -> Vec<u32> {
        text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
    };
    threads(process).into_iter().filter_map(|thread| read(thread).ok()).flat_map(words).collect()
}

/// The name of a process, as its kernel knows it.
pub(crate) fn name(process: u32) -> Option<String> {
    Some(fs::read_to_string(format!("/proc/{process}/comm")).ok()?.trim_end().to_owned())
}

/// How often the threads of a process went to sleep by themselves, since it began.
pub(crate) fn wake_ups(process: u32) -> u64 {
    let of_thread = |thread: &u32| {
        field(&format!("/proc/{process}/task/{thread}/status"), "voluntary_ctxt_switches:")
    };
    threads(process).iter().filter_map(of_thread).sum()
}

/// How often processes have called read(2), write(2) and their relatives; sends, receives and requests of a ring are
/// not among them. `None` when one of the processes does not tell.
pub(crate) fn read_write_calls(processes: &[u32]) -> Option<u64> {
    let of = |process: &u32| {
        let path = format!("/proc/{process}/io");
        Some(field(&path, "syscr:")? + field(&path, "syscw:")?)
    };
    processes.iter().map(of).sum()
}

/// Resident bytes of a process (`VmRSS`), files and shared memory included.
pub(crate) fn resident_bytes(process: u32) -> Option<u64> {
    Some(field(&format!("/proc/{process}/status"), "VmRSS:")? * 1024)
}

fn field(path: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// How long processes may go on with what they left for later.
const SETTLE_MAX: Duration = Duration::from_millis(1000);

/// A process that runs less than this in [`SETTLE_STEP`] is at rest.
const REST: f64 = 100e-6;
const SETTLE_STEP: Duration = Duration::from_millis(6);

/// Waits until `processes` are at rest: what they put off belongs to the block that caused it.
pub(crate) fn settle(processes: &[u32]) {
    let until = Instant::now() + SETTLE_MAX;
    let mut before = CpuTimes::of(processes);
    while Instant::now() < until {
        std::thread::sleep(SETTLE_STEP);
        let now = CpuTimes::of(processes);
        if now.since(&before) < REST {
            return;
        }
        before = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_seen_and_rest_too() {
        let me = [std::process::id()];
        let before = CpuTimes::of(&me);
        let begin = Instant::now();
        let mut sum = 0_u64;
        while begin.elapsed() < Duration::from_millis(50) {
            sum = std::hint::black_box(sum + 1);
        }
        let spent = CpuTimes::of(&me).since(&before);
        assert!(spent > 0.0 && spent < 60.0, "{spent}");
        assert!(resident_bytes(me[0]).is_some_and(|bytes| bytes > 100_000));
        assert!(wake_ups(me[0]) > 0 || spent > 0.0);
        assert!(read_write_calls(&me).is_none_or(|calls| calls > 0));
        assert_eq!(read_write_calls(&[me[0], u32::MAX]), None);
        assert!(name(me[0]).is_some_and(|name| !name.is_empty()));
        assert_eq!(with_children(me[0])[0], me[0]);
        assert_eq!((name(u32::MAX), with_children(u32::MAX)), (None, vec![u32::MAX]));
        assert_eq!(CpuTimes::of(&[u32::MAX]).since(&CpuTimes::default()), 0.0);
    }
}
