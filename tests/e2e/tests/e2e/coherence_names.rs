//! Tests 17-22, 25 and 27 of the coherence protocol: names, links and rights.

use std::time::Duration;

use anyhow::{Context, ensure};
use hayase_e2e::actor::Answer;
use hayase_e2e::{
    Command, Data, JobOptions, Loop, Scene, Suite, TestResult, Until, eventually, expect_errno,
    note,
};

pub(crate) fn suite() -> Suite {
    Suite::new("coherence_names", JobOptions::three())
        .posix("coherence_17_unlinked_files_live_on", unlinked_files_live_on)
        .posix("coherence_17_space_comes_back", space_comes_back)
        .posix("coherence_18_replaced_file_is_whole", replaced_file_is_whole)
        .posix("coherence_19_old_file_stays_open", old_file_stays_open)
        .posix("coherence_20_renames_there_and_back", renames_there_and_back)
        .posix("coherence_21_directories_into_each_other", directories_into_each_other)
        .posix("coherence_17_removed_names_count_at_once", removed_names_count_at_once)
        .posix("coherence_22_hard_links", hard_links)
        .posix("coherence_22_links_go_before_unlink_returns", links_go_before_unlink_returns)
        .posix("coherence_25_created_after_a_miss", created_after_a_miss)
        .posix("coherence_25_created_in_a_new_directory", created_in_a_new_directory)
        .posix("coherence_25_gone_from_a_new_directory", gone_from_a_new_directory)
        .posix("coherence_25_gone_after_a_hit", gone_after_a_hit)
        .posix("coherence_27_rights_follow_at_once", rights_follow_at_once)
}

/// A name that is gone may be seen so long: 1 s, and what a loaded machine adds.
const NAME_BOUND: Duration = Duration::from_millis(1300);

/// B unlinks what A and C have open.
fn unlinked_files_live_on(scene: &Scene<'_>) -> TestResult {
    let striped = scene.striped("striped")?;
    for dir in [scene.dir(), &striped] {
        let path = format!("{dir}/file");
        scene.a.write_file(&path, Data::fill(1, 100_000))?;
        let (first, second) = (scene.a.open(&path, "rw")?, scene.c.open(&path, "rw")?);
        scene.b.unlink(&path)?;
        // When exactly the name is gone is test 25; here only that it goes.
        for node in scene.nodes() {
            eventually(NAME_BOUND, || expect_errno(node.stat(&path), &["ENOENT"]))?;
        }
        for (round, (writer, reader)) in
            [(&first, &second), (&second, &first)].into_iter().cycle().take(20).enumerate()
        {
            let data = Data::pattern(round as u64, 30_000);
            writer.pwrite(round as u64 * 20_000, data.clone())?;
            reader.check(round as u64 * 20_000, data).with_context(|| format!("round {round}"))?;
        }
        for file in [&first, &second] {
            let attr = file.attr()?;
            ensure!(attr.nlink == 0, "nlink is {} on node {}", attr.nlink, file.node().index());
            ensure!(attr.size == 410_000, "the size is {}", attr.size);
        }
        // The open file is still there by its descriptor's own name.
        let own = format!("/proc/self/fd/{}", raw(&first)?);
        let again = scene.a.open(&own, "r").context("reopen by /proc/self/fd")?;
        again.check(380_000, Data::pattern(19, 30_000))?;
        // The name is free for another file.
        scene.b.write_file(&path, Data::fill(9, 10))?;
        ensure!(scene.a.read_file(&path)? == [9; 10], "the new file of the same name");
        first.check(380_000, Data::pattern(19, 30_000))?;
        scene.a.unlink(&path)?;
    }
    Ok(())
}

