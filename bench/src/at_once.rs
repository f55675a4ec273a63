//! Programs that work at the same time.

use std::borrow::Borrow;

use crate::sample::Measured;
use crate::worker::Worker;
use crate::workloads::Task;

/// A task for each, at once: all that was done, in the time of the slowest.
pub(crate) fn together<'a, T: Borrow<Task>>(
    programs: impl IntoIterator<Item = (&'a mut Worker, T)>,
) -> anyhow::Result<Measured> {
    let mut busy = Vec::new();
    for (program, task) in programs {
        program.ask(task.borrow())?;
        busy.push(program);
    }
    let mut all = Measured { amount: 0.0, seconds: 0.0, own_cpu: 0.0 };
    // Every answer is taken, also behind one that failed.
    let answers: Vec<_> = busy.into_iter().map(Worker::measured).collect();
    for one in answers {
        let one = one?;
        all.amount += one.amount;
        all.seconds = all.seconds.max(one.seconds);
        all.own_cpu += one.own_cpu;
    }
    Ok(all)
}
