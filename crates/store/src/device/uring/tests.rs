//! Rings on a real file system: many requests, refusals, ends, and both ways of writing one file against a vector.

use std::collections::HashMap;

use hayase_layout::{InodeId, LocalOffset};
use proptest::prelude::*;

use super::*;
use crate::device::{Device, DeviceFile, PreadDevice};
use crate::part::PartId;
use crate::slots::{SLOT_SIZE, Slot};

const SLOT_BYTES: usize = SLOT_SIZE.get() as usize;

fn id(ino: u64) -> PartId {
    PartId { ino: InodeId(ino), epoch: 0, index: 0 }
}

/// A file of a device on a file system that knows direct I/O, or `None` where tests run on another one.
struct Ground {
    _directory: tempfile::TempDir,
    file: Arc<dyn DeviceFile>,
    slots: SlotPool,
    ring: Ring<Slot>,
}

fn ground(slots: usize) -> Option<Ground> {
    let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let device = PreadDevice::open(directory.path()).unwrap();
    let file = device.create(id(1)).unwrap();
    let slots = SlotPool::new(slots).unwrap();
    let ring = Ring::new(8, &slots);
    match (file.direct(Transfer::Write, 0), ring) {
        (Some(_), Ok(ring)) => Some(Ground { _directory: directory, file, slots, ring }),
        (direct, ring) => {
            let ring = ring.err();
            println!("SKIP rings: O_DIRECT {}, ring {ring:?}", direct.is_some());
            None
        }
    }
}

impl Ground {
    fn slot(&self, fill: u8) -> Box<Slot> {
        let mut slot = Box::new(self.slots.try_take().unwrap());
        (*slot).as_mut().fill(fill);
        slot
    }

    fn request(
        &self,
        transfer: Transfer,
        offset: u64,
        buffer: Box<Slot>,
        len: usize,
    ) -> Request<Slot> {
        let file = self.file.direct(transfer, offset + len as u64).unwrap();
        Request { file, transfer, offset, buffer, len }
    }

    fn end(&mut self) -> Ended<Slot> {
        loop {
            if let Some(ended) = self.ring.ended() {
                return ended;
            }
            self.ring.wait().unwrap();
        }
    }

    /// The aligned middle of a transfer through the ring, the rest through the page cache: what a server does.
    fn write(&mut self, offset: u64, bytes: &[u8]) {
        let head = (offset.next_multiple_of(DIRECT_ALIGN as u64) - offset) as usize;
        let head = head.min(bytes.len());
        let middle = direct_len(offset + head as u64, bytes.len() - head);
        self.file.write_at(LocalOffset(offset), &bytes[..head]).unwrap();
        if middle > 0 {
            let mut slot = self.slot(0);
            (*slot).as_mut()[..middle].copy_from_slice(&bytes[head..head + middle]);
            let request = self.request(Transfer::Write, offset + head as u64, slot, middle);
            assert!(self.ring.begin(request).is_ok());
            assert_eq!(self.end().moved.unwrap(), middle);
        }
        let tail = LocalOffset(offset + (head + middle) as u64);
        self.file.write_at(tail, &bytes[head + middle..]).unwrap();
    }

    fn read(&mut self, offset: u64, len: usize) -> Vec<u8> {
        let slot = self.slot(0xee);
        let file = self.file.direct(Transfer::Write, offset + len as u64).unwrap();
        let request = Request { file, transfer: Transfer::Read, offset, buffer: slot, len };
        assert!(self.ring.begin(request).is_ok());
        let ended = self.end();
        (*ended.buffer).as_ref()[..ended.moved.unwrap()].to_vec()
    }
}

#[test]
fn what_others_left_in_memory_is_not_passed_by() {
    const SIZE: u64 = 3 << 20;
    // Finding out that there is a way past it counts as one transfer.
    let Some(ground) = ground(1) else { return };
    let given = ground.file.descriptor().unwrap().expect("a file on storage");
    rustix::io::pwrite(&given, &[7; 8192], SIZE - 8192).unwrap();
    assert!(!ground.file.is_quiescent().unwrap(), "somebody has it");
    drop(given);
    assert!(ground.file.is_quiescent().unwrap());
    let passes = |transfer, end| ground.file.direct(transfer, end).is_some();
    assert!(!passes(Transfer::Read, SIZE) && !passes(Transfer::Write, SIZE));
    // What is new passes; where as much did as was left, the rest does too.
    assert!(passes(Transfer::Write, SIZE + 1) && !passes(Transfer::Write, SIZE));
    assert!(passes(Transfer::Write, SIZE + 1) && passes(Transfer::Write, SIZE));
}

