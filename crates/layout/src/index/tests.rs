//! The index against writing everything again byte by byte.

use proptest::prelude::*;

use super::*;
use crate::{
    NodeId, Rank, Recorder, Run, Selection, ServerId, StreamMap, StreamOffset, Write, naive,
    run::tests::any_run, view::tests::any_view,
};

fn extent(start: u64, len: u64) -> Extent {
    Extent::new(GlobalOffset(start), ByteCount(len)).unwrap()
}

/// Writer `process` of rank `rank`; its server is `process + 50`, so that a mix-up shows.
fn writer(process: u32, rank: u32) -> Writer {
    let id = WriterId { node: NodeId(0), process, opening: 0 };
    Writer { id, rank: Rank(rank), server: ServerId(process as u16 + 50) }
}

fn log(process: u32, rank: u32, writes: &[(u64, Write)], views: &[View]) -> WriterLog {
    let mut recorder = Recorder::new();
    for (epoch, write) in writes {
        recorder.note(*write, Epoch(*epoch)).unwrap();
    }
    let views = (0..).map(ViewId).zip(views.iter().cloned().map(Arc::new)).collect();
    let writer = writer(process, rank);
    WriterLog { writer, part: writer.id, views, records: recorder.records().to_vec() }
}

fn at(start: u64, len: u64) -> Write {
    Write::At(extent(start, len))
}

fn through(view: u32, start: u64, len: u64) -> Write {
    let window = StreamExtent::new(StreamOffset(start), ByteCount(len)).unwrap();
    Write::Through { view: ViewId(view), window }
}

/// Blocks of `block` bytes every `tile` bytes, the first at `start`.
fn cyclic(start: u64, block: u64, tile: u64) -> View {
    let run = Run::contiguous(extent(start, block)).unwrap();
    View::new(GlobalOffset(0), ByteCount(tile), &[run]).unwrap()
}

/// `start..end` is a hole, `start..end=part@place` bytes.
fn check(logs: &[WriterLog], cuts: &[Cut], (start, len): (u64, u64), expected: &str) {
    let index = Index::new(logs, cuts).unwrap();
    let text: Vec<_> = index
        .lookup(extent(start, len))
        .iter()
        .map(|found| match found {
            Found::Hole(extent) => extent.to_string(),
            Found::Bytes(piece) => {
                assert_eq!(piece.server, logs[piece.part as usize].writer.server);
                format!("{}={}@{}", piece.extent, piece.part, piece.local.start())
            }
        })
        .collect();
    assert_eq!(text.join(" "), expected);
}

#[test]
fn lookups_find_pieces_and_holes() {
    let logs = [
        log(1, 0, &[(0, at(0, 4)), (0, at(8, 4))], &[]),
        log(2, 1, &[(0, at(4, 2)), (0, at(30, 1))], &[]),
    ];
    check(&logs, &[], (0, 12), "0..4=0@0 4..6=1@0 6..8 8..12=0@4");
    check(&logs, &[], (2, 3), "2..4=0@2 4..5=1@0");
    check(&logs, &[], (13, 5), "13..18");
    check(&logs, &[], (3, 0), "");
    check(&[], &[], (0, 9), "0..9");
    let index = Index::new(&logs, &[]).unwrap();
    assert_eq!(index.size(), ByteCount(31));
    assert_eq!(index.locate(GlobalOffset(5)), Some((1, LocalOffset(1))));
    assert_eq!(index.locate(GlobalOffset(6)), None);
    assert_eq!(index.locate(GlobalOffset(OFFSET_MAX)), None);
    assert_eq!(index.global(0, LocalOffset(5)), Some(GlobalOffset(9)));
    assert_eq!(index.global(0, LocalOffset(8)), None);
    assert_eq!(index.global(2, LocalOffset(0)), None);
}

