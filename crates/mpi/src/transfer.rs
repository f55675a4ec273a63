//! Moving bytes between the program's memory and a container, through a view.
//!
//! Here: writes and reads of a stretch of the view's stream, the two modes in which others see them at once.
//! Not here: whose pointer says where ([`crate::calls`]), where bytes lie on disk (`hayase_container`).
//!
//! A write is contiguous in the writer's part, whatever view and memory look like. Memory that is not one
//! piece goes through a buffer of [`BUFFER_BYTES`].

use hayase_container::{Access, Durability, Plan, Reader, Write};
use hayase_layout::{
    ByteCount, Extent, GlobalOffset, StreamExtent, StreamOffset, units::OFFSET_MAX,
};

use crate::{
    abi::ErrorClass,
    error::Error,
    memory::{Memory, Region, external32},
    open_files::OpenFile,
    view::{Datarep, FileView, Map, Scattered},
};

/// Memory for packing, whatever is written or read at once.
pub(crate) const BUFFER_BYTES: u64 = 4 << 20;

/// How many bytes were moved; and why not all, when it was for a reason.
#[derive(Debug)]
pub(crate) struct Moved {
    pub(crate) bytes: u64,
    pub(crate) error: Option<Error>,
}

impl Moved {
    /// Nothing was moved when what comes before fails.
    pub(crate) fn of(run: impl FnOnce() -> Result<Self, Error>) -> Self {
        run().unwrap_or_else(Self::from)
    }
}

impl From<Error> for Moved {
    fn from(error: Error) -> Self {
        Self { bytes: 0, error: Some(error) }
    }
}

/// Writes all of `region` at `stream` of the view.
pub(crate) fn write(file: &OpenFile, view: &FileView, stream: u64, region: &Region) -> Moved {
    let mut moved = Moved { bytes: 0, error: None };
    moved.error = try_write(file, view, stream, region, &mut moved.bytes).err();
    moved
}

/// Reads into `region` from `stream` of the view on, up to the end of the file.
pub(crate) fn read(file: &OpenFile, view: &FileView, stream: u64, region: &mut Region) -> Moved {
    let mut moved = Moved { bytes: 0, error: None };
    moved.error = try_read(file, view, stream, region, &mut moved.bytes).err();
    moved
}

fn try_write(
    file: &OpenFile,
    view: &FileView,
    stream: u64,
    region: &Region,
    written: &mut u64,
) -> Result<(), Error> {
    require_inside(view, stream, region.len())?;
    if file.bytes.container.access() == Access::Read {
        return Err(Error::usual(ErrorClass::ReadOnly, "a write to a file opened for reading"));
    }
    if region.len() == 0 {
        return Ok(());
    }
    let _locked = file.lock_if_atomic()?;
    if file.bytes.is_immediate() {
        file.bytes.overtake()?;
    }
    let answer = write_region(file, view, stream, region, written);
    if file.bytes.is_immediate() {
        file.bytes.container.publish(Durability::Written)?;
    }
    answer
}

fn write_region(
    file: &OpenFile,
    view: &FileView,
    stream: u64,
    region: &Region,
    written: &mut u64,
) -> Result<(), Error> {
    if view.datarep == Datarep::External32 {
        let memory = require_external(region)?;
        let mut bytes = vec![0; region.len() as usize];
        external32::pack(memory, &mut bytes)?;
        return write_bytes(file, view, stream, &bytes, written);
    }
    if let Some(bytes) = region.as_slice() {
        return write_bytes(file, view, stream, bytes, written);
    }
    let mut buffer = vec![0; region.len().min(BUFFER_BYTES) as usize];
    let mut at = 0;
    while at < region.len() {
        let len = (region.len() - at).min(BUFFER_BYTES);
        let bytes = &mut buffer[..len as usize];
        region.gather(at..at + len, bytes);
        write_bytes(file, view, stream + at, bytes, written)?;
        at += len;
    }
    Ok(())
}

fn write_bytes(
    file: &OpenFile,
    view: &FileView,
    stream: u64,
    bytes: &[u8],
    written: &mut u64,
) -> Result<(), Error> {
    let len = ByteCount(bytes.len() as u64);
    match &view.map {
        Map::Flat(start) => put(file, Write::At(extent(start + stream, len)?), bytes, written),
        Map::Tiles(_, id) => {
            let window = StreamExtent::new(StreamOffset(stream), len).map_err(too_far)?;
            put(file, Write::Through { view: *id, window }, bytes, written)
        }
        Map::Scattered(scattered) => {
            let mut rest = bytes;
            let mut answer = Ok(());
            scattered.blocks(stream..stream + len.get(), |start, len| {
                let (now, later) = rest.split_at(len as usize);
                rest = later;
                if answer.is_ok() {
                    answer = extent(start, ByteCount(len))
                        .and_then(|extent| put(file, Write::At(extent), now, written));
                }
            });
            answer
        }
        Map::Nothing => Err(Error::argument("the view selects no byte to write to")),
    }
}

