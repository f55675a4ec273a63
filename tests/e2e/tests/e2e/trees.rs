//! What ordinary programs do in `shared`: trees, long names, links, xattrs, builds from all nodes.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use hayase_e2e::{
    Command, Data, JobOptions, Node, Scene, Suite, TestResult, TierDir, Whence, expect_errno, note,
    skip,
};

pub(crate) fn suite() -> Suite {
    Suite::new("trees", JobOptions::three())
        .posix("tree_ten_thousand_names", ten_thousand_names)
        .posix("tree_deep_paths_and_long_names", deep_paths_and_long_names)
        .posix("tree_symlinks_across_nodes", symlinks_across_nodes)
        .posix("tree_rename_flags", rename_flags)
        .posix("tree_attributes_across_nodes", attributes_across_nodes)
        .posix("tree_access_control_lists", access_control_lists)
        .posix("tree_holes_across_nodes", holes_across_nodes)
        .posix("tree_copies_across_nodes", copies_across_nodes)
        .posix("tree_unpacked_and_checked_elsewhere", unpacked_and_checked_elsewhere)
        .posix("tree_built_by_all_nodes", built_by_all_nodes)
        .posix("tree_removed_from_another_node", removed_from_another_node)
}

/// 10,000 names made by all nodes are listed once each on all nodes.
fn ten_thousand_names(scene: &Scene<'_>) -> TestResult {
    let dir = scene.path("dir");
    scene.a.mkdir(&dir)?;
    let make = |node: &Node, from: u32, to: u32| {
        let script = format!(
            "cd {dir} && i={from}; while [ $i -lt {to} ]; do : > name-$i || exit 1; i=$((i+1)); done"
        );
        let bound = Duration::from_secs(60);
        node.begin_within(Command::Shell { script }, bound)
    };
    let begun = [make(&scene.a, 0, 3333), make(&scene.b, 3333, 6666), make(&scene.c, 6666, 10_000)];
    for pending in begun {
        expect_good(pending.wait()?)?;
    }
    let mut expected: Vec<String> = (0..10_000).map(|number| format!("name-{number}")).collect();
    expected.sort();
    for node in scene.nodes() {
        let names = node.names(&dir)?;
        ensure!(names == expected, "node {}: {} names", node.index(), names.len());
        let inodes: std::collections::BTreeSet<u64> =
            node.list(&dir)?.into_iter().map(|entry| entry.ino).collect();
        ensure!(inodes.len() == 10_000, "{} inodes", inodes.len());
        let counted = long_shell(node, &format!("ls -l {dir} | wc -l"))?;
        ensure!(counted.trim() == "10001", "ls -l prints {} lines", counted.trim());
    }
    long_shell(&scene.c, &format!("rm -r {dir}"))?;
    expect_errno(scene.a.stat(&dir), &["ENOENT"])
}

/// A script that does something 10,000 times.
fn long_shell(node: &Node, script: &str) -> anyhow::Result<String> {
    let start = Instant::now();
    let bound = Duration::from_secs(90);
    let said =
        expect_good(node.begin_within(Command::Shell { script: script.into() }, bound).wait()?)?;
    let command = script.split(' ').take(2).collect::<Vec<_>>().join(" ");
    note(&format!(
        "{command} took {:.1} s on node {}",
        start.elapsed().as_secs_f64(),
        node.index()
    ));
    Ok(said)
}

