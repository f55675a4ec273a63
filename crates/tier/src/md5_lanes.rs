//! MD5 of several byte strings at once, one in each lane of the processor's vectors.
//!
//! MD5 is a chain of 64 steps for each 64 bytes, each of which waits for the one before, so one string
//! leaves most of a core idle. Strings do not wait for each other: 8 of them take hardly longer than one (here
//! 540 MiB/s of one, 2.0 GiB/s of 4, 3.4 GiB/s of 8 on one core of 2025, by AVX2 and AVX-512VL; 16 gain nothing more).
//!
//! Here: the arithmetic and the choice of width. Not here: which strings there are ([`crate::PartSums::of_parts`]).
//! Source: RFC 1321; the tests compare with the crate `md-5`.

/// Bytes of one step of the chain.
const BLOCK: usize = 64;

/// Most strings at once.
const LANES_MAX: usize = 8;

/// The chain's value between two blocks.
type State = [u32; 4];

/// Before the first block.
const START: State = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];

/// Step `i` adds `floor(2^32 * abs(sin(i + 1)))`.
const SINES: [u32; 64] = [
    0xd76a_a478,
    0xe8c7_b756,
    0x2420_70db,
    0xc1bd_ceee,
    0xf57c_0faf,
    0x4787_c62a,
    0xa830_4613,
    0xfd46_9501,
    0x6980_98d8,
    0x8b44_f7af,
    0xffff_5bb1,
    0x895c_d7be,
    0x6b90_1122,
    0xfd98_7193,
    0xa679_438e,
    0x49b4_0821,
    0xf61e_2562,
    0xc040_b340,
    0x265e_5a51,
    0xe9b6_c7aa,
    0xd62f_105d,
    0x0244_1453,
    0xd8a1_e681,
    0xe7d3_fbc8,
    0x21e1_cde6,
    0xc337_07d6,
    0xf4d5_0d87,
    0x455a_14ed,
    0xa9e3_e905,
    0xfcef_a3f8,
    0x676f_02d9,
    0x8d2a_4c8a,
    0xfffa_3942,
    0x8771_f681,
    0x6d9d_6122,
    0xfde5_380c,
    0xa4be_ea44,
    0x4bde_cfa9,
    0xf6bb_4b60,
    0xbebf_bc70,
    0x289b_7ec6,
    0xeaa1_27fa,
    0xd4ef_3085,
    0x0488_1d05,
    0xd9d4_d039,
    0xe6db_99e5,
    0x1fa2_7cf8,
    0xc4ac_5665,
    0xf429_2244,
    0x432a_ff97,
    0xab94_23a7,
    0xfc93_a039,
    0x655b_59c3,
    0x8f0c_cc92,
    0xffef_f47d,
    0x8584_5dd1,
    0x6fa8_7e4f,
    0xfe2c_e6e0,
    0xa301_4314,
    0x4e08_11a1,
    0xf753_7e82,
    0xbd3a_f235,
    0x2ad7_d2bb,
    0xeb86_d391,
];

const ROTATIONS: [[u32; 4]; 4] =
    [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];

/// Takes each string's chain over its bytes: as many blocks as the shortest has, at most [`LANES_MAX`]
/// strings. Says how many bytes of each were taken.
fn advance(states: &mut [State], strings: &[&[u8]]) -> usize {
    assert!(states.len() == strings.len() && strings.len() <= LANES_MAX, "as many as lanes");
    let Some(blocks) = strings.iter().map(|string| string.len() / BLOCK).min() else { return 0 };
    match strings.len() {
        0..=4 => widen::<4>(states, strings, blocks),
        _ => widen::<LANES_MAX>(states, strings, blocks),
    }
    blocks * BLOCK
}

/// What is left of a string after whole blocks, and its end: the sum.
fn finish(state: State, rest: &[u8], len: u64) -> [u8; 16] {
    debug_assert!(rest.len() < BLOCK, "whole blocks come first");
    let mut end = [0; 2 * BLOCK];
    end[..rest.len()].copy_from_slice(rest);
    end[rest.len()] = 0x80;
    let blocks = if rest.len() < BLOCK - 8 { 1 } else { 2 };
    end[blocks * BLOCK - 8..blocks * BLOCK].copy_from_slice(&(len * 8).to_le_bytes());
    let mut states = [state];
    advance(&mut states, &[&end[..blocks * BLOCK]]);
    let mut sum = [0; 16];
    for (bytes, word) in sum.chunks_exact_mut(4).zip(states[0]) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    sum
}

/// The sums of strings, of any number and lengths.
pub(crate) fn sums(strings: &[&[u8]]) -> Vec<[u8; 16]> {
    strings.chunks(LANES_MAX).flat_map(sums_of_lanes).collect()
}

/// Of at most as many as lanes: all go on together, and whoever is at its end leaves.
fn sums_of_lanes(strings: &[&[u8]]) -> Vec<[u8; 16]> {
    let mut states = vec![START; strings.len()];
    let mut at = vec![0; strings.len()];
    loop {
        let is_open = |lane: &usize| strings[*lane].len() - at[*lane] >= BLOCK;
        let open: Vec<usize> = (0..strings.len()).filter(is_open).collect();
        if open.is_empty() {
            break;
        }
        let rests: Vec<&[u8]> = open.iter().map(|lane| &strings[*lane][at[*lane]..]).collect();
        let mut some: Vec<State> = open.iter().map(|lane| states[*lane]).collect();
        let taken = advance(&mut some, &rests);
        for (lane, state) in open.iter().zip(some) {
            (states[*lane], at[*lane]) = (state, at[*lane] + taken);
        }
    }
    let end =
        |lane: usize| finish(states[lane], &strings[lane][at[lane]..], strings[lane].len() as u64);
    (0..strings.len()).map(end).collect()
}

