//! Looks for inputs that break a target, within a time.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::Target;
use crate::mutate::mutate;

/// Inputs that are kept to be changed further.
const KEPT_MAX: usize = 4096;

/// An input that a target did not survive.
#[derive(Debug)]
pub struct Found {
    /// The bytes.
    pub input: Vec<u8>,
    /// What the panic said.
    pub panic: String,
}

/// What a search was.
#[derive(Clone, Copy, Debug)]
pub struct Searched {
    /// Inputs tried.
    pub inputs: u64,
    /// Ways in which the target treated them.
    pub ways: usize,
}

/// Tries inputs for `time`, all of them chosen by `seed`; at least the good ones, and each of those
/// changed a little.
///
/// # Errors
/// With the first input that makes the target panic.
pub fn search(target: &Target, seed: u64, time: Duration) -> Result<Searched, Box<Found>> {
    let mut random = Rng::with_seed(seed);
    let mut kept = (target.seeds)();
    let (mut ways, mut inputs) = (HashSet::new(), 0);
    for input in &kept {
        ways.insert(replay(target, input)?);
    }
    let least = 100 * kept.len() as u64;
    let begin = Instant::now();
    while inputs < least || begin.elapsed() < time {
        let pick = |random: &mut Rng| random.usize(0..kept.len());
        let (one, other) = (pick(&mut random), pick(&mut random));
        let input = mutate(&kept[one], &kept[other], &mut random);
        let way = replay(target, &input)?;
        inputs += 1;
        if ways.insert(way) && kept.len() < KEPT_MAX {
            kept.push(input);
        }
    }
    Ok(Searched { inputs, ways: ways.len() })
}

/// Tries one input: how the target treated it.
///
/// # Errors
/// When the target panics.
pub fn replay(target: &Target, input: &[u8]) -> Result<u64, Box<Found>> {
    catch_unwind(AssertUnwindSafe(|| (target.run)(input))).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Box::new(Found { input: input.to_vec(), panic: text.unwrap_or_default() })
    })
}
