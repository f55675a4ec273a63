//! Registered memory: that its handles are told, that the bytes are the same with and without, and that it stays
//! mapped as long as UCX has something to do with it.

#![expect(unsafe_code, reason = "a UCX that refuses")]

use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::context::Context;
use super::super::table::{Code, Handle, INVALID_PARAM, MemoryParams, Table, library};
use super::*;
use hayase_wire::Arena;
use hayase_wire::arena::Slot;
use hayase_wire::buffer::{BoxBuffer, Loan};

const MIB: usize = 1 << 20;

/// All of an arena but the first half of its first slot, and the last half of its last one.
struct Middle {
    arena: Arena,
    dropped: Arc<AtomicUsize>,
}

impl AsRef<[UnsafeCell<u8>]> for Middle {
    fn as_ref(&self) -> &[UnsafeCell<u8>] {
        let all: &[UnsafeCell<u8>] = self.arena.as_ref();
        &all[MIB / 2..all.len() - MIB / 2]
    }
}

impl Drop for Middle {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

impl UcxTransport {
    /// How often a handle was told.
    fn told(&self) -> u64 {
        self.ucx.context.told()
    }
}

#[tokio::test]
async fn it_conforms_with_registered_memory() {
    for register in [UcxTransport::register, UcxTransport::register_when_used] {
        let Some(pair) = two() else { return };
        let arena = Arena::create(8).unwrap();
        let both = [&pair.connecting, &pair.listening];
        let _registered = both.map(|ucx| register(ucx, Region::new(arena.clone())));
        let buffers = |len| -> BoxBuffer {
            assert!(len <= MIB);
            Box::new(arena.try_take().expect("few are used at a time"))
        };
        let (at, nowhere) = (any_port(), nobodys_port());
        let suite = conformance::run_with(&pair, &at, &nowhere, &buffers);
        LocalSet::new().run_until(suite).await;
        assert!(both.iter().all(|ucx| ucx.told() > 100 && ucx.refusal().is_none()));
    }
}

/// Both ends of a connection.
async fn connected(pair: &Upgraded) -> (Connection, Connection) {
    let mut listener = pair.listen(&any_port()).await.unwrap();
    let address = listener.address();
    let (near, far) = tokio::join!(pair.connect(&address), listener.accept());
    (near.unwrap(), far.unwrap())
}

/// A piece of a slot.
struct Piece(Slot, Range<usize>);

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.0.as_ref()[self.1.clone()]
    }
}

impl AsMut<[u8]> for Piece {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.0.as_mut()[self.1.clone()]
    }
}

/// The slot of that number.
fn slot(arena: &Arena, index: u32) -> Slot {
    let slots: Vec<Slot> = std::iter::from_fn(|| arena.try_take()).collect();
    slots.into_iter().find(|slot| slot.index() == index).expect("nobody has it")
}

async fn moved(near: &mut Connection, far: &mut Connection, buffer: BoxBuffer, seed: usize) {
    let len = (*buffer).as_ref().len();
    let mut loan = Loan::new(buffer, len);
    let pattern: Vec<u8> = (0..len).map(|at| (at * 7 + (at >> 9) + seed) as u8).collect();
    loan.bytes_mut().unwrap().copy_from_slice(&pattern);
    let mut received = vec![0; len];
    let (sent, ()) = tokio::join!(near.sender.send_lent(&[1; HEADER_BYTES], b"", &loan), async {
        far.receiver.header().await.unwrap().unwrap();
        assert_eq!(far.receiver.payload(&mut received).await.unwrap(), pattern.len());
    });
    sent.unwrap();
    assert!(received == pattern, "sent");
    loan.bytes_mut().unwrap().fill(0);
    let (sent, ()) = tokio::join!(far.sender.send(&[2; HEADER_BYTES], b"", &pattern), async {
        near.receiver.header().await.unwrap().unwrap();
        assert_eq!(near.receiver.payload_lent(&mut loan, 0).await.unwrap(), pattern.len());
    });
    sent.unwrap();
    assert!(loan.bytes() == pattern, "fetched");
}

