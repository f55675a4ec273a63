//! Large transfers of parts past the page cache: by a ring on the server's own thread, without a thread in between.
//!
//! Here: when that is done, the wait for the ends, the rest that is not aligned. The ring is made at the first
//! such transfer. Where there is none to be had, and for all else, parts are read and written through the page
//! cache ([`super::bytes`]).
//!
//! Invariant: while a process of this node may have a part open or mapped past the server, nothing moves past
//! its pages: [`DirectIo::until_settled`] is waited for before such an open is answered.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use hayase_layout::{InodeId, LocalOffset};
use hayase_store::uring::{DIRECT_ALIGN, Ended, Request, RequestId, Ring, Transfer, direct_len};
use hayase_store::{Part, SlotPool};
use hayase_wire::watch::Watched;
use hayase_wire::{BoxBuffer, Buffer};
use tokio::sync::{Notify, oneshot};

use crate::limits::{DIRECT_BYTES_MIN, DIRECT_PAUSE, SLOTS};

/// See the module header.
pub(crate) struct DirectIo {
    slots: SlotPool,
    wanted: bool,
    running: OnceCell<Option<Rc<Running>>>,
    bytes: Cell<u64>,
    /// Inodes whose size is being set, how often each.
    held: RefCell<HashMap<InodeId, usize>>,
}

/// A buffer and how many bytes came into it or went from it.
type Moved = (BoxBuffer, io::Result<usize>);

impl DirectIo {
    /// `wanted` as the job says; where nothing waits for disks there is no ring either.
    pub(crate) fn new(slots: SlotPool, wanted: bool) -> Self {
        Self {
            slots,
            wanted,
            running: OnceCell::new(),
            bytes: Cell::new(0),
            held: RefCell::default(),
        }
    }

    /// Bytes that were moved so.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// For a person: which way large transfers take.
    pub(crate) fn way(&self) -> &'static str {
        match self.running.get() {
            _ if !self.wanted => "page-cache",
            None => "io_uring, when it is first needed",
            Some(Some(running)) if running.has_registered_slots => "io_uring, registered buffers",
            Some(Some(_)) => "io_uring",
            Some(None) => "page-cache, since there is no io_uring",
        }
    }

    /// Keeps an inode's part from transfers past its pages until the result is dropped, and waits for those under
    /// way: file systems (XFS) that set a size or a range look at the old size before they wait for direct I/O, and
    /// would take what it adds meanwhile for a gap.
    pub(crate) async fn hold(&self, ino: InodeId) -> Held<'_> {
        *self.held.borrow_mut().entry(ino).or_default() += 1;
        let held = Held { of: self, ino };
        self.until_settled(ino).await;
        held
    }

    /// Whether a transfer is worth it, before anybody is asked whether it may be.
    pub(crate) fn is_worth(&self, ino: InodeId, offset: LocalOffset, len: usize) -> bool {
        self.wanted
            && !self.held.borrow().contains_key(&ino)
            && direct_len(offset.0, len) >= DIRECT_BYTES_MIN
            && !matches!(self.running.get(), Some(None))
    }

    /// Moves as much of a transfer as is aligned; the buffer alone when it can not be done so.
    pub(crate) async fn transfer(
        &self,
        part: &Part,
        transfer: Transfer,
        offset: LocalOffset,
        (buffer, len): (BoxBuffer, usize),
    ) -> Result<Moved, BoxBuffer> {
        let Some(running) = self.running() else { return Err(buffer) };
        let len = direct_len(offset.0, len);
        let Some(file) = part.direct(transfer, offset.0 + len as u64) else { return Err(buffer) };
        let request = Request { file, transfer, offset: offset.0, buffer, len };
        let ended = running.begin(part.id().ino, request)?;
        // The ring's owner lives as long as this: the end comes.
        let ended = ended.await.expect("every request that began has an end");
        if let Ok(moved) = ended.moved {
            self.bytes.set(self.bytes.get() + moved as u64);
        }
        Ok((ended.buffer, ended.moved))
    }

    /// Lets an inode's part count as moving past its pages until the result is dropped: for what is moved partly so.
    pub(crate) fn moving(&self, ino: InodeId) -> Option<Moving> {
        let running = Rc::clone(self.running()?);
        running.began_of(ino);
        Some(Moving { running, ino })
    }

    /// Returns when nothing moves past the pages of this inode's part.
    pub(crate) async fn until_settled(&self, ino: InodeId) {
        let Some(Some(running)) = self.running.get() else { return };
        loop {
            let settled = running.settled.notified();
            if !running.under_way.borrow().contains_key(&ino) {
                return;
            }
            settled.await;
        }
    }

    fn running(&self) -> Option<&Rc<Running>> {
        let running = self.running.get_or_init(|| match Running::start(&self.slots) {
            Ok(running) => Some(running),
            Err(error) => {
                tracing::info!(%error, "no io_uring: parts are read and written through the page cache");
                None
            }
        });
        running.as_ref()
    }
}

