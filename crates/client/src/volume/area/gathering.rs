//! Small writes that are gathered here while this node alone has their file open.
//!
//! A window of bytes is taken, and acknowledged, after the home has kept room for it. It is handed on when it is full,
//! when a second has passed, before anything else is done with the file here, at the last close, and when the home or
//! the server recalls.
//!
//! Invariants: each file's windows are under its own lock, which is held during the calls that begin and end a window
//! and under no other lock; [`Gathering::is_any`] is true from before the first byte is taken until all of them were
//! handed on. Bytes that the home refuses are lost with words, and the file answers EIO here until it is closed.
//! Source: `docs/design/001-coherence.md`, "Small writes".

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hayase_layout::InodeId;
use hayase_wire::message::{Gathered as AfterGathered, NodeReply, NodeRequest, Refused, Room};

use super::{Area, Asked, Class, LinkError};
use crate::gathered::{Gathered, Plan, Window};
use crate::limits::{GATHER_FILES_MAX, GATHER_SPARE, GATHER_WAIT};

/// Of all files together.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    windows: AtomicUsize,
    /// Calls under way that set the length of any file.
    cuts: AtomicUsize,
    /// Memory of windows that have ended.
    spare: Mutex<Vec<Vec<u8>>>,
    timer: Mutex<Timer>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Timer {
    /// The oldest window is to be handed on then.
    due: Option<Instant>,
    stopped: bool,
}

impl Gathering {
    /// Whether anything is gathered, or being handed on.
    pub(super) fn is_any(&self) -> bool {
        self.windows.load(Ordering::SeqCst) > 0
    }