/// Lanes without a string do again what the first one does.
fn widen<const N: usize>(states: &mut [State], strings: &[&[u8]], blocks: usize) {
    let lane = |lane: usize| if lane < strings.len() { lane } else { 0 };
    let lanes: [&[u8]; N] = std::array::from_fn(|at| &strings[lane(at)][..blocks * BLOCK]);
    let mut words: [[u32; N]; 4] =
        std::array::from_fn(|word| std::array::from_fn(|at| states[lane(at)][word]));
    run(&mut words, &lanes);
    for (at, state) in states.iter_mut().enumerate() {
        *state = std::array::from_fn(|word| words[word][at]);
    }
}

/// With the widest vectors that the processor has.
fn run<const N: usize>(words: &mut [[u32; N]; 4], lanes: &[&[u8]; N]) {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl") {
            // SAFETY: the processor has what the function was compiled for.
            return unsafe { x86::with_avx512(words, lanes) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: as above.
            return unsafe { x86::with_avx2(words, lanes) };
        }
    }
    all_blocks(words, lanes);
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    #[target_feature(enable = "avx512f,avx512vl")]
    pub(super) fn with_avx512<const N: usize>(words: &mut [[u32; N]; 4], lanes: &[&[u8]; N]) {
        super::all_blocks(words, lanes);
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn with_avx2<const N: usize>(words: &mut [[u32; N]; 4], lanes: &[&[u8]; N]) {
        super::all_blocks(words, lanes);
    }
}

#[inline(always)]
fn all_blocks<const N: usize>(words: &mut [[u32; N]; 4], lanes: &[&[u8]; N]) {
    let blocks = lanes[0].len() / BLOCK;
    for block in 0..blocks {
        let from = block * BLOCK;
        let bytes: [&[u8; BLOCK]; N] = std::array::from_fn(|lane| {
            lanes[lane][from..from + BLOCK].try_into().expect("a block has its size")
        });
        let mut input = [[0; N]; 16];
        for word in 0..16 {
            for lane in 0..N {
                let four = bytes[lane][word * 4..][..4].try_into().expect("four bytes are four");
                input[word][lane] = u32::from_le_bytes(four);
            }
        }
        one_block(words, &input);
    }
}

/// Written so that the compiler makes one instruction of each loop over the lanes.
#[inline(always)]
fn one_block<const N: usize>(words: &mut [[u32; N]; 4], input: &[[u32; N]; 16]) {
    let mut chain = *words;
    round(&mut chain, input, 0, |b, c, d| d ^ (b & (c ^ d)));
    round(&mut chain, input, 1, |b, c, d| c ^ (d & (b ^ c)));
    round(&mut chain, input, 2, |b, c, d| b ^ c ^ d);
    round(&mut chain, input, 3, |b, c, d| c ^ (b | !d));
    for (word, added) in words.iter_mut().zip(chain) {
        for lane in 0..N {
            word[lane] = word[lane].wrapping_add(added[lane]);
        }
    }
}

/// Sixteen steps, by the round's own function, order of words and rotations.
#[inline(always)]
fn round<const N: usize>(
    [a, b, c, d]: &mut [[u32; N]; 4],
    input: &[[u32; N]; 16],
    round: usize,
    mix: impl Fn(u32, u32, u32) -> u32,
) {
    let (factor, first) = [(1, 0), (5, 1), (3, 5), (7, 0)][round];
    for four in 0..4 {
        for (one, rotation) in ROTATIONS[round].into_iter().enumerate() {
            let at = 4 * four + one;
            let (word, sine) = ((factor * at + first) % 16, SINES[16 * round + at]);
            let mut next = [0; N];
            for lane in 0..N {
                let mixed = a[lane].wrapping_add(mix(b[lane], c[lane], d[lane]));
                next[lane] = mixed.wrapping_add(sine).wrapping_add(input[word][lane]);
            }
            for lane in 0..N {
                next[lane] = next[lane].rotate_left(rotation).wrapping_add(b[lane]);
            }
            (*a, *d, *c, *b) = (*d, *c, *b, next);
        }
    }
}

#[cfg(test)]
mod tests {
    use md5::{Digest, Md5};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn lanes_are_what_one_is(
            strings in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..400), 0..=2 * LANES_MAX + 1)
        ) {
            let alone: Vec<[u8; 16]> =
                strings.iter().map(|string| Md5::digest(string).into()).collect();
            let strings: Vec<&[u8]> = strings.iter().map(Vec::as_slice).collect();
            prop_assert_eq!(sums(&strings), alone);
        }
    }

    #[test]
    fn the_standards_own_examples() {
        for (string, sum) in [
            ("", "d41d8cd98f00b204e9800998ecf8427e"),
            ("message digest", "f96b697d7cb7938d525a2f31aaf161d0"),
            (
                "12345678901234567890123456789012345678901234567890123456789012345678901234567890",
                "57edf4a22be3c955ac49da2e2107b67a",
            ),
        ] {
            let found = sums(&[string.as_bytes()]);
            assert_eq!(data_encoding::HEXLOWER.encode(&found[0]), sum, "{string}");
        }
    }
}
