//! How many streams there are: a store that asks to slow down is asked less, also when the tier repeats the
//! request by itself; small objects travel on all of them.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
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

#[test]
fn small_objects_are_read_by_all_streams_at_a_time() {
    let trees = Trees::new(|top| fill(top, 64, 100));
    let from = Memory::flat();
    copy_all(&trees.from(), &of(from.clone()), &Options::default());
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (reading, seen) = (Arc::clone(&now), Arc::clone(&most));
    let slow = Broken::new(from).on_read(move |_| {
        seen.fetch_max(reading.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(20));
        reading.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    });
    let options = Options { streams: Streams::Fixed(8), ..Options::default() };
    assert_eq!(copy_all(&of(slow), &trees.to(), &options).copied, 64);
    assert_eq!(most.load(Ordering::SeqCst), 8);
}
