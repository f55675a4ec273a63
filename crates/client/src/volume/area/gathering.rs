//! Small writes that are gathered here while this node alone has their file open.
//!
//! A window of bytes is taken, and acknowledged, after the home has kept room for it. It is handed on when it is full,
//! when a second has passed, before anything else is done with the file here, at the last close, and when the home or
//! the server recalls.
//!
//! Invariants: each file's windows are under its own lock, which is held during the calls that begin and end a window
//! and under no other lock; [`Windows::is_any`] is true from before the first byte is taken until all of them were
//! handed on. What the home does not take stays for [`crate::limits::GATHER_KEEP`], the file open with it, and calls on
//! the file fail meanwhile; nothing more is taken. What it refuses for good is lost with words, and the file answers EIO
//! here until it is closed.
//! Source: `docs/design/001-coherence.md`, "Small writes".

mod file;
mod late;
mod recalled;
mod windows;

use std::sync::Arc;
use std::time::Instant;

use hayase_layout::InodeId;
use hayase_wire::message::{
    Access, Gathered as AfterGathered, NodeReply, NodeRequest, Refused, Room,
};

pub(super) use self::file::{FileGathering, MovesEnd};
pub(super) use self::windows::{Cuts, Windows};
use super::known::{Asked, Known};
use super::lost::LostFiles;
use super::opens::Opens;
use super::requests::Requests;
use super::sending::Sending;
use crate::gathered::{Gathered, Plan, Window};
use crate::limits::{GATHER_RECALL_PAUSE, GATHER_WAIT};
use crate::link::LinkError;
use crate::open_file::Class;

/// What became of a write.
pub(super) enum Taken {
    /// So many bytes: all there were, or those before an error.
    All(u32),
    /// None: it is to be sent, with this in hand.
    ToSend(Option<MovesEnd>),
}

/// Gathers small writes, and hands them on.
pub(super) struct Gatherer {
    pub(super) known: Arc<Known>,
    pub(super) requests: Requests,
    pub(super) lost: Arc<LostFiles>,
    pub(super) opens: Arc<Opens>,
    pub(super) sending: Arc<Sending>,
    pub(super) windows: Arc<Windows>,
    /// Whether anything is gathered at all.
    pub(super) gathers: bool,
}

impl Gatherer {
    /// Whether anything is gathered, or being handed on.
    pub(super) fn is_any(&self) -> bool {
        self.windows.is_any()
    }

