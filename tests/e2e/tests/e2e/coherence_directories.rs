//! Tests 23, 24 and 26 of the coherence protocol: directories that several nodes change at once.

use anyhow::ensure;
use hayase_e2e::{Command, Data, JobOptions, Loop, Report, Scene, Suite, TestResult, Until, note};

pub(crate) fn suite() -> Suite {
    Suite::new("coherence_directories", JobOptions::three())
        .posix("coherence_23_no_file_in_a_removed_directory", no_file_in_a_removed_directory)
        .posix("coherence_24_crosswise_names_do_not_stall", crosswise_names_do_not_stall)
        .posix("coherence_26_stable_names_exactly_once", stable_names_exactly_once)
        .posix("a_directory_keeps_the_time_that_it_is_given", the_time_that_it_is_given)
}

/// A makes and removes a directory without pause; B and C create in it. What was created is there.
fn no_file_in_a_removed_directory(scene: &Scene<'_>) -> TestResult {
    let path = scene.path("dir");
    let creators: Vec<_> = [(&scene.b, "b"), (&scene.c, "c")]
        .into_iter()
        .map(|(node, name)| {
            let work = Loop::CreateInside { path: path.clone(), name: name.into() };
            (node, node.begin_loop(work, Until::raised("removed", 30.0)))
        })
        .collect();
    let work = Loop::MakeRemove { path: path.clone() };
    let removed = scene.a.run_loop(work, Until::rounds(3000, 8.0).at_least(300))?;
    let mut created = 0;
    for (node, creator) in creators {
        node.call(Command::Raise { flag: "removed".into() })?;
        let report = creator.wait()?;
        ensure!(report.violations == 0, "node {}: {report:?}", node.index());
        created += report.good / 2;
    }
    ensure!(removed.violations == 0, "{removed:?}");
    ensure!(removed.rounds >= 300, "only {} rounds", removed.rounds);
    note(&format!("{created} files created in {} directories", removed.rounds));
    Ok(())
}

/// A and B create and unlink each other's names in one directory that both have listed.
fn crosswise_names_do_not_stall(scene: &Scene<'_>) -> TestResult {
    // Where a mount cannot drop a name at once, its server waits 80 ms and lets it be dropped later;
    // without that a call would wait for the deadline of a recall, 3 s.
    const STALL_US: u64 = 1_000_000;
    let dir = scene.path("dir");
    scene.a.mkdir(&dir)?;
    for number in 0..50 {
        scene.c.write_file(&format!("{dir}/stays-{number}"), Data::fill(0, 0))?;
    }
    for node in scene.nodes() {
        node.shell(&format!("ls -l {dir}"))?;
    }
    let work = |own: &str, other: &str| Loop::CreateUnlink {
        create: format!("{dir}/{own}"),
        unlink: format!("{dir}/{other}"),
    };
    let until = Until::rounds(2000, 10.0).at_least(100);
    let first = scene.a.begin_loop(work("a", "b"), until.clone());
    let second = scene.b.begin_loop(work("b", "a"), until);
    let reports: [Report; 2] = [first.wait()?, second.wait()?];
    for report in &reports {
        ensure!(report.violations == 0, "{report:?}");
        ensure!(report.rounds >= 100, "only {} rounds", report.rounds);
        // What the scheduler of a loaded machine adds is measured during the loop; a call waits for
        // two kernels, two mounts and two servers, some of them twice.
        let bound = STALL_US + 16 * report.unscheduled_us;
        ensure!(report.slowest_us <= bound, "stalled for {} us: {report:?}", report.slowest_us);
        note(&format!("slowest of {}: {} us", report.rounds, report.slowest_us));
    }
    // All that were made and not unlinked are there, on each node alike.
    let made: u64 = reports.iter().map(|report| report.rounds).sum();
    let unlinked: u64 = reports.iter().map(|report| report.good - report.rounds).sum();
    let left = scene.c.names(&dir)?;
    ensure!(
        left.len() as u64 == 50 + made - unlinked,
        "{} names of {made} - {unlinked}",
        left.len()
    );
    ensure!(scene.a.names(&dir)? == left && scene.b.names(&dir)? == left, "nodes disagree");
    Ok(())
}

/// 1,000 names stay, 10,000 others come and go on A: each listing has the stable ones exactly once.
fn stable_names_exactly_once(scene: &Scene<'_>) -> TestResult {
    const STABLE: u64 = 1000;
    let dir = scene.path("dir");
    scene.a.mkdir(&dir)?;
    scene.a.shell(&format!(
        "cd {dir} && i=0; while [ $i -lt {STABLE} ]; do : > s$i; i=$((i+1)); done"
    ))?;
    let list = Loop::List { path: dir.clone(), stable: STABLE, pause_ms: 150 };
    let listers: Vec<_> = scene
        .nodes()
        .into_iter()
        .map(|node| (node, node.begin_loop(list.clone(), Until::raised("done", 40.0).at_least(2))))
        .collect();
    let churn = Loop::CreateUnlink { create: format!("{dir}/t"), unlink: format!("{dir}/t") };
    let churned = scene.a.run_loop(churn, Until::rounds(10_000, 15.0).at_least(100))?;
    ensure!(churned.violations == 0, "{churned:?}");
    ensure!(churned.rounds >= 100, "only {} creates", churned.rounds);
    for (node, lister) in listers {
        node.call(Command::Raise { flag: "done".into() })?;
        let report = lister.wait()?;
        ensure!(report.violations == 0, "node {}: {report:?}", node.index());
        ensure!(report.good >= 2, "node {}: only {} listings", node.index(), report.good);
        note(&format!(
            "node {}: {} listings during {} creates and unlinks",
            node.index(),
            report.good,
            churned.rounds
        ));
    }
    ensure!(scene.b.names(&dir)?.len() as u64 == STABLE, "names are left");
    Ok(())
}

/// As `cp -a`, `rsync -a` and tar leave a directory: filled, then dated.
fn the_time_that_it_is_given(scene: &Scene<'_>) -> TestResult {
    const DATE: &str = "1000000000";
    let dir = scene.path("dated");
    let fill = format!("mkdir {dir} && for i in $(seq 50); do : > {dir}/f$i; done");
    let look = format!("stat -c %Y {dir}");
    let told = scene.a.shell(&format!("{fill} && touch -d @{DATE} {dir} && {look}"))?;
    ensure!(told.stdout.trim() == DATE, "at once: {told:?}");
    // What was made before is told late, and estimated for a second.
    std::thread::sleep(std::time::Duration::from_millis(1200));
    for node in scene.nodes() {
        let told = node.shell(&look)?;
        ensure!(told.stdout.trim() == DATE, "node {}: {told:?}", node.index());
    }
    let told = scene.b.shell(&format!(": > {dir}/later && {look}"))?;
    ensure!(told.stdout.trim() != DATE, "a new name left it as it was");
    Ok(())
}
