//! How often a server is woken.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// A future that counts its polls. A server is one future above its own set of tasks, so it is polled
/// once for each time that its thread would return from waiting for the kernel: all that has come by
/// then is done in one poll.
pub(crate) struct Counted<F> {
    inner: Pin<Box<F>>,
    polls: Rc<Cell<u64>>,
}

impl<F> Counted<F> {
    pub(crate) fn new(inner: F, polls: Rc<Cell<u64>>) -> Self {
        Self { inner: Box::pin(inner), polls }
    }
}

impl<F: Future> Future for Counted<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.polls.set(self.polls.get() + 1);
        self.inner.as_mut().poll(cx)
    }
}
