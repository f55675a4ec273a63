//! Access control lists in the cache area: copied in with `cp -a` and `rsync -A`, checked on every node, brought to the
//! tier with their files and taken in from there.

use std::path::Path;
use std::process::Command as Process;
use std::time::Duration;

use anyhow::{Context, ensure};
use hayase_e2e::cached::{flush, in_front_of, kill_job};
use hayase_e2e::job::binary;
use hayase_e2e::process::run;
use hayase_e2e::{
    Command, Data, Job, JobOptions, Node, Suite, TestResult, TierDir, eventually, expect_errno,
    skip,
};

pub(crate) fn suite() -> Suite {
    Suite::new("cache_lists", JobOptions::three())
        .alone("cache_lists_are_kept_checked_and_brought_to_the_tier", copied)
        .alone("cache_lists_of_the_tier_are_checked_and_inherited", of_the_tier)
        .alone("cache_lists_outlive_a_killed_job", outlive_a_killed_job)
        .alone("cache_lists_stay_on_the_nodes_where_the_tier_keeps_none", where_the_tier_keeps_none)
}

/// How long a change in the tier may go unnoticed, and a killed job's images may be busy.
const NOTICED: Duration = Duration::from_secs(20);
const BACK: Duration = Duration::from_secs(60);
const COMMAND: Duration = Duration::from_secs(120);

/// Lists, modes and owners of all that is there.
const SHOW: &str =
    "set -- $(find . | sort) && getfacl -n -p \"$@\" && stat -c '%A %u %g %n' \"$@\"";

/// A tree in which user 65534 may read `plain`, and may not read `denied`, which all others may.
const MAKE: &str = "umask 027 && mkdir tree && cd tree && setfacl -m u:65534:x . && setfacl -d -m u:65534:rX,g:7:rwx . && \
     mkdir -p d/e && echo x > d/f && echo x > plain && setfacl -b plain && chmod 640 plain && echo x > denied && \
     chmod 644 denied && setfacl -b -m u:65534:- denied && setfacl -m u:65534:r plain && chmod 711 d/e";

fn sh(directory: &Path, script: &str) -> anyhow::Result<String> {
    let mut shell = Process::new("sh");
    let finished = run(shell.args(["-c", script]).current_dir(directory), COMMAND)?;
    Ok(finished.success()?.stdout)
}

fn lists(node: &Node, path: &str) -> anyhow::Result<String> {
    Ok(node.shell(&format!("cd {path} && {SHOW}"))?.stdout)
}

/// A source, and what it shows; `None` where there are no lists to test.
fn source(test: &str) -> anyhow::Result<Option<(TierDir, String)>> {
    let local = TierDir::new()?;
    if let Err(refused) = sh(&local.file("."), &format!("command -v rsync && {MAKE}")) {
        skip(test, &format!("needs acl, rsync and lists in the temporary directory: {refused}"));
        return Ok(None);
    }
    let expected = sh(&local.file("tree"), SHOW)?;
    ensure!(expected.contains("default:user:65534:r-x"), "{expected}");
    Ok(Some((local, expected)))
}

fn opened(node: &Node, path: &str, flags: &str) -> Result<(), hayase_e2e::Refused> {
    let (path, flags) = (path.to_owned(), flags.to_owned());
    node.as_nobody(Command::Open { path, flags, mode: 0 }).map(drop)
}

/// Whom a list denies is denied on each node, whom it allows is allowed.
fn expect_checked(node: &Node, path: &str) -> TestResult {
    opened(node, &format!("{path}/plain"), "r")?;
    expect_errno(opened(node, &format!("{path}/plain"), "w"), &["EACCES"])?;
    expect_errno(opened(node, &format!("{path}/denied"), "r"), &["EACCES"])
}

fn evict(job: &Job, path: &str) -> TestResult {
    let cluster = job.cluster().context("a real job")?;
    let mut process = cluster.exec(0, &[&binary()?]);
    run(process.arg("evict").arg(path), COMMAND)?.success().map(drop)
}

fn copied() -> TestResult {
    let Some((local, expected)) = source("cache_lists_are_kept_checked_and_brought_to_the_tier")?
    else {
        return Ok(());
    };
    let there = local.file("tree").display().to_string();
    let tier = TierDir::new()?;
    let job = Job::up(tier.job(2))?;
    let test = || -> TestResult {
        for (copy, from, slash) in [("copied", "cp -a", ""), ("synced", "rsync -aA", "/")] {
            let here = job.cached(copy);
            // `shell` fails where the command does.
            job.node(0)?.shell(&format!("{from} {there}{slash} {here}"))?;
            let check = |when: &str| -> TestResult {
                for node in [0, 1] {
                    let node = job.node(node)?;
                    let found = lists(&node, &here)?;
                    ensure!(found == expected, "{from}, {when}: {found}\n{expected}");
                    expect_checked(&node, &here)?;
                }
                Ok(())
            };
            check("as written")?;
            flush(&job)?;
            check("flushed")?;
            let found = sh(&tier.file(copy), SHOW)?;
            ensure!(found == expected, "{from}, in the tier: {found}\n{expected}");
            evict(&job, &here)?;
            check("evicted")?;
            ensure!(job.node(1)?.read_file(&format!("{here}/plain"))? == b"x\n");
            check("read again")?;
            job.node(1)?.shell(&format!("{from} {here}{slash} {there}-{copy}"))?;
            let found = sh(&local.file(&format!("tree-{copy}")), SHOW)?;
            ensure!(found == expected, "{from} back: {found}\n{expected}");
        }
        // A kernel that has looked learns of it at once, and the tier too.
        let path = job.cached("copied/plain");
        for (change, allowed) in [("-m u:65534:-", false), ("-m u:65534:r", true), ("-b", false)] {
            job.node(1)?.shell(&format!("setfacl {change} {path}"))?;
            for node in [0, 1] {
                let opened = opened(&job.node(node)?, &path, "r");
                ensure!(opened.is_ok() == allowed, "{change}, node {node}: {opened:?}");
            }
            let shown = sh(&tier.file("copied"), "getfacl -n plain")?;
            ensure!(shown.contains("user:65534:r--") == allowed, "{change}: {shown}");
        }
        Ok(())
    };
    test().map_err(|error| error.context(job.logs()))?;
    job.down()
}

