//! The view: setting it, asking for it, and how long types are in the file.
//!
//! Setting a view is local but for MPI's word: nothing is exchanged. All processes do it in the same order,
//! so each begins an epoch by itself: what is written through the next view wins over what others wrote through
//! the one before. MPI asks for a sync between; HDF5 relies on less when it writes data over its fill values.
//! The filetype is parsed once, the type itself remembers it. A view that was set lately, by the same types, is
//! taken up again as it is.
//! Source: MPI 4.1, sections 14.3 and 14.5.

use std::sync::Arc;

use hayase_container::Access;
use hayase_layout::{Datatype, Epoch, datatype::order::BlockOrder};

use crate::{
    abi::{ErrorClass, Handle},
    datatype::{self, parsed},
    error::Error,
    library::abi,
    memory::external32,
    open_files::OpenFile,
    pointers::{DatarepOut, Out, OutObject, Text, Type},
    view::{Datarep, FileView, Map, Types},
};

pub(crate) fn set_view(
    file: &OpenFile,
    displacement: i64,
    etype: Handle,
    filetype: Handle,
    datarep: Text<'_>,
    _info: Handle,
) -> Result<(), Error> {
    file.exchanges.set_view();
    if let Some(split) = file.split.begun() {
        return Err(Error::usual(ErrorClass::Io, format!("a view is set before {split:?} ended")));
    }
    let datarep = Datarep::of(datarep.bytes())?;
    let displacement = match displacement {
        current if current == abi()?.displacement_current => current_displacement(file)?,
        displacement => displacement,
    };
    let (unit, tile) = (parsed(etype)?, parsed(filetype)?);
    let known = file.cursor.recent_view(displacement, (&unit, &tile), datarep);
    if let Some(view) = known {
        return set(file, view);
    }
    let etype_size = unit.datatype.size();
    if etype_size == 0 || tile.datatype.size() % etype_size != 0 {
        let what =
            format!("a filetype of {} bytes and an etype of {etype_size}", tile.datatype.size());
        return Err(Error::argument(what));
    }
    require_ascending(file, "an etype", &unit.datatype)?;
    require_ascending(file, "a filetype", &tile.datatype)?;
    if datarep == Datarep::External32 {
        external32::require_size(etype, etype_size)?;
        external32::require_size(filetype, tile.datatype.size())?;
    }
    let declare = |view: &hayase_layout::View| file.bytes.container.declare_view(view);
    let map = Map::new(displacement, &tile.datatype, declare)?;
    let held = (datatype::hold(etype)?, datatype::hold(filetype)?);
    let types = Some(Types { held, parsed: (unit, tile) });
    let view = Arc::new(FileView { displacement, types, datarep, etype_size, map });
    file.cursor.keep_view(&view);
    set(file, view)
}

/// Of a sequential file: where its shared pointer is, as rank 0 knows it. Collective.
fn current_displacement(file: &OpenFile) -> Result<i64, Error> {
    if file.amode & abi()?.amode.sequential == 0 {
        // In the ABI of MPI 5 this is -1, which a program may have meant.
        return Err(Error::argument("a negative displacement, of a file that is not sequential"));
    }
    let found = match file.comm.rank() {
        0 => file.shared.get(),
        _ => Ok(0),
    };
    let [is_known, etypes] =
        file.comm.tell([u64::from(found.is_ok()), *found.as_ref().unwrap_or(&0)])?;
    found?;
    let view = file.cursor.view();
    let place = view.map.place(etypes.saturating_mul(view.etype_size)).filter(|_| is_known == 1);
    place
        .map(|place| place as i64)
        .ok_or(Error::argument("the shared pointer is behind every file"))
}

/// Blocks begin behind each other, and where the file may be written, none in another.
fn require_ascending(file: &OpenFile, what: &str, datatype: &Datatype) -> Result<(), Error> {
    let refused = |how: &str| Err(Error::usual(ErrorClass::Io, format!("{what} {how}")));
    if datatype.true_bounds().is_some_and(|bounds| bounds.start < 0) {
        return refused("that begins before its own place");
    }
    match datatype.block_order() {
        BlockOrder::Decreasing => refused("that goes backwards"),
        BlockOrder::Overlapping if file.bytes.container.access() != Access::Read => {
            refused("that selects bytes twice, of a file that may be written")
        }
        BlockOrder::Overlapping | BlockOrder::Disjoint => Ok(()),
    }
}

/// All pointers begin at its start, and a new epoch.
fn set(file: &OpenFile, view: Arc<FileView>) -> Result<(), Error> {
    file.bytes.container.advance(Epoch(file.bytes.container.epoch().0 + 1))?;
    file.shared.begin_generation();
    file.cursor.set_view(view);
    Ok(())
}

pub(crate) fn get_view(
    file: &OpenFile,
    displacement: Out<'_, i64>,
    etype: OutObject<'_, Type>,
    filetype: OutObject<'_, Type>,
    datarep: DatarepOut<'_>,
) -> Result<(), Error> {
    let view = file.cursor.view();
    match &view.types {
        Some(Types { held: (unit, tile), .. }) => {
            datatype::give(unit, etype)?;
            datatype::give(tile, filetype)?;
        }
        None => {
            let byte = datatype::hold(crate::library::objects()?.byte)?;
            datatype::give(&byte, etype)?;
            datatype::give(&byte, filetype)?;
        }
    }
    displacement.set(view.displacement);
    datarep.set(view.datarep.name());
    Ok(())
}

pub(crate) fn get_type_extent(
    _file: &OpenFile,
    datatype: Handle,
    extent: Out<'_, i64>,
) -> Result<(), Error> {
    // In every representation that a container takes, a type is as long as in memory.
    datatype::require_type(datatype)?;
    extent.set(datatype::extent(datatype)?.1);
    Ok(())
}