fn deep_paths_and_long_names(scene: &Scene<'_>) -> TestResult {
    // A path as long as a call takes: each level by another node.
    let mut path = scene.dir().to_owned();
    let mut depth = 0;
    while path.len() + 61 < 4000 {
        path = format!("{path}/{}", "d".repeat(59));
        scene.nodes()[depth % 3].mkdir(&path)?;
        depth += 1;
    }
    let file = format!("{path}/f");
    scene.a.write_file(&file, Data::pattern(1, 1000))?;
    for node in scene.nodes() {
        let found = node.read_file(&file).with_context(|| format!("{depth} levels deep"))?;
        ensure!(Ok(found) == Data::pattern(1, 1000).at(0), "{depth} levels deep");
    }
    let longest = scene.path(&"n".repeat(255));
    scene.b.write_file(&longest, Data::fill(1, 1))?;
    ensure!(scene.c.names(scene.dir())?.contains(&"n".repeat(255)), "the longest name");
    scene.c.rename(&longest, &scene.path(&"m".repeat(255)))?;
    scene.a.stat(&scene.path(&"m".repeat(255)))?;
    let too_long = scene.path(&"n".repeat(256));
    expect_errno(scene.b.open(&too_long, "w+creat"), &["ENAMETOOLONG"])?;
    expect_errno(scene.b.mkdir(&too_long), &["ENAMETOOLONG"])?;
    // Names are bytes: blanks, line ends, other letters, no letters at all.
    let dir = scene.path("odd");
    scene.a.mkdir(&dir)?;
    scene.a.shell(&format!(
        "cd {dir} && : > 'a b' && : > \"$(printf 'a\\nb')\" && : > 早瀬 && : > \"$(printf '\\377\\001')\" && : > .hidden"
    ))?;
    for node in [&scene.b, &scene.c] {
        let found =
            node.shell(&format!("cd {dir} && for f in * .h*; do stat -c %s \"$f\"; done"))?;
        ensure!(found.stdout.lines().count() == 5, "odd names: {}", found.stdout);
    }
    scene.b.shell(&format!("rm -r {dir}"))?;
    Ok(())
}

fn symlinks_across_nodes(scene: &Scene<'_>) -> TestResult {
    scene.a.mkdir(&scene.path("dir"))?;
    scene.a.write_file(&scene.path("dir/file"), Data::fill(1, 10))?;
    let links = [
        ("relative", "dir/file".to_owned()),
        ("absolute", scene.path("dir/file")),
        ("chain", "relative".to_owned()),
        ("up", format!("../{}/dir/file", scene.dir().rsplit('/').next().unwrap_or_default())),
    ];
    for ((name, target), node) in links.iter().zip(scene.nodes().into_iter().cycle()) {
        node.symlink(target, &scene.path(name))?;
    }
    scene.b.symlink("nowhere", &scene.path("dangling"))?;
    scene.b.symlink("loop", &scene.path("loop"))?;
    scene.c.symlink(&"x".repeat(1000), &scene.path("long"))?;
    for node in scene.nodes() {
        for (name, target) in &links {
            ensure!(node.readlink(&scene.path(name))? == *target, "{name}");
            ensure!(node.read_file(&scene.path(name))? == [1; 10], "through {name}");
            let own = node.lstat(&scene.path(name))?;
            ensure!(own.mode & 0o170_000 == 0o120_000, "{name} is no link");
            ensure!(own.size == target.len() as u64, "the size of {name}");
        }
        ensure!(node.readlink(&scene.path("long"))?.len() == 1000, "a long target");
        expect_errno(node.stat(&scene.path("dangling")), &["ENOENT"])?;
        expect_errno(node.stat(&scene.path("loop")), &["ELOOP"])?;
        expect_errno(node.open(&scene.path("relative"), "r+nofollow"), &["ELOOP"])?;
    }
    // Created through a dangling link; then the link itself goes.
    scene.c.write_file(&scene.path("dangling"), Data::fill(2, 5))?;
    ensure!(scene.a.read_file(&scene.path("nowhere"))? == [2; 5], "created through a link");
    scene.a.unlink(&scene.path("dangling"))?;
    scene.b.stat(&scene.path("nowhere"))?;
    Ok(())
}

