//! Meetings: what the processes of a file tell each other where it is opened, closed and synced.
//!
//! Each is waited for in a way that leaves the processor to others ([`super::waiting`]), and there are as few as
//! can be: one in which all tell rank 0 something and it answers all of them ([`Members::ask`]: only rank 0 waits for
//! the words, the others for the answer), one in which all learn what they have
//! in common ([`Members::agree`]). A process alone says nothing.

#![expect(unsafe_code, reason = "the library's functions")]

use std::ffi::c_int;

use super::{
    done, functions as mpi, objects,
    waiting::{Begun, begin},
};
use crate::{abi::Handle, error::Error};

/// The first message of an answer: its length, and as much of it as has room. Most answers have, and one short
/// message is as fast as a shorter one.
const HEAD_BYTES: usize = 2048;
const LEN_BYTES: usize = size_of::<u64>();

/// Longer answers are none: [`Members::ask`].
pub(crate) const ANSWER_BYTES_MAX: usize = 1 << 30;

/// The processes of a communicator, and this one among them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Members {
    pub(crate) comm: Handle,
    pub(crate) rank: u32,
    pub(crate) size: u32,
}

impl Members {
    /// Those of the program's communicator, which is no intercommunicator.
    pub(crate) fn of(comm: Handle) -> Result<Self, Error> {
        let (mut rank, mut size): (c_int, c_int) = (0, 0);
        // SAFETY: variables of ours.
        unsafe {
            done(mpi::Comm_rank(comm, &raw mut rank), "MPI_Comm_rank")?;
            done(mpi::Comm_size(comm, &raw mut size), "MPI_Comm_size")?;
        }
        let number = |value| u32::try_from(value).map_err(|_| Error::internal("a negative rank"));
        Ok(Self { comm, rank: number(rank)?, size: number(size)? })
    }

    /// Each says a few words; rank 0 is given those of all, in the order of ranks, and answers all. Collective.
    ///
    /// All processes have come here when `answer` runs, on rank 0 alone. It has at most [`ANSWER_BYTES_MAX`].
    pub(crate) fn ask<const N: usize>(
        self,
        own: [u64; N],
        answer: impl FnOnce(&[[u64; N]]) -> Vec<u8>,
    ) -> Result<Vec<u8>, Error> {
        if self.size == 1 {
            return Ok(answer(&[own]));
        }
        let mut words = vec![[0_u64; N]; if self.rank == 0 { self.size as usize } else { 0 }];
        let mut head = [0_u8; HEAD_BYTES];
        let mut message = Vec::new();
        if self.rank == 0 {
            self.gather(&own, &mut words)?.wait()?;
            message = answer(&words);
            let in_head = message.len().min(HEAD_BYTES - LEN_BYTES);
            head[..LEN_BYTES].copy_from_slice(&(message.len() as u64).to_le_bytes());
            head[LEN_BYTES..][..in_head].copy_from_slice(&message[..in_head]);
            self.tell(&mut head)?.wait()?;
        } else {
            // What is said is on its way while the answer is waited for.
            let said = self.gather(&own, &mut words)?;
            let told = self.tell(&mut head);
            let said = said.wait();
            told?.wait()?;
            said?;
            let len = u64::from_le_bytes(std::array::from_fn(|at| head[at])) as usize;
            message.resize(len.min(ANSWER_BYTES_MAX), 0);
            let in_head = message.len().min(HEAD_BYTES - LEN_BYTES);
            message[..in_head].copy_from_slice(&head[LEN_BYTES..][..in_head]);
        }
        if message.len() > HEAD_BYTES - LEN_BYTES {
            self.tell(&mut message[HEAD_BYTES - LEN_BYTES..])?.wait()?;
        }
        Ok(message)
    }

    /// Each says a word; the bits that all of them have, on all. Collective.
    pub(crate) fn agree(self, own: u64) -> Result<u64, Error> {
        if self.size == 1 {
            return Ok(own);
        }
        let (comm, bytes, byte) = (self.comm, size_of_val(&own) as c_int, objects()?.byte);
        let mut all = vec![0_u64; self.size as usize];
        let (source, target) = ((&raw const own).cast(), all.as_mut_ptr().cast());
        // SAFETY: so many bytes from each process, and room for as many of each, until it is complete.
        let begun = unsafe {
            begin(
                "MPI_Allgather",
                |request| mpi::Iallgather(source, bytes, byte, target, bytes, byte, comm, request),
                || mpi::Allgather(source, bytes, byte, target, bytes, byte, comm),
            )
        };
        begun?.wait()?;
        Ok(all.iter().fold(u64::MAX, |common, word| common & word))
    }

    /// To rank 0, which has room for the words of each.
    fn gather<'a, const N: usize>(
        self,
        own: &'a [u64; N],
        words: &'a mut [[u64; N]],
    ) -> Result<Begun<'a>, Error> {
        let (comm, byte, bytes) = (self.comm, objects()?.byte, size_of::<[u64; N]>() as c_int);
        let source = own.as_ptr().cast();
        let target = match words.is_empty() {
            true => std::ptr::null_mut(), // an empty slice's address could be MPI_IN_PLACE
            false => words.as_mut_ptr().cast(),
        };
        // SAFETY: so many bytes, and on rank 0 room for as many of each process, until it is complete.
        unsafe {
            begin(
                "MPI_Gather",
                |request| mpi::Igather(source, bytes, byte, target, bytes, byte, 0, comm, request),
                || mpi::Gather(source, bytes, byte, target, bytes, byte, 0, comm),
            )
        }
    }

    /// From rank 0, of as many bytes on all.
    fn tell(self, bytes: &mut [u8]) -> Result<Begun<'_>, Error> {
        let (comm, byte) = (self.comm, objects()?.byte);
        let count = c_int::try_from(bytes.len());
        let count = count.map_err(|_| Error::count("more bytes than MPI counts"))?;
        let buffer = bytes.as_mut_ptr().cast();
        // SAFETY: the buffer has so many bytes until it is complete, and every pattern of bits is a value of it.
        unsafe {
            begin(
                "MPI_Bcast",
                |request| mpi::Ibcast(buffer, count, byte, 0, comm, request),
                || mpi::Bcast(buffer, count, byte, 0, comm),
            )
        }
    }
}