/// See [`DirectIo::hold`].
pub(crate) struct Held<'a> {
    of: &'a DirectIo,
    ino: InodeId,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut held = self.of.held.borrow_mut();
        if let Some(count) = held.get_mut(&self.ino) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.ino);
            }
        }
    }
}

/// See [`DirectIo::moving`].
pub(crate) struct Moving {
    running: Rc<Running>,
    ino: InodeId,
}

impl Drop for Moving {
    fn drop(&mut self) {
        self.running.ended_of(self.ino);
    }
}

/// What went wrong past the page cache and is worth a try through it.
pub(crate) fn is_worth_another_way(error: &io::Error) -> bool {
    let Some(errno) = error.raw_os_error() else { return false };
    use rustix::io::Errno;
    [Errno::INVAL, Errno::OPNOTSUPP, Errno::AGAIN, Errno::INTR, Errno::CANCELED, Errno::NOMEM]
        .iter()
        .any(|known| known.raw_os_error() == errno)
}

struct Waiting {
    ino: InodeId,
    end: oneshot::Sender<Ended<dyn Buffer>>,
}

struct Running {
    /// Ready when a request has ended.
    ready: Watched<OwnedFd>,
    ring: RefCell<Ring<dyn Buffer>>,
    waiting: RefCell<HashMap<RequestId, Waiting>>,
    under_way: RefCell<HashMap<InodeId, usize>>,
    settled: Notify,
    has_registered_slots: bool,
}

impl Running {
    fn start(slots: &SlotPool) -> io::Result<Rc<Self>> {
        let ring = Ring::new(SLOTS as u32, slots)?;
        let ready = hayase_wire::watch::readable(ring.descriptor()?)?;
        let running = Rc::new(Self {
            ready,
            has_registered_slots: ring.has_registered_slots(),
            ring: RefCell::new(ring),
            waiting: RefCell::default(),
            under_way: RefCell::default(),
            settled: Notify::new(),
        });
        let watching = Rc::clone(&running);
        tokio::task::spawn_local(async move { watching.watch().await });
        Ok(running)
    }

    fn begin(
        self: &Rc<Self>,
        ino: InodeId,
        request: Request<dyn Buffer>,
    ) -> Result<oneshot::Receiver<Ended<dyn Buffer>>, BoxBuffer> {
        let begun = self.ring.borrow_mut().begin(request);
        let id = begun.map_err(|request| request.buffer)?;
        let (end, ended) = oneshot::channel();
        self.began_of(ino);
        self.waiting.borrow_mut().insert(id, Waiting { ino, end });
        if self.ring.borrow_mut().is_behind() {
            let this = Rc::clone(self);
            tokio::task::spawn_local(async move { this.catch_up().await });
        }
        Ok(ended)
    }

    /// Offers what the kernel did not take until it does.
    async fn catch_up(&self) {
        while self.ring.borrow_mut().is_behind() {
            tokio::time::sleep(DIRECT_PAUSE).await;
            self.tell();
        }
    }

    async fn watch(&self) {
        // An end that comes after the look makes the descriptor ready again.
        while self.ready.readable().await.is_ok() {
            self.tell();
        }
    }

    /// Tells of all requests that have ended.
    fn tell(&self) {
        loop {
            let Some(ended) = self.ring.borrow_mut().ended() else { return };
            let Some(waiting) = self.waiting.borrow_mut().remove(&ended.id) else { continue };
            self.ended_of(waiting.ino);
            // Who does not wait any more gives the buffer back by that.
            let _ = waiting.end.send(ended);
        }
    }

    fn began_of(&self, ino: InodeId) {
        *self.under_way.borrow_mut().entry(ino).or_default() += 1;
    }

    fn ended_of(&self, ino: InodeId) {
        let mut under_way = self.under_way.borrow_mut();
        if let Some(count) = under_way.get_mut(&ino) {
            *count -= 1;
            if *count == 0 {
                under_way.remove(&ino);
                self.settled.notify_waiters();
            }
        }
    }
}

/// Rings move whole blocks only.
const _: () = assert!(DIRECT_BYTES_MIN.is_multiple_of(DIRECT_ALIGN));
