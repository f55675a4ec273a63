//! Meetings: what the processes of a file tell each other where it is opened, closed and synced.
//!
//! Each is waited for in a way that leaves the processor to others ([`super::waiting`]), and there are as few as
//! can be: one in which all tell rank 0 something and it answers all of them ([`Members::ask`]: only rank 0 waits for
//! the words, the others for the answer), one in which all learn what they have
//! in common ([`Members::agree`]). A process alone says nothing.

#![expect(unsafe_code, reason = "the library's functions")]

use std::ffi::c_int;

use super::{
    abi, done, functions as mpi, objects,
    waiting::{Begun, begin},
};
use crate::{
    abi::{Handle, HandleWidth},
    error::Error,
};

/// The first message of an answer: its length, and as much of it as has room. Most answers have, and one short
/// message is as fast as a shorter one.
const HEAD_BYTES: usize = 2048;
const LEN_BYTES: usize = size_of::<u64>();

/// Longer answers are none: [`Members::ask`].
pub(crate) const ANSWER_BYTES_MAX: usize = 1 << 30;

/// The processes of a communicator, and this one among them: as many as the library says, so that what all of them
/// send has room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Members {
    comm: Handle,
    rank: u32,
    size: u32,
}

impl Members {
    /// Those of the program's communicator; `None` where no file can be opened on it.
    pub(crate) fn of(comm: Handle) -> Result<Option<Self>, Error> {
        if !is_usable(comm)? {
            return Ok(None);
        }
        let (mut rank, mut size): (c_int, c_int) = (0, 0);
        // SAFETY: variables of ours.
        unsafe {
            done(mpi::Comm_rank(comm, &raw mut rank), "MPI_Comm_rank")?;
            done(mpi::Comm_size(comm, &raw mut size), "MPI_Comm_size")?;
        }
        let number = |value| u32::try_from(value).map_err(|_| Error::internal("a negative rank"));
        Ok(Some(Self { comm, rank: number(rank)?, size: number(size)? }))
    }

    /// The same processes, on another communicator.
    ///
    /// # Safety
    /// It is a copy of this one, or, of a process alone, `MPI_COMM_SELF`.
    pub(super) unsafe fn on(self, comm: Handle) -> Self {
        Self { comm, ..self }
    }

    pub(super) fn comm(self) -> Handle {
        self.comm
    }

    pub(crate) fn rank(self) -> u32 {
        self.rank
    }

    pub(super) fn size(self) -> u32 {
        self.size
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
        // The first message of the answer, and all of it.
        let (mut head, mut message) = (vec![0; HEAD_BYTES], Vec::new());
        if self.rank == 0 {
            let words = self.gather(own)?.wait()?;
            message = answer(&words);
            let in_head = message.len().min(HEAD_BYTES - LEN_BYTES);
            head[..LEN_BYTES].copy_from_slice(&(message.len() as u64).to_le_bytes());
            head[LEN_BYTES..][..in_head].copy_from_slice(&message[..in_head]);
            self.tell(head, 0)?.wait()?;
        } else {
            // What is said is on its way while the answer is waited for.
            let said = self.gather(own)?;
            let told = self.tell(head, 0);
            let said = said.wait();
            head = told?.wait()?;
            said?;
            let len = u64::from_le_bytes(std::array::from_fn(|at| head[at])) as usize;
            message.resize(len.min(ANSWER_BYTES_MAX), 0);
            let in_head = message.len().min(HEAD_BYTES - LEN_BYTES);
            message[..in_head].copy_from_slice(&head[LEN_BYTES..][..in_head]);
        }
        if message.len() > HEAD_BYTES - LEN_BYTES {
            message = self.tell(message, HEAD_BYTES - LEN_BYTES)?.wait()?;
        }
        Ok(message)
    }

