//! Names of the cache area against the tier: what was removed or renamed never comes back, nothing
//! overtakes what was completed before it, and an old version never replaces a newer one; also when
//! servers are killed in between.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use hayase_e2e::cached::{expect_file, expect_tier, flush, in_front_of, kill_server, pattern};
use hayase_e2e::{
    Data, Job, JobOptions, Suite, TestResult, TierDir, eventually, expect_errno, note,
};

pub(crate) fn suite() -> Suite {
    Suite::new("cache_order", JobOptions::three())
        .alone("cache_removed_names_stay_gone_while_the_tier_refuses", || {
            in_front_of(&TierDir::small(64 << 20)?, removed_names)
        })
        .alone("cache_renamed_names_stay_gone_while_the_tier_refuses", || {
            in_front_of(&TierDir::small(64 << 20)?, renamed_names)
        })
        .alone("cache_a_new_file_takes_a_removed_ones_place", || {
            in_front_of(&TierDir::small(64 << 20)?, made_again)
        })
        .alone("cache_the_old_checkpoint_stays_until_the_new_one_is_there", || {
            in_front_of(&TierDir::new()?, checkpoints)
        })
        .alone("cache_a_rename_over_waits_for_what_it_points_to", || {
            in_front_of(&TierDir::new()?, pointer)
        })
        .alone("cache_removing_makes_room_in_a_full_tier", || {
            in_front_of(&TierDir::small(8 << 20)?, makes_room)
        })
        .alone("cache_a_removed_directory_is_gone_at_once", || {
            in_front_of(&TierDir::new()?, directories)
        })
        .alone("cache_names_against_kills_have_one_outcome", || {
            in_front_of(&TierDir::new()?, kills)
        })
}

const BACK: Duration = Duration::from_secs(60);

/// On no node, by no call.
fn expect_gone(job: &Job, name: &str) -> TestResult {
    for node in [0, 1] {
        let node = job.node(node)?;
        expect_errno(node.stat(&job.cached(name)), &["ENOENT"])?;
        expect_errno(node.open(&job.cached(name), "r").map(drop), &["ENOENT"])?;
        let names = node.names(&job.cached(""))?;
        ensure!(!names.iter().any(|listed| listed == name), "{name} is listed: {names:?}");
    }
    Ok(())
}

/// Answers come when the servers that were killed are back.
fn expect_gone_soon(job: &Job, name: &str) -> TestResult {
    eventually(BACK, || match job.node(0)?.stat(&job.cached(name)) {
        Err(refused) if refused.errno == "ENOENT" => Ok(()),
        Err(refused) => Err(refused.into()),
        Ok(_) => Ok(()), // For `expect_gone` to tell.
    })?;
    expect_gone(job, name)
}

/// What is before everything else in the directory and can not come to the tier now.
fn hold_back(job: &Job, tier: &TierDir) -> TestResult {
    tier.read_only(true)?;
    Ok(job.node(0)?.write_file(&job.cached("first"), pattern(9, 5000))?)
}

fn removed_names(job: &Job, tier: &TierDir) -> TestResult {
    let names = ["seen", "unseen", "written"];
    for name in &names[..2] {
        tier.write(name, b"old")?;
    }
    job.node(0)?.write_file(&job.cached("written"), pattern(1, 9000))?;
    ensure!(job.node(0)?.read_file(&job.cached("seen"))? == b"old");
    flush(job)?;
    hold_back(job, tier)?;
    for name in names {
        job.node(1)?.unlink(&job.cached(name))?;
        expect_gone(job, name)?;
    }
    ensure!(tier.files()?.len() == 3, "{:?}", tier.files());
    for killed in [0, 1] {
        kill_server(job, killed)?;
        for name in names {
            expect_gone_soon(job, name)?;
        }
    }
    // What somebody else puts there is seen: only the removed version is hidden.
    let status = job.cluster().context("a real job")?.run("status", &["--ledger"])?.success()?;
    ensure!(status.stdout.contains("removed"), "{}", status.stdout);
    tier.read_only(false)?;
    flush(job)?;
    ensure!(tier.files()? == ["first"], "{:?}", tier.files());
    for name in names {
        expect_gone(job, name)?;
    }
    tier.write("seen", b"somebody else's")?;
    eventually(BACK, || {
        ensure!(job.node(1)?.read_file(&job.cached("seen"))? == b"somebody else's");
        Ok(())
    })
    .map(drop)
}