#[test]
fn many_requests_are_under_way_and_each_has_its_own_bytes() {
    let Some(mut ground) = ground(8) else { return };
    assert!(ground.ring.has_registered_slots(), "tests lock less memory than that");
    let mut begun = HashMap::new();
    for turn in 0..8u8 {
        let slot = ground.slot(turn + 1);
        let offset = u64::from(turn) * SLOT_BYTES as u64;
        let request = ground.request(Transfer::Write, offset, slot, SLOT_BYTES);
        begun.insert(ground.ring.begin(request).ok().unwrap(), turn);
    }
    assert_eq!(ground.ring.under_way(), 8);
    for _ in 0..8 {
        let ended = ground.end();
        assert_eq!(ended.moved.unwrap(), SLOT_BYTES);
        let turn = begun.remove(&ended.id).unwrap();
        assert_eq!((*ended.buffer).as_ref()[0], turn + 1, "its own buffer comes back");
    }
    assert!(begun.is_empty() && ground.ring.ended().is_none());
    for turn in 0..8u8 {
        let read = ground.read(u64::from(turn) * SLOT_BYTES as u64, SLOT_BYTES);
        assert!(read.len() == SLOT_BYTES && read.iter().all(|byte| *byte == turn + 1));
    }
}

#[test]
fn what_does_not_fit_is_given_back() {
    let Some(mut ground) = ground(9) else { return };
    let slot = ground.slot(1);
    let unaligned = ground.request(Transfer::Write, 512, slot, SLOT_BYTES);
    let unaligned = ground.ring.begin(unaligned).err().unwrap();
    let short = Request { offset: 0, len: 100, ..unaligned };
    let short = ground.ring.begin(short).err().unwrap();
    let long = Request { len: 2 * SLOT_BYTES, ..short };
    drop(ground.ring.begin(long).err().unwrap());
    for turn in 0..9u64 {
        let slot = ground.slot(7);
        let request = ground.request(Transfer::Write, turn << 20, slot, DIRECT_ALIGN);
        assert_eq!(ground.ring.begin(request).is_ok(), turn < 8, "as many as it was made for");
    }
    for _ in 0..8 {
        ground.end().moved.unwrap();
    }
    assert_eq!(ground.slots.free(), 9);
}

#[test]
fn a_ring_that_is_dropped_has_done_its_work() {
    let Some(mut ground) = ground(8) else { return };
    for turn in 0..8u64 {
        let slot = ground.slot(9);
        let request = ground.request(Transfer::Write, turn << 20, slot, SLOT_BYTES);
        assert!(ground.ring.begin(request).is_ok());
    }
    let Ground { file, slots, ring, .. } = ground;
    drop(ring);
    assert_eq!(slots.free(), 8, "all buffers are back");
    assert_eq!(file.stat().unwrap().size, 8 << 20);
}

#[test]
fn errors_and_ends_of_files_are_told() {
    let Some(mut ground) = ground(1) else { return };
    assert_eq!(ground.read(0, DIRECT_ALIGN).len(), 0, "the file is empty");
    ground.file.write_at(LocalOffset(0), &[5; 5000]).unwrap();
    assert_eq!(ground.read(0, 2 * DIRECT_ALIGN), [5; 5000], "also what is only in the page cache");
    let readable =
        std::fs::File::open(env!("CARGO_MANIFEST_DIR").to_owned() + "/Cargo.toml").unwrap();
    let buffer = ground.slot(0);
    let file = Arc::new(OwnedFd::from(readable));
    let request = Request { file, transfer: Transfer::Write, offset: 0, buffer, len: DIRECT_ALIGN };
    assert!(ground.ring.begin(request).is_ok());
    let ended = ground.end();
    assert_eq!(ended.moved.unwrap_err().raw_os_error(), Some(libc::EBADF));
}

/// Fit for direct I/O, and of any kind: what it does is up to the test.
#[repr(C, align(4096))]
struct Page {
    bytes: [u8; 2 * DIRECT_ALIGN],
    /// How many bytes [`AsMut`] gives, one call after the other; more calls are a panic.
    lens: Vec<usize>,
    at_drop: Box<dyn FnMut()>,
}

impl Page {
    fn boxed(lens: &[usize], at_drop: impl FnMut() + 'static) -> Box<Self> {
        Box::new(Self {
            bytes: [1; 2 * DIRECT_ALIGN],
            lens: lens.to_vec(),
            at_drop: Box::new(at_drop),
        })
    }
}