fn of_the_tier() -> TestResult {
    let Some((local, expected)) = source("cache_lists_of_the_tier_are_checked_and_inherited")?
    else {
        return Ok(());
    };
    let tier = TierDir::new()?;
    let there = tier.file(".");
    sh(&there, &format!("cp -a {} . && setfacl -d -m u:65534:r .", local.file("tree").display()))?;
    let found = sh(&tier.file("tree"), SHOW)?;
    ensure!(found == expected, "{found}\n{expected}");
    in_front_of(&tier, |job, tier| {
        let tree = job.cached("tree");
        for node in [1, 0] {
            expect_checked(&job.node(node)?, &tree)?;
        }
        // Of the directory that is the tier, and of one below it.
        for node in [0, 1] {
            for dir in ["", "tree/"] {
                let name = format!("{dir}new-{node}");
                let made = format!("umask 077 && echo x > {}", job.cached(&name));
                job.node(node)?.shell(&made)?;
                for other in [0, 1] {
                    opened(&job.node(other)?, &job.cached(&name), "r")?;
                }
            }
        }
        flush(job)?;
        for name in ["new-0", "new-1", "tree/new-0", "tree/new-1"] {
            let shown = sh(&tier.file("."), &format!("getfacl -n {name}"))?;
            ensure!(shown.contains("user:65534:r-"), "{name}: {shown}");
        }
        let path = job.cached("tree/plain");
        sh(&tier.file("tree"), "setfacl -m u:65534:- plain")?;
        for node in [0, 1] {
            let node = job.node(node)?;
            eventually(NOTICED, || expect_errno(opened(&node, &path, "r"), &["EACCES"]))?;
        }
        // Written again by the job, it has the list that it had.
        let file = job.node(1)?.open(&path, "rw")?;
        file.pwrite(0, Data::bytes(b"y"))?;
        file.close()?;
        flush(job)?;
        ensure!(tier.read("tree/plain")? == b"y\n");
        let shown = sh(&tier.file("tree"), "getfacl -n plain")?;
        ensure!(shown.contains("user:65534:---"), "{shown}");
        Ok(())
    })
}

fn outlive_a_killed_job() -> TestResult {
    let Some((local, expected)) = source("cache_lists_outlive_a_killed_job")? else {
        return Ok(());
    };
    let there = local.file("tree").display().to_string();
    let tier = TierDir::new()?;
    let job = Job::up(tier.job(2))?;
    job.node(1)?.shell(&format!("cp -a {there} {}", job.cached("tree")))?;
    // Not flushed before all is killed.
    let open = job.node(0)?.open(&job.cached("open"), "rw+creat")?;
    open.pwrite(0, Data::bytes(b"open"))?;
    job.node(0)?.shell(&format!("setfacl -m u:65534:rw {}", job.cached("open")))?;
    std::mem::forget(open);
    kill_job(&job)?;
    let cluster = job.cluster().context("a real job")?;
    eventually(BACK, || {
        let mut resume = Process::new(binary()?);
        run(resume.arg("resume").arg(cluster.job_dir()), COMMAND)?.success().map(drop)
    })?;
    let found = sh(&tier.file("tree"), SHOW)?;
    ensure!(found == expected, "resumed: {found}\n{expected}");
    ensure!(tier.read("open")? == b"open");
    let found = sh(&tier.file("."), "getfacl -n open")?;
    ensure!(found.contains("user:65534:rw-"), "resumed: {found}");
    drop(job);
    // The next job finds them there.
    let job = Job::up(tier.job(2))?;
    for node in [0, 1] {
        let node = job.node(node)?;
        expect_checked(&node, &job.cached("tree"))?;
        let found = lists(&node, &job.cached("tree"))?;
        ensure!(found == expected, "the next job: {found}\n{expected}");
    }
    job.down()
}

fn where_the_tier_keeps_none() -> TestResult {
    let test = "cache_lists_stay_on_the_nodes_where_the_tier_keeps_none";
    let Some((local, expected)) = source(test)? else { return Ok(()) };
    let there = local.file("tree").display().to_string();
    let tier = TierDir::without_lists()?;
    let job = Job::up(tier.job(2))?;
    let check = || -> TestResult {
        for (copy, from, slash) in [("copied", "cp -a", ""), ("synced", "rsync -aA", "/")] {
            let here = job.cached(copy);
            job.node(0)?.shell(&format!("{from} {there}{slash} {here}"))?;
            flush(&job)?;
            for node in [0, 1] {
                let node = job.node(node)?;
                let found = lists(&node, &here)?;
                ensure!(found == expected, "{from}: {found}\n{expected}");
                expect_checked(&node, &here)?;
            }
            // What the mask allows those who are named is not for the group.
            let modes = sh(&tier.file(copy), "stat -c '%a %n' . d d/e d/f plain denied")?;
            let alone = "750 .\n750 d\n711 d/e\n640 d/f\n640 plain\n644 denied\n";
            ensure!(modes == alone, "{from}: {modes}");
        }
        let told = job.logs().matches("the tier keeps no access control lists").count();
        ensure!((1..=2).contains(&told), "said {told} times by two servers");
        Ok(())
    };
    check().map_err(|error| error.context(job.logs()))?;
    job.down()
}