/// Who removed a name finds everything as it is after that, however soon it looks.
fn removed_names_count_at_once(scene: &Scene<'_>) -> TestResult {
    let (path, other) = (scene.path("file"), scene.path("other"));
    for round in 0..150 {
        let maker = if round % 2 == 0 { &scene.a } else { &scene.b };
        maker.write_file(&path, Data::fill(round as u8, 10))?;
        for node in [&scene.a, &scene.b] {
            node.link(&path, &other)?;
            let open = node.open(&other, "rw")?;
            let before = node.stat(scene.dir())?;
            node.unlink(&path)?;
            let story = || format!("round {round}, removed by node {}", node.index());
            let (by_descriptor, by_name) = (open.attr()?.nlink, node.stat(&other)?.nlink);
            ensure!(
                (by_descriptor, by_name) == (1, 1),
                "{}: {by_descriptor} links, {by_name} by name",
                story()
            );
            expect_errno(node.stat(&path), &["ENOENT"]).with_context(story)?;
            let after = node.stat(scene.dir())?;
            ensure!(after.mtime >= before.mtime, "{}: the directory grew younger", story());
            // The same name, of the same file and then of another one.
            node.link(&other, &path).with_context(story)?;
            ensure!(open.attr()?.nlink == 2, "{}: linked again", story());
            node.unlink(&path)?;
            node.unlink(&other)?;
            let nlink = open.attr()?.nlink;
            ensure!(nlink == 0, "{}: {nlink} links of a file without a name", story());
            node.write_file(&path, Data::fill(7, 20)).with_context(story)?;
            let made = node.stat(&path)?;
            ensure!(made.size == 20 && made.nlink == 1, "{}: {made:?}", story());
            open.close()?;
        }
        scene.b.unlink(&path)?;
    }
    Ok(())
}

/// The number of a descriptor inside its actor, found by what it points at.
fn raw(file: &hayase_e2e::File) -> anyhow::Result<u32> {
    let ino = file.attr()?.ino;
    let script = format!(
        "for f in /proc/$PPID/fd/*; do [ \"$(stat -Lc %i $f 2>/dev/null)\" = {ino} ] && \
         basename $f; done"
    );
    let output = file.node().shell(&format!("{script}; true"))?;
    Ok(output.stdout.lines().next().context("no descriptor of that inode")?.parse()?)
}

/// After the last close the bytes of an unlinked file are free again.
fn space_comes_back(scene: &Scene<'_>) -> TestResult {
    const LEN: u64 = 64 << 20;
    if !scene.job.owns_space() {
        note("others use this file system: free space was not looked at");
        return Ok(());
    }
    let path = scene.path("file");
    let free = |node: &hayase_e2e::Node| Ok::<_, anyhow::Error>(node.space(scene.dir())?.free);
    // What the test before has removed may still be on its way back.
    let settled = || {
        let first = free(&scene.a)?;
        std::thread::sleep(Duration::from_millis(1200));
        let then = free(&scene.a)?;
        ensure!(first == then, "{first} bytes are free, and then {then}");
        Ok(())
    };
    eventually(Duration::from_secs(15), settled)?;
    let before = free(&scene.a)?;
    scene.a.write_file(&path, Data::fill(1, LEN))?;
    let held = [scene.a.open(&path, "r")?, scene.c.open(&path, "rw")?];
    scene.b.unlink(&path)?;
    let taken = before - free(&scene.b)?.min(before);
    ensure!(taken >= LEN * 9 / 10, "{taken} bytes are taken while it is open");
    let [first, last] = held;
    first.close()?;
    last.check(0, Data::fill(1, 4096))?;
    last.close()?;
    // An open that nobody uses any more may linger at its home for 5 s.
    let waited = eventually(Duration::from_secs(8), || {
        let left = before.saturating_sub(free(&scene.b)?);
        ensure!(left < LEN / 10, "{left} bytes are still taken after the last close");
        Ok(())
    })?;
    note(&format!("free {:.1} s after the last close", waited.as_secs_f64()));
    Ok(())
}

/// A renames new over old without pause; B and C always read one whole version.
fn replaced_file_is_whole(scene: &Scene<'_>) -> TestResult {
    let (path, temporary) = (scene.path("file"), scene.path("new"));
    let replace = Loop::Replace { path: path.clone(), temporary };
    scene.a.run_loop(replace.clone(), Until::rounds(1, 5.0))?;
    let writer = scene.a.begin_loop(replace, Until::rounds(3000, 8.0).at_least(100));
    let readers: Vec<_> = scene
        .nodes()
        .into_iter()
        .map(|node| {
            let work = Loop::ReadVersions { path: path.clone() };
            (node, node.begin_loop(work, Until::raised("replaced", 30.0).at_least(100)))
        })
        .collect();
    let written = writer.wait()?;
    for node in scene.nodes() {
        node.call(Command::Raise { flag: "replaced".into() })?;
    }
    ensure!(written.violations == 0, "{written:?}");
    ensure!(written.good >= 100, "only {} versions", written.good);
    for (node, reader) in readers {
        let read = reader.wait()?;
        ensure!(read.violations == 0, "node {}: {read:?}", node.index());
        ensure!(read.good >= 100, "node {}: only {} reads", node.index(), read.good);
        note(&format!(
            "node {}: {} whole reads of {} versions",
            node.index(),
            read.good,
            written.good
        ));
    }
    Ok(())
}

