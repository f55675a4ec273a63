//! The same small piece of work again and again, on some processors at once, and how long each took.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::Context;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Largest piece of work: 2^30 steps take a second or so.
pub(crate) const WORK_MAX: u8 = 30;

/// Most samples of one processor: 400 MB of them.
pub(crate) const SAMPLES_MAX: u64 = 100_000_000;

/// What one processor measured.
#[derive(Debug)]
pub(crate) struct Measured {
    /// Which.
    pub(crate) processor: usize,
    /// Length of each piece of work, in nanoseconds (at most 4.29 s is told).
    pub(crate) samples: Vec<u32>,
    /// All of them together, the time between them included, in seconds.
    pub(crate) seconds: f64,
}

/// The processors that this process may use.
pub(crate) fn allowed() -> std::io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|processor| set.is_set(*processor)).collect())
}

/// `count` pieces of 2^`work` steps on each of `processors` at the same time. `done` is told how many
/// of a hundred parts are over, by one of them.
///
/// # Errors
/// When a thread can not be bound to its processor.
pub(crate) fn measure(
    processors: &[usize],
    work: u8,
    count: usize,
    done: &(dyn Fn(u64) + Sync),
) -> anyhow::Result<Vec<Measured>> {
    let (start, has_failed) = (Barrier::new(processors.len()), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let threads: Vec<_> = processors
            .iter()
            .enumerate()
            .map(|(index, processor)| {
                let (start, has_failed) = (&start, &has_failed);
                let told = (index == 0).then_some(done);
                scope.spawn(move || {
                    let bound = bind(*processor);
                    has_failed.fetch_or(bound.is_err(), Ordering::Relaxed);
                    start.wait();
                    // Where one can not measure, nobody waits for the others.
                    let count = if has_failed.load(Ordering::Relaxed) { 0 } else { count };
                    bound.map(|()| on_this_processor(*processor, work, count, told))
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("counting does not panic")).collect()
    })
}

fn bind(processor: usize) -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    set.set(processor);
    sched_setaffinity(None, &set).with_context(|| format!("processor {processor} cannot be used"))
}

fn on_this_processor(
    processor: usize,
    work: u8,
    count: usize,
    done: Option<&(dyn Fn(u64) + Sync)>,
) -> Measured {
    // Written before, so that no page comes to life while time is taken.
    let mut samples = vec![u32::MAX; count];
    for _ in 0..count.min(16) {
        quantum(work);
    }
    let part = (count / 100).max(1);
    let begin = Instant::now();
    for (index, sample) in samples.iter_mut().enumerate() {
        let start = Instant::now();
        quantum(work);
        *sample = u32::try_from(start.elapsed().as_nanos()).unwrap_or(u32::MAX);
        if let Some(done) = done
            && index % part == 0
        {
            done((index / part) as u64);
        }
    }
    Measured { processor, samples, seconds: begin.elapsed().as_secs_f64() }
}

/// Counts; touches no memory but a line of its own stack.
#[inline(never)]
fn quantum(work: u8) {
    let mut count = 0_u64;
    while count < 1 << work {
        count = black_box(count + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_processor_takes_all_its_samples() {
        let processors = allowed().unwrap();
        let measured = measure(&processors, 4, 1000, &|_| {}).unwrap();
        assert_eq!(measured.len(), processors.len());
        for (one, processor) in measured.iter().zip(processors) {
            assert_eq!((one.processor, one.samples.len()), (processor, 1000));
            let sum: f64 = one.samples.iter().map(|nanos| f64::from(*nanos)).sum();
            assert!(sum > 0.0 && sum * 1e-9 <= one.seconds, "{sum} ns in {} s", one.seconds);
        }
    }

    #[test]
    fn a_processor_that_is_not_there_is_an_error() {
        assert!(measure(&[CpuSet::MAX_CPU - 1], 4, 1, &|_| {}).is_err());
    }
}