/// The handle goes with what lies in registered memory as a whole, and with nothing else; bytes are right in any case.
#[tokio::test]
async fn handles_are_told_inside_and_not_across_the_edge() {
    const HALF: usize = MIB / 2;
    let Some(pair) = two() else { return };
    let arena = Arena::create(3).unwrap();
    let middle = Middle { arena: arena.clone(), dropped: Arc::default() };
    let ucx = &pair.connecting;
    let registered = ucx.register(Region::new(middle));
    assert_eq!(ucx.registered_bytes(), 2 * MIB);
    let test = async {
        let (mut near, mut far) = connected(&pair).await;
        let mut seed = 0;
        // Which slot, which bytes of it, and whether a handle is passed for them: once to send and once to fetch.
        for (index, range, is_told) in [
            (0, 0..HALF, false),
            (0, HALF - 1..MIB, false),
            (0, HALF..MIB, true),
            (0, MIB - 5000..MIB, true),
            (1, 0..MIB, true),
            (1, 77..MIB - 77, true),
            (2, 0..HALF, true),
            (2, 0..HALF + 1, false),
            (2, HALF..MIB, false),
            (2, 0..MIB, false),
        ] {
            seed += 1;
            let before = ucx.told();
            let piece = Piece(slot(&arena, index), range.clone());
            moved(&mut near, &mut far, Box::new(piece), seed).await;
            let expected = if is_told { 2 } else { 0 };
            assert_eq!(ucx.told() - before, expected, "slot {index}, {range:?}");
        }
        let before = ucx.told();
        moved(&mut near, &mut far, Box::new(vec![0; MIB]), 0).await;
        assert_eq!(ucx.told(), before, "other memory");
        // As it began, on a connection that is there: it is used no more.
        drop(registered);
        assert_eq!(ucx.registered_bytes(), 0);
        moved(&mut near, &mut far, Box::new(slot(&arena, 1)), 1).await;
        assert_eq!((ucx.told(), ucx.refusal()), (before, None));
    };
    LocalSet::new().run_until(test).await;
}

/// Slots of an arena are registered one by one, when they are first used and then no more; workers share it.
#[tokio::test]
async fn slots_are_registered_once() {
    let (Some(one), Some(other)) = (transport(), transport()) else { return };
    let arena = Arena::create(4).unwrap();
    let _registered = one.register_when_used(Region::new(arena.clone()));
    assert_eq!(one.registered_bytes(), 0);
    let test = async {
        let mut slots = [0, 1].map(|_| Loan::new(Box::new(arena.take()), MIB));
        // Each round takes a new worker.
        for round in 0..3 {
            let (mut near, mut far) = sessions(&one, &other).await;
            assert_eq!((near.over, far.over), (Carrier::Ucx, Carrier::Ucx));
            for loan in &mut slots {
                loan.bytes_mut().unwrap().fill(round);
                let sending = near.sender.send_lent(FrameKind::Request, 3, b"body", loan);
                let (sent, ()) = tokio::join!(sending, async {
                    far.receiver.next().await.unwrap().unwrap();
                    let mut received = vec![9; MIB];
                    far.receiver.payload(&mut received).await.unwrap();
                    assert!(received == vec![round; MIB]);
                });
                sent.unwrap();
            }
            assert_eq!(one.registered_bytes(), 2 * MIB);
        }
        assert_eq!(one.told(), 6);
    };
    LocalSet::new().run_until(test).await;
}

/// A UCX that does as the loaded one but for some functions, which a test gives.
fn other_ucx(change: impl FnOnce(&mut Table)) -> Option<(UcxTransport, UcxTransport)> {
    let (other, table) = (transport()?, library().unwrap());
    let mut table = table.clone();
    change(&mut table);
    let table = Box::leak(Box::new(table));
    Some((UcxTransport::by(table, None, &[loopback()]).unwrap(), other))
}

unsafe extern "C" fn no_memory(_: Handle, _: *const MemoryParams, _: *mut Handle) -> Code {
    const IO_ERROR: Code = -3;
    IO_ERROR
}

