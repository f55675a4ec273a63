//! What the kernel has in its hands: files and buffers of requests that have not ended, by number.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::RequestId;

struct UnderWay<B: ?Sized> {
    file: Arc<OwnedFd>,
    buffer: Box<B>,
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
    pub(super) fn put(&mut self, file: Arc<OwnedFd>, buffer: Box<B>) -> RequestId {
        let place = self.free.pop().expect("there is room");
        self.places[place] = Some(UnderWay { file, buffer });
        RequestId(place)
    }

    /// Of a request that has ended.
    pub(super) fn take(&mut self, id: RequestId) -> (Arc<OwnedFd>, Box<B>) {
        let ended = self.places[id.0].take().expect("a request ends once");
        self.free.push(id.0);
        (ended.file, ended.buffer)
    }

    /// Lets go of all without freeing their memory: the kernel may still use it.
    pub(super) fn leak(&mut self) {
        for (place, under_way) in self.places.iter_mut().enumerate() {
            if let Some(under_way) = under_way.take() {
                std::mem::forget(under_way);
                self.free.push(place);
            }
        }
    }
}
