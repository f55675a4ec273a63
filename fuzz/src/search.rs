//! Looks for inputs that break a target, within a time.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::Target;
use crate::coverage::Edges;
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
    /// Edges of the program that they took; 0 where these are not counted.
    pub edges: usize,
}

/// Tries inputs for `time`, all of them chosen by `seed`; at least the good ones, and each of those
/// changed a little.
///
/// # Errors
/// With the first input that makes the target panic.
pub fn search(target: &Target, seed: u64, time: Duration) -> Result<Searched, Box<Found>> {
    let mut random = Rng::with_seed(seed);
    let mut kept = (target.seeds)();
    let (mut seen, mut inputs) = (Seen { ways: HashSet::new(), edges: Edges::new() }, 0);
    for input in &kept {
        seen.is_new(target, input)?;
    }
    let least = 100 * kept.len() as u64;
    let begin = Instant::now();
    while inputs < least || begin.elapsed() < time {
        let pick = |random: &mut Rng| random.usize(0..kept.len());
        let (one, other) = (pick(&mut random), pick(&mut random));
        let input = mutate(&kept[one], &kept[other], &mut random);
        let is_new = seen.is_new(target, &input)?;
        inputs += 1;
        if is_new && kept.len() < KEPT_MAX {
            kept.push(input);
        }
    }
    Ok(Searched { inputs, ways: seen.ways.len(), edges: seen.edges.taken() })
}

/// What inputs have done so far.
struct Seen {
    ways: HashSet<u64>,
    edges: Edges,
}

impl Seen {
    /// Tries an input: whether it did something that none has done before.
    fn is_new(&mut self, target: &Target, input: &[u8]) -> Result<bool, Box<Found>> {
        self.edges.begin();
        let way = replay(target, input)?;
        let are_edges_new = self.edges.are_new();
        Ok(self.ways.insert(way) || are_edges_new)
    }
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