#[tokio::test]
async fn where_registration_is_refused_all_goes_on() {
    let Some((one, other)) = other_ucx(|table| table.ucp_mem_map = no_memory) else { return };
    let arena = Arena::create(2).unwrap();
    let _registered = one.register(Region::new(arena.clone()));
    let refusal = one.refusal().expect("is told");
    assert_eq!((one.registered_bytes(), &refusal[..]), (0, "2 MiB: Input/output error"));
    let pair = Upgraded { connecting: one, listening: other };
    let test = async {
        let (mut near, mut far) = connected(&pair).await;
        moved(&mut near, &mut far, Box::new(arena.take()), 3).await;
        assert_eq!(pair.connecting.told(), 0);
    };
    LocalSet::new().run_until(test).await;
}

/// Registers something else than what it was asked for.
unsafe extern "C" fn other_memory(
    context: Handle,
    params: *const MemoryParams,
    handle: *mut Handle,
) -> Code {
    // SAFETY: as the caller promises; one page of what it asked for is less than that.
    unsafe {
        let params = MemoryParams { length: 4096, ..std::ptr::read(params) };
        (library().unwrap().ucp_mem_map)(context, &raw const params, handle)
    }
}

/// The library looks at the handles: one of other memory is refused. That ends the connection, and the next one goes
/// without.
#[tokio::test]
async fn a_handle_that_is_refused_is_told_no_more() {
    for sends in [true, false] {
        let Some((one, other)) = other_ucx(|table| table.ucp_mem_map = other_memory) else {
            return;
        };
        let arena = Arena::create(2).unwrap();
        let _registered = one.register(Region::new(arena.clone()));
        assert_eq!(one.refusal(), None);
        let pair = Upgraded { connecting: one, listening: other };
        let test = async {
            let (mut near, mut far) = connected(&pair).await;
            let mut loan = Loan::new(Box::new(arena.take()), MIB);
            let failed = if sends {
                near.sender.send_lent(&[1; HEADER_BYTES], b"", &loan).await.unwrap_err()
            } else {
                let payload = vec![1; MIB];
                let sending = far.sender.send(&[1; HEADER_BYTES], b"", &payload);
                let fetching = async {
                    near.receiver.header().await.unwrap().unwrap();
                    near.receiver.payload_lent(&mut loan, 0).await.unwrap_err()
                };
                tokio::select! {
                    failed = fetching => failed,
                    sent = sending => panic!("{sent:?}"),
                }
            };
            let TransportError::Io { source, .. } = failed else { panic!("{failed}") };
            assert_eq!(source.to_string(), "UCX: Invalid parameter");
            drop((near, far));
            let refusal = pair.connecting.refusal().expect("is told");
            assert!(refusal.starts_with("a handle was refused"), "{refusal}");
            let told = pair.connecting.told();
            let (mut near, mut far) = connected(&pair).await;
            moved(&mut near, &mut far, loan.end().expect("let go of"), 3).await;
            assert_eq!(pair.connecting.told(), told);
        };
        LocalSet::new().run_until(test).await;
    }
}

/// No memory is registered beyond the bound.
#[test]
fn registered_memory_is_bounded() {
    let Some(one) = transport() else { return };
    let (slots, arenas) = (512, super::super::limits::REGISTERED_BYTES_MAX / MIB / 512);
    let arena = || Region::new(Arena::create(slots).unwrap());
    let registered: Vec<_> = (0..arenas).map(|_| one.register(arena())).collect();
    assert_eq!((one.registered_bytes(), one.refusal()), (arenas * 512 * MIB, None));
    let more = one.register(arena());
    assert!(one.refusal().expect("is told").contains("no more than"));
    drop((registered, more));
    assert_eq!(one.registered_bytes(), 0);
}