/// B has the old file open: it goes on reading the old one.
fn old_file_stays_open(scene: &Scene<'_>) -> TestResult {
    let (path, temporary) = (scene.path("file"), scene.path("new"));
    for round in 0..20_u8 {
        scene.a.write_file(&path, Data::fill(round + 1, 50_000))?;
        let held =
            [scene.b.open(&path, "r")?, scene.a.open(&path, "r")?, scene.c.open(&path, "rw")?];
        if round % 2 == 0 {
            held[0].check(0, Data::fill(round + 1, 50_000))?;
        }
        scene.a.write_file(&temporary, Data::fill(round + 101, 60_000))?;
        scene.a.rename(&temporary, &path)?;
        for file in &held {
            file.check(0, Data::fill(round + 1, 50_000)).context("the old file")?;
            ensure!(file.attr()?.nlink == 0, "the old file has a name");
        }
        for node in scene.nodes() {
            ensure!(node.read_file(&path)? == [round + 101; 60_000], "round {round}: the new file");
            expect_errno(node.stat(&temporary), &["ENOENT"])?;
        }
        for file in held {
            file.close()?;
        }
    }
    Ok(())
}

/// A renames one way, B the other, 10,000 times: the file has one of the names all the time.
fn renames_there_and_back(scene: &Scene<'_>) -> TestResult {
    const ROUNDS: u64 = 10_000;
    scene.a.mkdir(&scene.path("x"))?;
    scene.a.mkdir(&scene.path("y"))?;
    for (from, to) in [("a", "b"), ("x/a", "y/b")] {
        let (from, to) = (scene.path(from), scene.path(to));
        scene.c.write_file(&from, Data::fill(7, 1000))?;
        let there = Loop::Rename { from: from.clone(), to: to.clone() };
        let back = Loop::Rename { from: to.clone(), to: from.clone() };
        let until = Until::rounds(ROUNDS / 2, 8.0).at_least(40);
        let there = scene.a.begin_loop(there, until.clone());
        let back = scene.b.begin_loop(back, until);
        let (there, back) = (there.wait()?, back.wait()?);
        for report in [&there, &back] {
            ensure!(report.violations == 0, "{report:?}");
            // Each takes up to 20 ms: both kernels are busy in the directory all the time.
            ensure!(report.good >= 40, "only {} renames", report.good);
        }
        ensure!(there.good.abs_diff(back.good) <= 1, "{} there, {} back", there.good, back.good);
        let moved = there.good + back.good;
        note(&format!("moved {moved} times in {} ms", there.millis.max(back.millis)));
        eventually(NAME_BOUND, || {
            for node in scene.nodes() {
                let found = [&from, &to].map(|path| node.stat(path).is_ok());
                ensure!(found[0] != found[1], "node {} sees {found:?}", node.index());
            }
            Ok(())
        })?;
        let left = if scene.c.stat(&from).is_ok() { &from } else { &to };
        ensure!(scene.c.read_file(left)? == [7; 1000], "the bytes");
        ensure!(scene.a.stat(left)?.nlink == 1, "nlink");
        scene.b.unlink(left)?;
    }
    Ok(())
}

