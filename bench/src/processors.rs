//! Which processor takes the interrupts of devices, and staying on one.

use std::fs;

use anyhow::{Context, ensure};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// A machine whose work is kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    /// For servers, and for what loads them: it takes most interrupts of devices anyway.
    pub(crate) system: usize,
    /// For the program that is measured.
    pub(crate) application: usize,
}

impl Places {
    /// Two of the processors that this process may use.
    pub(crate) fn of_this_machine() -> anyhow::Result<Self> {
        let allowed = allowed(&sched_getaffinity(None)?);
        ensure!(allowed.len() > 1, "one processor alone has no other beside it");
        let text = fs::read_to_string("/proc/interrupts").context("read /proc/interrupts")?;
        let counts = device_interrupts(&text);
        let count = |processor: &usize| counts.get(*processor).copied().unwrap_or(0);
        let system = allowed.iter().copied().max_by_key(count).context("there are processors")?;
        let application = allowed.into_iter().find(|processor| *processor != system);
        Ok(Self { system, application: application.context("there is another processor")? })
    }
}

fn allowed(set: &CpuSet) -> Vec<usize> {
    (0..CpuSet::MAX_CPU).filter(|processor| set.is_set(*processor)).collect()
}

/// Interrupts of devices that each processor has taken: lines of `/proc/interrupts` that begin with a number.
fn device_interrupts(text: &str) -> Vec<u64> {
    let mut lines = text.lines();
    let head = lines.next().unwrap_or_default();
    let numbers: Vec<usize> =
        head.split_whitespace().filter_map(|name| name.strip_prefix("CPU")?.parse().ok()).collect();
    let mut counts = vec![0; numbers.iter().max().map_or(0, |most| most + 1)];
    for line in lines {
        let Some((name, rest)) = line.split_once(':') else { continue };
        if name.trim().parse::<u32>().is_err() {
            continue;
        }
        for (processor, count) in numbers.iter().zip(rest.split_whitespace()) {
            counts[*processor] += count.parse::<u64>().unwrap_or(0);
        }
    }
    counts
}

/// Keeps a process of one thread, and what it starts from now on, on a processor.
pub(crate) fn keep(process: u32, processor: usize) -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    set.set(processor);
    let process = i32::try_from(process).ok().and_then(Pid::from_raw);
    sched_setaffinity(process, &set).with_context(|| format!("stay on processor {processor}"))
}

/// This thread stays on a processor until this is dropped, and so does what it starts meanwhile.
#[derive(Debug)]
pub(crate) struct Stay {
    before: CpuSet,
}

impl Stay {
    /// From now on.
    pub(crate) fn on(processor: usize) -> anyhow::Result<Self> {
        let before = sched_getaffinity(None)?;
        let mut set = CpuSet::new();
        set.set(processor);
        sched_setaffinity(None, &set).with_context(|| format!("stay on processor {processor}"))?;
        Ok(Self { before })
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        // It was there before.
        let _ = sched_setaffinity(None, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_of_devices_are_counted_by_processor() {
        let text = "           CPU0       CPU2\n 24:   1   10  IO-APIC  5-edge  x\n\
                    25:  2   20  PCI-MSIX  y\nLOC:  99  999  Local timer interrupts\nERR:   0\n";
        assert_eq!(device_interrupts(text), [3, 0, 30]);
        assert_eq!(device_interrupts(""), [0_u64; 0]);
    }

    #[test]
    fn a_thread_stays_until_it_may_go_again() {
        std::thread::spawn(|| {
            let before = sched_getaffinity(None).unwrap();
            let first = allowed(&before)[0];
            let stay = Stay::on(first).unwrap();
            assert_eq!(allowed(&sched_getaffinity(None).unwrap()), [first]);
            drop(stay);
            assert!(sched_getaffinity(None).unwrap() == before);
        })
        .join()
        .unwrap();
    }
}
