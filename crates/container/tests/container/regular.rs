//! Regular patterns: what they cost does not grow with the number of regions.

use hayase_container::{Durability, Write};
use hayase_layout::GlobalOffset;

use super::{create, cyclic, open, published, window};

/// Bytes of the index of one writer that wrote `regions` blocks of 8 bytes, one in four its own.
fn index_bytes(regions: u64, is_declared: bool, calls: u64) -> u64 {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("F");
    let file = open(&create(&path), 1, 0);
    let data = vec![1; (regions / calls * 8) as usize];
    if is_declared {
        let view = file.declare_view(&cyclic(8, 8, 32));
        for call in 0..calls {
            let window = window(call * data.len() as u64, data.len() as u64);
            file.write(Write::Through { view, window }, &data).unwrap();
        }
    } else {
        for region in 0..regions {
            file.write_at(GlobalOffset(8 + region * 32), &[1; 8]).unwrap();
        }
    }
    file.close(Durability::Written).unwrap();
    let bytes = published(&path);
    assert_eq!(bytes.len() as u64, (regions - 1) * 32 + 16);
    assert!(bytes.chunks(32).all(|chunk| chunk[..8] == [0; 8] && chunk[8..16] == [1; 8]));
    std::fs::metadata(path.join("n0-p1-o0.index")).unwrap().len()
}

#[test]
fn an_index_does_not_grow_with_the_regions() {
    let (few, many) = (index_bytes(16, true, 4), index_bytes(1 << 18, true, 64));
    assert!(many <= few + 8, "{few} bytes for 16 regions, {many} for 262144"); // longer numbers
    assert!(many < 256, "{many} bytes for one view and one record");
    let (few, many) = (index_bytes(16, false, 16), index_bytes(1 << 14, false, 1 << 14));
    assert!(many <= few + 8, "{few} bytes for 16 offsets, {many} for 16384");
}

/// IOR's hard case: 47008 bytes, interleaved, at explicit offsets, all ranks.
#[test]
fn explicit_offsets_of_constant_stride_are_one_record() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("F");
    let container = create(&path);
    let files: Vec<_> = (0..4).map(|rank| open(&container, rank, rank)).collect();
    for segment in 0..50u64 {
        for (file, rank) in files.iter().zip(0..) {
            let data = vec![(segment * 4 + rank) as u8; 47008];
            file.write_at(GlobalOffset((segment * 4 + rank) * 47008), &data).unwrap();
        }
    }
    files.iter().for_each(|file| file.close(Durability::Written).unwrap());
    let snapshot = container.load().unwrap();
    assert!(snapshot.logs().values().all(|published| published.log.records.len() == 1));
    let bytes = published(&path);
    assert_eq!(bytes.len(), 200 * 47008);
    assert!(bytes.chunks(47008).zip(0u8..).all(|(block, nth)| block.iter().all(|b| *b == nth)));
}

/// Written by four, read by one as rows of another decomposition: BT-IO's weak point.
#[test]
fn another_decomposition_reads_what_was_written() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("F");
    let container = create(&path);
    const ELEMENT: u64 = 40;
    let value = |offset: u64| (offset.wrapping_mul(2_654_435_761) >> 13) as u8;
    for rank in 0..4u64 {
        let file = open(&container, rank as u32, rank as u32);
        let view = file.declare_view(&cyclic(rank * ELEMENT, ELEMENT, ELEMENT * 4));
        let data: Vec<u8> = (0..50_000u64)
            .map(|at| value((at / ELEMENT * 4 + rank) * ELEMENT + at % ELEMENT))
            .collect();
        file.write(Write::Through { view, window: window(0, 50_000) }, &data).unwrap();
        file.close(Durability::Written).unwrap();
    }
    let reader = open(&container, 9, 0);
    let size = reader.size().unwrap().get();
    assert_eq!(size, 200_000);
    for parts in [1, 2, 3, 9] {
        let len = size / parts;
        for nth in 0..parts {
            let mut buffer = vec![0; len as usize];
            assert_eq!(reader.read_at(GlobalOffset(nth * len), &mut buffer).unwrap(), len as usize);
            assert!(buffer.iter().zip(nth * len..).all(|(byte, at)| *byte == value(at)));
        }
    }
}

/// What has more pieces than one plan is planned piecewise, each byte once.
#[test]
fn a_plan_of_many_pieces_is_cut() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("F");
    let container = create(&path);
    const WRITERS: u64 = 4;
    const REGIONS: u64 = 60_000; // of each: more than are looked up at once
    const BYTES: u64 = 40;
    for rank in 0..WRITERS {
        let file = open(&container, rank as u32, rank as u32);
        let view = file.declare_view(&cyclic(rank * BYTES, BYTES, WRITERS * BYTES));
        let data: Vec<u8> =
            (0..REGIONS).flat_map(|nth| [[rank as u8; 20], [nth as u8; 20]]).flatten().collect();
        file.write(Write::Through { view, window: window(0, REGIONS * BYTES) }, &data).unwrap();
        file.close(Durability::Written).unwrap();
    }
    let reader = open(&container, 9, 0).reader().unwrap();
    let size = (WRITERS * REGIONS * BYTES) as usize;
    let mut buffer = vec![0xee; size];
    let (mut at, mut plans) = (0, 0);
    loop {
        let wanted = super::extent(at as u64, (size - at) as u64);
        let plan = reader.plan_extents([wanted], &mut buffer[at..]).unwrap();
        assert!(plan.bytes > 0);
        reader.read_planned(&plan.wanted, &mut buffer[at..]).unwrap();
        at += plan.bytes;
        plans += 1;
        if !plan.is_cut {
            break;
        }
    }
    assert_eq!(at, size);
    assert!(plans > 1, "one plan would hold {} pieces", WRITERS * REGIONS);
    for (nth, region) in (0..).zip(buffer.chunks(BYTES as usize)) {
        assert_eq!(region[..20], [(nth % WRITERS) as u8; 20]);
        assert_eq!(region[20..], [(nth / WRITERS) as u8; 20]);
    }
}
