//! The collective read of one process: window by window of its memory, planned, asked for, put together.
//!
//! Here: what this process wants and gets. Not here: the messages ([`super::round`]).

use std::ops::Range;

use hayase_container::{Access, Reader, Wanted};

use super::Ask;
use crate::{
    error::Error,
    exchange::{Queues, Weights, request},
    memory::Region,
    open_files::OpenFile,
    transfer::plan_bytes,
    view::Datarep,
};

/// See the module.
#[derive(Debug)]
pub(super) struct Reading<'a> {
    file: &'a OpenFile,
    /// `None` where the arguments are wrong: it takes part for the others.
    ask: Option<&'a mut Ask>,
    reader: Option<Reader>,
    queues: Queues,
    /// What this process reads by itself, of the window.
    alone: Vec<Wanted>,
    /// The bytes of the window, where memory is not one piece.
    buffer: Vec<u8>,
    /// Bytes of the memory that are being read; those before have been.
    window: Range<u64>,
    /// Nothing is behind the window.
    is_end: bool,
    has_failed: bool,
    /// Of windows that were planned and not told.
    weights: Weights,
}

impl<'a> Reading<'a> {
    pub(super) fn new(file: &'a OpenFile, ask: Option<&'a mut Ask>) -> Self {
        let looked = file.bytes.refresh().and_then(|()| Ok(file.bytes.container.reader()?));
        let is_possible = ask.as_ref().is_some_and(|ask| {
            file.bytes.container.access() != Access::Write
                && ask.view.datarep != Datarep::External32
        });
        let is_empty = ask.as_ref().is_some_and(|ask| ask.region.len() == 0);
        let has_failed = looked.is_err() || !is_possible;
        Self {
            file,
            ask,
            reader: looked.ok(),
            queues: file.exchanges.queues(),
            alone: Vec::new(),
            buffer: Vec::new(),
            window: 0..0,
            is_end: has_failed || is_empty,
            has_failed,
            weights: Weights::default(),
        }
    }

    /// For reading what others want; `None` when it can not be had.
    pub(super) fn reader(&self) -> Option<&Reader> {
        self.reader.as_ref()
    }

    /// What was planned and not told.
    pub(super) fn weights(&self) -> Weights {
        self.weights
    }

    pub(super) fn take_weights(&mut self) -> Weights {
        std::mem::take(&mut self.weights)
    }

    /// Whether there is something to ask for after this round.
    pub(super) fn has_more(&self) -> bool {
        !self.is_end || !self.queues.is_empty()
    }

    /// Plans the next window, where nothing is left of this one.
    pub(super) fn plan(&mut self) {
        if self.is_end || !self.queues.is_empty() || !self.alone.is_empty() {
            return;
        }
        if self.try_plan().is_err() {
            self.fail();
        }
    }

    fn try_plan(&mut self) -> Result<(), Error> {
        self.put();
        let (Some(ask), Some(reader)) = (self.ask.as_deref_mut(), &self.reader) else {
            return Ok(());
        };
        let exchanges = &self.file.exchanges;
        let start = self.window.end;
        let len = (ask.region.len() - start).min(exchanges.round_bytes());
        let target = target(&mut ask.region, &mut self.buffer, start..start + len);
        let plan = plan_bytes(reader, &ask.view, ask.stream.saturating_add(start), target)?;
        self.weights.add(Weights {
            wanted: plan.wanted.iter().map(|want| want.local.len().0).sum(),
            alone: plan.cost().weight(),
        });
        self.window = start..start + plan.bytes as u64;
        self.is_end =
            self.window.end == ask.region.len() || (!plan.is_cut && (plan.bytes as u64) < len);
        self.alone = exchanges.deal(plan.wanted, &mut self.queues, |part| reader.part(part));
        Ok(())
    }

    /// Reads what nobody else is to read, and plans on until there is something to ask for.
    pub(super) fn advance(&mut self) {
        loop {
            self.plan();
            if self.read_alone().is_err() {
                self.fail();
            }
            if self.is_end || !self.queues.is_empty() {
                return;
            }
        }
    }

    fn read_alone(&mut self) -> Result<(), Error> {
        let alone = std::mem::take(&mut self.alone);
        if let (Some(ask), Some(reader)) = (self.ask.as_deref_mut(), &self.reader)
            && !alone.is_empty()
        {
            let target = target(&mut ask.region, &mut self.buffer, self.window.clone());
            reader.read_planned(&alone, target)?;
        }
        Ok(())
    }

    /// What is asked of each rank in this round.
    pub(super) fn next_round(&mut self) -> Vec<Vec<Wanted>> {
        self.queues.next_round()
    }

    /// Takes the answers to what was asked: of each rank that was asked something its bytes, and whether they
    /// count.
    pub(super) fn take(&mut self, round: &[Vec<Wanted>], answers: &[u8]) {
        let Some(ask) = self.ask.as_deref_mut() else { return };
        let target = target(&mut ask.region, &mut self.buffer, self.window.clone());
        let (mut at, mut are_whole) = (0, true);
        for asked in round.iter().filter(|asked| !asked.is_empty()) {
            for want in asked {
                let end = at + want.buffer.len();
                target[want.buffer.clone()].copy_from_slice(&answers[at..end]);
                at = end;
            }
            are_whole &= answers[at] == request::IS_READ;
            at += 1;
        }
        if !are_whole {
            self.fail();
        }
    }

    /// How many bytes were read; `None` when all of it is to be read again, alone.
    pub(super) fn finish(mut self) -> Option<u64> {
        self.put();
        (!self.has_failed).then_some(self.window.end)
    }

    fn fail(&mut self) {
        (self.has_failed, self.is_end) = (true, true);
        self.queues.clear();
        self.alone.clear();
    }

    /// Puts the window into the program's memory, where it is not there already.
    fn put(&mut self) {
        let len = (self.window.end - self.window.start) as usize;
        if let Some(ask) = self.ask.as_deref_mut()
            && len > 0
            && ask.region.as_slice().is_none()
        {
            ask.region.scatter(self.window.start, &self.buffer[..len]);
        }
    }
}

/// Where the bytes of a window go: memory that is one piece, or the buffer.
fn target<'b>(region: &'b mut Region, buffer: &'b mut Vec<u8>, window: Range<u64>) -> &'b mut [u8] {
    if region.as_slice().is_some()
        && let Some(memory) = region.as_mut_slice()
    {
        return &mut memory[window.start as usize..window.end as usize];
    }
    let len = (window.end - window.start) as usize;
    buffer.resize(buffer.len().max(len), 0);
    &mut buffer[..len]
}
