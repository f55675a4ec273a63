//! The file as a whole: its size, synchronisation, atomicity, access mode.
//!
//! Source: MPI 4.1, sections 14.2.4 to 14.2.7 and 14.6. Collective calls agree on an epoch as
//! [`hayase_container::ContainerFile`] describes; a process that fails takes part all the same, so that
//! the others do not wait for it.

use std::ffi::c_int;

use hayase_container::Durability;
use hayase_layout::{ByteCount, Epoch};

use crate::{error::Error, open_files::OpenFile, pointers::Out};

pub(crate) fn get_size(file: &OpenFile, size: Out<i64>) -> Result<(), Error> {
    size.set(file.size()? as i64);
    Ok(())
}

pub(crate) fn set_size(file: &OpenFile, size: i64) -> Result<(), Error> {
    let size = agreed_size(file, size)?;
    let published = file.container.publish(Durability::Written);
    let epoch = Epoch(next_epoch(file)?.0 + 1); // what was written before belongs to an earlier one
    published?;
    on_rank_0(file, || {
        file.container.refresh()?;
        Ok(file.container.set_size(size, epoch)?)
    })?;
    if file.comm.rank() > 0 {
        file.container.learn_size(size, epoch)?;
    }
    Ok(())
}

pub(crate) fn preallocate(file: &OpenFile, size: i64) -> Result<(), Error> {
    let size = agreed_size(file, size)?;
    let published = file.container.publish(Durability::Written);
    next_epoch(file)?;
    published?;
    on_rank_0(file, || {
        file.container.refresh()?;
        Ok(file.container.preallocate(size)?)
    })?;
    if file.comm.rank() > 0 {
        file.container.learn_preallocated(size)?;
    }
    Ok(())
}

/// What was written is durable, and others see it; what others published is seen from here on.
pub(crate) fn sync(file: &OpenFile) -> Result<(), Error> {
    let published = file.container.publish(Durability::Durable);
    next_epoch(file)?;
    Ok(published?)
}

pub(crate) fn set_atomicity(file: &OpenFile, flag: c_int) -> Result<(), Error> {
    file.exchanges.set_atomic(flag != 0);
    // What was written before is seen by whoever reads in the new mode.
    let published = file.container.publish(Durability::Written);
    next_epoch(file)?;
    published?;
    file.set_atomic(flag != 0);
    Ok(())
}

pub(crate) fn get_atomicity(file: &OpenFile, flag: Out<c_int>) -> Result<(), Error> {
    flag.set(c_int::from(file.is_atomic()));
    Ok(())
}

pub(crate) fn get_amode(file: &OpenFile, amode: Out<c_int>) -> Result<(), Error> {
    amode.set(file.amode);
    Ok(())
}

/// Collective: behind every epoch that was published, by anybody. All have published when it returns.
fn next_epoch(file: &OpenFile) -> Result<Epoch, Error> {
    let proposed = file.comm.gather(file.container.proposed_epoch().0)?;
    let known = proposed.into_iter().max().unwrap_or(0);
    // Rank 0 looks for writers outside of the group, now that everybody is here: what a process published
    // before, by another handle, is seen.
    let refreshed = match file.comm.rank() {
        0 => file.look(),
        _ => {
            file.set_stale();
            Ok(())
        }
    };
    let [epoch] = file.comm.tell([known.max(file.container.proposed_epoch().0)])?;
    file.container.advance(Epoch(epoch))?;
    refreshed?;
    Ok(Epoch(epoch))
}

/// Collective: all must say the same.
fn agreed_size(file: &OpenFile, size: i64) -> Result<ByteCount, Error> {
    let said = file.comm.gather(size as u64)?;
    if said.iter().any(|other| *other != size as u64) {
        return Err(Error::argument("processes say different sizes"));
    }
    let size = u64::try_from(size).map_err(|_| Error::argument(format!("a size of {size}")))?;
    Ok(ByteCount(size))
}

/// Collective: `run` on rank 0; its error is one of all.
pub(super) fn on_rank_0(
    file: &OpenFile,
    run: impl FnOnce() -> Result<(), Error>,
) -> Result<(), Error> {
    let answer = match file.comm.rank() {
        0 => run(),
        _ => Ok(()),
    };
    let code = answer.as_ref().err().map_or(0, Error::code);
    let [code] = file.comm.tell([code as u64])?;
    file.set_stale();
    match (answer, code) {
        (Err(error), _) => Err(error),
        (Ok(()), 0) => Ok(()),
        (Ok(()), code) => Err(Error::of_another(code as c_int)),
    }
}
