//! Opening, closing and deleting; and the end of the program.
//!
//! All of it is collective: when all are there, rank 0 decides whether the file is a container, makes it, and tells the
//! others, with what was published in it. Then each of them opens its stub with the library, alone, and that handle is
//! the program's; and all learn whether each could. These are two meetings ([`crate::library::meeting`]), and a copy
//! of the communicator where none is left of an earlier file. Where nothing is taken the first meeting was all that was
//! added, and the call is passed on. A close is one meeting. A process that opens a file alone meets nobody.
//! Source: MPI 4.1, sections 14.2.1 to 14.2.3.

use std::{
    ffi::{CString, c_int},
    hash::{BuildHasher, RandomState},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use hayase_container::{
    Access, Container, ContainerFile, Creation, Durability, Identity, Snapshot, next_opening,
};
use hayase_layout::{NodeId, Rank};

use super::admin::on_rank_0;
use crate::{
    abi::{AmodeBits, Handle},
    error::Error,
    exchange::Exchanges,
    flat::{Flatten, Presence, flatten},
    handlers::{raise, raise_on_none},
    library::{self, Communicator, files, meeting::Members},
    open_files::{self, Cursor, OpenFile, SplitCall},
    pointers::{Out, Text},
    real,
    selection::{Decision, Settings, hint_flatten, hint_round_bytes},
    shared_bytes::SharedBytes,
    shared_pointer::SharedPointer,
    stderr,
};

mod plan;

use plan::{Plan, Told};

/// More than that is not told to all by rank 0: who reads a little of such a file may do without.
const PUBLISHED_BYTES_MAX: usize = 16 << 20;

/// `None` passes the call on.
pub(crate) fn open(
    comm: Handle,
    filename: Text<'_>,
    amode: c_int,
    info: Handle,
    fh: Out<'_, Handle>,
) -> Option<c_int> {
    real::found().abi?;
    if Settings::get().is_off() {
        return None;
    }
    match try_open(comm, &filename.to_path(), amode, info, fh) {
        Ok(answer) => answer,
        Err(error) => Some(raise_on_none(&error)),
    }
}

fn try_open(
    comm: Handle,
    path: &Path,
    amode: c_int,
    info: Handle,
    fh: Out<'_, Handle>,
) -> Result<Option<c_int>, Error> {
    let Some(members) = Members::of(comm)? else { return Ok(None) };
    let (mut container, mut refused) = (None, None);
    // What a process did to this name before, it did before the file is made: deleting it, by many programs.
    let told = members.ask([node().0.into()], |nodes| {
        let nodes = nodes.iter().map(|[node]| NodeId(*node as u16)).collect();
        match prepare(path, amode, info, nodes) {
            Ok(None) => Told::Passed,
            Ok(Some((prepared, plan))) => {
                container = Some(prepared);
                Told::Taken(plan)
            }
            Err(error) => {
                stderr::say(&format!("{}: {error}", path.display()));
                refused = is_refused(path, &error).then_some(error);
                if refused.is_some() { Told::Refused } else { Told::Passed }
            }
        }
        .encode()
    })?;
    let plan = match Told::decode(&told)? {
        Told::Taken(plan) => plan,
        Told::Passed => return Ok(None),
        Told::Refused => return Err(refused.unwrap_or_else(elsewhere)),
    };
    let opened = open_own(path, amode, info, (container, &plan), members.rank());
    // All or none.
    let is_well = matches!(&opened, Ok(Own { code: 0, .. }));
    let comm = match Communicator::of(members, is_well) {
        Ok(Some(comm)) => comm,
        Ok(None) => return not_by_all(opened),
        Err(error) => return not_by_all(opened).and(Err(error)),
    };
    let Own { container, is_current, mut handle, .. } = opened?;
    let exchanges = Exchanges::new(plan.exchange, plan.round_bytes, &plan.nodes, comm.rank());
    let file = OpenFile {
        presence: Presence::in_container(container.container().inside()),
        path: std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
        amode,
        comm,
        shared: SharedPointer::new(&container.container().stub(), plan.key),
        bytes: SharedBytes::new(container, is_current, plan.consistency),
        cursor: Cursor::new(),
        split: SplitCall::default(),
        exchanges,
        delete_on_close: amode & library::abi()?.amode.delete_on_close != 0,
        flatten: plan.flatten,
    };
    if let Err(error) = append(&file) {
        // All fail alike.
        files::close(Out::of(&mut handle));
        file.into_comm().free()?;
        return Err(error);
    }
    open_files::insert(handle, file);
    fh.set(handle);
    Ok(Some(0))
}

/// Whether the call fails for this reason. Most of what is wrong the library says better, about the same path; but
/// there are libraries that open a directory, and in an area of a job any would write a plain file where a container
/// has too many writers.
fn is_refused(path: &Path, error: &Error) -> bool {
    error.is_refusal() || path.is_dir()
}

/// What a process answers, whether it could open the file or not, when not all could.
fn not_by_all(opened: Result<Own, Error>) -> Result<Option<c_int>, Error> {
    let Own { mut handle, code, .. } = opened?;
    if code != 0 {
        return Ok(Some(code)); // the library has called the handler
    }
    files::close(Out::of(&mut handle));
    Err(elsewhere())
}

/// What a process opens by itself.
struct Own {
    container: ContainerFile,
    /// It knows what was published.
    is_current: bool,
    handle: Handle,
    /// What the library answered: 0, or there is no handle.
    code: c_int,
}

/// On rank 0 there is a container already.
fn open_own(
    path: &Path,
    amode: c_int,
    info: Handle,
    (container, plan): (Option<ContainerFile>, &Plan),
    rank: u32,
) -> Result<Own, Error> {
    let access = access(amode)?.ok_or(Error::argument("processes say different access modes"))?;
    let (container, is_current) = match container {
        Some(container) => (container, true), // it has looked, to open it for all
        None => open_existing(path, access, plan, rank)?,
    };
    let mut handle = library::objects()?.file_null;
    let code = open_stub(&container.container().stub(), amode, info, &mut handle)?;
    Ok(Own { container, is_current, handle, code })
}

/// On rank 0: the container and the plan; `None` when the library is to open the path.
fn prepare(
    path: &Path,
    amode: c_int,
    info: Handle,
    nodes: Vec<NodeId>,
) -> Result<Option<(ContainerFile, Plan)>, Error> {
    let bits = library::abi()?.amode;
    let Some(access) = access(amode)? else { return Ok(None) };
    let settings = Settings::get();
    let decision = settings.decide(path, info, amode & bits.create != 0)?;
    // Made of what comes, so there is nothing to be gained; but what is a container is read as one.
    if amode & bits.sequential != 0 && decision != Decision::Existing {
        return Ok(None);
    }
    let is_exclusive = amode & bits.excl != 0;
    let (creation, flatten) = match decision {
        Decision::Pass => return Ok(None),
        // The library fails as the program expects: the name is taken.
        Decision::Existing if is_exclusive => return Ok(None),
        Decision::Existing => (Creation::Never, hint_flatten(info)?.unwrap_or(Flatten::Keep)),
        Decision::New { replaces_empty: true, .. } if is_exclusive => return Ok(None),
        Decision::New { flatten, .. } if is_exclusive => (Creation::Exclusive, flatten),
        Decision::New { flatten, replaces_empty } => {
            if replaces_empty {
                // Another process may be faster: whatever is there then is looked at below.
                let _ = std::fs::remove_file(path);
            }
            (Creation::IfAbsent, flatten)
        }
    };
    let container = Container::open(path, creation)?;
    let container = ContainerFile::open(container, access, identity(0), None)?;
    container.require_room_for(nodes.len())?;
    let plan = Plan {
        epoch: container.epoch(),
        key: RandomState::new().hash_one(0),
        flatten,
        consistency: settings.consistency(info)?,
        exchange: settings.exchange(info)?,
        round_bytes: hint_round_bytes(info)?,
        nodes,
        published: published(&container, access)?,
    };
    Ok(Some((container, plan)))
}

/// What a process is told that could have opened it.
fn elsewhere() -> Error {
    Error::unsupported("another process could not open the container")
}

/// What the others need not read from the indexes: each of them would read all.
fn published(container: &ContainerFile, access: Access) -> Result<Vec<u8>, Error> {
    if access == Access::Write {
        return Ok(Vec::new());
    }
    let mut bytes = container.snapshot()?.encode();
    if bytes.len() > PUBLISHED_BYTES_MAX {
        bytes.clear();
    }
    Ok(bytes)
}

/// And whether it knows what was published.
fn open_existing(
    path: &Path,
    access: Access,
    plan: &Plan,
    rank: u32,
) -> Result<(ContainerFile, bool), Error> {
    let container = Container::open(path, Creation::Never)?;
    let container = ContainerFile::open(container, access, identity(rank), Some(plan.epoch))?;
    if plan.published.is_empty() {
        return Ok((container, false));
    }
    container.adopt(Snapshot::decode(&plan.published)?);
    Ok((container, true))
}

/// What the mode allows; `None` for modes that the library is to judge.
fn access(amode: c_int) -> Result<Option<Access>, Error> {
    let AmodeBits { create, rdonly, wronly, rdwr, excl, .. } = library::abi()?.amode;
    let has = |bit: c_int| amode & bit != 0;
    Ok(match (has(rdonly), has(wronly), has(rdwr)) {
        (true, false, false) if !has(create) && !has(excl) => Some(Access::Read),
        (false, true, false) => Some(Access::Write),
        (false, false, true) => Some(Access::ReadWrite),
        _ => None,
    })
}

/// Who writes. Nodes are told apart by their names; where two have one number, the file system sees to it
/// that no two writers have one part.
fn identity(rank: u32) -> Identity {
    Identity {
        node: node(),
        process: std::process::id(),
        opening: next_opening(),
        rank: Rank(rank),
    }
}

/// Where this process runs.
fn node() -> NodeId {
    static NODE: OnceLock<NodeId> = OnceLock::new();
    *NODE.get_or_init(|| {
        let name = std::fs::read("/proc/sys/kernel/hostname").unwrap_or_default();
        let number =
            name.iter().fold(0_u16, |sum, byte| sum.wrapping_mul(31).wrapping_add((*byte).into()));
        NodeId(number)
    })
}

/// With the library, by this process alone: the handle that the program gets.
fn open_stub(stub: &Path, amode: c_int, info: Handle, handle: &mut Handle) -> Result<c_int, Error> {
    let bits = library::abi()?.amode;
    let amode = amode & (bits.rdonly | bits.wronly | bits.rdwr | bits.unique_open);
    let name = CString::new(stub.as_os_str().as_bytes());
    let name = name.map_err(|_| Error::argument("a path with a zero in it"))?;
    let alone = library::objects()?.comm_self;
    let code = files::open(alone, Text::of(&name), amode, info, Out::of(handle));
    code.ok_or(Error::missing("MPI_File_open"))
}

/// MPI_MODE_APPEND: all pointers begin at the end.
fn append(file: &OpenFile) -> Result<(), Error> {
    if file.amode & library::abi()?.amode.append == 0 {
        return Ok(());
    }
    let end = on_rank_0(file, || {
        let end = file.bytes.size()?;
        file.shared.set(end).map(|()| end)
    })?;
    file.cursor.set_position(end);
    Ok(())
}

/// `None` passes the call on.
pub(crate) fn close(fh: Out<'_, Handle>) -> Option<c_int> {
    let handle = fh.get()?;
    let file = open_files::find(handle)?;
    // What was written is published, by all.
    let closed = file.bytes.container.close(Durability::Written).map_err(Error::from);
    // Rank 0 may join parts; in an area it does not, and programs may write the file as soon as it is closed.
    if file.comm.rank() != 0 || file.bytes.container.container().is_in_area() {
        file.presence.leave();
    }
    if let Err(error) = &closed {
        // While the handle has its error handler.
        raise(handle, error);
    }
    open_files::remove(handle);
    let code = files::close(fh).unwrap_or(0);
    let common = file.comm.members().agree(closed.is_ok().into());
    let ended = common.and_then(|common| end(&file, common != 0));
    file.presence.leave();
    // Another thread may still be in a call on it, against MPI's word; then the copy stays.
    if let Some(file) = std::sync::Arc::into_inner(file)
        && let Err(error) = file.into_comm().free()
    {
        error.tell();
    }
    Some(match (closed, ended) {
        (Err(error), _) | (_, Err(error)) => error.code(),
        _ => code,
    })
}

/// When all have closed the stub: deletes it, or makes it flat. Where one of them could not publish what it wrote, what
/// there is stays a container: `hayase container check` tells what is missing.
fn end(file: &OpenFile, is_whole: bool) -> Result<(), Error> {
    let forgotten = match file.comm.rank() {
        0 if file.bytes.container.access() != Access::Read => file.shared.forget(),
        _ => Ok(()),
    };
    if file.delete_on_close {
        let delete = || {
            // The last of the group. NFS and gfarm2fs keep a removed file that is open, and its directory with it.
            file.presence.leave();
            Ok(Container::delete(&file.path).map(|()| 0)?)
        };
        return on_rank_0(file, delete).map(|_| ());
    }
    if file.flatten == Flatten::Close && is_whole {
        let flat = || {
            file.presence.leave(); // the last of the group
            flatten(&file.path).map(|_| 0)
        };
        return on_rank_0(file, flat).map(|_| ());
    }
    if file.comm.rank() == 0 && file.bytes.container.access() != Access::Read {
        // The file is the same without; the next to open it reads less with it. Until that is done nobody makes a
        // flat file of it.
        match file.bytes.container.container().compact_when_many() {
            Ok(done) => {
                if let Some(why) = done.and_then(|done| done.not_joined) {
                    stderr::say(&format!("{}: its parts stay apart: {why}", file.path.display()));
                }
            }
            Err(error) => {
                stderr::say(&format!("{}: its indexes stay apart: {error}", file.path.display()));
            }
        }
    }
    forgotten
}

/// `None` passes the call on: the library says what is wrong with other paths.
pub(crate) fn delete(filename: Text<'_>, _info: Handle) -> Option<c_int> {
    real::found().abi?;
    if Settings::get().is_off() {
        return None;
    }
    let path: PathBuf = filename.to_path();
    match Container::is_at(&path) {
        Ok(false) => None,
        Ok(true) => Some(match Container::delete(&path).map_err(Error::from) {
            Ok(()) => 0,
            Err(error) => raise_on_none(&error),
        }),
        Err(error) => Some(raise_on_none(&error.into())),
    }
}

/// MPI is about to end: files that a program forgot to close keep what was written.
pub(crate) fn finalize() {
    publish_all();
    library::copies::end();
}

/// A program that gives up leaves what it has written so far. Always passed on.
pub(crate) fn abort() -> Option<c_int> {
    publish_all();
    None
}

fn publish_all() {
    for file in open_files::all() {
        if let Err(error) = file.bytes.container.publish(Durability::Written) {
            stderr::say(&format!("{} was not closed: {error}", file.path.display()));
        }
    }
}

#[cfg(test)]
mod tests {
    use hayase_container::ContainerError;

    use super::*;

    /// Whatever it is called: in an area of a job a container is a file for the library.
    #[test]
    fn too_many_writers_are_refused_where_a_container_is_shown_as_a_file() {
        let top = tempfile::tempdir().unwrap();
        let file = top.path().join("file");
        std::fs::write(&file, b"").unwrap();
        let path = file.clone();
        let full: Error = ContainerError::Writers { path, count: 9, group: 2, most: 10 }.into();
        assert!(is_refused(&file, &full) && is_refused(top.path(), &full));
        let missing: Error = ContainerError::NotFound { path: file.clone() }.into();
        assert!(!is_refused(&file, &missing) && is_refused(top.path(), &missing));
    }
}
