//! The streams: threads that take units of work from the queue and hand each to the part that does it.

use std::sync::mpsc::{SyncSender, channel, sync_channel};
use std::sync::{Mutex, PoisonError};

use super::copying::Copying;
use super::gate::Gate;
use super::large::LargeFiles;
use super::packing::Packing;
use super::report::Report;
use super::tuning::Tuning;
use super::units::{Unit, Units};
use crate::Place;
use crate::limits::UNITS_WAITING;
use crate::pack::PackError;
use crate::plan::Work;

/// What streams need.
pub(super) struct Pool<'a> {
    /// Most streams.
    pub(super) streams_max: usize,
    pub(super) target: &'a Place,
    pub(super) gate: &'a Gate,
    pub(super) tuning: Tuning<'a>,
    pub(super) copying: Copying<'a>,
    pub(super) packing: Packing<'a>,
    pub(super) large: LargeFiles<'a>,
    pub(super) report: &'a Report<'a>,
}

/// Where units of work are handed in.
pub(super) struct Queue(SyncSender<Work>);

impl Queue {
    /// Waits while too much waits.
    pub(super) fn send(&self, work: Work) {
        // Streams live until the sender is dropped.
        let _ = self.0.send(work);
    }
}

impl Pool<'_> {
    /// Plans on this thread while streams work.
    pub(super) fn run(
        &self,
        plan: impl FnOnce(&Queue) -> Result<(), PackError>,
    ) -> Result<(), PackError> {
        let (sender, receiver) = sync_channel(self.streams_max * UNITS_WAITING);
        let queue = Queue(sender);
        let (receiver, done) =
            (Mutex::new(Units::new(receiver, self.gate.next())), channel::<()>());
        std::thread::scope(|scope| {
            let streams: Vec<_> =
                (0..self.streams_max).map(|_| scope.spawn(|| self.work(&receiver))).collect();
            let tuner = self.tuning.tuner();
            if !tuner.is_fixed() {
                scope.spawn(|| self.tuning.tune(tuner, done.1));
            }
            let planned = plan(&queue);
            self.report.planned();
            drop(queue);
            for stream in streams {
                if let Err(panic) = stream.join() {
                    std::panic::resume_unwind(panic);
                }
            }
            drop(done.0);
            planned
        })
    }

    /// One stream: takes units until there are no more.
    fn work(&self, units: &Mutex<Units>) {
        let mut turn = self.gate.enter();
        loop {
            turn = turn.next();
            let cut = |task, is_loose| self.large.cut(task, is_loose);
            let taken = units.lock().unwrap_or_else(PoisonError::into_inner).take(cut);
            let Some((number, unit)) = taken else { return };
            let memory = unit.memory(&*self.target.tier);
            let mut held = self.gate.hold(number, memory);
            if self.report.is_stopped() {
                continue;
            }
            self.serve(unit, &mut held.buffer);
            self.gate.ended();
        }
    }

    fn serve(&self, unit: Unit, buffer: &mut Vec<u8>) {
        match unit {
            Unit::Part(large, part) => self.large.part(&large, part, buffer),
            Unit::Work(Work::Copy(tasks)) => self.copying.copy(tasks, buffer),
            Unit::Work(Work::Pack(tasks)) => self.packing.pack(&tasks, buffer),
            Unit::Work(Work::Solo(task)) => self.packing.solo(&task),
            Unit::Work(Work::Loose(task)) => self.packing.loose(&task),
            Unit::Work(Work::Parts(_)) => {
                unreachable!("it was cut into parts when it was taken")
            }
        }
    }
}