fn rename_flags(scene: &Scene<'_>) -> TestResult {
    let (one, two) = (scene.path("one"), scene.path("two"));
    scene.a.write_file(&one, Data::fill(1, 1))?;
    scene.b.write_file(&two, Data::fill(2, 1))?;
    expect_errno(scene.c.rename_flags(&one, &two, "noreplace"), &["EEXIST"])?;
    ensure!(scene.a.read_file(&two)? == [2], "a refused rename changes nothing");
    scene.b.unlink(&two)?;
    scene.c.rename_flags(&one, &two, "noreplace")?;
    ensure!(scene.a.read_file(&two)? == [1], "noreplace onto a free name");
    scene.b.write_file(&one, Data::fill(3, 1))?;
    match scene.a.rename_flags(&one, &two, "exchange") {
        Ok(()) => ensure!(
            scene.b.read_file(&one)? == [1] && scene.c.read_file(&two)? == [3],
            "exchange said yes and did something else"
        ),
        Err(refused) => ensure!(refused.errno == "EINVAL", "{refused}"),
    }
    let (empty, full) = (scene.path("empty"), scene.path("full"));
    scene.a.mkdir(&empty)?;
    scene.b.mkdir(&full)?;
    scene.c.write_file(&format!("{full}/file"), Data::fill(0, 0))?;
    expect_errno(scene.a.rename(&empty, &full), &["ENOTEMPTY", "EEXIST"])?;
    expect_errno(scene.a.rename(&one, &empty), &["EISDIR"])?;
    expect_errno(scene.b.rename(&empty, &one), &["ENOTDIR"])?;
    scene.c.rename(&full, &empty)?;
    ensure!(scene.a.names(&empty)? == ["file"], "a directory over an empty one");
    expect_errno(scene.b.rmdir(&empty), &["ENOTEMPTY"])
}

fn attributes_across_nodes(scene: &Scene<'_>) -> TestResult {
    let path = scene.path("file");
    scene.a.write_file(&path, Data::fill(1, 10))?;
    for (round, node) in scene.nodes().into_iter().cycle().take(9).enumerate() {
        let (name, value) = (format!("user.name-{round}"), format!("value {round}"));
        node.set_xattr(&path, &name, &value)?;
        let (atime, mtime) = (1_000_000_000_000_000_007 + round as i64, -5_000_000_001);
        node.call(Command::SetTimes { path: path.clone(), atime, mtime })?;
        node.chmod(&path, 0o600 + round as u32)?;
        for other in scene.nodes() {
            ensure!(other.get_xattr(&path, &name)? == value, "round {round}: xattr");
            let attr = other.stat(&path)?;
            ensure!((attr.atime, attr.mtime) == (atime, mtime), "round {round}: {attr:?}");
            ensure!(attr.mode & 0o7777 == 0o600 + round as u32, "round {round}: mode");
        }
    }
    expect_errno(scene.b.get_xattr(&path, "user.missing"), &["ENODATA"])?;
    scene.c.call(Command::RemoveXattr { path: path.clone(), name: "user.name-0".into() })?;
    expect_errno(scene.a.get_xattr(&path, "user.name-0"), &["ENODATA"])?;
    let list = |node: &Node| node.call(Command::ListXattr { path: path.clone() });
    let names = format!("{:?}", list(&scene.a)?);
    ensure!(names == format!("{:?}", list(&scene.b)?), "nodes list other names");
    ensure!((1..9).all(|round| names.contains(&format!("user.name-{round}"))), "{names}");
    ensure!(!names.contains("user.name-0"), "{names}");
    Ok(())
}

