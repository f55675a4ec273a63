//! Direct writes that the kernel does not wait for (libaio, io_uring), together with its page cache.

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Arc;
use std::thread;

use hayase_client::testing::server::Parts;
use hayase_fuse::KernelProfile;
use hayase_store::uring::{Request, Ring, Transfer};
use hayase_store::{Slot, SlotPool};

use super::fixture::{Fixture, eventually, skip};

/// A page that is read while such a write is on its way is gone when the write has ended.
#[test]
fn nothing_old_is_read_after_a_direct_write_that_was_not_waited_for() {
    for profile in
        [KernelProfile::V6_6, KernelProfile::V6_1, KernelProfile::V4_18, KernelProfile::Native]
    {
        if Ring::<Slot>::new(4, &SlotPool::new(1).unwrap()).is_err() {
            return skip("async_direct", "the kernel offers no io_uring");
        }
        let Some(mounted) = Fixture::new("async_direct", Parts::Elsewhere, profile) else { return };
        mounted.server.set_gathering(false, None);
        let path = mounted.path("file");
        fs::write(&path, [1; 8192]).unwrap();
        let reader = File::open(&path).unwrap();
        let direct = File::options().write(true).custom_flags(libc::O_DIRECT).open(&path).unwrap();
        let file = Arc::new(OwnedFd::from(direct));
        let mut byte = [0];
        for round in 2..5 {
            let asked = mounted.count("Write");
            mounted.server.hold_up(Some("Write"));
            // On its own, since the kernel may wait in the call that begins it.
            let file = Arc::clone(&file);
            let writer = thread::spawn(move || write(file, round));
            eventually("the write is on its way", || mounted.count("Write") > asked);
            reader.read_exact_at(&mut byte, 0).unwrap();
            assert_eq!(byte, [round - 1], "{profile}: it has not ended");
            mounted.server.hold_up(None);
            assert_eq!(writer.join().unwrap(), 4096);
            reader.read_exact_at(&mut byte, 0).unwrap();
            assert_eq!(byte, [round], "{profile}: it has ended");
        }
    }
}

/// Writes the first page through io_uring, and returns when the ring says that this has ended.
fn write(file: Arc<OwnedFd>, fill: u8) -> usize {
    let slots = SlotPool::new(1).unwrap();
    let mut ring = Ring::<Slot>::new(4, &slots).unwrap();
    let mut buffer = Box::new(slots.try_take().unwrap());
    (*buffer).as_mut()[..4096].fill(fill);
    let request = Request { file, transfer: Transfer::Write, offset: 0, buffer, len: 4096 };
    assert!(ring.begin(request).is_ok());
    loop {
        match ring.ended() {
            Some(ended) => return ended.moved.unwrap(),
            None => ring.wait().unwrap(),
        }
    }
}