/// Two directories renamed into each other at the same time: one of them wins, no loop is made.
fn directories_into_each_other(scene: &Scene<'_>) -> TestResult {
    let mut refused = 0;
    for round in 0..60 {
        let top = scene.path(&format!("round-{round}"));
        let (x, y) = (format!("{top}/x"), format!("{top}/y"));
        for dir in [&top, &x, &y] {
            scene.a.mkdir(dir)?;
        }
        scene.a.write_file(&format!("{x}/in-x"), Data::fill(1, 1))?;
        scene.b.write_file(&format!("{y}/in-y"), Data::fill(2, 1))?;
        let rename = |from: &str, to: String| Command::Rename {
            from: from.to_owned(),
            to,
            flags: String::new(),
        };
        let first = scene.a.begin(rename(&x, format!("{y}/x")));
        let second = scene.b.begin(rename(&y, format!("{x}/y")));
        let results = [first.wait(), second.wait()];
        let won = results.iter().filter(|result| result.is_ok()).count();
        ensure!(won == 1, "round {round}: {results:?}");
        for result in results {
            if result.is_err() {
                expect_errno(result, &["EINVAL", "ENOENT"])?;
                refused += 1;
            }
        }
        let found = scene.c.shell(&format!("cd {top} && find . -type f | sort"))?.stdout;
        let whole = ["./x/in-x\n./x/y/in-y\n", "./y/in-y\n./y/x/in-x\n"];
        ensure!(whole.contains(&found.as_str()), "round {round}: {found:?}");
    }
    note(&format!("{refused} of 60 refused"));
    // The loop check itself: the name of the parent was looked up before it moved.
    let (x, y) = (scene.path("x"), scene.path("y"));
    scene.a.mkdir(&x)?;
    scene.a.mkdir(&y)?;
    let dirs = [scene.b.open(scene.dir(), "r+directory")?, scene.b.open(&x, "r+directory")?];
    scene.a.rename(&x, &format!("{y}/x"))?;
    let (from_dir, to_dir) = (dirs[0].id(), dirs[1].id());
    let looping = Command::RenameAt { from_dir, from: "y".into(), to_dir, to: "y".into() };
    expect_errno(scene.b.call(looping), &["EINVAL"])
}

/// A hard link made on B, bytes written on A, both names looked at on C.
fn hard_links(scene: &Scene<'_>) -> TestResult {
    scene.a.mkdir(&scene.path("dir"))?;
    let names: Vec<String> = ["file", "second", "dir/third"].map(|name| scene.path(name)).into();
    scene.a.write_file(&names[0], Data::fill(1, 100))?;
    let writer = scene.a.open(&names[0], "rw")?;
    scene.c.stat(&names[0])?;
    for (count, name) in (2_u64..).zip(&names[1..]) {
        scene.b.link(&names[0], name)?;
        writer.pwrite(count * 1000, Data::fill(2, 500))?;
        let attrs: Vec<_> = names[..count as usize]
            .iter()
            .map(|name| scene.c.stat(name))
            .collect::<Result<_, _>>()?;
        for attr in &attrs {
            ensure!(*attr == attrs[0], "{attrs:?}");
            ensure!(attr.nlink == count, "nlink is {} of {count}", attr.nlink);
            ensure!(attr.size == count * 1000 + 500, "the size is {}", attr.size);
        }
        ensure!(writer.attr()?.nlink == count, "fstat: nlink");
    }
    expect_errno(scene.c.link(&names[0], &names[1]), &["EEXIST"])?;
    scene.c.unlink(&names[0])?;
    expect_errno(scene.a.stat(&names[0]), &["ENOENT"])?;
    ensure!(scene.a.stat(&names[2])?.nlink == 2, "nlink after the unlink of the first name");
    ensure!(scene.b.read_file(&names[2])? == scene.a.read_file(&names[1])?, "the bytes");
    // Both names of one file: rename does nothing and succeeds.
    scene.b.rename(&names[1], &names[2])?;
    ensure!(scene.a.stat(&names[1])?.nlink == 2, "rename of a link onto another");
    scene.b.unlink(&names[1])?;
    scene.b.unlink(&names[2])?;
    ensure!(writer.attr()?.nlink == 0, "nlink of the open file without names");
    writer.check(3000, Data::fill(2, 500))
}

/// Names of files of A lie on all nodes; who is told that one is gone finds one link less, wherever it
/// looks: a server takes the link of a file of its own only when it has answered.
fn links_go_before_unlink_returns(scene: &Scene<'_>) -> TestResult {
    for round in 0..40 {
        let [name, other] = ["name", "other"].map(|name| scene.path(&format!("{name}-{round}")));
        scene.a.write_file(&name, Data::fill(1, 10))?;
        scene.a.link(&name, &other)?;
        let held = scene.a.open(&other, "r")?;
        ensure!(scene.b.stat(&other)?.nlink == 2 && held.attr()?.nlink == 2, "two names");
        let links = |expected| {
            let found = [held.attr()?.nlink, scene.b.stat(&other)?.nlink];
            ensure!(found == [expected; 2], "round {round}: links on A and B: {found:?}");
            Ok(())
        };
        scene.a.unlink(&name)?;
        links(1)?;
        scene.a.unlink(&other)?;
        ensure!(held.attr()?.nlink == 0, "round {round}: a file without names has links");
        held.check(0, Data::fill(1, 10))?;
    }
    names_of_one_file_go_in_a_row(scene)
}

