//! The processes that opened a file together: a communicator of our own, for few small messages, and for what
//! they read for each other.
//!
//! A copy, so that nothing here can be mistaken for the program's messages, and so that the program
//! may free its own while the file is open.

#![expect(unsafe_code, reason = "the library's functions")]

use std::{ffi::c_int, sync::Arc};

use super::{
    copies::{self, Copies, Place},
    done, functions as mpi,
    meeting::Members,
    objects,
    waiting::begin,
};
use crate::{
    abi::Handle,
    error::Error,
    pointers::{Group, OutObject},
};

/// See the module. Freed by [`Communicator::free`], which is collective; never by a drop.
#[derive(Debug)]
pub(crate) struct Communicator {
    members: Members,
    origin: Origin,
}

/// Where its handle is from.
#[derive(Debug)]
enum Origin {
    /// `MPI_COMM_SELF`: a process alone has nobody to talk to.
    Alone,
    /// A copy that is put back.
    Kept(Arc<Copies>, Place),
    /// A copy that is freed.
    Own,
}

/// What each says before they have a communicator; beside it, in the bits of [`copies::PLACES`], which copies are idle.
const IS_WELL: u64 = 1 << 63;
const CAN_KEEP: u64 = 1 << 62;

impl Communicator {
    /// For a file that these processes open; `None`, on all, where one of them says that it is not well. Collective.
    pub(crate) fn of(members: Members, is_well: bool) -> Result<Option<Self>, Error> {
        let comm = members.comm();
        if members.size() == 1 {
            // SAFETY: a process alone.
            let members = unsafe { members.on(objects()?.comm_self) };
            return Ok(is_well.then_some(Self { members, origin: Origin::Alone }));
        }
        let copies = Copies::of(comm);
        let idle = copies.as_ref().map_or(0, |copies| CAN_KEEP | copies.idle());
        let common = members.agree(idle | if is_well { IS_WELL } else { 0 })?;
        if common & IS_WELL == 0 {
            return Ok(None);
        }
        let copies = copies.filter(|_| common & CAN_KEEP != 0);
        let (copy, origin) = match copies {
            None => (copy_of(comm)?, Origin::Own),
            Some(copies) => match copies.take(common & copies::PLACES)? {
                Some((copy, place)) => (copy, Origin::Kept(copies, place)),
                None => {
                    let copy = copy_of(comm)?;
                    let place = copies.place();
                    (copy, place.map_or(Origin::Own, |place| Origin::Kept(copies, place)))
                }
            },
        };
        // SAFETY: a copy of it.
        let members = unsafe { members.on(copy) };
        Ok(Some(Self { members, origin }))
    }

    /// Collective.
    pub(crate) fn free(self) -> Result<(), Error> {
        match self.origin {
            Origin::Alone => Ok(()),
            Origin::Kept(copies, place) => copies.leave(self.members.comm(), place),
            Origin::Own => copies::free(self.members.comm()),
        }
    }

    /// For what opens, closes and syncs tell each other.
    pub(crate) fn members(&self) -> Members {
        self.members
    }

    /// Gives the program the group of these processes, to free.
    pub(crate) fn give_group(&self, target: OutObject<'_, Group>) -> Result<(), Error> {
        // SAFETY: the address of an MPI_Group.
        done(unsafe { mpi::Comm_group(self.members.comm(), target.address()) }, "MPI_Comm_group")
    }

    pub(crate) fn rank(&self) -> u32 {
        self.members.rank()
    }

    /// Collective.
    pub(crate) fn barrier(&self) -> Result<(), Error> {
        if self.members.size() == 1 {
            return Ok(());
        }
        // SAFETY: no pointers.
        done(unsafe { mpi::Barrier(self.members.comm()) }, "MPI_Barrier")
    }

    /// What rank 0 says, on all; collective.
    pub(crate) fn tell<const N: usize>(&self, words: [u64; N]) -> Result<[u64; N], Error> {
        match self.members.size() {
            1 => Ok(words),
            _ => {
                let (mut words, byte) = (words, objects()?.byte);
                let (buffer, bytes) = ((&raw mut words).cast(), size_of_val(&words) as c_int);
                // SAFETY: the buffer has so many bytes, and every pattern of bits is a value of it.
                let answer = unsafe { mpi::Bcast(buffer, bytes, byte, 0, self.members.comm()) };
                done(answer, "MPI_Bcast")?;
                Ok(words)
            }
        }
    }

    /// What each rank says, in order; collective.
    pub(crate) fn gather(&self, word: u64) -> Result<Vec<u64>, Error> {
        Ok(self.gather_words([word])?.into_iter().map(|[word]| word).collect())
    }