fn renamed_names(job: &Job, tier: &TierDir) -> TestResult {
    let (durable, changed) = (pattern(1, 9000), pattern(2, 7000));
    job.node(0)?.write_file(&job.cached("changed"), durable.clone())?;
    job.node(1)?.write_file(&job.cached("a"), durable.clone())?;
    job.node(1)?.write_file(&job.cached("b"), changed.clone())?;
    flush(job)?;
    hold_back(job, tier)?;
    // The tier has another version under the old name: it never appears under the new one.
    job.node(0)?.write_file(&job.cached("changed"), changed.clone())?;
    job.node(1)?.rename(&job.cached("changed"), &job.cached("moved"))?;
    expect_gone(job, "changed")?;
    // Two files swap their names while the tier can not follow.
    for (name, data) in [("a", &pattern(3, 100)), ("b", &pattern(4, 200))] {
        job.node(0)?.write_file(&job.cached(name), data.clone())?;
    }
    for (from, to) in [("a", "t"), ("b", "a"), ("t", "b")] {
        job.node(0)?.rename(&job.cached(from), &job.cached(to))?;
    }
    expect_gone(job, "t")?;
    for killed in [0, 1] {
        kill_server(job, killed)?;
        expect_gone_soon(job, "changed")?;
        expect_gone(job, "t")?;
        expect_file(&job.node(killed)?, &job.cached("moved"), &changed)?;
        expect_file(&job.node(killed)?, &job.cached("a"), &pattern(4, 200))?;
    }
    ensure!(tier.files()? == ["a", "b", "changed"], "{:?}", tier.files());
    expect_tier(tier, "changed", &durable)?; // Until it is there under its new name.
    tier.read_only(false)?;
    flush(job)?;
    ensure!(tier.files()? == ["a", "b", "first", "moved"], "{:?}", tier.files());
    expect_tier(tier, "moved", &changed)?;
    expect_tier(tier, "a", &pattern(4, 200))?;
    expect_tier(tier, "b", &pattern(3, 100))
}

fn made_again(job: &Job, tier: &TierDir) -> TestResult {
    for name in ["f", "back"] {
        job.node(0)?.write_file(&job.cached(name), pattern(1, 9000))?;
    }
    flush(job)?;
    hold_back(job, tier)?;
    // Removed and made again, on the other node: the file before is replaced, not kept beside.
    job.node(0)?.unlink(&job.cached("f"))?;
    job.node(1)?.write_file(&job.cached("f"), pattern(2, 100))?;
    // Renamed away and back.
    job.node(1)?.write_file(&job.cached("back"), pattern(3, 100))?;
    job.node(0)?.rename(&job.cached("back"), &job.cached("away"))?;
    job.node(0)?.rename(&job.cached("away"), &job.cached("back"))?;
    for killed in [0, 1] {
        kill_server(job, killed)?;
        eventually(BACK, || expect_file(&job.node(killed)?, &job.cached("f"), &pattern(2, 100)))?;
    }
    expect_tier(tier, "f", &pattern(1, 9000))?;
    tier.read_only(false)?;
    flush(job)?;
    ensure!(tier.files()? == ["back", "f", "first"], "{:?}", tier.files());
    expect_tier(tier, "f", &pattern(2, 100))?;
    expect_tier(tier, "back", &pattern(3, 100))
}

/// Looks at the tier as often as it can while `work` is done: `check` must always hold there.
fn watched(
    tier: &TierDir,
    check: impl Fn(&TierDir) -> TestResult + Sync,
    work: impl FnOnce() -> TestResult,
) -> TestResult {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watching = scope.spawn(|| -> anyhow::Result<u64> {
            let mut looks = 0;
            while !is_over.load(Ordering::Relaxed) {
                check(tier)?;
                looks += 1;
            }
            Ok(looks)
        });
        let done = work();
        is_over.store(true, Ordering::Relaxed);
        let looks = watching.join().expect("watching does not panic")?;
        note(&format!("looked {looks} times"));
        done
    })
}

/// Write the next one, then remove the one before: whenever somebody looks, one is there as a whole.
fn checkpoints(job: &Job, tier: &TierDir) -> TestResult {
    const BYTES: u64 = 12 << 20;
    const ROUNDS: u8 = 6;
    job.node(0)?.write_file(&job.cached("checkpoint-0"), Data::fill(100, BYTES))?;
    flush(job)?;
    let one_is_there = |tier: &TierDir| {
        // In this order: one that is removed now has its successor, which is found later.
        let found = (0..=ROUNDS).find(|round| {
            let found = std::fs::metadata(tier.file(&format!("checkpoint-{round}")));
            found.is_ok_and(|found| found.len() == BYTES)
        });
        found.map(drop).context("no checkpoint is in the tier")
    };
    watched(tier, one_is_there, || {
        for round in 1..=ROUNDS {
            // Written on one node, removed by the other: which knows nothing of it.
            let (writer, remover) = (u16::from(round % 2), u16::from((round + 1) % 2));
            let path = |round: u8| job.cached(&format!("checkpoint-{round}"));
            job.node(writer)?.write_file(&path(round), Data::fill(100 + round, BYTES))?;
            job.node(remover)?.unlink(&path(round - 1))?;
            if round == ROUNDS / 2 {
                kill_server(job, remover)?;
                eventually(BACK, || Ok(job.node(remover)?.stat(&path(round)).map(drop)?))?;
            }
        }
        flush(job)
    })?;
    ensure!(shown(tier)? == [format!("checkpoint-{ROUNDS}")], "{:?}", tier.files());
    expect_tier(tier, &format!("checkpoint-{ROUNDS}"), &Data::fill(100 + ROUNDS, BYTES))
}

