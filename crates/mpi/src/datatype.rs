//! MPI datatypes -> [`hayase_layout::Datatype`], by asking how they were made.
//!
//! Code that has the handle of a type asks here, and not the library:
//!
//! - [`parsed`]: what it selects. [`hold`], [`give`]: a copy of our own, and one for the program. [`extent`]: its bounds.
//! - `envelope`, `contents`: the questions to the library. `owned`: types that are freed with their holders.
//! - `constructor`: what each constructor's arguments mean; pure.
//! - `memo`: the answer is remembered with the type.
//!
//! Not here: the typemap itself (`hayase_layout`), memory in other representations (`crate::memory::external32`).
//! O(constructors), not O(blocks). Bounds are the library's at each level: what padding a struct has is
//! its choice.

use std::sync::Arc;

use hayase_layout::Datatype;

use crate::{abi::Handle, error::Error, library};

mod constructor;
mod contents;
mod envelope;
mod memo;
mod owned;

pub(crate) use envelope::{extent, require_type};
pub(crate) use owned::{OwnedType, give, hold};

/// What one MPI datatype selects.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) datatype: Datatype,
}

/// Deepest nesting of constructors that is followed.
const DEPTH_MAX: usize = 256;

/// What `handle` selects, as remembered with the type or asked for now.
pub(crate) fn parsed(handle: Handle) -> Result<Arc<Parsed>, Error> {
    let handle = library::abi()?.handle(handle);
    // Asking for an attribute of the null datatype would end the program.
    require_type(handle)?;
    if let Some(known) = memo::recall(handle) {
        return Ok(known);
    }
    let parsed = Arc::new(Parsed { datatype: parse(handle, 0)? });
    memo::remember(handle, &parsed);
    Ok(parsed)
}

fn parse(handle: Handle, depth: usize) -> Result<Datatype, Error> {
    if depth > DEPTH_MAX {
        return Err(Error::datatype(format!("a datatype nested deeper than {DEPTH_MAX}")));
    }
    let (constructor, inner) = contents::contents(handle)?;
    let datatype = if constructor.is_basic() {
        constructor::basic(envelope::size(handle)?, envelope::true_extent(handle)?)?
    } else {
        let inner = inner.iter().map(|inner: &OwnedType| parse(**inner, depth + 1));
        let inner = inner.collect::<Result<Vec<_>, _>>()?;
        constructor.selects(&inner, &library::abi()?.array)?
    };
    let (lb, extent) = extent(handle)?;
    Ok(datatype.resized(lb, extent))
}
