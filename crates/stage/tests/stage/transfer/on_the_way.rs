//! Bits that flip between a bucket and us: the file is read again; what stays wrong does not arrive.

use std::sync::atomic::Ordering;

use hayase_s3_server::Server;
use hayase_tier::{Attributes, Key, Precondition};

use super::proxy::Proxy;
use super::*;
use hayase_stage::PartSize;

/// A request is sent so often; those that bring flipped bits are few.
const ATTEMPTS: u32 = 3;

/// Blocks of a length that no part has, each with its number in front: in a loop over bytes these tests, which are not
/// optimized, would spend half of their time.
fn large(len: usize) -> Vec<u8> {
    let block: [u8; 997] = std::array::from_fn(|at| (at / 3) as u8);
    let mut bytes = block.repeat(len.div_ceil(block.len()));
    for (number, block) in bytes.chunks_mut(block.len()).enumerate() {
        block[..4].copy_from_slice(&(number as u32).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// A bucket with one object of `len` bytes that is copied into a directory and into packs, loose ones and
/// sealed ones, while `flips` bits flip: everything arrives, or what does not is damaged.
fn staged(len: usize, flips: u32) {
    let server = Server::start(&hayase_s3_server::Options::default()).unwrap();
    let proxy = Proxy::start(server.address());
    let (tier, bytes) = (proxy.bucket(ATTEMPTS), large(len));
    let any = Precondition::Any;
    tier.put(&Key::new("o").unwrap(), Attributes::default(), &bytes, any).unwrap();
    let (plain, sealed) = (
        packs(64 << 10, Compression::None, None),
        packs(64 << 10, Compression::None, Some(master())),
    );
    for options in [Options::default(), plain, sealed] {
        let (trees, packed) = (Trees::new(|_| ()), store());
        let is_packed = options.packs.is_some();
        let target = if is_packed { packed.clone() } else { trees.to() };
        proxy.flip(flips);
        let summary = copy(&of(tier.clone()), &target, &options);
        if flips == u32::MAX {
            assert_eq!((summary.failures_total, summary.copied), (1, 0), "{summary:?}");
            let error = summary.failures[0].error.to_string();
            assert!(error.contains("CRC32C"), "{error}");
            assert!(snapshot(&trees.to).is_empty());
            continue;
        }
        assert!(summary.is_complete() && summary.copied == 1, "{len}: {summary:?}");
        assert_eq!(proxy.flips.load(Ordering::SeqCst), 0, "no bit flipped");
        if is_packed {
            let master = options.packs.and_then(|packs| packs.master);
            let out = try_copy(&packed, &trees.to(), master.as_ref(), &Options::default());
            assert!(out.unwrap().is_complete());
        }
        assert!(std::fs::read(trees.to.join("o")).unwrap() == bytes, "{len}: other bytes");
    }
}

/// By one read, piece by piece, in parts.
const SIZES: [usize; 3] = [1 << 20, 12 << 20, 20 << 20];

#[test]
fn flipped_bits_on_the_way_are_read_again() {
    SIZES.into_iter().for_each(|len| staged(len, 1));
}

#[test]
fn flipped_bits_on_the_way_never_arrive() {
    SIZES.into_iter().for_each(|len| staged(len, u32::MAX));
}

#[test]
fn a_large_file_that_was_sent_in_parts_is_read_again() {
    // As it was sent, and as it is read: in the same parts, smaller ones, larger ones.
    for (sent, read) in [(8, 8), (12, 5), (5, 7), (5, 20)] {
        sent_and_read(20 << 20, sent << 20, read << 20);
    }
    // One that comes in pieces where it can.
    sent_and_read(64 << 20, 16 << 20, 16 << 20);
}

fn sent_and_read(len: usize, sent: u64, read: u64) {
    let in_parts =
        |bytes, options: &Options| Options { part_size: PartSize::Fixed(bytes), ..options.clone() };
    let packs = packs(64 << 10, Compression::None, None);
    for (options, has_sums, reason) in [
        (Options::default(), true, "its CRC32C is"),
        (Options::default(), false, "the MD5 of its parts"),
        (packs, false, "its checksum is another"),
    ] {
        let server = Server::start(&hayase_s3_server::Options::default()).unwrap();
        let proxy = Proxy::start(server.address());
        let trees = Trees::new(|top| std::fs::write(top.join("large"), large(len + 5)).unwrap());
        let store = of(match has_sums {
            true => proxy.bucket(ATTEMPTS),
            false => proxy.bucket_without_sums(ATTEMPTS),
        });
        let summary = copy_all(&trees.from(), &store, &in_parts(sent, &options));
        assert_eq!(summary.part_bytes, sent);
        let source = Source::open(store, None).unwrap();
        let back = |part| {
            let options = in_parts(part, &Options::default());
            let progress = Progress::default();
            transfer(&source, &trees.to(), &options, &progress, &Silent, &SystemRandom::new())
        };
        proxy.flip(u32::MAX);
        let summary = back(read).unwrap();
        assert_eq!((summary.failures_total, summary.copied), (1, 0), "{summary:?}");
        let error = summary.failures[0].error.to_string();
        assert!(error.contains(reason), "{error}");
        assert!(snapshot(&trees.to).is_empty());
        proxy.flip(1);
        // One that ended early is continued in whatever parts.
        assert!(back(read + (1 << 20)).unwrap().is_complete());
        assert_eq!(proxy.flips.load(Ordering::SeqCst), 0, "no bit flipped");
        assert_same(&trees.from, &trees.to);
    }
}

/// A large file comes in pieces; what was asked for again begins anew where the part begins.
#[test]
fn connections_that_end_in_the_middle_of_a_part_change_nothing() {
    const BREAKS: u32 = 12;
    let server = Server::start(&hayase_s3_server::Options::default()).unwrap();
    let proxy = Proxy::start(server.address());
    let trees = Trees::new(|top| {
        for name in ["one", "two"] {
            std::fs::write(top.join(name), large((64 << 20) + 5)).unwrap();
        }
    });
    let store = of(proxy.patient_bucket());
    copy_all(&trees.from(), &store, &Options::default());
    proxy.breaks.store(BREAKS, Ordering::SeqCst);
    copy_all(&store, &trees.to(), &Options::default());
    assert_eq!(proxy.breaks.load(Ordering::SeqCst), 0, "no connection ended");
    assert_same(&trees.from, &trees.to);
}

/// What the open of a pack brings is kept for all that is read of it.
#[test]
fn flipped_bits_of_the_begin_of_a_pack_are_read_again() {
    let server = Server::start(&hayase_s3_server::Options::default()).unwrap();
    let proxy = Proxy::start(server.address());
    let trees = Trees::new(|top| fill(top, 60, 64 << 10));
    let store = of(proxy.bucket(ATTEMPTS));
    copy_all(&trees.from(), &store, &packs(16 << 20, Compression::None, None));
    let source = Source::open(store.clone(), None).unwrap();
    proxy.flip(1);
    let (options, progress) = (Options::default(), Progress::default());
    let random = SystemRandom::new();
    let summary = transfer(&source, &trees.to(), &options, &progress, &Silent, &random).unwrap();
    assert!(summary.is_complete(), "{summary:?}");
    assert_eq!(proxy.flips.load(Ordering::SeqCst), 0, "no bit flipped");
    assert_same(&trees.from, &trees.to);
}
