//! Types against listing every byte of their typemaps.

use proptest::prelude::*;

use super::{
    array::{Dealt, Distribution, Order, Side},
    *,
};
use crate::{GlobalOffset, Offset, StreamMap, StreamOffset};

fn bytes(len: u64) -> Datatype {
    Datatype::bytes(len).unwrap()
}

/// Every byte of `window`, in order.
fn walked(datatype: &Datatype, window: Range<u64>) -> Vec<i64> {
    let mut places = Vec::new();
    datatype.walk(window, &mut |start: i64, len: u64| places.extend(start..start + len as i64));
    places
}

fn check(datatype: &Datatype, blocks: &str, bounds: (i64, i64)) {
    let mut text = Vec::new();
    let mut show = |start: i64, len: u64| text.push(format!("{start}+{len}"));
    datatype.walk(0..u64::MAX, &mut show);
    assert_eq!(text.join(" "), blocks);
    assert_eq!((datatype.lower_bound(), datatype.extent()), bounds);
}

#[test]
fn constructors_select_bytes() {
    let int = bytes(4);
    check(&int, "0+4", (0, 4));
    check(&int.contiguous(3).unwrap(), "0+12", (0, 12));
    check(&int.contiguous(0).unwrap(), "", (0, 0));
    check(&int.vector(3, 2, 12).unwrap(), "0+8 12+8 24+8", (0, 32));
    check(&int.vector(2, 1, -8).unwrap(), "0+4 -8+4", (-8, 12));
    check(&int.clone().resized(0, 8).contiguous(2).unwrap(), "0+4 8+4", (0, 16));
    check(&int.clone().resized(-2, 3).contiguous(2).unwrap(), "0+4 3+4", (-2, 6));
    let mixed = Datatype::sequence([(8, 2, &int), (0, 1, &bytes(1)), (20, 0, &int)]).unwrap();
    check(&mixed, "8+8 0+1", (0, 16));
    // Neighbours that repeat are counted.
    let indexed = Datatype::sequence((0..5).map(|nth| (nth * 10, 1, &int))).unwrap();
    assert_eq!(indexed.body, int.repeated(5, 10).unwrap().body);
}

#[test]
fn arrays_select_rectangles_and_shares() {
    let int = bytes(4);
    let side = |whole, part, start| Side { whole, part, start };
    let rectangle = |order| int.subarray(&[side(4, 2, 1), side(5, 3, 2)], order).unwrap();
    check(&rectangle(Order::C), "28+12 48+12", (0, 80));
    check(&rectangle(Order::Fortran), "36+8 52+8 68+8", (0, 80));
    let whole = int.subarray(&[side(4, 4, 0), side(5, 5, 0)], Order::C).unwrap();
    assert_eq!(whole.dense_start(), Some(0));
    assert_eq!(int.subarray(&[side(4, 3, 2)], Order::C), Err(DatatypeError::Array));
    let dealt = |distribution| Dealt { whole: 10, distribution, processes: 3 };
    let share = |rank, distribution| {
        let share = int.distributed(rank, &[dealt(distribution)], Order::C).unwrap();
        walked(&share, 0..999).iter().filter(|at| *at % 4 == 0).map(|at| at / 4).collect::<Vec<_>>()
    };
    assert_eq!(share(2, Distribution::Block(None)), [8, 9]);
    assert_eq!(share(1, Distribution::Cyclic(None)), [1, 4, 7]);
    assert_eq!(share(0, Distribution::Cyclic(Some(2))), [0, 1, 6, 7]);
    assert_eq!(share(1, Distribution::Cyclic(Some(4))), [4, 5, 6, 7]);
    assert_eq!(share(2, Distribution::Cyclic(Some(4))), [8, 9]);
    assert_eq!(share(2, Distribution::Block(Some(9))), [] as [i64; 0]);
    let short = int.distributed(0, &[dealt(Distribution::Block(Some(2)))], Order::C);
    assert_eq!(short, Err(DatatypeError::Array));
}

#[test]
fn types_that_reach_too_far_are_refused() {
    assert_eq!(Datatype::bytes(u64::MAX), Err(DatatypeError::TooFar));
    let far = |count, stride| bytes(4).repeated(count, stride);
    assert_eq!(far(u64::MAX, 0), Err(DatatypeError::TooFar));
    assert_eq!(far(3, i64::MAX / 2), Err(DatatypeError::TooFar));
    assert_eq!(far(2, i64::MIN), Err(DatatypeError::TooFar));
    assert!(far(2, i64::MAX / 2).is_ok());
    assert!(Datatype::sequence([(i64::MAX, 1, &bytes(1))]).is_err());
}