fn names_of_one_file_go_in_a_row(scene: &Scene<'_>) -> TestResult {
    let names: Vec<_> = (0..50).map(|i| scene.path(&format!("in-a-row-{i}"))).collect();
    scene.a.write_file(&names[0], Data::fill(1, 10))?;
    for name in &names[1..] {
        scene.a.link(&names[0], name)?;
    }
    let last = names.last().expect("some");
    for name in &names[..names.len() - 1] {
        scene.a.unlink(name)?;
    }
    let found = [scene.b.stat(last)?.nlink, scene.a.stat(last)?.nlink];
    ensure!(found == [1; 2], "links on B and A after all names but one: {found:?}");
    Ok(())
}

/// C misses a name, A makes it and says so: C's next stat finds it.
fn created_after_a_miss(scene: &Scene<'_>) -> TestResult {
    scene.a.write_file(&scene.path("source"), Data::fill(1, 1))?;
    for round in 0..60 {
        let path = scene.path(&format!("new-{round}"));
        for node in [&scene.b, &scene.c] {
            expect_errno(node.stat(&path), &["ENOENT"])?;
            expect_errno(node.open(&path, "r"), &["ENOENT"])?;
        }
        match round % 6 {
            0 => scene.a.write_file(&path, Data::fill(1, 1))?,
            1 => scene.a.mkdir(&path)?,
            2 => scene.a.symlink("source", &path)?,
            3 => scene.a.link(&scene.path("source"), &path)?,
            4 => {
                let other = scene.path("other");
                scene.b.write_file(&other, Data::fill(1, 1))?;
                scene.a.rename(&other, &path)?;
            }
            _ => {
                let other = scene.path("other");
                scene.c.mkdir(&other)?;
                scene.a.rename(&other, &path)?;
            }
        }
        for node in [&scene.c, &scene.b] {
            node.stat(&path).with_context(|| format!("round {round}"))?;
        }
    }
    Ok(())
}

/// The maker of a directory knows which names are not in it, until another node makes one there.
fn created_in_a_new_directory(scene: &Scene<'_>) -> TestResult {
    scene.a.write_file(&scene.path("source"), Data::fill(1, 1))?;
    for round in 0..90 {
        let nodes = scene.nodes();
        let (maker, other) = (nodes[round % 3], nodes[(round + 1 + round / 45) % 3]);
        let (dir, source) = (scene.path(&format!("dir-{round}")), scene.path("source"));
        maker.mkdir(&dir)?;
        let own = format!("{dir}/own");
        expect_errno(maker.stat(&own), &["ENOENT"])?;
        maker.write_file(&own, Data::fill(2, 10))?;
        let path = format!("{dir}/new");
        expect_errno(maker.stat(&path), &["ENOENT"])?;
        match round % 5 {
            0 => other.write_file(&path, Data::fill(1, 1))?,
            1 => other.mkdir(&path)?,
            2 => other.symlink("own", &path)?,
            3 => other.link(&source, &path)?,
            _ => other.rename(&own, &path)?,
        }
        for node in nodes {
            node.stat(&path).with_context(|| format!("round {round}, node {}", node.index()))?;
        }
        // From now on both make names, and each sees those of the other.
        for name in 0..4 {
            let (one, two) = if name % 2 == 0 { (maker, other) } else { (other, maker) };
            let path = format!("{dir}/{name}");
            expect_errno(two.stat(&path), &["ENOENT"])?;
            one.write_file(&path, Data::fill(3, 5))?;
            ensure!(two.stat(&path)?.size == 5, "round {round}");
        }
        expect_errno(maker.rmdir(&dir), &["ENOTEMPTY", "EEXIST"])?;
    }
    Ok(())
}