/// Large data, then a small file that names it, renamed over the one before.
fn pointer(job: &Job, tier: &TierDir) -> TestResult {
    const BYTES: u64 = 10 << 20;
    const ROUNDS: u8 = 6;
    let node = job.node(0)?;
    let next = |round: u8| -> TestResult {
        let data = job.cached(&format!("data-{round}"));
        node.write_file(&data, Data::fill(round + 1, BYTES))?;
        node.write_file(&job.cached("latest.tmp"), Data::bytes(&[b'0' + round]))?;
        Ok(node.rename(&job.cached("latest.tmp"), &job.cached("latest"))?)
    };
    next(0)?;
    flush(job)?;
    let it_is_there = |tier: &TierDir| {
        let round = std::fs::read(tier.file("latest"))?.first().copied().context("a number")?;
        let name = format!("data-{}", round - b'0');
        let found = std::fs::metadata(tier.file(&name));
        let is_there = found.is_ok_and(|found| found.len() == BYTES);
        ensure!(is_there, "`latest` names {name}, which is not in the tier");
        Ok(())
    };
    watched(tier, it_is_there, || {
        (1..=ROUNDS).try_for_each(next)?;
        flush(job)
    })?;
    ensure!(tier.read("latest")? == [b'0' + ROUNDS]);
    Ok(())
}

fn makes_room(job: &Job, tier: &TierDir) -> TestResult {
    let (old, new) = (pattern(1, 5 << 20), pattern(2, 6 << 20));
    job.node(0)?.write_file(&job.cached("old"), old)?;
    flush(job)?;
    job.node(1)?.write_file(&job.cached("new"), new.clone())?;
    job.node(0)?.unlink(&job.cached("old"))?;
    flush_at_last(job)?;
    ensure!(tier.files()? == ["new"], "{:?}", tier.files());
    expect_tier(tier, "new", &new)
}

/// `flush` ends when nothing has moved for long; tries wait for each other longer and longer.
fn flush_at_last(job: &Job) -> TestResult {
    eventually(BACK, || flush(job)).map(drop)
}

fn directories(job: &Job, tier: &TierDir) -> TestResult {
    let node = job.node(0)?;
    // Earlier, and elsewhere: nothing waits for it.
    node.write_file(&job.cached("large"), pattern(1, 40 << 20))?;
    node.mkdir(&job.cached("d"))?;
    for index in 0..20 {
        let writer = job.node(index % 2)?;
        writer.write_file(&job.cached(&format!("d/f{index}")), pattern(index as u8, 5000))?;
        if index % 5 == 0 {
            flush(job)?;
        }
    }
    let removed = node.shell(&format!("rm -r {}", job.cached("d")))?;
    ensure!(removed.code == Some(0), "{removed:?}");
    ensure!(!tier.file("d").exists(), "the directory is left in the tier: {:?}", tier.files());
    flush(job)?;
    ensure!(tier.files()? == ["large"], "{:?}", tier.files());
    Ok(())
}

/// Files are written, renamed over each other and removed while servers die: in the end the tier is what
/// the job's own view is, name by name and byte by byte.
fn kills(job: &Job, tier: &TierDir) -> TestResult {
    const ROUNDS: u8 = 6;
    for round in 0..ROUNDS {
        for index in 0..8u8 {
            let node = job.node(u16::from(index % 2))?;
            let path = |name: &str| job.cached(&format!("{name}{index}"));
            let data = pattern(round * 8 + index, 300_000 + u64::from(index));
            eventually(BACK, || Ok(node.write_file(&path("tmp"), data.clone())?))?;
            eventually(BACK, || match node.rename(&path("tmp"), &path("f")) {
                // It had happened when the answer was lost.
                Err(refused) if refused.errno == "ENOENT" => Ok(()),
                other => Ok(other?),
            })?;
            if index % 3 == 0 {
                eventually(BACK, || match node.unlink(&path("f")) {
                    Err(refused) if refused.errno == "ENOENT" => Ok(()),
                    other => Ok(other?),
                })?;
            }
        }
        kill_server(job, u16::from(round % 2))?;
    }
    flush_at_last(job)?;
    let mut expected = Vec::new();
    for index in (0..8u8).filter(|index| index % 3 != 0) {
        let (name, last) = (format!("f{index}"), (ROUNDS - 1) * 8 + index);
        let data = pattern(last, 300_000 + u64::from(index));
        expect_tier(tier, &name, &data)?;
        expect_file(&job.node(u16::from(index % 2))?, &job.cached(&name), &data)?;
        expected.push(name);
    }
    ensure!(shown(tier)? == expected, "{:?} in the tier", tier.files());
    Ok(())
}

/// Without what a killed server had begun to write: hidden files.
fn shown(tier: &TierDir) -> anyhow::Result<Vec<String>> {
    let files = tier.files()?;
    Ok(files.into_iter().filter(|name| !name.contains(".hayase-partial-")).collect())
}
