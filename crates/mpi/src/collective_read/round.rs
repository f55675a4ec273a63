//! The messages of an exchange: what is asked, and the bytes.
//!
//! A round is three collective calls: what each is going to ask of each, the requests, the answers. It is one
//! call where nobody asks for anything.

use std::collections::HashMap;

use hayase_container::{ReadCost, Wanted};
use hayase_layout::WriterId;

use super::reading::Reading;
use crate::{
    error::Error,
    exchange::{
        Weights,
        request::{self, IS_READ, answer_len},
    },
    open_files::OpenFile,
    trace,
};

/// What a process tells another at the beginning of a round.
#[derive(Clone, Copy, Debug, Default)]
struct Head {
    /// Of the request that it has for the other.
    request_bytes: u64,
    /// That it wants by it.
    wanted_bytes: u64,
    /// That it wants of all.
    all_bytes: u64,
    has_more: bool,
    /// Of what it planned.
    weights: Weights,
    /// What it read for others in the call before.
    served: u64,
}

const WORDS: usize = 7;

impl Head {
    fn words(self) -> [u64; WORDS] {
        let Self { request_bytes, wanted_bytes, all_bytes, has_more, weights, served } = self;
        let has_more = u64::from(has_more);
        [request_bytes, wanted_bytes, all_bytes, has_more, weights.wanted, weights.alone, served]
    }

    fn of(words: [u64; WORDS]) -> Self {
        let [request_bytes, wanted_bytes, all_bytes, has_more, wanted, alone, served] = words;
        let weights = Weights { wanted, alone };
        Self { request_bytes, wanted_bytes, all_bytes, has_more: has_more == 1, weights, served }
    }
}

/// Rounds until nobody has anything to ask for. Collective; fails when the library does.
pub(super) fn all(file: &OpenFile, reading: &mut Reading<'_>) -> Result<(), Error> {
    let mut served = file.exchanges.take_served();
    let (mut weights, mut served_by_all) = (Weights::default(), 0_u64);
    loop {
        let heads = one(file, reading, served)?;
        for head in &heads {
            weights.add(head.weights);
            served_by_all = served_by_all.saturating_add(head.served);
        }
        served = 0;
        if !heads.iter().any(|head| head.has_more) {
            file.exchanges.exchanged(weights, served_by_all);
            return Ok(());
        }
    }
}

fn one(file: &OpenFile, reading: &mut Reading<'_>, served: u64) -> Result<Vec<Head>, Error> {
    reading.advance();
    let round = reading.next_round();
    let requests = encode(reading, &round);
    let wanted: Vec<u64> = round.iter().map(|asked| bytes_of(asked)).collect();
    let own = Head {
        all_bytes: wanted.iter().sum(),
        has_more: reading.has_more(),
        weights: reading.take_weights(),
        served,
        ..Head::default()
    };
    let words: Vec<_> = requests
        .iter()
        .zip(&wanted)
        .map(|(request, wanted)| {
            let request_bytes = request.len() as u64;
            Head { request_bytes, wanted_bytes: *wanted, ..own }.words()
        })
        .collect();
    let heads = file.comm.swap_words(&words)?;
    let heads: Vec<Head> = heads.into_iter().map(Head::of).collect();
    if heads.iter().all(|head| head.all_bytes == 0) {
        return Ok(heads);
    }
    let lens: Vec<_> = requests.iter().map(Vec::len).collect();
    let request_lens: Vec<_> = heads.iter().map(|head| head.request_bytes as usize).collect();
    let asked = file.comm.swap_bytes(&requests.concat(), &lens, &request_lens)?;
    let (answers, cost) = serve(reading, &asked, &heads);
    file.exchanges.serve(cost.weight());
    let answer_lens: Vec<_> = heads.iter().map(|head| answer_len(head.wanted_bytes)).collect();
    let own_lens: Vec<_> = wanted.iter().map(|bytes| answer_len(*bytes)).collect();
    let answers = file.comm.swap_bytes(&answers, &answer_lens, &own_lens)?;
    reading.take(&round, &answers);
    let others = (0..).zip(&wanted).filter(|(rank, _)| *rank != file.comm.rank());
    trace::count_exchanged(others.map(|(_, bytes)| bytes).sum());
    Ok(heads)
}

fn bytes_of(wanted: &[Wanted]) -> u64 {
    wanted.iter().map(|want| want.local.len().0).sum()
}

fn encode(reading: &Reading<'_>, round: &[Vec<Wanted>]) -> Vec<Vec<u8>> {
    let request = |asked: &Vec<Wanted>| match reading.reader() {
        Some(reader) => request::encode(asked, |part| reader.part(part)),
        None => Vec::new(),
    };
    round.iter().map(request).collect()
}

/// Reads what all ask for, in the order of the parts: the answers behind each other, and what it cost.
fn serve(reading: &Reading<'_>, asked: &[u8], heads: &[Head]) -> (Vec<u8>, ReadCost) {
    let len = heads.iter().map(|head| answer_len(head.wanted_bytes)).sum();
    let mut answers = vec![0; len];
    let (mut writers, mut wanted, mut ends) = (Numbered::default(), Vec::new(), Vec::new());
    let (mut from, mut at) = (0, 0);
    for head in heads.iter().filter(|head| head.wanted_bytes > 0) {
        let end = from + head.request_bytes as usize;
        // What can not be understood is not read, and whoever asked reads it alone.
        if let Ok(request) = request::decode(&asked[from..end], at, head.wanted_bytes)
            && let Some(parts) = writers.numbers(&request.writers)
        {
            wanted.extend(request.wanted.into_iter().map(|mut want| {
                want.part = parts[want.part as usize];
                want
            }));
            ends.push(at + head.wanted_bytes as usize);
        }
        (from, at) = (end, at + answer_len(head.wanted_bytes));
    }
    let Some(reader) = reading.reader() else { return (answers, ReadCost::default()) };
    match reader.read_wanted(&writers.all, wanted, &mut answers) {
        Ok(cost) => {
            ends.into_iter().for_each(|end| answers[end] = IS_READ);
            (answers, cost)
        }
        Err(_) => (answers, ReadCost::default()),
    }
}

/// Writers by numbers that this process gives them.
#[derive(Debug, Default)]
struct Numbered {
    all: Vec<WriterId>,
    numbers: HashMap<WriterId, u32>,
}

impl Numbered {
    /// `None` when there are more than numbers.
    fn numbers(&mut self, asked: &[WriterId]) -> Option<Vec<u32>> {
        let mut numbers = Vec::with_capacity(asked.len());
        for writer in asked {
            numbers.push(match self.numbers.get(writer) {
                Some(number) => *number,
                None => {
                    let next = u32::try_from(self.all.len()).ok()?;
                    self.all.push(*writer);
                    self.numbers.insert(*writer, next);
                    next
                }
            });
        }
        Some(numbers)
    }
}