    /// Until the result is dropped, no file's end is known here.
    pub(super) fn cuts(&self) -> Cuts<'_> {
        self.cuts.fetch_add(1, Ordering::SeqCst);
        Cuts(self)
    }

    /// One window more, unless there are too many.
    fn add(&self) -> bool {
        let more = |windows| (windows < GATHER_FILES_MAX).then_some(windows + 1);
        self.windows.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    fn remove(&self) {
        self.windows.fetch_sub(1, Ordering::SeqCst);
    }

    /// Memory for a window: what was used before costs no new pages.
    fn memory(&self) -> Vec<u8> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        spare.unwrap_or_default()
    }

    fn keep_memory(&self, mut bytes: Vec<u8>) {
        bytes.clear();
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < GATHER_SPARE {
            spare.push(bytes);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Timer> {
        self.timer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something is handed on then at the latest.
    fn is_due(&self, due: Instant) {
        let mut timer = self.lock();
        if timer.due.is_none_or(|before| due < before) {
            timer.due = Some(due);
            self.changed.notify_one();
        }
    }

    pub(super) fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_one();
    }

    /// Sleeps until something is due; false when it is over.
    fn until_due(&self) -> bool {
        let mut timer = self.lock();
        loop {
            if timer.stopped {
                return false;
            }
            let left = timer.due.map(|due| due.saturating_duration_since(Instant::now()));
            timer = match left {
                Some(Duration::ZERO) => {
                    timer.due = None;
                    return true;
                }
                Some(left) => {
                    let woken = self.changed.wait_timeout(timer, left);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(timer).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

/// See [`Gathering::cuts`].
pub(super) struct Cuts<'a>(&'a Gathering);

impl Drop for Cuts<'_> {
    fn drop(&mut self) {
        self.0.cuts.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Of one file.
#[derive(Debug)]
pub(super) struct FileGathering {
    gathered: Mutex<Gathered>,
    /// Calls under way that may move the end of the file.
    moving_end: AtomicUsize,
    /// The home may have forgotten it, or given up: nothing more is taken into the window that is there.
    is_void: AtomicBool,
}

impl FileGathering {
    pub(super) fn new(window_max: usize) -> Self {
        Self {
            gathered: Mutex::new(Gathered::new(window_max)),
            moving_end: AtomicUsize::new(0),
            is_void: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Gathered> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until the result is dropped the end of the file is not known here.
    fn moves_end(self: &Arc<Self>) -> MovesEnd {
        self.moving_end.fetch_add(1, Ordering::SeqCst);
        MovesEnd(Arc::clone(self))
    }

    pub(super) fn is_void(&self) {
        self.is_void.store(true, Ordering::SeqCst);
    }
}

/// See [`FileGathering::moves_end`].
pub(super) struct MovesEnd(Arc<FileGathering>);

impl Drop for MovesEnd {
    fn drop(&mut self) {
        self.0.moving_end.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What became of a write.
pub(super) enum Taken {
    /// So many bytes, all there were.
    All(u32),
    /// None: it is to be sent, with this in hand.
    ToSend(Option<MovesEnd>),
}

impl Area {
    /// Takes a small write where it may be gathered.
    pub(super) fn gather(&self, ino: InodeId, offset: u64, data: &[u8]) -> Result<Taken, Refused> {
        let Some(file) = self.gathering_of(ino) else { return Ok(Taken::ToSend(None)) };
        let mut gathered = file.lock();
        let mut done = 0;
        while done < data.len() {
            let (at, left) = (offset + done as u64, &data[done..]);
            match gathered.plan(at, left.len()) {
                Plan::Through => {
                    let moves_end = file.moves_end();
                    drop(gathered);
                    if done == 0 {
                        return Ok(Taken::ToSend(Some(moves_end)));
                    }
                    // What began in a window that is full by now.
                    let sent = self.send(ino, at, left)?;
                    return Ok(Taken::All(done as u32 + sent));
                }
                Plan::Take(len) if !file.is_void.load(Ordering::SeqCst) => {
                    self.take(ino, &file, &mut gathered, (at, &left[..len]))?;
                    done += len;
                }
                Plan::Take(_) | Plan::HandOn => self.end_window(ino, &file, &mut gathered)?,
                Plan::Ask(at) => self.begin_window(ino, &file, &mut gathered, at),
            }
        }
        Ok(Taken::All(done as u32))
    }

    /// The same at the end of the file: all of `data` together.
    pub(super) fn gather_append(&self, ino: InodeId, data: &[u8]) -> Result<Taken, Refused> {
        let Some(file) = self.gathering_of(ino) else { return Ok(Taken::ToSend(None)) };
        let mut gathered = file.lock();
        loop {
            let end = gathered.window().map(Window::end);
            match (gathered.plan_append(data.len()), end) {
                (Plan::Through, _) => return Ok(Taken::ToSend(Some(file.moves_end()))),
                (Plan::Take(_), Some(end)) if !file.is_void.load(Ordering::SeqCst) => {
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
        self.changed(ino);
        match gathered.window().is_some_and(Window::is_full) {
            true => self.end_window(ino, file, gathered),
            false => Ok(()),
        }
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
        let mut shard = self.inodes.lock(ino);
        let node = shard.nodes.get_mut(&ino)?;
        let (_, writers) = node.open.handles();
        let is_plain = self.settings.gathers && writers > 0 && !node.striped && !ino.is_cached();
        if !is_plain || node.open.class() != Some(Class::Remote) {
            return None;
        }
        let new = || Arc::new(FileGathering::new(self.link.slot_bytes()));
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
        if !self.gathering.add() {
            return gathered.refused();
        }
        file.is_void.store(false, Ordering::SeqCst);
        // Before the home is asked: what is not under way now waits for the file's lock.
        let moves_end = |calls: &AtomicUsize| calls.load(Ordering::SeqCst) > 0;
        let knows_end = !moves_end(&file.moving_end) && !moves_end(&self.gathering.cuts);
        let answer = match knows_end || at.is_some() {
            true => self.ask_room(ino, at),
            false => Err(Refused::new(libc::EAGAIN)),
        };
        match answer {
            // Unless what was granted ended before the answer was here.
            Ok(room) if !file.is_void.load(Ordering::SeqCst) => {
                let now = Instant::now();
                gathered.begin(room, knows_end, self.gathering.memory(), now);
                self.gathering.is_due(now + GATHER_WAIT);
            }
            other => {
                if let Err(refused) = other.as_ref()
                    && refused.errno != libc::EAGAIN
                {
                    tracing::debug!(%ino, %refused, "small writes are not gathered");
                }
                self.gathering.remove();
                gathered.refused();
            }
        }
    }

    fn ask_room(&self, ino: InodeId, at: Option<u64>) -> Result<Room, Refused> {
        let len = self.link.slot_bytes() as u32;
        match self.call(&NodeRequest::Gather { ino, at, len })?.message {
            NodeReply::Gathering(room) if at.is_none_or(|at| at == room.offset) => Ok(room),
            other => Err(LinkError::unexpected("Gather", &other).into()),
        }
    }

    /// What was gathered goes to the home; under the file's lock.
    fn end_window(
        &self,
        ino: InodeId,
        file: &FileGathering,
        gathered: &mut Gathered,
    ) -> Result<(), Refused> {
        let Some(window) = gathered.end() else { return Ok(()) };
        file.is_void.store(false, Ordering::SeqCst);
        let result = self.send_window(ino, &window);
        self.changed(ino);
        if let Err(refused) = &result {
            let (start, len) = (window.start, window.bytes.len());
            tracing::error!(%ino, start, len, %refused, "bytes that were gathered are lost");
            self.lost.add(&[ino]);
        }
        // Last: who sees that nothing is gathered asks no further than what is lost.
        self.gathering.remove();
        self.gathering.keep_memory(window.bytes);
        result
    }

    fn send_window(&self, ino: InodeId, window: &Window) -> Result<(), Refused> {
        if window.bytes.is_empty() {
            return Ok(());
        }
        let (offset, is_last) = (window.start, !window.is_full());
        let answer =
            self.link.call_with(&window.bytes, &mut |from| NodeRequest::WriteGathered {
                ino,
                offset,
                from,
                after: AfterGathered { age: window.written.elapsed(), is_last },
            })?;
        match answer.message {
            NodeReply::Count(count) if count as usize == window.bytes.len() => Ok(()),
            other => Err(LinkError::unexpected("WriteGathered", &other).into()),
        }
    }

    /// What was gathered of a file is at its home when this returns. Costs nothing while nothing is.
    pub(super) fn hand_on(&self, ino: InodeId) -> Result<(), Refused> {
        if !self.gathering.is_any() {
            return Ok(());
        }
        let file = self.inodes.lock(ino).nodes.get(&ino).and_then(|node| node.gathering.clone());
        match file {
            Some(file) => self.end_window(ino, &file, &mut file.lock()),
            None => Ok(()),
        }
    }

    /// The same for who is not told: [`Area::end_window`] has said what is lost.
    pub(super) fn hand_on_untold(&self, ino: InodeId) {
        let _told = self.hand_on(ino);
    }

    /// Whether what the home said of a file, asked for at `asked`, may lack bytes that were gathered here.
    pub(super) fn may_lack_gathered(&self, ino: InodeId, asked: Asked) -> bool {
        let shard = self.inodes.lock(ino);
        let is_gathered = shard.nodes.get(&ino).is_some_and(|node| node.gathering.is_some());
        is_gathered || !shard.stamps.may_keep(ino, asked.stamp)
    }

    /// Body of the thread that hands on what has waited for long.
    pub(super) fn hand_on_late(&self) {
        while self.gathering.until_due() {
            let mut files = Vec::new();
            self.inodes.for_each(|shard| {
                let gathering = shard
                    .nodes
                    .iter()
                    .filter_map(|(ino, node)| Some((*ino, node.gathering.clone()?)));
                files.extend(gathering);
            });
            for (ino, file) in files {
                // Whoever holds the lock hands it on, or takes more into a window that is looked at again.
                let Ok(mut gathered) = file.gathered.try_lock() else {
                    self.gathering.is_due(Instant::now() + GATHER_WAIT);
                    continue;
                };
                let Some(began) = gathered.window().map(|window| window.began) else { continue };
                if began.elapsed() >= GATHER_WAIT {
                    let _told = self.end_window(ino, &file, &mut gathered);
                } else {
                    self.gathering.is_due(began + GATHER_WAIT);
                }
            }
        }
    }

    /// Everything is handed on; for the end.
    pub(super) fn hand_on_all(&self) {
        let mut inos = Vec::new();
        self.inodes.for_each(|shard| {
            let gathering = shard.nodes.iter().filter(|(_, node)| node.gathering.is_some());
            inos.extend(gathering.map(|(ino, _)| *ino));
        });
        inos.into_iter().for_each(|ino| self.hand_on_untold(ino));
    }
}

#[cfg(test)]
mod tests;
