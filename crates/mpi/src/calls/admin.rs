//! The file as a whole: its size, synchronisation, atomicity, access mode.
//!
//! Source: MPI 4.1, sections 14.2.4 to 14.2.7 and 14.6. Collective calls agree on an epoch as
//! [`hayase_container::ContainerFile`] describes; a process that fails takes part all the same, so that
//! the others do not wait for it.

use std::ffi::c_int;

use hayase_container::Durability;
use hayase_layout::{ByteCount, Epoch};

use crate::{error::Error, open_files::OpenFile, pointers::Out};

pub(crate) fn get_size(file: &OpenFile, size: Out<'_, i64>) -> Result<(), Error> {
    size.set(file.bytes.size()? as i64);
    Ok(())
}

pub(crate) fn set_size(file: &OpenFile, size: i64) -> Result<(), Error> {
    let published = file.bytes.container.publish(Durability::Written);
    let behind = |epoch: Epoch| Epoch(epoch.0 + 1); // what was written before belongs to an earlier one
    let epoch = begin_epoch(file, size, |epoch| {
        file.bytes.container.advance(epoch)?;
        Ok(file.bytes.container.set_size(bytes(size)?, behind(epoch))?)
    })?;
    if file.comm.rank() > 0 {
        file.bytes.container.learn_size(bytes(size)?, behind(epoch))?;
    }
    Ok(published?)
}

pub(crate) fn preallocate(file: &OpenFile, size: i64) -> Result<(), Error> {
    let published = file.bytes.container.publish(Durability::Written);
    begin_epoch(file, size, |epoch| {
        file.bytes.container.advance(epoch)?;
        Ok(file.bytes.container.preallocate(bytes(size)?)?)
    })?;
    if file.comm.rank() > 0 {
        file.bytes.container.learn_preallocated(bytes(size)?)?;
    }
    Ok(published?)
}

/// What was written is durable, and others see it; what others published is seen from here on.
pub(crate) fn sync(file: &OpenFile) -> Result<(), Error> {
    let published = file.bytes.container.publish(Durability::Durable);
    begin_epoch(file, 0, |_| Ok(()))?;
    Ok(published?)
}

pub(crate) fn set_atomicity(file: &OpenFile, flag: c_int) -> Result<(), Error> {
    file.exchanges.set_atomic(flag != 0);
    // What was written before is seen by whoever reads in the new mode.
    let published = file.bytes.container.publish(Durability::Written);
    begin_epoch(file, 0, |_| Ok(()))?;
    published?;
    file.bytes.set_atomic(flag != 0);
    Ok(())
}

pub(crate) fn get_atomicity(file: &OpenFile, flag: Out<'_, c_int>) -> Result<(), Error> {
    flag.set(c_int::from(file.bytes.is_atomic()));
    Ok(())
}

pub(crate) fn get_amode(file: &OpenFile, amode: Out<'_, c_int>) -> Result<(), Error> {
    amode.set(file.amode);
    Ok(())
}

/// Collective: begins an epoch behind every one that was published, by anybody. All have published when it returns.
///
/// All must say the same size; those that have none say 0. `act` runs on rank 0, once that is known and everybody is
/// here; its error is one of all. One meeting: only rank 0 waits for the others, and they for its answer.
fn begin_epoch(
    file: &OpenFile,
    size: i64,
    act: impl FnOnce(Epoch) -> Result<(), Error>,
) -> Result<Epoch, Error> {
    let own = [file.bytes.container.proposed_epoch().0, size as u64];
    let mut acted = Ok(());
    let answer = file.comm.members().ask(own, |all| {
        if all.iter().any(|[_, other]| *other != size as u64) {
            return Vec::new();
        }
        // Rank 0 looks for writers outside of the group, now that everybody is here: what a process published
        // before, by another handle, is seen.
        let looked = file.bytes.look();
        let proposed = all.iter().map(|[epoch, _]| *epoch).max().unwrap_or(0);
        let epoch = Epoch(proposed.max(file.bytes.container.proposed_epoch().0));
        acted = looked.and_then(|()| act(epoch));
        let code = acted.as_ref().err().map_or(0, Error::code);
        [epoch.0.to_le_bytes(), (code as u64).to_le_bytes()].concat()
    })?;
    let [epoch, code] =
        two_words(&answer).ok_or(Error::argument("processes say different sizes"))?;
    if file.comm.rank() > 0 {
        file.bytes.set_stale();
    }
    file.bytes.container.advance(Epoch(epoch))?;
    of_rank_0(acted, code).map(|()| Epoch(epoch))
}

fn bytes(size: i64) -> Result<ByteCount, Error> {
    let size = u64::try_from(size).map_err(|_| Error::argument(format!("a size of {size}")))?;
    Ok(ByteCount(size))
}

/// Collective: `run` on rank 0, when all are here; its error is one of all, and its value is told to all.
pub(super) fn on_rank_0(
    file: &OpenFile,
    run: impl FnOnce() -> Result<u64, Error>,
) -> Result<u64, Error> {
    let mut done = Ok(());
    let answer = file.comm.members().ask([0], |_| {
        let (value, code) = match run() {
            Ok(value) => (value, 0),
            Err(error) => {
                let code = error.code();
                done = Err(error);
                (0, code)
            }
        };
        [value.to_le_bytes(), (code as u64).to_le_bytes()].concat()
    })?;
    file.bytes.set_stale();
    let [value, code] = two_words(&answer).ok_or(Error::internal("rank 0 told too little"))?;
    of_rank_0(done, code).map(|()| value)
}

/// Little-endian, as rank 0 tells them; `None` where there are none.
fn two_words(bytes: &[u8]) -> Option<[u64; 2]> {
    let (words, _) = bytes.as_chunks::<8>();
    Some(words.first_chunk::<2>()?.map(u64::from_le_bytes))
}

/// What this process returns: its own error on rank 0, elsewhere that there is one.
fn of_rank_0(own: Result<(), Error>, code: u64) -> Result<(), Error> {
    match (own, code) {
        (Err(error), _) => Err(error),
        (Ok(()), 0) => Ok(()),
        (Ok(()), code) => Err(Error::of_another(code as c_int)),
    }
}
