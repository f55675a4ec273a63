//! What the kernel has in its hands: files and buffers of requests that have not ended, by number.

#![expect(unsafe_code, reason = "buffers that the kernel uses meanwhile")]

use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use super::RequestId;

/// A buffer whose bytes the kernel may use: nobody frees it or calls a function of it until it is given back, and where
/// that never happens, as in a panic, it stays for ever.
pub(super) struct Lent<B: ?Sized> {
    /// Came out of a box. No box here: what holds one claims to be the only one that uses the memory.
    owner: NonNull<B>,
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: it stands for a box of the buffer; the addresses are bound to no thread.
unsafe impl<B: ?Sized + Send> Send for Lent<B> {}

impl<B: ?Sized + AsMut<[u8]> + 'static> Lent<B> {
    /// Asks the buffer once where its bytes are, and keeps the answer: a second one could be another.
    ///
    /// A borrow of a leaked box lasts for ever, so any buffer lends its bytes for as long as nobody uses it. One that
    /// panics stays leaked.
    pub(super) fn new(buffer: Box<B>) -> Self {
        let owner = NonNull::from(Box::leak(buffer));
        // SAFETY: a box of its own that nobody else has.
        let bytes: &'static mut [u8] = unsafe { &mut *owner.as_ptr() }.as_mut();
        let len = bytes.len();
        Self { owner, start: NonNull::from(bytes).cast(), len }
    }
}

impl<B: ?Sized> Lent<B> {
    /// Where its bytes begin.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The end of the loan.
    ///
    /// # Safety
    /// The kernel uses the bytes no more, or has never begun to.
    pub(super) unsafe fn give_back(self) -> Box<B> {
        // SAFETY: from a box, in `new`; given back once, since `self` ends here.
        unsafe { Box::from_raw(self.owner.as_ptr()) }
    }
}

/// What stays when it is dropped: see [`Lent`].
struct UnderWay<B: ?Sized> {
    file: Arc<OwnedFd>,
    buffer: Lent<B>,
}

/// At most so many as there are places.
pub(super) struct Requests<B: ?Sized> {
    places: Vec<Option<UnderWay<B>>>,
    free: Vec<usize>,
}

impl<B: ?Sized> Requests<B> {
    pub(super) fn new(count_max: usize) -> Self {
        let places = std::iter::repeat_with(|| None).take(count_max).collect();
        Self { places, free: (0..count_max).rev().collect() }
    }

    pub(super) fn count(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(super) fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// There is room ([`Requests::has_room`]).
    pub(super) fn put(&mut self, file: Arc<OwnedFd>, buffer: Lent<B>) -> RequestId {
        let place = self.free.pop().expect("there is room");
        self.places[place] = Some(UnderWay { file, buffer });
        RequestId(place)
    }

    /// Of a request that has ended.
    ///
    /// # Safety
    /// The kernel has completed it, or it was never submitted.
    pub(super) unsafe fn take(&mut self, id: RequestId) -> (Arc<OwnedFd>, Box<B>) {
        let ended = self.places[id.0].take().expect("a request ends once");
        self.free.push(id.0);
        // SAFETY: the caller says so.
        (ended.file, unsafe { ended.buffer.give_back() })
    }
}
