//! A store that asks to slow down is asked less: also when the tier repeats the request by itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::broken::Broken;
use super::*;

#[test]
fn requests_that_were_told_to_slow_down_step_the_streams_back() {
    const ENOUGH: u64 = 4;
    const START: usize = 32;
    // A unit of work for each pack, so that there is something to do for all streams, for some seconds.
    let trees = Trees::new(|top| fill(top, 700, 60_000));
    let busy = Arc::new(AtomicU64::new(0));
    let tier = Broken::new(Memory::flat());
    let throttled = Arc::clone(&tier.throttled);
    let tier = tier.on_commit(move |_| {
        if busy.fetch_add(1, Ordering::SeqCst) >= ENOUGH {
            throttled.fetch_add(1, Ordering::Relaxed);
        }
        std::thread::sleep(Duration::from_millis(60));
        busy.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    });
    let streams = Streams::Auto { start: START };
    let options = Options { streams, ..packs(64 << 10, Compression::None, None) };
    let summary = copy_all(&trees.from(), &of(tier), &options);
    assert!(summary.streams < START / 2, "{} streams at the end", summary.streams);
}
