//! Calls on mapped files.

use std::os::fd::AsFd;

use super::{Outcome, Tried, done};
use crate::actor::command::{Answer, Command};
use crate::actor::data::to_hex;
use crate::actor::errno;
use crate::actor::mapping::Mapping;
use crate::actor::table::Table;

pub(super) fn make(table: &Table, command: Command) -> Tried {
    Ok(match command {
        Command::Map { file, offset, len, kind } => table.file(file).and_then(|fd| {
            let map = Mapping::new(fd.as_fd(), offset, len as usize, kind).map_err(errno::name)?;
            Ok(Answer::Map(table.add_map(map)))
        }),
        Command::MapRead { map, offset, len } => table.map(map).and_then(|map| {
            let bytes = map.read(offset as usize, len as usize).ok_or("outside of the map")?;
            Ok(Answer::Bytes(to_hex(&bytes)))
        }),
        Command::MapWrite { map, offset, data } => table.map(map).and_then(|map| {
            map.write(offset as usize, &data.at(offset)?).ok_or("outside of the map")?;
            Ok(Answer::Done)
        }),
        Command::MapSync { map } => sync(table, map),
        Command::Unmap { map } => table.unmap(map).map(|()| Answer::Done),
        other => return Err(Box::new(other)),
    })
}

fn sync(table: &Table, map: u32) -> Outcome {
    done(table.map(map)?.sync())
}
