//! The individual pointer, and what offsets mean.
//!
//! Source: MPI 4.1, sections 14.4.3 (seek, get_position, get_byte_offset).

use std::ffi::c_int;

use crate::{error::Error, library::abi, open_files::OpenFile, pointers::Out, view::FileView};

pub(crate) fn seek(file: &OpenFile, offset: i64, whence: c_int) -> Result<(), Error> {
    let (view, now) = file.cursor.position();
    let target = target(file, &view, offset, whence, now)?;
    file.cursor.set_position(view.stream(target as i64)?);
    Ok(())
}

/// Where a pointer is to be, in etypes; `now` is where it is.
pub(super) fn target(
    file: &OpenFile,
    view: &FileView,
    offset: i64,
    whence: c_int,
    now: u64,
) -> Result<u64, Error> {
    let abi = abi()?;
    let base = match whence {
        whence if whence == abi.seek_set => 0,
        whence if whence == abi.seek_cur => now,
        whence if whence == abi.seek_end => view.end(file.bytes.size()?),
        _ => return Err(Error::argument(format!("whence {whence}"))),
    };
    let target = base.checked_add_signed(offset);
    target.ok_or_else(|| Error::argument(format!("a pointer {offset} etypes from {base}")))
}

pub(crate) fn get_position(file: &OpenFile, offset: Out<'_, i64>) -> Result<(), Error> {
    offset.set(file.cursor.position().1 as i64);
    Ok(())
}

pub(crate) fn get_byte_offset(
    file: &OpenFile,
    offset: i64,
    displacement: Out<'_, i64>,
) -> Result<(), Error> {
    let view = file.cursor.view();
    let place = view.map.place(view.stream(offset)?);
    let far = || Error::argument(format!("offset {offset} is outside of every file"));
    displacement.set(place.ok_or_else(far)? as i64);
    Ok(())
}