    /// Each says a word; the bits that all of them have, on all. Collective.
    pub(crate) fn agree(self, own: u64) -> Result<u64, Error> {
        if self.size == 1 {
            return Ok(own);
        }
        let (comm, bytes, byte) = (self.comm, size_of_val(&own) as c_int, objects()?.byte);
        let memory = (own, vec![0_u64; self.size as usize]);
        // SAFETY: `begin` gives it to one of the two, valid for the call.
        let parts = |memory: *mut (u64, Vec<u64>)| unsafe {
            ((&raw const (*memory).0).cast(), (*memory).1.as_mut_ptr().cast())
        };
        // SAFETY: this number of bytes comes from each process, and there is room for as many of each.
        let begun = unsafe {
            begin(
                "MPI_Allgather",
                memory,
                |memory, request| {
                    let (source, target) = parts(memory);
                    mpi::Iallgather(source, bytes, byte, target, bytes, byte, comm, request)
                },
                |memory| {
                    let (source, target) = parts(memory);
                    mpi::Allgather(source, bytes, byte, target, bytes, byte, comm)
                },
            )
        };
        let (_, all) = begun?.wait()?;
        Ok(all.iter().fold(u64::MAX, |common, word| common & word))
    }

    /// To rank 0, which gets the words of each.
    fn gather<const N: usize>(self, own: [u64; N]) -> Result<Gathering<N>, Error> {
        let (comm, byte, bytes) = (self.comm, objects()?.byte, size_of::<[u64; N]>() as c_int);
        let all = vec![[0_u64; N]; if self.rank == 0 { self.size as usize } else { 0 }];
        // SAFETY: `begin` gives it to one of the two, valid for the call.
        let parts = |memory: *mut ([u64; N], Vec<[u64; N]>)| unsafe {
            let (own, all) = &mut *memory;
            let target = match all.is_empty() {
                true => std::ptr::null_mut(), // an empty vector's address could be MPI_IN_PLACE
                false => all.as_mut_ptr().cast(),
            };
            (own.as_ptr().cast(), target)
        };
        // SAFETY: this number of bytes, and on rank 0 room for as many of each process.
        let begun = unsafe {
            begin(
                "MPI_Gather",
                (own, all),
                |memory, request| {
                    let (source, target) = parts(memory);
                    mpi::Igather(source, bytes, byte, target, bytes, byte, 0, comm, request)
                },
                |memory| {
                    let (source, target) = parts(memory);
                    mpi::Gather(source, bytes, byte, target, bytes, byte, 0, comm)
                },
            )
        };
        begun.map(Gathering)
    }

    /// From rank 0, what lies behind the first `from` of `bytes`, of which there are as many on all.
    fn tell(self, bytes: Vec<u8>, from: usize) -> Result<Begun<Vec<u8>>, Error> {
        let (comm, byte) = (self.comm, objects()?.byte);
        let count = c_int::try_from(bytes[from..].len());
        let count = count.map_err(|_| Error::count("more bytes than MPI counts"))?;
        // SAFETY: `begin` gives it to one of the two, valid for the call.
        let part = |bytes: *mut Vec<u8>| unsafe {
            let bytes = &mut *bytes;
            bytes[from..].as_mut_ptr().cast()
        };
        // SAFETY: the buffer has this number of bytes, and every pattern of bits is a value of it.
        unsafe {
            begin(
                "MPI_Bcast",
                bytes,
                |bytes, request| mpi::Ibcast(part(bytes), count, byte, 0, comm, request),
                |bytes| mpi::Bcast(part(bytes), count, byte, 0, comm),
            )
        }
    }
}

/// What this process says, and, on rank 0, room for what all say.
struct Gathering<const N: usize>(Begun<([u64; N], Vec<[u64; N]>)>);

impl<const N: usize> Gathering<N> {
    /// The words of each, on rank 0.
    fn wait(self) -> Result<Vec<[u64; N]>, Error> {
        Ok(self.0.wait()?.1)
    }
}

/// Whether a file can be opened on it: not the null communicator, and no intercommunicator.
fn is_usable(comm: Handle) -> Result<bool, Error> {
    let abi = abi()?;
    let is_zero_pointer = abi.handle_width == HandleWidth::Pointer && comm.raw() == 0;
    if is_zero_pointer || abi.handle(comm) == objects()?.comm_null {
        return Ok(false);
    }
    let mut is_inter: c_int = 0;
    // SAFETY: a variable of ours.
    done(unsafe { mpi::Comm_test_inter(comm, &raw mut is_inter) }, "MPI_Comm_test_inter")?;
    Ok(is_inter == 0)
}