/// `setfacl`, `getfacl`, `cp -a` and `rsync -A` between a local directory and `shared`, there and back; and whom a list
/// denies is denied on each node, whom it allows is allowed.
fn access_control_lists(scene: &Scene<'_>) -> TestResult {
    let tools = "command -v setfacl && command -v getfacl && command -v rsync";
    if scene.a.shell(tools).is_err() {
        skip("tree_access_control_lists", "needs the packages acl and rsync");
        return Ok(());
    }
    let local = TierDir::new()?;
    let there = local.file("tree").display().to_string();
    let lists = |node: &Node, path: &str| -> anyhow::Result<String> {
        Ok(node
            .shell(&format!(
                "cd {path} && set -- $(find . | sort) && getfacl -n -p \"$@\" && stat -c '%A %u %g %n' \"$@\""
            ))?
            .stdout)
    };
    let make = format!(
        "umask 027 && mkdir {there} && cd {there} && setfacl -m u:65534:x . && setfacl -d -m u:65534:rX,g:7:rwx . && mkdir -p d/e && \
         echo x > d/f && echo x > plain && setfacl -b plain && chmod 640 plain && echo x > denied && \
         chmod 644 denied && setfacl -b -m u:65534:- denied && setfacl -m u:65534:r plain && chmod 711 d/e"
    );
    if let Err(refused) = scene.a.shell(&make) {
        skip(
            "tree_access_control_lists",
            &format!("no lists in the temporary directory: {refused}"),
        );
        return Ok(());
    }
    let expected = lists(&scene.a, &there)?;
    ensure!(expected.contains("default:user:65534:r-x"), "{expected}");
    for (copy, from) in [("copied", "cp -a"), ("synced", "rsync -aA")] {
        let (here, back) = (scene.path(copy), format!("{there}-{copy}"));
        let slash = if from == "rsync -aA" { "/" } else { "" };
        scene.a.shell(&format!("{from} {there}{slash} {here}"))?;
        for node in scene.nodes() {
            let found = lists(node, &here)?;
            ensure!(found == expected, "{from}, node {}: {found}\n{expected}", node.index());
            let open = |name: &str, flags: &str| {
                node.as_nobody(Command::Open {
                    path: format!("{here}/{name}"),
                    flags: flags.into(),
                    mode: 0,
                })
            };
            open("plain", "r")?;
            expect_errno(open("plain", "w"), &["EACCES"])?;
            expect_errno(open("denied", "r"), &["EACCES"])?;
        }
        scene.b.shell(&format!("{from} {here}{slash} {back}"))?;
        let found = lists(&scene.b, &back)?;
        ensure!(found == expected, "{from} back: {found}\n{expected}");
    }
    // A kernel that has looked learns of it at once.
    let path = scene.path("copied/plain");
    let open = || Command::Open { path: path.clone(), flags: "r".into(), mode: 0 };
    for (change, allowed) in [("-m u:65534:-", false), ("-m u:65534:r", true), ("-b", false)] {
        scene.b.shell(&format!("setfacl {change} {path}"))?;
        for node in scene.nodes() {
            let opened = node.as_nobody(open());
            ensure!(opened.is_ok() == allowed, "{change}, node {}: {opened:?}", node.index());
        }
    }
    Ok(())
}

/// SEEK_DATA and SEEK_HOLE, punched and preallocated ranges, seen from each node.
fn holes_across_nodes(scene: &Scene<'_>) -> TestResult {
    const MIB: u64 = 1 << 20;
    let path = scene.path("file");
    let writer = scene.a.open(&path, "rw+creat")?;
    writer.pwrite(4 * MIB, Data::fill(1, MIB))?;
    writer.pwrite(8 * MIB, Data::fill(2, MIB))?;
    for node in scene.nodes() {
        let file = node.open(&path, "rw")?;
        let story = || format!("node {}", node.index());
        ensure!(file.seek(Whence::Data, 0)? == 4 * MIB, "{}: first data", story());
        ensure!(file.seek(Whence::Hole, 4 * MIB as i64)? == 5 * MIB, "{}: hole after it", story());
        ensure!(file.seek(Whence::Data, 5 * MIB as i64)? == 8 * MIB, "{}: next data", story());
        ensure!(file.seek(Whence::Hole, 8 * MIB as i64)? == 9 * MIB, "{}: the end", story());
        expect_errno(file.seek(Whence::Data, 9 * MIB as i64), &["ENXIO"])?;
        file.close()?;
    }
    ensure!(scene.b.stat(&path)?.blocks * 512 <= 3 * MIB, "holes are not holes");
    let remote = scene.b.open(&path, "rw")?;
    // Punch a hole without a change of size; then room in advance, likewise.
    remote.allocate(3, 4 * MIB, MIB)?;
    ensure!(writer.seek(Whence::Data, 0)? == 8 * MIB, "punched");
    writer.check(4 * MIB, Data::fill(0, MIB))?;
    remote.allocate(1, 16 * MIB, 4 * MIB)?;
    ensure!(writer.attr()?.size == 9 * MIB, "keep size");
    remote.allocate(0, 0, 10 * MIB)?;
    ensure!(writer.attr()?.size == 10 * MIB, "fallocate extends");
    writer.check(9 * MIB, Data::fill(0, MIB))?;
    writer.check(8 * MIB, Data::fill(2, MIB))
}