#[test]
fn overlaps_have_one_winner() {
    let write = |epoch, start, len| vec![(epoch, at(start, len))];
    let two = |a: Vec<(u64, Write)>, b: Vec<(u64, Write)>, ranks: (u32, u32)| {
        [log(1, ranks.0, &a, &[]), log(2, ranks.1, &b, &[])]
    };
    // The later epoch, whatever the rank.
    check(&two(write(0, 0, 9), write(1, 3, 3), (0, 1)), &[], (0, 9), "0..3=0@0 3..6=1@0 6..9=0@6");
    check(&two(write(1, 0, 9), write(0, 3, 3), (0, 1)), &[], (0, 9), "0..9=0@0");
    // In one epoch the lower rank, whatever the writer id.
    check(&two(write(0, 0, 6), write(0, 3, 6), (1, 0)), &[], (0, 9), "0..3=0@0 3..9=1@0");
    check(&two(write(0, 0, 6), write(0, 3, 6), (0, 1)), &[], (0, 9), "0..6=0@0 6..9=1@3");
    // Of one rank (as with a handle on MPI_COMM_SELF) the lower writer id.
    check(&two(write(0, 0, 6), write(0, 3, 6), (0, 0)), &[], (0, 9), "0..6=0@0 6..9=1@3");
    // Of one writer the later record.
    let rewritten = log(1, 0, &[(0, at(0, 6)), (0, at(3, 6)), (0, at(2, 2))], &[]);
    check(&[rewritten], &[], (0, 9), "0..2=0@0 2..4=0@12 4..9=0@7");
}

#[test]
fn cuts_end_what_was_written_before() {
    let cut = |epoch, size| Cut { epoch: Epoch(epoch), size: ByteCount(size) };
    let logs = [log(1, 0, &[(0, at(0, 10)), (2, at(8, 1))], &[])];
    let size = |cuts: &[Cut]| Index::new(&logs, cuts).unwrap().size().0;
    check(&logs, &[cut(2, 4)], (0, 12), "0..4=0@0 4..8 8..9=0@10 9..12");
    check(&logs, &[cut(3, 4)], (0, 12), "0..4=0@0 4..12");
    // Cut and grown again: what was cut off stays away.
    check(&logs, &[cut(1, 3), cut(2, 20)], (0, 12), "0..3=0@0 3..8 8..9=0@10 9..12");
    assert_eq!((size(&[]), size(&[cut(2, 4)]), size(&[cut(3, 4)])), (10, 9, 4));
    assert_eq!(size(&[cut(2, 20), cut(1, 3)]), 20);
    let far = [cut(0, u64::MAX)];
    assert_eq!(Index::new(&logs, &far).err(), Some(IndexError::Cut { size: far[0].size }));
}

#[test]
fn logs_from_outside_are_checked() {
    let good = log(1, 0, &[(0, at(0, 4))], &[]);
    let id = good.writer.id;
    let record =
        |selection, place| Record { selection, place: LocalOffset(place), epoch: Epoch(0) };
    let run = |start, len| Selection::Run(Run::contiguous(extent(start, len)).unwrap());
    let view = |start, len| {
        let window = StreamExtent::new(StreamOffset(start), ByteCount(len)).unwrap();
        Selection::View { view: ViewId(0), window }
    };
    let check = |records: Vec<Record>, expected: Option<IndexError>| {
        let views = BTreeMap::from([(ViewId(0), Arc::new(cyclic(0, 1, 1 << 40)))]);
        let log = WriterLog { views, records, ..good.clone() };
        assert_eq!(Index::new(&[log], &[]).err(), expected);
    };
    let far = |place| Some(IndexError::TooFar { writer: id, place: LocalOffset(place) });
    check(vec![record(run(0, 4), 0), record(run(9, 4), 4)], None);
    check(vec![record(run(0, 4), 0), record(run(9, 4), 9)], None); // a gap in the part
    check(vec![record(run(0, 4), 0), record(run(0, 8), 0)], None); // replaced
    let claimed = IndexError::Claimed { writer: id, place: LocalOffset(3) };
    check(vec![record(run(0, 4), 0), record(run(9, 4), 3)], Some(claimed));
    check(vec![record(run(0, 4), OFFSET_MAX - 3)], far(OFFSET_MAX - 3));
    check(vec![record(view(0, 1 << 22), 0)], None);
    check(vec![record(view(0, 1 << 23), 0)], None);
    check(vec![record(view(0, (1 << 23) + 1), 0)], far(0));
    check(vec![record(view(1 << 60, 1), 0)], far(0));

    let unknown = WriterLog { records: vec![record(view(0, 1), 0)], ..good.clone() };
    let no_view = IndexError::NoView { writer: id, view: ViewId(0) };
    assert_eq!(Index::new(&[unknown], &[]).err(), Some(no_view));
    let twice = [good.clone(), good];
    assert_eq!(Index::new(&twice, &[]).err(), Some(IndexError::Twice { writer: id }));
}