fn put(file: &OpenFile, write: Write, bytes: &[u8], written: &mut u64) -> Result<(), Error> {
    match file.bytes.container.write(write, bytes) {
        Ok(()) => {
            *written += bytes.len() as u64;
            Ok(())
        }
        Err(error) => {
            *written += error.written.get();
            Err(error.into())
        }
    }
}

fn try_read(
    file: &OpenFile,
    view: &FileView,
    stream: u64,
    region: &mut Region,
    moved: &mut u64,
) -> Result<(), Error> {
    if file.bytes.container.access() == Access::Write {
        return Err(Error::usual(ErrorClass::Access, "a read of a file opened for writing"));
    }
    if region.len() == 0 {
        return Ok(());
    }
    let _locked = file.lock_if_atomic()?;
    file.bytes.refresh()?;
    if view.datarep == Datarep::External32 {
        return read_external(file, view, stream, region, moved);
    }
    if let Some(target) = region.as_mut_slice() {
        *moved = read_bytes(file, view, stream, target)? as u64;
        return Ok(());
    }
    let mut buffer = vec![0; region.len().min(BUFFER_BYTES) as usize];
    while *moved < region.len() {
        let len = (region.len() - *moved).min(BUFFER_BYTES) as usize;
        let got = read_bytes(file, view, stream + *moved, &mut buffer[..len])?;
        region.scatter(*moved, &buffer[..got]);
        *moved += got as u64;
        if got < len {
            break;
        }
    }
    Ok(())
}

fn read_external(
    file: &OpenFile,
    view: &FileView,
    stream: u64,
    region: &mut Region,
    moved: &mut u64,
) -> Result<(), Error> {
    let memory = require_external(region)?;
    let mut bytes = vec![0; region.len() as usize];
    let got = read_bytes(file, view, stream, &mut bytes)? as u64;
    // Whole elements: what comes behind them in memory is left alone.
    let element = region.len() / u64::try_from(memory.count()).unwrap_or(1).max(1);
    let count = got / element.max(1);
    let whole = &bytes[..(count * element) as usize];
    external32::unpack(whole, memory, count as i64)?;
    *moved = count * element;
    Ok(())
}

fn read_bytes(
    file: &OpenFile,
    view: &FileView,
    stream: u64,
    target: &mut [u8],
) -> Result<usize, Error> {
    let len = target.len() as u64;
    Ok(match &view.map {
        Map::Flat(start) => match start.checked_add(stream) {
            Some(at) => file.bytes.container.read_at(GlobalOffset(at), target)?,
            None => 0,
        },
        Map::Tiles(view, _) => {
            file.bytes.container.read_through(view, StreamOffset(stream), target)?
        }
        Map::Scattered(scattered) => {
            file.bytes.container.read_extents(scattered_extents(scattered, stream, len)?, target)?
        }
        Map::Nothing => 0,
    })
}

/// What [`read_bytes`] reads, planned only; as much of it as one plan has.
pub(crate) fn plan_bytes(
    reader: &Reader,
    view: &FileView,
    stream: u64,
    target: &mut [u8],
) -> Result<Plan, Error> {
    let len = target.len() as u64;
    Ok(match &view.map {
        Map::Flat(start) => match start.checked_add(stream) {
            Some(at) => reader.plan_at(GlobalOffset(at), target)?,
            None => Plan::default(),
        },
        Map::Tiles(view, _) => reader.plan_through(view, StreamOffset(stream), target)?,
        Map::Scattered(scattered) => {
            reader.plan_extents(scattered_extents(scattered, stream, len)?, target)?
        }
        Map::Nothing => Plan::default(),
    })
}

fn scattered_extents(scattered: &Scattered, stream: u64, len: u64) -> Result<Vec<Extent>, Error> {
    let mut extents = Vec::new();
    scattered.blocks(stream..stream.saturating_add(len), |start, len| {
        extents.push(extent(start, ByteCount(len)));
    });
    extents.into_iter().collect()
}

/// Memory whose elements are as long in external32; what describes it.
fn require_external(region: &Region) -> Result<&Memory, Error> {
    let memory = region.memory();
    let count = u64::try_from(memory.count()).unwrap_or(0).max(1);
    external32::require_size(memory.datatype(), region.len() / count)?;
    Ok(memory)
}

/// Whether all bytes to be written are bytes that files can have: nothing is written otherwise.
fn require_inside(view: &FileView, stream: u64, len: u64) -> Result<(), Error> {
    let Some(last) = len.checked_sub(1) else { return Ok(()) };
    let end = stream.checked_add(last).filter(|end| *end < OFFSET_MAX);
    match end.and_then(|end| view.map.place(end)) {
        Some(place) if place < OFFSET_MAX => Ok(()),
        _ if view.map == Map::Nothing => Err(Error::argument("the view selects no byte")),
        _ => Err(too_far("it is behind the end of every file")),
    }
}

fn extent(start: u64, len: ByteCount) -> Result<Extent, Error> {
    Extent::new(GlobalOffset(start), len).map_err(too_far)
}

fn too_far(error: impl std::fmt::Display) -> Error {
    Error::argument(format!("write: {error}"))
}