/// copy_file_range and sendfile between files of different nodes.
fn copies_across_nodes(scene: &Scene<'_>) -> TestResult {
    const LEN: u64 = 3_000_000;
    let striped = scene.striped("striped")?;
    let sources = [scene.path("on-a"), scene.path("on-c"), format!("{striped}/file")];
    scene.a.write_file(&sources[0], Data::pattern(1, LEN))?;
    scene.c.write_file(&sources[1], Data::pattern(1, LEN))?;
    scene.b.write_file(&sources[2], Data::pattern(1, LEN))?;
    for (number, source) in sources.iter().enumerate() {
        for node in scene.nodes() {
            let story = format!("{source} copied on node {}", node.index());
            let from = node.open(source, "r")?;
            let target = scene.path(&format!("copy-{number}-{}", node.index()));
            let to = node.open(&target, "rw+creat")?;
            match from.copy_range(0, &to, 0, LEN) {
                // Between file systems of different kinds programs fall back to read and write.
                Err(refused) => ensure!(
                    ["EXDEV", "EOPNOTSUPP"].contains(&refused.errno.as_str()),
                    "{story}: {refused}"
                ),
                Ok(count) => ensure!(count == LEN, "{story}: {count} copied"),
            }
            to.truncate(0)?;
            to.seek(Whence::Set, 0)?;
            ensure!(from.sendfile(0, &to, LEN)? == LEN, "{story}: sendfile");
            let reader = scene.b.open(&target, "r")?;
            reader.check(0, Data::pattern(1, LEN)).context(story)?;
            node.shell(&format!("cp {source} {target}.cp && cmp {source} {target}.cp"))?;
        }
    }
    Ok(())
}

/// A tree unpacked by tar on A has the same checksums on B and C, and packs to the same bytes.
fn unpacked_and_checked_elsewhere(scene: &Scene<'_>) -> TestResult {
    let dir = scene.dir();
    // A real tree of this system: many small files, links, directories.
    scene.a.shell(&format!(
        "cd /etc && tar --ignore-failed-read --exclude=./shadow* -cf {dir}/tree.tar \
         ./apt ./ssl ./alternatives ./default ./init.d 2>/dev/null; \
         mkdir {dir}/tree && tar -xf {dir}/tree.tar -C {dir}/tree"
    ))?;
    let sums = format!(
        "cd {dir}/tree && find . -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum; \
         find . -printf '%p %y %m %l\\n' | sort | sha256sum"
    );
    let expected = scene.a.shell(&sums)?.stdout;
    for node in [&scene.b, &scene.c] {
        let found = node.shell(&sums)?.stdout;
        ensure!(found == expected, "node {}: {found} where A has {expected}", node.index());
    }
    let count = scene.c.shell(&format!("find {dir}/tree | wc -l"))?.stdout;
    note(&format!("{} files and directories", count.trim()));
    scene.c.shell(&format!("rm -r {dir}/tree"))?;
    expect_errno(scene.a.stat(&format!("{dir}/tree")), &["ENOENT"])
}

