//! Everything a supervisor waits for, in one place.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::Signal;

use super::control::{Caller, ControlSocket, Request};
use crate::job::NodeDir;
use crate::process::lines::Lines;
use crate::process::signals::{ENDING, Signals};
use crate::process::timespec;

/// What the launcher writes when the node may live without it.
const KEEP: &str = "keep";

/// Something that happened.
#[derive(Debug)]
pub(crate) enum Event {
    /// A command asks.
    Asked(Caller, Request),
    /// The launcher is gone and did not say `keep`.
    LifelineBroken,
    /// Somebody wants us to end.
    Signal(Signal),
    /// A child may have ended.
    Child,
    /// The descriptor that was also waited for is readable.
    Readable,
    /// The deadline has come.
    Late,
}

/// The sources of events.
#[derive(Debug)]
pub(crate) struct Events {
    signals: Signals,
    lifeline: Option<Lines>,
    control: ControlSocket,
}

impl Events {
    /// Blocks signals. `lifeline`: what the launcher writes, and holds open.
    pub(crate) fn new(node: &NodeDir, lifeline: OwnedFd) -> anyhow::Result<Self> {
        let mut wanted = ENDING.to_vec();
        wanted.push(Signal::CHILD);
        let signals = Signals::block(&wanted).context("block signals")?;
        let lifeline = Some(Lines::new(lifeline).context("watch the lifeline")?);
        Ok(Self { signals, lifeline, control: ControlSocket::bind(node)? })
    }

    /// To start children with.
    pub(crate) fn signals(&self) -> &Signals {
        &self.signals
    }

    /// Waits for the next event; no time passes in it but waiting.
    pub(crate) fn wait(
        &mut self,
        also: Option<BorrowedFd<'_>>,
        deadline: Option<Instant>,
    ) -> Event {
        loop {
            if let Some(event) = self.take() {
                return event;
            }
            let mut fds = vec![
                PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.control.as_fd(), PollFlags::IN),
            ];
            fds.extend(
                self.lifeline.iter().map(|l| PollFd::from_borrowed_fd(l.as_fd(), PollFlags::IN)),
            );
            fds.extend(also.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)));
            let left = deadline.map(|at| timespec(at.saturating_duration_since(Instant::now())));
            match poll(&mut fds, left.as_ref()) {
                Ok(0) => return Event::Late,
                Ok(_) => {}
                Err(error) => tracing::warn!("poll: {error}"),
            }
            let is_also = also.is_some() && fds.last().is_some_and(|fd| !fd.revents().is_empty());
            drop(fds);
            if let Some(event) = self.take() {
                return event;
            }
            if is_also {
                return Event::Readable;
            }
        }
    }

    /// An event that has happened already.
    fn take(&mut self) -> Option<Event> {
        if let Some(received) = self.signals.next() {
            return Some(match received.signal {
                Signal::CHILD => Event::Child,
                signal => Event::Signal(signal),
            });
        }
        if let Some(lifeline) = &mut self.lifeline {
            match lifeline.next() {
                Some(line) if line == KEEP => self.lifeline = None,
                Some(line) => tracing::warn!("the launcher said {line}"),
                None if lifeline.is_at_end() => {
                    self.lifeline = None;
                    return Some(Event::LifelineBroken);
                }
                None => {}
            }
        }
        self.control.accept().map(|(caller, request)| Event::Asked(caller, request))
    }
}