#[test]
fn what_ascends_is_a_view() {
    let view = |datatype: &Datatype| {
        let view = datatype.view(GlobalOffset(100))?;
        let runs: Vec<_> = view.runs().iter().map(ToString::to_string).collect();
        Some(format!("{} {} {}", view.start(), view.tile().0, runs.join(",")))
    };
    let column = bytes(8).vector(4, 1, 32).unwrap();
    assert_eq!(view(&column).as_deref(), Some("100 104 0+8x4/32"));
    assert_eq!(view(&column.clone().resized(0, 128)).as_deref(), Some("100 32 0+8"));
    assert_eq!(view(&column.resized(0, 8)), None); // columns that interlock
    assert_eq!(view(&bytes(4).vector(2, 1, -8).unwrap()), None);
    assert_eq!(view(&bytes(0)), None);
    let pair = Datatype::sequence([(0, 1, &bytes(2)), (4, 1, &bytes(1))]).unwrap().resized(0, 8);
    let some = pair.contiguous(3).unwrap().resized(0, 40);
    assert_eq!(view(&some).as_deref(), Some("100 40 0+2,4+1,8+2,12+1,16+2,20+1"));
    let many = pair.contiguous(1 << 20).unwrap();
    assert_eq!(view(&many).as_deref(), Some("100 8 0+2,4+1"));
    assert_eq!(view(&many.resized(0, 1 << 24)), None);
}

/// A type and its typemap, byte by byte, as a list.
pub(super) type Listed = (Datatype, Vec<i64>);

fn list((datatype, bytes): &Listed, count: u64, stride: i64, at: i64) -> Vec<i64> {
    let _ = datatype;
    let from = |nth: u64| at + nth as i64 * stride;
    (0..count).flat_map(|nth| bytes.iter().map(move |byte| from(nth) + byte)).collect()
}

pub(super) fn any_listed() -> impl Strategy<Value = Listed> {
    let leaf = (1..9u64).prop_map(|len| (bytes(len), (0..len as i64).collect()));
    leaf.prop_recursive(4, 24, 3, |inner| {
        let few = prop::collection::vec((-40..40i64, 0..3u64, inner.clone()), 1..4);
        prop_oneof![
            (inner.clone(), 0..4u64, -30..60i64).prop_map(|(listed, count, stride)| {
                (listed.0.repeated(count, stride).unwrap(), list(&listed, count, stride, 0))
            }),
            (inner.clone(), -5..5i64, 1..70i64).prop_map(|(listed, lb, extent)| {
                (listed.0.clone().resized(lb, extent), listed.1)
            }),
            few.prop_map(|members| {
                let parts = members.iter().map(|(at, count, listed)| (*at, *count, &listed.0));
                let datatype = Datatype::sequence(parts).unwrap();
                let bytes = members
                    .iter()
                    .flat_map(|(at, count, listed)| list(listed, *count, listed.0.extent(), *at));
                (datatype, bytes.collect())
            }),
        ]
    })
}

fn any_dealt() -> impl Strategy<Value = Dealt> {
    let block = || prop::option::of(1..4u64);
    let distribution = prop_oneof![
        Just(Distribution::None),
        Just(Distribution::Block(None)),
        block().prop_map(Distribution::Cyclic),
    ];
    (1..8u64, distribution, 1..4u64).prop_map(|(whole, distribution, processes)| {
        let processes = if distribution == Distribution::None { 1 } else { processes };
        Dealt { whole, distribution, processes }
    })
}

proptest! {
    #[test]
    fn walks_agree_with_listing_each_byte(listed in any_listed(), start in 0..50u64, len in 0..99u64) {
        let (datatype, expected) = listed;
        prop_assert_eq!(datatype.size(), expected.len() as u64);
        prop_assert_eq!(&walked(&datatype, 0..u64::MAX), &expected);
        let window = expected.iter().copied().skip(start as usize).take(len as usize);
        prop_assert_eq!(walked(&datatype, start..start + len), window.collect::<Vec<_>>());
        let bounds = expected.iter().min().zip(expected.iter().max());
        let bounds = bounds.map(|(low, high)| *low..high + 1);
        prop_assert_eq!(datatype.true_bounds(), bounds);
    }

    #[test]
    fn views_of_types_select_their_bytes(listed in any_listed(), displacement in 0..50u64) {
        let (datatype, expected) = listed;
        let Some(view) = datatype.view(GlobalOffset(displacement)) else { return Ok(()) };
        let tiles = [0, datatype.extent(), 2 * datatype.extent()];
        let expected = tiles.iter().flat_map(|tile| expected.iter().map(move |byte| byte + tile));
        for (at, byte) in (0..).map(StreamOffset).zip(expected) {
            let place = view.forward(at).map(|place| place.get() as i64);
            prop_assert_eq!(place, Some(byte + displacement as i64));
        }
    }

    #[test]
    fn shares_cover_an_array_once(
        dimensions in prop::collection::vec(any_dealt(), 1..4), is_c in any::<bool>()
    ) {
        let order = if is_c { Order::C } else { Order::Fortran };
        let processes: u64 = dimensions.iter().map(|dimension| dimension.processes).product();
        let elements: u64 = dimensions.iter().map(|dimension| dimension.whole).product();
        let mut seen = Vec::new();
        for rank in 0..processes {
            let share = bytes(1).distributed(rank, &dimensions, order).unwrap();
            prop_assert_eq!(share.extent(), elements as i64);
            let places = walked(&share, 0..u64::MAX);
            prop_assert!(places.is_sorted());
            seen.extend(places);
        }
        seen.sort_unstable();
        prop_assert_eq!(seen, (0..elements as i64).collect::<Vec<_>>());
    }
}
