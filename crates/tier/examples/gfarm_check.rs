//! Tries the Gfarm tier on any Gfarm: `gfarm_check suite gfarm:///scratch`, with Gfarm's usual settings.
//!
//! `suite` runs the conformance suite below the directory (which fills with objects). The other words are
//! single steps that a script puts together, on several hosts and around faults; see `STEPS`.

#![expect(clippy::print_stdout, reason = "this program is run by scripts that read it")]

use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use hayase_tier::{
    Attributes, Gfarm, Key, ListRequest, Precondition, Tier, TierError, conformance,
};

type Failure = Box<dyn std::error::Error>;

const STEPS: &str = "gfarm_check suite URL | write URL NAME BYTES [HOST] | read URL NAME BYTES | open-read URL NAME BYTES | \
write-slow URL NAME BYTES | locations URL NAME | replicate URL NAME COUNT | xattrs URL NAME | list URL | refused URL WORDS";

/// For a copy to be complete.
const PATIENCE: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match step(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error}");
            if let Some(tier) = error.downcast_ref::<TierError>() {
                if let Some(source) = std::error::Error::source(tier) {
                    println!("because: {source}");
                }
                println!("help: {}", tier.help().unwrap_or("none"));
            }
            ExitCode::FAILURE
        }
    }
}

fn step(words: &[&str]) -> Result<(), Failure> {
    match *words {
        ["suite", url] => suite(url),
        ["write", url, name, bytes] => write(url, name, bytes, None),
        ["write", url, name, bytes, host] => write(url, name, bytes, Some(host)),
        ["write-slow", url, name, bytes] => write_slow(url, name, bytes),
        ["read", url, name, bytes] => read(url, name, bytes, false),
        ["open-read", url, name, bytes] => read(url, name, bytes, true),
        ["locations", url, name] => locations(url, name),
        ["replicate", url, name, count] => replicate(url, name, count),
        ["xattrs", url, name] => xattrs(url, name),
        ["list", url] => list(url),
        ["refused", url, words] => refused(url, words),
        _ => Err(STEPS.into()),
    }
}

fn suite(url: &str) -> Result<(), Failure> {
    let tier = Gfarm::attach(url)?;
    println!("{}: {:?}", tier.describe(), tier.capabilities());
    let run = Instant::now().elapsed().as_nanos() ^ u128::from(std::process::id());
    let mut count = 0;
    conformance::run(|| {
        count += 1;
        Gfarm::attach_or_make(format!("{url}/run-{run}-{count}")).expect("it was attached before")
    });
    Ok(())
}

/// Bytes that differ at every offset.
fn pattern(bytes: &str) -> Result<Vec<u8>, Failure> {
    let len: usize = bytes.parse()?;
    Ok((0..len)
        .map(|at| (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()[7])
        .collect())
}

fn write(url: &str, name: &str, bytes: &str, host: Option<&str>) -> Result<(), Failure> {
    let (tier, name) = (Gfarm::attach(url)?, Key::new(name)?);
    let mut upload = match host {
        Some(host) => tier.begin_on(&name, Attributes::default(), host)?,
        None => tier.begin(&name, Attributes::default())?,
    };
    upload.write_at(0, &pattern(bytes)?)?;
    upload.commit(Precondition::Any)?;
    Ok(())
}

/// Waits for a line before its last byte and before the commit.
fn write_slow(url: &str, name: &str, bytes: &str) -> Result<(), Failure> {
    let (tier, name) = (Gfarm::attach(url)?, Key::new(name)?);
    let mut upload = tier.begin(&name, Attributes::default())?;
    let bytes = pattern(bytes)?;
    let (last, most) = bytes.split_last().ok_or("nothing to write")?;
    upload.write_at(0, most)?;
    wait_for_line()?;
    upload.write_at(most.len() as u64, &[*last])?;
    upload.commit(Precondition::Any)?;
    Ok(())
}

fn wait_for_line() -> Result<(), Failure> {
    println!("ready");
    std::io::stdout().flush()?;
    std::io::stdin().lock().read_line(&mut String::new())?;
    Ok(())
}

/// `waits`: for a line, with half of it read.
fn read(url: &str, name: &str, bytes: &str, waits: bool) -> Result<(), Failure> {
    let (tier, name) = (Gfarm::attach(url)?, Key::new(name)?);
    let expected = pattern(bytes)?;
    let reader = tier.open(&name)?;
    println!("local: {}", reader.local_descriptor().is_some());
    let mut seen = vec![0; expected.len() + 1];
    let half = expected.len() / 2;
    let mut count = reader.read_at(0, &mut seen[..half])?;
    if waits {
        wait_for_line()?;
    }
    count += reader.read_at(half as u64, &mut seen[half..])?;
    if seen[..count] != expected[..] {
        return Err(format!("{count} bytes came, others than were written").into());
    }
    Ok(())
}

fn locations(url: &str, name: &str) -> Result<(), Failure> {
    for location in Gfarm::attach(url)?.locations(&Key::new(name)?)? {
        println!("{} {} {}", location.start, location.len.get(), location.hosts.join(" "));
    }
    Ok(())
}

fn replicate(url: &str, name: &str, count: &str) -> Result<(), Failure> {
    let (tier, name, count) = (Gfarm::attach(url)?, Key::new(name)?, count.parse()?);
    println!("{}", tier.replicate(&name, count, PATIENCE)?.join(" "));
    Ok(())
}

/// Attributes of every kind, and how many copies are wanted.
fn xattrs(url: &str, name: &str) -> Result<(), Failure> {
    let (tier, name) = (Gfarm::attach(url)?, Key::new(name)?);
    let check = |is_right, what: &str| if is_right { Ok(()) } else { Err(what.to_owned()) };
    let value: &[u8] = b"a\0value\xff";
    check(tier.xattr(&name, b"user.hayase")?.is_none(), "an attribute before it is set")?;
    tier.set_xattr(&name, b"user.hayase", b"first")?;
    tier.set_xattr(&name, b"user.hayase", value)?;
    check(tier.xattr(&name, b"user.hayase")?.as_deref() == Some(value), "another value")?;
    check(tier.xattrs(&name)?.contains(&b"user.hayase".to_vec()), "not listed")?;
    check(tier.remove_xattr(&name, b"user.hayase")?, "not there to be removed")?;
    check(!tier.remove_xattr(&name, b"user.hayase")?, "removed twice")?;
    check(tier.replicas_wanted(&name)?.is_none(), "nobody has said a number")?;
    tier.set_replicas_wanted(&name, 2)?;
    check(tier.replicas_wanted(&name)? == Some(2), "another number")?;
    let missing = tier.set_xattr(&Key::new("no/such")?, b"user.a", b"");
    check(matches!(missing, Err(TierError::Missing { .. })), "an attribute of nothing")?;
    Ok(())
}

fn list(url: &str) -> Result<(), Failure> {
    for entry in Gfarm::attach(url)?.list(&ListRequest::all(""))?.entries {
        println!("{}", String::from_utf8_lossy(&entry.name));
    }
    Ok(())
}

/// Attaching fails with a message or help that has these words in it.
fn refused(url: &str, words: &str) -> Result<(), Failure> {
    let error = Gfarm::attach(url).err().ok_or("it was attached")?;
    let told = format!("{error}\n  {}", error.help().unwrap_or("no help"));
    println!("{told}");
    if told.contains(words) { Ok(()) } else { Err(format!("expected `{words}`").into()) }
}