/// The maker of a directory knows which names are in it, until another node takes one away there.
fn gone_from_a_new_directory(scene: &Scene<'_>) -> TestResult {
    let mut late = 0;
    for round in 0..30 {
        let nodes = scene.nodes();
        let (maker, other) = (nodes[round % 3], nodes[(round + 1 + round / 15) % 3]);
        let dir = scene.path(&format!("made-{round}"));
        let [gone, stays] = ["gone", "stays"].map(|name| format!("{dir}/{name}"));
        maker.mkdir(&dir)?;
        for path in [&gone, &stays] {
            maker.write_file(path, Data::fill(1, 1))?;
        }
        let made = maker.stat(&gone)?.ino;
        if round % 5 == 0 {
            // The kernel has forgotten the name, and is told by its mount.
            std::thread::sleep(NAME_BOUND + Duration::from_millis(100));
            maker.stat(&gone)?;
        }
        match round % 3 {
            0 => other.unlink(&gone)?,
            1 => other.rename(&gone, &scene.path("elsewhere"))?,
            _ => other.rename(&stays, &gone)?,
        }
        let is_gone = || match round % 3 {
            2 => {
                ensure!(maker.stat(&gone)?.ino != made, "the replaced file");
                expect_errno(maker.stat(&stays), &["ENOENT"])
            }
            _ => expect_errno(maker.stat(&gone), &["ENOENT"]),
        };
        let waited = eventually(NAME_BOUND, is_gone).with_context(|| format!("round {round}"))?;
        late += u32::from(!waited.is_zero());
        // From now on both change names, and each sees what the other did.
        other.write_file(&format!("{dir}/again"), Data::fill(3, 5))?;
        ensure!(maker.stat(&format!("{dir}/again"))?.size == 5, "round {round}");
    }
    ensure!(late <= 3, "{late} of 30 names were seen after they were gone");
    Ok(())
}

/// A name that all nodes know goes away on one of them. Normally at once; the bound is 1 s for
/// stat, and an open of what is gone never succeeds.
fn gone_after_a_hit(scene: &Scene<'_>) -> TestResult {
    let mut late = 0;
    for round in 0..60 {
        let path = scene.path(&format!("old-{round}"));
        let nodes = scene.nodes();
        nodes[round % 3].write_file(&path, Data::fill(1, 1))?;
        for node in nodes {
            node.stat(&path)?;
        }
        let remover = nodes[(round + 1) % 3];
        if round % 2 == 0 {
            remover.unlink(&path)?;
        } else {
            remover.rename(&path, &scene.path("elsewhere"))?;
        }
        expect_errno(remover.stat(&path), &["ENOENT"])?;
        for node in nodes {
            if round % 2 == 0 {
                expect_errno(node.open(&path, "r"), &["ENOENT"])?;
            }
            let waited = eventually(NAME_BOUND, || expect_errno(node.stat(&path), &["ENOENT"]));
            late += u32::from(!waited.with_context(|| format!("round {round}"))?.is_zero());
        }
    }
    ensure!(late <= 6, "{late} of 180 names were seen after they were gone");
    note(&format!("{late} of 180 names were seen for a moment after they were gone"));
    Ok(())
}

/// chmod 0 on A: the next open by a user of B is refused, and allowed again after the next chmod.
fn rights_follow_at_once(scene: &Scene<'_>) -> TestResult {
    let path = scene.path("file");
    scene.a.write_file(&path, Data::fill(1, 1))?;
    let open = |flags: &str| Command::Open { path: path.clone(), flags: flags.into(), mode: 0 };
    for round in 0..12 {
        for node in scene.nodes() {
            scene.a.chmod(&path, 0o644)?;
            let opened = node.as_nobody(open("r"));
            ensure!(matches!(opened, Ok(Answer::File(_))), "round {round}: {opened:?}");
            expect_errno(node.as_nobody(open("w")), &["EACCES"])?;
            ensure!(node.stat(&path)?.mode & 0o7777 == 0o644, "mode on node {}", node.index());
            scene.a.chmod(&path, 0)?;
            expect_errno(node.as_nobody(open("r")), &["EACCES"])
                .with_context(|| format!("round {round}, node {}", node.index()))?;
            ensure!(node.stat(&path)?.mode & 0o7777 == 0, "mode on node {}", node.index());
        }
    }
    // The owner likewise.
    scene.a.chmod(&path, 0o600)?;
    for node in scene.nodes() {
        expect_errno(node.as_nobody(open("r")), &["EACCES"])?;
    }
    scene.b.call(Command::Chown { path: path.clone(), uid: 65_534, gid: 65_534 })?;
    for node in scene.nodes() {
        node.as_nobody(open("rw"))?;
        ensure!(node.stat(&path)?.uid == 65_534, "owner on node {}", node.index());
    }
    Ok(())
}