#[test]
fn regular_decompositions_are_one_family_per_row_of_writers() {
    // Cyclic: 1000 writers, one record each, a million blocks each.
    let logs: Vec<_> = (0..1000)
        .map(|rank| {
            let view = cyclic(u64::from(rank) * 8, 8, 8000);
            log(rank, rank, &[(0, through(0, 0, 8_000_000))], &[view])
        })
        .collect();
    let index = Index::new(&logs, &[]).unwrap();
    assert_eq!(index.layers[0].families().len(), 1);
    assert_eq!(index.size(), ByteCount(8_000_000_000));
    let mut candidates = Vec::new();
    index.layers[0].candidates(extent(7_999_999_001, 16), &mut candidates);
    assert_eq!(candidates.len(), 3); // not one for each writer
    assert_eq!(index.locate(GlobalOffset(7_999_999_999)), Some((999, LocalOffset(7_999_999))));

    // Tiles: 4 x 5 writers with 100 x 100 elements each; those beside each other are a family.
    let logs: Vec<_> = (0..20u32)
        .map(|rank| {
            let start = u64::from(rank / 5) * 100 * 500 + u64::from(rank % 5) * 100;
            let writes: Vec<_> = (0..100).map(|row| (0, at(start + row * 500, 100))).collect();
            log(rank, rank, &writes, &[])
        })
        .collect();
    let index = Index::new(&logs, &[]).unwrap();
    assert_eq!(index.layers[0].families().len(), 4);
    assert_eq!(index.lookup(extent(0, 500)).len(), 5);
    assert!(index.lookup(extent(0, 200_000)).iter().all(|found| matches!(found, Found::Bytes(_))));
}

#[test]
fn logs_fold_in_any_depth() {
    // BT-IO simple: rows of a block of cells, plane by plane.
    let writes: Vec<_> = (0..40 * 12 * 24)
        .map(|nth| {
            let (step, rest) = (nth / 288, nth % 288);
            (0, at(step * 552_960 + rest / 12 * 23_040 + rest % 12 * 960, 480))
        })
        .collect();
    let whole = log(1, 0, &writes, &[cyclic(0, 1, 2)]);
    assert_eq!(whole.records.len(), 960);
    let folded = whole.folded();
    assert_eq!(folded.records.len(), 1);
    assert!(folded.views.is_empty(), "no record names it");
}

#[test]
fn who_reads_with_the_view_that_wrote_reads_one_stretch() {
    let window = |start, len| StreamExtent::new(StreamOffset(start), ByteCount(len)).unwrap();
    let of = |index: &Index, view: &View, start, len| {
        let found = index.stretch(view, window(start, len));
        found.map(|(part, local)| format!("{part}@{local}")).unwrap_or_default()
    };
    // Cyclic, 1000 writers.
    let view = |rank: u32| cyclic(u64::from(rank) * 8, 8, 8000);
    let cyclic_logs = |overlap: u64| -> Vec<_> {
        let shift = |rank| if rank == 7 { overlap } else { 0 };
        (0..1000)
            .map(|rank| {
                let view = cyclic(u64::from(rank) * 8 + shift(rank), 8, 8000);
                log(rank, rank, &[(0, through(0, 0, 8000)), (1, through(0, 8000, 8000))], &[view])
            })
            .collect()
    };
    let index = Index::new(&cyclic_logs(0), &[]).unwrap();
    assert_eq!(of(&index, &view(999), 8, 80), "999@8..88");
    assert_eq!(of(&index, &view(3), 7990, 80), "3@7990..8000"); // to the end of a record
    assert_eq!(of(&index, &view(3), 8000, 80), "3@8000..8080");
    assert_eq!(of(&index, &view(3), 16_000, 1), ""); // nothing is there
    assert_eq!(of(&index, &cyclic(1, 8, 8000), 0, 8), ""); // nobody wrote through that one
    // One of them reaches into the next.
    let index = Index::new(&cyclic_logs(1), &[]).unwrap();
    assert_eq!(of(&index, &view(8), 0, 80), "");
    assert_eq!(of(&index, &view(9), 0, 80), "9@0..80");
    // Nested, as BT-IO: four quarters of a plane, of two runs each.
    let quarter = |rank: u64| {
        let row = |start| Run::new(GlobalOffset(start), ByteCount(40), &[]).unwrap();
        let rows = |start| row(start).repeat(4, ByteCount(80)).unwrap();
        let (x, y) = (rank % 2 * 40, rank / 2 * 320);
        let (first, second) = (rows(x + y), rows(40 - x + 640 + (320 - y)));
        View::new(GlobalOffset(64), ByteCount(1280), &[first, second]).unwrap()
    };
    let logs: Vec<_> = (0..4u32)
        .map(|rank| log(rank, rank, &[(0, through(0, 0, 3200))], &[quarter(rank.into())]))
        .collect();
    let index = Index::new(&logs, &[]).unwrap();
    assert!((0..4).all(|rank| of(&index, &quarter(rank), 0, 3200) == format!("{rank}@0..3200")));
    // A header beside it leaves it alone, one that is in it does not.
    for (start, len, expected) in [(0, 64, "1@0..9"), (60, 5, ""), (64 + 640, 1, "1@0..9")] {
        let header = log(9, 0, &[(0, at(start, len))], &[]);
        let index = Index::new(&[header, logs[0].clone()], &[]).unwrap();
        assert_eq!(of(&index, &quarter(0), 0, 9), expected, "{start}");
    }
    let cut = Cut { epoch: Epoch(1), size: ByteCount(100) };
    assert_eq!(of(&Index::new(&logs, &[cut]).unwrap(), &quarter(0), 0, 9), "");
}

