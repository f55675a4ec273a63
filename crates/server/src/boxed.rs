//! Futures whose type is erased: for calls that may lead back to where they came from, and for traits.

use std::future::Future;
use std::pin::Pin;

/// A boxed future on the server's one thread.
pub(crate) type Local<T> = Pin<Box<dyn Future<Output = T>>>;
