//! A future that is polled only when something it waits for woke it.
//!
//! What a `LocalSet` runs until polls its future at each turn of any task. A server's waits for its end
//! and is woken once; asking it, and all that it waits for, at each request is work for nothing.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

#[derive(Default)]
struct Bell {
    rang: AtomicBool,
    /// Who polls.
    outer: Mutex<Option<Waker>>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.rang.store(true, Ordering::Release);
        let outer = self.outer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(outer) = outer {
            outer.wake();
        }
    }
}

/// See the module.
pub(crate) async fn when_woken<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(Arc::clone(&bell));
    let mut begun = false;
    poll_fn(|context| {
        {
            let mut outer = bell.outer.lock().unwrap_or_else(PoisonError::into_inner);
            match &mut *outer {
                Some(outer) => outer.clone_from(context.waker()),
                none => *none = Some(context.waker().clone()),
            }
        }
        // After the waker is in place: a bell that rings from now on is heard by it.
        let rang = bell.rang.swap(false, Ordering::Acquire);
        if begun && !rang {
            return Poll::Pending;
        }
        begun = true;
        future.as_mut().poll(&mut Context::from_waker(&waker))
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_is_not_polled_for_the_sake_of_others() {
        let (polls, go) = (Cell::new(0), Notify::new());
        let waits = when_woken(async {
            let mut notified = pin!(go.notified());
            poll_fn(|context| {
                polls.set(polls.get() + 1);
                notified.as_mut().poll(context)
            })
            .await;
        });
        let others = async {
            for _ in 0..50 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(polls.get(), 1);
            go.notify_one();
        };
        // Both in one task: each turn of the one polls the other.
        tokio::join!(waits, others);
        assert_eq!(polls.get(), 2);
    }
}