#[test]
fn regions_of_a_vector_are_one_stretch() {
    // HPIO: one tile of very many small regions, longer than what is repeated in it.
    let regions = |rank: u64| {
        let region = Run::contiguous(extent(rank * 8, 8)).unwrap();
        let all = region.repeat(65_536, ByteCount(32)).unwrap();
        View::new(GlobalOffset(0), ByteCount(65_535 * 32 + 8), &[all]).unwrap()
    };
    let len = 65_536 * 8;
    let logs: Vec<_> = (0..4u32)
        .map(|rank| log(rank, rank, &[(0, through(0, 0, len))], &[regions(rank.into())]))
        .collect();
    let index = Index::new(&logs, &[]).unwrap();
    let window = StreamExtent::new(StreamOffset(0), ByteCount(len)).unwrap();
    let stretch = index.stretch(&regions(2), window).unwrap();
    assert_eq!((stretch.0, stretch.1.len().0), (2, len));
}

#[test]
fn following_a_log_is_not_building_it_anew() {
    // Irregular: each write is a record.
    let mut recorder = Recorder::new();
    let empty = log(1, 0, &[], &[]);
    let index = Index::new(&[empty], &[]).unwrap();
    let mut growing = GrowingIndex::new(index, 0).unwrap();
    for nth in 0..4096u64 {
        recorder.note(at(nth * nth * 3, 2), Epoch(0)).unwrap();
        let unchanged = recorder.take_unchanged();
        assert!(unchanged + 1 >= recorder.records().len());
        growing.follow(recorder.records(), unchanged, |_| None).unwrap();
        assert!(growing.layers() <= 14, "{} layers at {nth}", growing.layers());
    }
    let found = growing.index().locate(GlobalOffset(100 * 100 * 3 + 1));
    assert_eq!(found, Some((0, LocalOffset(201))));
}

#[test]
fn pieces_are_the_longest_possible() {
    // A whole tile of one writer beside another's, through a view without gaps in the stream.
    let logs = [log(1, 0, &[(0, through(0, 0, 64))], &[cyclic(3, 8, 8)])];
    check(&logs, &[], (0, 80), "0..3 3..67=0@0 67..80");
    // Two records that lie behind each other in file and part are read as one.
    let logs = [log(1, 0, &[(0, at(0, 4)), (1, at(4, 4))], &[])];
    check(&logs, &[], (1, 6), "1..7=0@1");
}