/// A peer dies, or is given up, with a registered slot on its way: the slot is let go of, and its memory stays mapped
/// until then, although who registered it has given it up already.
#[tokio::test]
async fn registered_memory_outlives_what_is_on_its_way() {
    let Some(transport) = transport() else { return };
    let test = async {
        for (sends, is_killed) in [(true, true), (false, true), (true, false), (false, false)] {
            let peer = Peer::start(0);
            let Connection { mut sender, mut receiver, .. } = peer.connect(&transport).await;
            assert!(receiver.header().await.unwrap().is_some());
            let wait = Duration::from_millis(300);
            // Its payload is announced behind its header.
            tokio::time::sleep(wait).await;
            let arena = Arena::create(3).unwrap();
            let mut loan = Loan::new(Box::new(slot(&arena, 1)), MIB);
            let dropped = Arc::new(AtomicUsize::new(0));
            let middle = Middle { arena, dropped: Arc::clone(&dropped) };
            let registered = transport.register(Region::new(middle));
            let told = transport.told();
            if !is_killed || !sends {
                peer.stop();
            }
            let header = [0; HEADER_BYTES];
            let mut moving: LocalFuture<'_, bool> = if sends {
                Box::pin(async { sender.send_lent(&header, b"", &loan).await.is_ok() })
            } else {
                Box::pin(async { receiver.payload_lent(&mut loan, 0).await.is_ok() })
            };
            assert!(tokio::time::timeout(wait, &mut moving).await.is_err(), "nobody takes it");
            assert_eq!(transport.told(), told + 1);
            drop(registered);
            let is_mapped = || dropped.load(Ordering::Relaxed) == 0;
            assert!(is_mapped() && transport.registered_bytes() == 2 * MIB, "in use");
            if is_killed {
                peer.signal(Signal::KILL);
                let moved = tokio::time::timeout(SOON, &mut moving).await.expect("not for ever");
                assert!(!moved, "nobody took it");
            }
            drop(moving);
            assert!(!is_mapped() && transport.registered_bytes() == 0, "let go");
            loan.bytes_mut().expect("let go of").fill(4);
            if !is_killed {
                peer.signal(Signal::CONT);
                tokio::time::sleep(wait).await;
            }
            assert!(loan.bytes().iter().all(|byte| *byte == 4), "written to after it was given up");
        }
        assert_eq!(transport.refusal(), None);
    };
    LocalSet::new().run_until(test).await;
}

/// Counts what is cleaned up and given back.
static CLEANED: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn counted_cleanup(context: Handle) {
    CLEANED.fetch_add(1, Ordering::Relaxed);
    // SAFETY: as the caller promises.
    unsafe { (library().unwrap().ucp_cleanup)(context) };
}

unsafe extern "C" fn kept(_: Handle, _: Handle) -> Code {
    INVALID_PARAM
}

/// Memory goes before its context; and where it is not given back both stay.
#[test]
fn memory_is_given_back_before_its_context_ends() {
    let Ok(table) = library() else { return skipped(&UcxError::NotLoaded(library().unwrap_err())) };
    for is_kept in [false, true] {
        let mut table = table.clone();
        table.ucp_cleanup = counted_cleanup;
        if is_kept {
            table.ucp_mem_unmap = kept;
        }
        let cleaned = CLEANED.load(Ordering::Relaxed);
        let settings = [("TLS", "tcp".to_owned())];
        let context = Context::new(Box::leak(Box::new(table)), &settings, false).unwrap();
        let dropped = Arc::new(AtomicUsize::new(0));
        let middle = Middle { arena: Arena::create(2).unwrap(), dropped: Arc::clone(&dropped) };
        let memory = context.memory(Region::new(middle), MIB);
        memory.register_now();
        assert_eq!(context.registered_bytes(), MIB);
        drop(context);
        assert_eq!(
            (CLEANED.load(Ordering::Relaxed), dropped.load(Ordering::Relaxed)),
            (cleaned, 0)
        );
        drop(memory);
        let goes = usize::from(!is_kept);
        assert_eq!(CLEANED.load(Ordering::Relaxed), cleaned + goes);
        assert_eq!(dropped.load(Ordering::Relaxed), goes);
    }
}

/// Where all peers reach memory the same way nothing is sent from registered memory, since UCX could not take it back.
#[test]
fn a_shared_target_lends_nothing_to_peers() {
    let Ok(table) = library() else { return skipped(&UcxError::NotLoaded(library().unwrap_err())) };
    for is_shared in [false, true] {
        let settings = [("TLS", "tcp".to_owned())];
        let context = Context::new(table, &settings, is_shared).unwrap();
        let arena = Arena::create(1).unwrap();
        let _memory = context.memory(Region::new(arena.clone()), MIB);
        let slot = arena.take();
        assert!(context.handle_to_fill(slot.as_ref()).is_some());
        assert_eq!(context.handle_to_send(slot.as_ref()).is_some(), !is_shared);
    }
}
