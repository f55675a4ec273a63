//! Collective reads in which processes read parts for each other.
//!
//! Who reads a file by another decomposition than it was written by needs small pieces of many parts: each
//! process would read most of every part, and throw most of that away. Here each stretch of a part is read
//! by one process, its *owner*, in the order of the part, and sent to whoever wants its bytes.
//!
//! - `agreement`: whether a call exchanges, alike on all. `owners`: who reads what.
//! - `queues`: what is asked of whom in which round. `request`: that, as bytes.
//! - `reading`: the call of one process. `round`: the messages.
//!
//! Each process looks up by itself which bytes of which parts its call means: holes, overlaps and the end of
//! the file are its own matter, as in an independent read, and owners are asked for bytes of parts. What can
//! not be read so is read again independently, which tells the error that the program gets. A process takes
//! part whatever is wrong with its arguments; so none waits for one that has left.
//!
//! Source: two-phase I/O (Thakur, Gropp, Lusk 1999) over parts instead of the file.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use hayase_layout::{ByteCount, NodeId, WriterId};

use crate::{
    error::Error,
    memory::Region,
    open_files::OpenFile,
    transfer::{self, Moved},
    view::FileView,
};

mod agreement;
mod owners;
mod queues;
mod reading;
mod request;
mod round;

pub(crate) use agreement::{Exchange, Step};

use agreement::{Agreement, Weights};
use owners::Owners;
use reading::Reading;

/// Bytes of a round where nobody says otherwise: what a process gets, and what it reads for others.
pub(crate) const ROUND_BYTES: ByteCount = ByteCount::mib(16);

/// What a hint may make of it.
pub(crate) const ROUND_BYTES_MIN: ByteCount = ByteCount::kib(64);
pub(crate) const ROUND_BYTES_MAX: ByteCount = ByteCount::gib(1);

/// What an open file knows of its exchanges.
#[derive(Debug)]
pub(crate) struct Exchanges {
    agreement: Mutex<Agreement>,
    owners: Owners,
    round_bytes: ByteCount,
    own_node: NodeId,
    /// Weight of what was read for others, since it was told last.
    served: AtomicU64,
}

impl Exchanges {
    /// Of a group whose ranks run on these nodes; `rank` is that of this process.
    pub(crate) fn new(wish: Exchange, round_bytes: ByteCount, nodes: &[NodeId], rank: u32) -> Self {
        let owners = Owners::new(nodes);
        Self {
            agreement: Mutex::new(Agreement::new(wish, &owners)),
            owners,
            round_bytes: round_bytes.clamp(ROUND_BYTES_MIN, ROUND_BYTES_MAX),
            own_node: nodes[rank as usize],
            served: AtomicU64::new(0),
        }
    }

    /// At every collective read, once.
    pub(crate) fn step(&self) -> Step {
        self.agreement().step()
    }

    /// At every set_view, also one that fails: it may do so on some processes only.
    pub(crate) fn set_view(&self) {
        self.agreement().set_view();
    }

    /// At every set_atomicity, likewise.
    pub(crate) fn set_atomic(&self, is_atomic: bool) {
        self.agreement().set_atomic(is_atomic);
    }

    fn agreement(&self) -> MutexGuard<'_, Agreement> {
        self.agreement.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this process wrote it: nobody sees it sooner, and perhaps nobody else yet.
    fn is_own(&self, writer: WriterId) -> bool {
        writer.process == std::process::id() && writer.node == self.own_node
    }

    fn serve(&self, weight: u64) {
        self.served.fetch_add(weight, Ordering::Relaxed);
    }

    fn take_served(&self) -> u64 {
        self.served.swap(0, Ordering::Relaxed)
    }
}

/// What a process wants to read.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) view: Arc<FileView>,
    /// Where in its stream.
    pub(crate) stream: u64,
    pub(crate) region: Region,
}

/// A collective read. Collective, also with an error, with which a process takes part for others only.
pub(crate) fn read(file: &OpenFile, ask: Result<Ask, Error>) -> Moved {
    read_as(file, file.exchanges.step(), ask)
}

/// The same where the step is known.
pub(crate) fn read_as(file: &OpenFile, step: Step, mut ask: Result<Ask, Error>) -> Moved {
    if step == Step::Alone {
        return alone(file, ask);
    }
    let mut reading = Reading::new(file, ask.as_mut().ok());
    reading.plan();
    if step == Step::Ask {
        match is_wanted_by_all(file, reading.weights()) {
            Ok(true) => {}
            Ok(false) => return alone(file, ask),
            Err(error) => return error.into(),
        }
    }
    match round::all(file, &mut reading) {
        Err(error) => error.into(),
        Ok(()) => match reading.finish() {
            Some(bytes) => Moved { bytes, error: None },
            None => alone(file, ask),
        },
    }
}

fn alone(file: &OpenFile, ask: Result<Ask, Error>) -> Moved {
    Moved::of(|| {
        let mut ask = ask?;
        Ok(transfer::read(file, &ask.view, ask.stream, &mut ask.region))
    })
}

fn is_wanted_by_all(file: &OpenFile, own: Weights) -> Result<bool, Error> {
    let told = file.comm.gather_words([own.wanted, own.alone])?;
    let mut all = Weights::default();
    for [wanted, alone] in told {
        all.add(Weights { wanted, alone });
    }
    Ok(file.exchanges.agreement().answer(all))
}