/// make on two nodes at once in one directory, linked on the third, run on all.
fn built_by_all_nodes(scene: &Scene<'_>) -> TestResult {
    const UNITS: u32 = 24;
    let dir = scene.path("src");
    scene.a.mkdir(&dir)?;
    if scene.a.shell("command -v make && command -v cc").is_err() {
        note("no make or no cc here: nothing was built");
        return Ok(());
    }
    for unit in 0..UNITS {
        let text = format!("#include \"all.h\"\nint unit_{unit}(void) {{ return {unit}; }}\n");
        scene.nodes()[(unit % 3) as usize]
            .write_file(&format!("{dir}/unit_{unit}.c"), Data::bytes(text.as_bytes()))?;
    }
    let declare: String = (0..UNITS).map(|unit| format!("int unit_{unit}(void);\n")).collect();
    let add: String = (0..UNITS).map(|unit| format!(" + unit_{unit}()")).collect();
    let main = format!(
        "#include \"all.h\"\n#include <stdio.h>\nint main(void) {{ printf(\"%d\\n\", 0{add}); }}\n"
    );
    let objects = |part: u32| -> String {
        (0..UNITS).filter(|unit| unit % 2 == part).map(|unit| format!(" unit_{unit}.o")).collect()
    };
    let makefile = format!(
        "even:{}\nodd:{} main.o\nprogram: even odd\n\tcc -o program *.o\n%.o: %.c all.h\n\tcc -c -o $@ $<\n",
        objects(0),
        objects(1)
    );
    scene.b.write_file(&format!("{dir}/all.h"), Data::bytes(declare.as_bytes()))?;
    scene.b.write_file(&format!("{dir}/main.c"), Data::bytes(main.as_bytes()))?;
    scene.c.write_file(&format!("{dir}/Makefile"), Data::bytes(makefile.as_bytes()))?;
    let make = |node: &Node, goal: &str| {
        let script = format!("cd {dir} && make -j2 {goal} 2>&1");
        let bound = Duration::from_secs(120);
        node.begin_within(Command::Shell { script }, bound)
    };
    let built = [make(&scene.a, "even"), make(&scene.b, "odd")];
    for pending in built.into_iter().chain([]) {
        expect_good(pending.wait()?)?;
    }
    // All objects are made: nothing is compiled again, whatever clock the node looks at.
    let said = expect_good(make(&scene.c, "program").wait()?)?;
    ensure!(said.lines().count() == 1, "make on the third node did more than link:\n{said}");
    for node in scene.nodes() {
        let sum = node.shell(&format!("{dir}/program"))?.stdout;
        ensure!(
            sum.trim() == (UNITS * (UNITS - 1) / 2).to_string(),
            "node {}: {sum}",
            node.index()
        );
    }
    Ok(())
}

fn expect_good(answer: hayase_e2e::actor::Answer) -> anyhow::Result<String> {
    match answer {
        hayase_e2e::actor::Answer::Output(output) if output.code == Some(0) => Ok(output.stdout),
        other => anyhow::bail!("{other:?}"),
    }
}

/// A tree made on A, its working directory held by B, removed by C.
fn removed_from_another_node(scene: &Scene<'_>) -> TestResult {
    let dir = scene.path("dir");
    scene.a.shell(&format!("mkdir -p {dir}/a/b/c && : > {dir}/a/b/c/file"))?;
    let held = scene.b.open(&format!("{dir}/a/b"), "r+directory")?;
    scene.b.list(&format!("{dir}/a/b/c"))?;
    scene.c.shell(&format!("rm -r {dir}/a"))?;
    ensure!(held.attr()?.nlink < 2, "a removed directory has names: {:?}", held.attr()?);
    expect_errno(scene.b.open(&format!("{dir}/a/b/new"), "w+creat"), &["ENOENT"])?;
    let inside = Command::RenameAt {
        from_dir: held.id(),
        from: "nothing".into(),
        to_dir: held.id(),
        to: "new".into(),
    };
    expect_errno(scene.b.call(inside), &["ENOENT", "ESTALE"])?;
    ensure!(scene.a.names(&dir)?.is_empty(), "something is left");
    scene.b.rmdir(&dir)?;
    Ok(())
}