    /// Until the result is dropped, no file's end is known here.
    pub(super) fn cuts(&self) -> Cuts<'_> {
        self.windows.cuts()
    }

    /// Ends the thread that hands on what is due.
    pub(super) fn stop(&self) {
        self.windows.stop();
    }

    /// Takes a small write where it may be gathered. An error after some bytes is a short count.
    pub(super) fn gather(&self, ino: InodeId, offset: u64, data: &[u8]) -> Result<Taken, Refused> {
        let mut done = 0;
        match self.gather_all(ino, offset, data, &mut done) {
            Err(_) if done > 0 => Ok(Taken::All(done as u32)),
            taken => taken,
        }
    }

    /// Counts in `done` what was taken.
    fn gather_all(
        &self,
        ino: InodeId,
        offset: u64,
        data: &[u8],
        done: &mut usize,
    ) -> Result<Taken, Refused> {
        let Some(file) = self.gathering_of(ino) else { return Ok(Taken::ToSend(None)) };
        let mut gathered = file.lock();
        while *done < data.len() {
            let (at, left) = (offset + *done as u64, &data[*done..]);
            match gathered.plan(at, left.len()) {
                Plan::Through => {
                    let moves_end = file.moves_end();
                    drop(gathered);
                    if *done == 0 {
                        return Ok(Taken::ToSend(Some(moves_end)));
                    }
                    // What began in a window that is full by now.
                    let sent = self.sending.send(ino, at, left)?;
                    return Ok(Taken::All(*done as u32 + sent));
                }
                Plan::Take(len) if !file.is_void() => {
                    self.take(ino, &file, &mut gathered, (at, &left[..len]))?;
                    *done += len;
                }
                Plan::Take(_) | Plan::HandOn => self.end_window(ino, &file, &mut gathered)?,
                Plan::Ask(at) => self.begin_window(ino, &file, &mut gathered, at),
            }
        }
        Ok(Taken::All(*done as u32))
    }

    /// The same at the end of the file: all of `data` together.
    pub(super) fn gather_append(&self, ino: InodeId, data: &[u8]) -> Result<Taken, Refused> {
        let Some(file) = self.gathering_of(ino) else { return Ok(Taken::ToSend(None)) };
        let mut gathered = file.lock();
        loop {
            let end = gathered.window().map(Window::end);
            match (gathered.plan_append(data.len()), end) {
                (Plan::Through, _) => return Ok(Taken::ToSend(Some(file.moves_end()))),
                (Plan::Take(_), Some(end)) if !file.is_void() => {
                    self.take(ino, &file, &mut gathered, (end, data))?;
                    return Ok(Taken::All(data.len() as u32));
                }
                (Plan::Take(_) | Plan::HandOn, _) => self.end_window(ino, &file, &mut gathered)?,
                (Plan::Ask(at), _) => self.begin_window(ino, &file, &mut gathered, at),
            }
        }
    }

    fn take(
        &self,
        ino: InodeId,
        file: &FileGathering,
        gathered: &mut Gathered,
        (offset, data): (u64, &[u8]),
    ) -> Result<(), Refused> {
        gathered.take(offset, data, Instant::now());
        self.known.changed(ino);
        if !gathered.window().is_some_and(Window::is_full) {
            return Ok(());
        }
        // They are taken also when the home does not take them now: the next write is told.
        let result = self.end_window(ino, file, gathered);
        if gathered.window().is_some() { Ok(()) } else { result }
    }

    /// Something else is about to move the end of a file: what was gathered is at its home, and no more is taken for
    /// the end until the result is dropped.
    pub(super) fn before_moving_end(&self, ino: InodeId) -> Result<Option<MovesEnd>, Refused> {
        let Some(file) = self.gathering_of(ino) else { return Ok(None) };
        let mut gathered = file.lock();
        self.end_window(ino, &file, &mut gathered)?;
        Ok(Some(file.moves_end()))
    }

    /// Of a file that is open here for writing and served by messages; not in the cache area, whose parts are
    /// accounted, and not of one that lies in stripes.
    fn gathering_of(&self, ino: InodeId) -> Option<Arc<FileGathering>> {
        let mut shard = self.known.table().lock(ino);
        let node = shard.nodes.get_mut(&ino)?;
        let (_, writers) = node.open.handles();
        let is_plain = self.gathers && writers > 0 && !node.striped && !ino.is_cached();
        if !is_plain || node.open.class() != Some(Class::Remote) {
            return None;
        }
        let new = || Arc::new(FileGathering::new(self.requests.link().slot_bytes()));
        Some(Arc::clone(node.gathering.get_or_insert_with(new)))
    }

    /// Asks for room; under the file's lock.
    fn begin_window(
        &self,
        ino: InodeId,
        file: &FileGathering,
        gathered: &mut Gathered,
        at: Option<u64>,
    ) {
        if !self.windows.add() {
            return gathered.refused();
        }
        file.is_agreed();
        // Before the home is asked: what is not under way now waits for the file's lock.
        let knows_end = !file.is_end_moving() && !self.windows.are_cut();
        let answer = match knows_end || at.is_some() {
            true => self.ask_room(ino, at),
            false => Err(Refused::new(libc::EAGAIN)),
        };
        match answer {
            // Unless what was granted ended before the answer was here.
            Ok(room) if !file.is_void() => {
                let now = Instant::now();
                gathered.begin(room, knows_end, self.windows.memory(), now);
                self.windows.is_due(now + GATHER_WAIT);
            }
            other => {
                if let Err(refused) = other.as_ref()
                    && refused.errno != libc::EAGAIN
                {
                    tracing::debug!(%ino, %refused, "small writes are not gathered");
                }
                self.windows.remove();
                gathered.refused();
            }
        }
    }

    fn ask_room(&self, ino: InodeId, at: Option<u64>) -> Result<Room, Refused> {
        let len = self.requests.link().slot_bytes() as u32;
        match self.requests.call(&NodeRequest::Gather { ino, at, len })?.message {
            NodeReply::Gathering(room) if at.is_none_or(|at| at == room.offset) => Ok(room),
            other => Err(LinkError::unexpected("Gather", &other).into()),
        }
    }

    /// What was gathered goes to the home; under the file's lock. What the home does not take stays, and the caller's
    /// call fails; unless it is lost: it came too late, or for too long in vain.
    fn end_window(
        &self,
        ino: InodeId,
        file: &FileGathering,
        gathered: &mut Gathered,
    ) -> Result<(), Refused> {
        let Some(window) = gathered.window() else { return Ok(()) };
        file.is_agreed();
        let (is_first, result) = (!window.is_refused(), self.send_window(ino, window));
        self.known.changed(ino);
        let Err(refused) = result else {
            self.forget_window(ino, file, gathered);
            return Ok(());
        };
        let is_over = refused.errno == libc::ESTALE || self.lost.check(ino).is_err();
        let now = Instant::now();
        if is_over || !gathered.put_off(now) {
            return Err(self.lose_window(ino, file, gathered, &refused));
        }
        if is_first {
            tracing::warn!(%ino, %refused, "bytes that were gathered are tried to be handed on again");
        }
        self.windows.is_due(now + GATHER_WAIT);
        Err(refused)
    }

    /// Nobody will have what was gathered; under the file's lock. Tells what the program is told.
    fn lose_window(
        &self,
        ino: InodeId,
        file: &FileGathering,
        gathered: &mut Gathered,
        refused: &Refused,
    ) -> Refused {
        if let Some(window) = gathered.window() {
            let (start, len) = (window.start, window.bytes.len());
            tracing::error!(%ino, start, len, %refused, "bytes that were gathered are lost");
        }
        self.lost.add(&[ino]);
        self.forget_window(ino, file, gathered);
        Refused::because(libc::EIO, format!("bytes that were gathered are lost: {refused}"))
    }

    /// What was gathered is handed on, or lost and known to be; under the file's lock. Closes that waited for it go on.
    fn forget_window(&self, ino: InodeId, file: &FileGathering, gathered: &mut Gathered) {
        let Some(window) = gathered.end() else { return };
        // Who sees that nothing is gathered asks no further than what is lost.
        self.windows.remove();
        self.windows.keep_memory(window.bytes);
        for access in file.delayed_closes() {
            self.opens.release(ino, access);
        }
    }

    fn send_window(&self, ino: InodeId, window: &Window) -> Result<(), Refused> {
        if window.bytes.is_empty() {
            return Ok(());
        }
        let (offset, is_last) = (window.start, !window.is_full());
        let answer = self.requests.link().call_with(&window.bytes, &mut |from| {
            NodeRequest::WriteGathered {
                ino,
                offset,
                from,
                after: AfterGathered { age: window.written.elapsed(), is_last },
            }
        })?;
        match answer.message {
            NodeReply::Count(count) if count as usize == window.bytes.len() => Ok(()),
            other => Err(LinkError::unexpected("WriteGathered", &other).into()),
        }
    }

    /// What was gathered of a file is at its home when this returns. Costs nothing while nothing is.
    pub(super) fn hand_on(&self, ino: InodeId) -> Result<(), Refused> {
        match self.file_gathering(ino) {
            Some(file) => self.end_window(ino, &file, &mut file.lock()),
            None => Ok(()),
        }
    }

    /// The same for a call that need not fail for what is lost ([`Gatherer::end_window`] has said it): an error only while
    /// there are bytes here that the home does not know.
    pub(super) fn hand_on_untold(&self, ino: InodeId) -> Result<(), Refused> {
        let Some(file) = self.file_gathering(ino) else { return Ok(()) };
        let mut gathered = file.lock();
        let result = self.end_window(ino, &file, &mut gathered);
        if gathered.window().is_some() { result } else { Ok(()) }
    }

    /// The same for who can not wait: what the home has not taken until then is lost.
    pub(super) fn hand_on_or_lose(&self, ino: InodeId, until: Instant) {
        let Some(file) = self.file_gathering(ino) else { return };
        loop {
            let mut gathered = file.lock();
            let Err(refused) = self.end_window(ino, &file, &mut gathered) else { return };
            if gathered.window().is_none() {
                return;
            }
            if Instant::now() + GATHER_RECALL_PAUSE > until {
                self.lose_window(ino, &file, &mut gathered, &refused);
                return;
            }
            drop(gathered);
            std::thread::sleep(GATHER_RECALL_PAUSE);
        }
    }

    /// A descriptor that writes is closed: what was gathered is handed on. True while the home does not take it: then
    /// the file stays open here, and this close happens when the bytes are gone.
    pub(super) fn delays_close(&self, ino: InodeId, access: Access) -> bool {
        let Some(file) = self.file_gathering(ino) else { return false };
        let mut gathered = file.lock();
        let _told = self.end_window(ino, &file, &mut gathered);
        let is_kept = gathered.window().is_some();
        if is_kept {
            file.delay_close(access);
        }
        is_kept
    }

    fn file_gathering(&self, ino: InodeId) -> Option<Arc<FileGathering>> {
        if !self.windows.is_any() {
            return None;
        }
        self.known.table().lock(ino).nodes.get(&ino)?.gathering.clone()
    }

    /// Whether what the home said of a file, asked for at `asked`, may lack bytes that were gathered here.
    pub(super) fn may_lack_gathered(&self, ino: InodeId, asked: Asked) -> bool {
        let shard = self.known.table().lock(ino);
        let gathering = shard.nodes.get(&ino).and_then(|node| node.gathering.as_ref());
        gathering.is_some_and(|file| file.may_have_window())
            || !shard.stamps.may_keep(ino, asked.stamp)
    }
}

#[cfg(test)]
mod tests;