impl AsRef<[u8]> for Page {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsMut<[u8]> for Page {
    fn as_mut(&mut self) -> &mut [u8] {
        let len = self.lens.remove(0);
        &mut self.bytes[..len]
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        (self.at_drop)();
    }
}

fn ring(requests_max: u32) -> Option<Ring<Page>> {
    let ring = Ring::new(requests_max, &SlotPool::new(1).unwrap());
    ring.inspect_err(|error| println!("SKIP rings: {error}")).ok()
}

/// A pipe with two pages in it.
fn pipe() -> (Arc<OwnedFd>, OwnedFd) {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    assert_eq!(rustix::io::write(&writer, &[7; 2 * DIRECT_ALIGN]).unwrap(), 2 * DIRECT_ALIGN);
    (Arc::new(reader), writer)
}

fn fill(file: &Arc<OwnedFd>, buffer: Box<Page>, len: usize) -> Request<Page> {
    Request { file: Arc::clone(file), transfer: Transfer::Read, offset: 0, buffer, len }
}

#[test]
fn a_buffer_that_shrinks_gets_no_more_than_it_had_when_it_was_checked() {
    let Some(mut ring) = ring(1) else { return };
    let (reader, _writer) = pipe();
    let whole = 2 * DIRECT_ALIGN;
    // Long when it is looked at first, short from then on: nothing is looked at twice.
    let buffer = Page::boxed(&[whole, DIRECT_ALIGN], || {});
    assert!(ring.begin(fill(&reader, buffer, whole)).is_ok());
    ring.wait().unwrap();
    let ended = ring.ended().unwrap();
    assert_eq!(ended.moved.unwrap(), whole);
    assert_eq!(ended.buffer.lens, [DIRECT_ALIGN], "asked once");
    // Short first: more than that is refused, whatever it would say later.
    let buffer = Page::boxed(&[DIRECT_ALIGN, whole], || {});
    let refused = ring.begin(fill(&reader, buffer, whole)).err().unwrap();
    assert_eq!((&refused.buffer.lens[..], ring.under_way()), (&[whole][..], 0));
}

#[test]
fn a_buffer_whose_drop_panics_frees_no_other_that_the_kernel_fills() {
    let Some(mut ring) = ring(2) else { return };
    let dropped = std::rc::Rc::new(std::cell::Cell::new(0));
    let ((full, _), (empty, writer)) = (pipe(), pipe());
    let taken = rustix::io::read(&*empty, &mut [0; 2 * DIRECT_ALIGN]).unwrap();
    assert_eq!(taken, 2 * DIRECT_ALIGN, "the second request waits for ever");
    for file in [&full, &empty] {
        let dropped = std::rc::Rc::clone(&dropped);
        let buffer = Page::boxed(&[DIRECT_ALIGN], move || {
            dropped.set(dropped.get() + 1);
            assert!(dropped.get() > 1, "a buffer whose drop panics");
        });
        assert!(ring.begin(fill(file, buffer, DIRECT_ALIGN)).is_ok());
    }
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(ring)));
    assert!(panicked.is_err());
    assert_eq!(dropped.get(), 1, "the one that had ended");
    // The kernel may still fill it: its memory is nobody else's.
    rustix::io::write(&writer, &[9; DIRECT_ALIGN]).unwrap();
}

#[test]
fn a_buffer_that_panics_when_it_is_looked_at_is_not_under_way() {
    let Some(mut ring) = ring(1) else { return };
    let (reader, _writer) = pipe();
    let begin = || ring.begin(fill(&reader, Page::boxed(&[], || {}), DIRECT_ALIGN)).is_ok();
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(begin)).is_err());
    assert_eq!(ring.under_way(), 0, "so that the ring does not wait for it when it is dropped");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Transfers of any place and length, some past the page cache and some through it, agree with a vector.
    #[test]
    fn both_ways_agree_with_a_vector(
        steps in proptest::collection::vec((any::<bool>(), 0u64..200_000, 0usize..70_000, any::<u8>()), 1..30)
    ) {
        let Some(mut ground) = ground(2) else { return Ok(()) };
        let mut model: Vec<u8> = Vec::new();
        for (is_write, offset, len, fill) in steps {
            // Half of the places are aligned.
            let offset = if fill % 2 == 0 { offset - offset % DIRECT_ALIGN as u64 } else { offset };
            let start = offset as usize;
            if is_write {
                let bytes = vec![fill; len];
                ground.write(offset, &bytes);
                if len > 0 {
                    model.resize(model.len().max(start + len), 0);
                    model[start..start + len].copy_from_slice(&bytes);
                }
            } else {
                let (from, len) = (offset - offset % DIRECT_ALIGN as u64, len.next_multiple_of(DIRECT_ALIGN).max(DIRECT_ALIGN));
                let read = ground.read(from, len);
                let until = model.len().min(from as usize + len);
                prop_assert!(read == model[(from as usize).min(until)..until], "{from} {len}");
            }
        }
        let mut all = vec![0; model.len()];
        prop_assert_eq!(ground.file.read_at(LocalOffset(0), &mut all).unwrap(), model.len());
        prop_assert!(all == model);
    }
}