/// One writer's records, mostly regular so that families and overlaps arise.
fn any_log(process: u32) -> impl Strategy<Value = WriterLog> {
    let near = 0..40u64;
    let selection = prop_oneof![
        (near.clone(), 1..20u64).prop_map(|(start, len)| at(start, len)),
        // The same view for all writers but for its shift; few windows, so that many are equal.
        (0..2u32, 0..3u64, 1..4u64).prop_map(|(view, start, len)| through(
            view,
            start * 5,
            len * 7
        )),
    ];
    let writes = prop::collection::vec((0..3u64, selection), 0..6);
    (0..3u32, writes, near, any_view()).prop_map(move |(rank, mut writes, shift, odd)| {
        writes.sort_by_key(|(epoch, _)| *epoch); // epochs only rise
        let views = [cyclic(shift, 3, 24), odd];
        log(process, rank, &writes, &views)
    })
}

/// Records of several levels, as a container may compact them to.
fn any_compact_log(process: u32) -> impl Strategy<Value = WriterLog> {
    let records = prop::collection::vec((any_run(), 0..3u64, 0..9u64), 0..4);
    records.prop_map(move |records| {
        let mut place = LocalOffset(0);
        let records = records.into_iter().map(|(run, epoch, gap)| {
            let record = Record {
                selection: Selection::Run(run),
                place: LocalOffset(place.0 + gap),
                epoch: Epoch(epoch),
            };
            place = record.end().unwrap();
            record
        });
        WriterLog { records: records.collect(), ..log(process, 0, &[], &[]) }
    })
}

fn any_logs() -> impl Strategy<Value = Vec<WriterLog>> {
    let logs = (any_log(1), any_log(2), any_log(3), any_compact_log(4), any_log(5));
    (logs, 0..6usize).prop_map(|((a, b, c, d, e), count)| {
        let mut logs = vec![a, b, c, d, e];
        logs.truncate(count);
        logs
    })
}

fn any_cuts() -> impl Strategy<Value = Vec<Cut>> {
    let cut = (0..5u64, 0..200u64);
    prop::collection::vec(cut, 0..3).prop_map(|cuts| {
        let cuts: BTreeMap<u64, u64> = cuts.into_iter().collect(); // each raises the epoch
        cuts.into_iter()
            .map(|(epoch, size)| Cut { epoch: Epoch(epoch), size: ByteCount(size) })
            .collect()
    })
}

