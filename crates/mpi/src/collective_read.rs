//! Collective reads in which processes read parts for each other.
//!
//! A program that reads a file by another decomposition than it was written by needs small pieces of many parts: each
//! process would read most of every part, and throw most of that away. Here each stretch of a part is read
//! by one process, its *owner*, in the order of the part, and sent to those that want its bytes.
//!
//! - `reading`: the call of one process. `round`: the messages.
//!
//! Not here: whether a call does so, and who owns what ([`crate::exchange`]).
//!
//! Each process looks up by itself which bytes of which parts its call means: holes, overlaps and the end of
//! the file are its own matter, as in an independent read, and owners are asked for bytes of parts. What can
//! not be read so is read again independently, which gives the error that the program gets. A process takes
//! part whatever is wrong with its arguments; so none waits for one that has left.
//!
//! Source: two-phase I/O (Thakur, Gropp, Lusk 1999) over parts instead of the file.

use std::sync::Arc;

use crate::{
    error::Error,
    exchange::{Step, Weights},
    memory::Region,
    open_files::OpenFile,
    transfer::{self, Moved},
    view::FileView,
};

mod reading;
mod round;

use reading::Reading;

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
    Ok(file.exchanges.answer(all))
}
