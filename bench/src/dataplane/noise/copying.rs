//! What a program feels of memory that is copied on another processor, without servers, files or a network: caches and
//! memory are everybody's, whoever moves the bytes.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::figures::Noise;
use super::{Moved, PUT_OFF};

/// Copied in turns: more than the caches hold.
const BYTES: usize = 64 << 20;
/// Of one copy, as the calls of the load.
const PIECE: usize = 1 << 20;

/// What `look` finds while a thread copies, on the processors of the caller; and what it copied.
pub(super) fn meanwhile(
    look: impl Fn() -> anyhow::Result<Noise>,
) -> anyhow::Result<(Noise, Moved)> {
    let is_over = AtomicBool::new(false);
    let begin = Instant::now();
    let (noise, pieces) = std::thread::scope(|scope| {
        let copying = scope.spawn(|| copy(&is_over));
        std::thread::sleep(PUT_OFF);
        let noise = look();
        is_over.store(true, Ordering::Relaxed);
        (noise, copying.join().expect("a copy does not panic"))
    });
    let moved = Moved { bytes: (pieces * PIECE) as f64, seconds: begin.elapsed().as_secs_f64() };
    Ok((noise?, moved))
}

/// Copies until it is told that it is over; how many pieces.
fn copy(is_over: &AtomicBool) -> usize {
    let (from, mut to) = (vec![1_u8; BYTES], vec![0_u8; BYTES]);
    let mut pieces = 0;
    loop {
        for (from, to) in from.chunks_exact(PIECE).zip(to.chunks_exact_mut(PIECE)) {
            if is_over.load(Ordering::Relaxed) {
                return pieces;
            }
            black_box(to).copy_from_slice(black_box(from));
            pieces += 1;
        }
    }
}