proptest! {
    #[test]
    fn forward_agrees_with_writing_again(
        logs in any_logs(), cuts in any_cuts(), start in 0..300u64, len in 0..300u64
    ) {
        let index = Index::new(&logs, &cuts).unwrap();
        let file = naive::recorded(&logs, &cuts);
        let last_written = file.last_key_value().map_or(0, |(byte, _)| byte.0 + 1);
        let last_cut = cuts.last().map_or(0, |cut| cut.size.0);
        prop_assert_eq!(index.size().0, last_written.max(last_cut));

        let found = index.lookup(extent(start, len));
        let mut at = start;
        for found in &found {
            prop_assert_eq!(found.extent().start().0, at, "no gap, no overlap");
            prop_assert!(!found.extent().is_empty());
            for byte in (at..found.extent().end().0).map(GlobalOffset) {
                let place = match found {
                    Found::Hole(_) => None,
                    Found::Bytes(piece) => {
                        prop_assert_eq!(piece.buffer().start as u64, at - start);
                        prop_assert_eq!(piece.local.len(), piece.extent.len());
                        let local = piece.local.start().0 + (byte.0 - at);
                        Some((piece.part, LocalOffset(local)))
                    }
                };
                prop_assert_eq!(place, file.get(&byte).copied(), "byte {}", byte);
            }
            at = found.extent().end().0;
        }
        prop_assert_eq!(at, start + len);
        let are_joined = found.windows(2).all(|pair| match pair {
            [Found::Hole(_), Found::Hole(_)] => false,
            [Found::Bytes(a), Found::Bytes(b)] => {
                a.part != b.part || a.local.end() != b.local.start()
            }
            _ => true,
        });
        prop_assert!(are_joined, "{found:?}");
        let byte = GlobalOffset(start);
        prop_assert_eq!(index.locate(byte), file.get(&byte).copied());
    }

    /// One pattern, many writers: families of several members, some of which overlap.
    #[test]
    fn families_agree_with_writing_again(
        view in any_view(), shifts in prop::collection::vec(0..40u64, 1..9),
        first in 0..20u64, len in 1..60u64, start in 0..200u64, looked in 0..60u64
    ) {
        let logs: Vec<_> = (0..).zip(&shifts).map(|(rank, shift)| {
            let shifted = GlobalOffset(view.start().0 + shift);
            let view = View::new(shifted, view.tile(), view.runs()).unwrap();
            log(rank, rank, &[(0, through(0, first, len))], &[view])
        }).collect();
        let index = Index::new(&logs, &[]).unwrap();
        let file = naive::recorded(&logs, &[]);
        for found in index.lookup(extent(start, looked)) {
            let bytes = (found.extent().start().0..found.extent().end().0).map(GlobalOffset);
            for (byte, nth) in bytes.zip(0..) {
                let place = match found {
                    Found::Hole(_) => None,
                    Found::Bytes(piece) => {
                        Some((piece.part, LocalOffset(piece.local.start().0 + nth)))
                    }
                };
                prop_assert_eq!(place, file.get(&byte).copied(), "byte {}", byte);
            }
        }
    }

    /// A stretch is what lookups say, byte by byte.
    #[test]
    fn stretches_agree_with_writing_again(
        logs in any_logs(), cuts in any_cuts(), which in any::<prop::sample::Index>(),
        start in 0..40u64, len in 1..60u64
    ) {
        let views: Vec<_> = logs.iter().flat_map(|log| log.views.values()).collect();
        prop_assume!(!views.is_empty());
        let view = views[which.index(views.len())];
        let index = Index::new(&logs, &cuts).unwrap();
        let file = naive::recorded(&logs, &cuts);
        let window = view.window(StreamOffset(start), ByteCount(len));
        if let Some((part, local)) = index.stretch(view, window) {
            prop_assert!(!local.is_empty() && local.len() <= window.len());
            for nth in 0..local.len().0 {
                let byte = view.forward(StreamOffset(start + nth)).unwrap();
                let place = (part, LocalOffset(local.start().0 + nth));
                prop_assert_eq!(file.get(&byte).copied(), Some(place), "byte {}", byte);
            }
        }
    }

    /// An index that follows one writer, here and there, says at each time what one built anew says.
    #[test]
    fn growing_agrees_with_building_anew(
        others in any_logs(), cuts in any_cuts(), odd in any_view(),
        writes in prop::collection::vec((0..30u64, 1..9u64, 0..12u32, 0..4u8), 0..50),
        start in 0..120u64, len in 0..120u64
    ) {
        let views: Vec<_> = [cyclic(2, 3, 24), odd].into_iter().map(Arc::new).collect();
        let view = |view: ViewId| views.get(view.0 as usize).cloned();
        let (mut recorder, mut epoch) = (Recorder::new(), 0);
        let own = |records: &[Record]| WriterLog {
            records: records.to_vec(),
            views: (0..).map(ViewId).zip(views.iter().cloned()).collect(),
            ..log(77, 1, &[], &[])
        };
        let first = own(&[]);
        let part = others.len() as u32;
        let index = Index::new(others.iter().chain([&first]), &cuts).unwrap();
        let mut growing = GrowingIndex::new(index, 0).unwrap();
        for (start_of, len_of, dice, kind) in writes {
            epoch += u64::from(dice == 0);
            let write = match kind {
                0 => at(start_of, len_of),
                1 => at(start_of / 6 * 6, 3),
                kind => through(u32::from(kind) - 2, start_of / 5 * 5, 5),
            };
            recorder.note(write, Epoch(epoch)).unwrap();
            if dice % 3 == 1 {
                continue; // several are followed at once
            }
            let unchanged = recorder.take_unchanged();
            growing.follow(recorder.records(), unchanged, view).unwrap();
            let log = own(recorder.records());
            let anew = Index::new(others.iter().chain([&log]), &cuts).unwrap();
            let index = growing.index();
            prop_assert_eq!(index.size(), anew.size());
            prop_assert_eq!(index.lookup(extent(start, len)), anew.lookup(extent(start, len)));
            let local = LocalExtent::new(LocalOffset(start / 2), ByteCount(len)).unwrap();
            let origins = |index: &Index| -> Vec<_> {
                let each = |origin: Origin| {
                    let bytes = origin.extent.start().0..origin.extent.end().0;
                    (origin.local.start().0..origin.local.end().0).zip(bytes)
                };
                index.origins(part, local).flat_map(each).collect()
            };
            prop_assert_eq!(origins(index), origins(&anew));
            for view in &views {
                let window = view.window(StreamOffset(start), ByteCount(len.max(1)));
                let Some((part, local)) = index.stretch(view, window) else { continue };
                for nth in 0..local.len().0 {
                    let byte = view.forward(StreamOffset(start + nth)).unwrap();
                    let place = Some((part, LocalOffset(local.start().0 + nth)));
                    prop_assert_eq!(anew.locate(byte), place);
                }
            }
        }
    }

    /// Some of the writers had their parts joined, one behind the other, in any order.
    #[test]
    fn logs_that_share_a_part_say_the_same(
        logs in any_logs(), cuts in any_cuts(), moved in prop::collection::vec(any::<bool>(), 5),
        order in Just(vec![0, 1, 2, 3, 4]).prop_shuffle(), start in 0..300u64, len in 0..300u64
    ) {
        let shared = WriterId { node: NodeId(9), process: 9, opening: 9 };
        let (mut joined, mut end) = (logs.clone(), 0);
        for nth in order {
            let Some(log) = joined.get_mut(nth).filter(|_| moved[nth]) else { continue };
            let bytes = log.records.iter().filter_map(Record::end).max().map_or(0, |end| end.0);
            log.part = shared;
            log.records.iter_mut().for_each(|record| record.place.0 += end);
            end += bytes + 1;
        }
        let index = Index::new(&joined, &cuts).unwrap();
        let file = naive::recorded(&joined, &cuts);
        // Byte by byte what the parts have that were not joined.
        let before = naive::recorded(&logs, &cuts);
        prop_assert!(file.keys().eq(before.keys()));
        for byte in (start..start + len).map(GlobalOffset) {
            prop_assert_eq!(index.locate(byte), file.get(&byte).copied(), "byte {}", byte);
        }
        for (part, id) in (0..).zip(index.parts()) {
            let all = LocalExtent::new(LocalOffset(0), ByteCount(1000)).unwrap();
            let origins: Vec<_> = index.origins(part, all).collect();
            prop_assert!(origins.windows(2).all(|pair| pair[0].local.end() <= pair[1].local.start()));
            let of_part = joined.iter().filter(|log| log.part == id.id);
            let records = of_part.flat_map(|log| current_records(&log.records));
            let bytes: u64 = records.map(|record| record.selection.len().0).sum();
            prop_assert_eq!(origins.iter().map(|origin| origin.local.len().0).sum::<u64>(), bytes);
        }
    }

    #[test]
    fn folded_logs_say_the_same(logs in any_logs(), cuts in any_cuts()) {
        let folded: Vec<_> = logs.iter().map(WriterLog::folded).collect();
        prop_assert_eq!(naive::recorded(&folded, &cuts), naive::recorded(&logs, &cuts));
        for (folded, log) in folded.iter().zip(&logs) {
            prop_assert!(folded.records.len() <= log.records.len());
            prop_assert_eq!(&folded.folded(), folded);
        }
    }

    #[test]
    fn backward_agrees_with_writing_again(log in any_log(1), start in 0..60u64, len in 0..60u64) {
        let index = Index::new(std::slice::from_ref(&log), &[]).unwrap();
        // Each record alone: what was overwritten still lies in the part.
        let mut part = BTreeMap::new();
        for record in &log.records {
            let alone = WriterLog { records: vec![record.clone()], ..log.clone() };
            let places = naive::recorded(&[alone], &[]);
            part.extend(places.into_iter().map(|(byte, (_, local))| (local, byte)));
        }
        for local in (0..100).map(LocalOffset) {
            prop_assert_eq!(index.global(0, local), part.get(&local).copied());
        }
        let local = LocalExtent::new(LocalOffset(start), ByteCount(len)).unwrap();
        let found: BTreeMap<_, _> = index.origins(0, local).flat_map(|origin| {
            let locals = (origin.local.start().0..origin.local.end().0).map(LocalOffset);
            locals.zip((origin.extent.start().0..).map(GlobalOffset))
        }).collect();
        part.retain(|place, _| local.contains(*place));
        prop_assert_eq!(found, part);
    }
}