    /// The same of several words.
    pub(crate) fn gather_words<const N: usize>(
        &self,
        words: [u64; N],
    ) -> Result<Vec<[u64; N]>, Error> {
        if self.members.size() == 1 {
            return Ok(vec![words]);
        }
        let mut all = vec![[0_u64; N]; self.members.size() as usize];
        let (source, target) = ((&raw const words).cast(), all.as_mut_ptr().cast());
        let (bytes, byte) = (size_of_val(&words) as c_int, objects()?.byte); // N is small
        // SAFETY: so many bytes from each process, and room for as many of each.
        let answer = unsafe {
            mpi::Allgather(source, bytes, byte, target, bytes, byte, self.members.comm())
        };
        done(answer, "MPI_Allgather")?;
        Ok(all)
    }

    /// Says something else to each rank, in order; what each says to this one. Collective.
    pub(crate) fn swap_words<const N: usize>(
        &self,
        words: &[[u64; N]],
    ) -> Result<Vec<[u64; N]>, Error> {
        if words.len() != self.members.size() as usize {
            return Err(Error::internal("words for another number of processes"));
        }
        let mut all = vec![[0_u64; N]; words.len()];
        let (source, target) = (words.as_ptr().cast(), all.as_mut_ptr().cast());
        let (bytes, byte) = (size_of::<[u64; N]>() as c_int, objects()?.byte); // N is small
        // SAFETY: so many bytes for each process, and room for as many of each.
        let answer =
            unsafe { mpi::Alltoall(source, bytes, byte, target, bytes, byte, self.members.comm()) };
        done(answer, "MPI_Alltoall")?;
        Ok(all)
    }

    /// Sends `source`, cut into `source_lens`, to the ranks in order; what they send to this one, of
    /// `target_lens` bytes that are known. Collective.
    ///
    /// Fails, before anything is sent, when MPI can not count so many bytes.
    pub(crate) fn swap_bytes(
        &self,
        source: &[u8],
        source_lens: &[usize],
        target_lens: &[usize],
    ) -> Result<Vec<u8>, Error> {
        let (source_counts, source_places, source_bytes) = counts(source_lens)?;
        let (target_counts, target_places, target_bytes) = counts(target_lens)?;
        let ranks = self.members.size() as usize;
        if source_counts.len() != ranks || target_counts.len() != ranks {
            return Err(Error::internal("bytes for another number of processes"));
        }
        if source_bytes != source.len() {
            return Err(Error::internal("lengths that are not those of the bytes"));
        }
        let mut target = vec![0_u8; target_bytes];
        let byte = objects()?.byte;
        // An empty vector's address is 1, which is MPI_IN_PLACE in Open MPI: then this byte's.
        let (mut nothing, is_empty) = (0_u8, (source.is_empty(), target.is_empty()));
        let place = &raw mut nothing;
        let source_place = if is_empty.0 { place.cast_const() } else { source.as_ptr() };
        let target_place = if is_empty.1 { place } else { target.as_mut_ptr() };
        // SAFETY: a count and a place for each process; together they are the buffer, as was checked for the one
        // and made for the other.
        let answer = unsafe {
            mpi::Alltoallv(
                source_place.cast(),
                source_counts.as_ptr(),
                source_places.as_ptr(),
                byte,
                target_place.cast(),
                target_counts.as_ptr(),
                target_places.as_ptr(),
                byte,
                self.members.comm(),
            )
        };
        done(answer, "MPI_Alltoallv")?;
        Ok(target)
    }
}

/// Counts and places of pieces that lie behind each other, and how long they are together.
fn counts(lens: &[usize]) -> Result<(Vec<c_int>, Vec<c_int>, usize), Error> {
    let (mut counts, mut places, mut at) = (Vec::new(), Vec::new(), 0);
    let count = |len| c_int::try_from(len).map_err(|_| Error::count("more bytes than MPI counts"));
    for len in lens {
        counts.push(count(*len)?);
        places.push(count(at)?);
        at += len;
    }
    Ok((counts, places, at))
}

/// Collective. Not of an intercommunicator.
fn copy_of(comm: Handle) -> Result<Handle, Error> {
    // SAFETY: room for a handle; one that is an `int` fills the lower half.
    let begun = unsafe {
        begin(
            "MPI_Comm_dup",
            0_usize,
            |copy, request| mpi::Comm_idup(comm, copy, request),
            |copy| mpi::Comm_dup(comm, copy),
        )
    };
    let copy = begun?.wait()?;
    // SAFETY: made just now.
    Ok(unsafe { Handle::new(copy) })
}
