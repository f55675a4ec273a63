//! Each decoder against broken bytes, for ten seconds or `HAYASE_FUZZ_SECONDS`.
//!
//! The search begins anew with each commit (`HAYASE_COMMIT`); what once broke a decoder lies in
//! `fuzz/found/NAME/` and is tried always.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hayase_fuzz::coverage::is_counted;
use hayase_fuzz::targets::TARGETS;
use hayase_fuzz::{Found, Searched, replay, search};

const SECONDS: u64 = 10;

fn found(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("found").join(name)
}

fn seconds() -> Duration {
    let text = std::env::var("HAYASE_FUZZ_SECONDS").unwrap_or_default();
    Duration::from_secs(text.parse().unwrap_or(SECONDS))
}

fn seed() -> u64 {
    let commit = std::env::var("HAYASE_COMMIT").unwrap_or_default();
    commit.get(..12).and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or(1)
}

fn told(name: &str, found: &Found) -> String {
    let mut bytes = String::new();
    for byte in &found.input {
        write!(bytes, "\\x{byte:02x}").unwrap();
    }
    let panic = &found.panic;
    format!("{name}: {panic}\nkeep it: printf '{bytes}' > fuzz/found/{name}/WHAT")
}

#[test]
fn what_once_broke_a_decoder_breaks_it_no_more() {
    for target in &TARGETS {
        let Ok(files) = fs::read_dir(found(target.name)) else { continue };
        for file in files {
            let input = fs::read(file.unwrap().path()).unwrap();
            replay(target, &input).unwrap_or_else(|found| panic!("{}", told(target.name, &found)));
        }
    }
}

#[test]
fn decoders_come_back_from_anything() {
    let searched = |target| search(target, seed(), seconds());
    let is_guided = std::env::var_os("HAYASE_FUZZ_GUIDED").is_some();
    assert!(is_counted() || !is_guided, "the options that count edges had no effect");
    // Edges are counted for the whole process.
    let at_once = if is_counted() { 1 } else { TARGETS.len() };
    for targets in TARGETS.chunks(at_once) {
        let searches: Vec<_> = targets
            .iter()
            .map(|target| std::thread::spawn(move || (target.name, searched(target))))
            .collect();
        for running in searches {
            let (name, searched) = running.join().unwrap();
            let Searched { inputs, ways, edges } =
                searched.unwrap_or_else(|found| panic!("{}", told(name, &found)));
            println!("{name}: {inputs} inputs, treated in {ways} ways, {edges} edges");
            assert!(ways > 3 || edges > 100, "{name}: the search found nothing new");
        }
    }
}
