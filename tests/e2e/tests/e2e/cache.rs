//! The cache area: the tier's tree on every node, writes that drain behind, and changes made in the
//! tier by others. Tests 44 and 45 of the coherence protocol.

use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use hayase_e2e::cached::{bytes_of, expect_file, expect_tier, flush, in_front_of, pattern};
use hayase_e2e::job::binary;
use hayase_e2e::process::{Finished, run};
use hayase_e2e::{
    Data, Job, JobOptions, MapKind, Suite, TestResult, TierDir, eventually, expect_errno,
};
use rustix::fs::XattrFlags;
use rustix::io::Errno;

pub(crate) fn suite() -> Suite {
    Suite::new("cache", JobOptions::three())
        .alone("cache_shows_the_tier_on_every_node", || in_front_of_a_tier(shows_the_tier))
        .alone("cache_writes_come_to_the_tier_behind", || in_front_of_a_tier(writes_behind))
        .alone("cache_44_a_rename_shows_the_tier_whole_versions", || in_front_of_a_tier(renames))
        .alone("cache_45_a_change_in_the_tier_is_seen", || in_front_of_a_tier(changed_clean))
        .alone("cache_45_two_versions_are_both_kept", || in_front_of_a_tier(changed_dirty))
        .alone("cache_names_go_through", || in_front_of_a_tier(names))
        .alone("cache_files_of_the_tier_are_changed_in_part", || in_front_of_a_tier(in_part))
        .alone("cache_evicted_files_are_fetched_again", || in_front_of_a_tier(evicted))
        .alone("cache_extended_attributes_are_the_tiers", || in_front_of_a_tier(xattrs))
        .alone("cache_refuses_what_a_tier_can_not_keep", || in_front_of_a_tier(refusals))
        .alone("cache_fsync_promises_the_tier_when_asked", fsync_in_the_tier)
        .alone("cache_files_of_a_nearly_full_node_come_to_the_tier", of_a_nearly_full_node)
}

/// How long a change in the tier may go unnoticed, with room for a loaded machine.
const NOTICED: Duration = Duration::from_secs(20);

fn in_front_of_a_tier(test: fn(&Job, &TierDir) -> TestResult) -> TestResult {
    in_front_of(&TierDir::new()?, test)
}

fn shows_the_tier(job: &Job, tier: &TierDir) -> TestResult {
    let large = pattern(1, 21 << 20);
    std::fs::create_dir_all(tier.file("a/b"))?;
    let bytes = bytes_of(&large)?;
    tier.write("a/b/large", &bytes)?;
    tier.write("a/empty", b"")?;
    std::fs::set_permissions(tier.file("a/empty"), PermissionsExt::from_mode(0o640))?;
    std::os::unix::fs::symlink("b/large", tier.file("a/link"))?;
    let path = |name: &str| job.cached(name);
    for node in [0, 1] {
        let node = job.node(node)?;
        ensure!(node.names(&path("a"))? == ["b", "empty", "link"], "{:?}", node.names(&path("a")));
        let attr = node.stat(&path("a/b/large"))?;
        ensure!(attr.size == large.len(), "{attr:?}");
        ensure!(node.stat(&path("a/empty"))?.mode & 0o777 == 0o640);
        ensure!(node.readlink(&path("a/link"))? == "b/large");
        expect_file(&node, &path("a/link"), &large)?;
        expect_errno(node.stat(&path("a/none")), &["ENOENT"])?;
        // Somewhere in the middle, and behind the end.
        let file = node.open(&path("a/b/large"), "r")?;
        ensure!(file.pread(9 << 20, 5)? == bytes[9 << 20..][..5]);
        ensure!(file.pread(21 << 20, 5)?.is_empty());
    }
    // A copy that is not all here yet must not look like a hole to cp(1).
    tier.write("sparse", &bytes)?;
    let copied = job.node(1)?.shell(&format!(
        "cp {0} /tmp/hayase-copy-$$ && cmp {0} /tmp/hayase-copy-$$; s=$?; rm /tmp/hayase-copy-$$; exit $s",
        path("sparse")
    ))?;
    ensure!(copied.code == Some(0), "{copied:?}");
    Ok(())
}

fn writes_behind(job: &Job, tier: &TierDir) -> TestResult {
    let (one, two) = (pattern(2, 9 << 20), pattern(3, 4097));
    job.node(0)?.mkdir(&job.cached("out"))?;
    job.node(0)?.write_file(&job.cached("out/one"), one.clone())?;
    job.node(1)?.write_file(&job.cached("out/two"), two.clone())?;
    job.node(1)?.chmod(&job.cached("out/two"), 0o600)?;
    // What the other node wrote is here at once, whether the tier has it or not.
    expect_file(&job.node(1)?, &job.cached("out/one"), &one)?;
    flush(job)?;
    expect_tier(tier, "out/one", &one)?;
    expect_tier(tier, "out/two", &two)?;
    let mode = std::fs::metadata(tier.file("out/two"))?.permissions().mode() & 0o777;
    ensure!(mode == 0o600, "mode {mode:o} in the tier");
    ensure!(tier.files()? == ["out/one", "out/two"], "{:?}", tier.files());
    let inside = job.node(0)?.stat(&job.cached("out/one"))?;
    let outside = std::fs::metadata(tier.file("out/one"))?.modified()?;
    let outside = outside.duration_since(std::time::UNIX_EPOCH)?.as_secs() as i64;
    ensure!(inside.mtime / 1_000_000_000 == outside, "{inside:?}, {outside} in the tier");
    // Written again, it is the tier's again.
    job.node(1)?.write_file(&job.cached("out/one"), two.clone())?;
    flush(job)?;
    expect_tier(tier, "out/one", &two)?;
    Ok(())
}

/// Version after version is written beside the file and renamed over it; whoever reads the tier
/// meanwhile sees whole versions only, and later ones later.
fn renames(job: &Job, tier: &TierDir) -> TestResult {
    const VERSIONS: u8 = 40;
    const BYTES: usize = 300_000;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watching = scope.spawn(|| -> anyhow::Result<u8> {
            let mut last = 0;
            while !is_over.load(Ordering::Relaxed) {
                if let Ok(bytes) = std::fs::read(tier.file("state")) {
                    let version = *bytes.first().context("an empty file was shown")?;
                    ensure!(bytes == vec![version; BYTES], "half of version {version} was shown");
                    ensure!(version >= last, "version {version} after {last}");
                    last = version;
                }
            }
            Ok(last)
        });
        let writing = || -> TestResult {
            for version in 1..=VERSIONS {
                let node = job.node(u16::from(version % 2))?;
                let bytes = Data::fill(version, BYTES as u64);
                node.write_file(&job.cached("state.tmp"), bytes)?;
                node.rename(&job.cached("state.tmp"), &job.cached("state"))?;
                ensure!(node.read_file(&job.cached("state"))?[0] == version);
            }
            flush(job)
        };
        let written = writing();
        is_over.store(true, Ordering::Relaxed);
        let seen = watching.join().expect("watching does not panic")?;
        written?;
        hayase_e2e::note(&format!("the watcher's last version was {seen}"));
        ensure!(tier.read("state")? == vec![VERSIONS; BYTES], "the last version");
        ensure!(tier.files()? == ["state"], "{:?}", tier.files());
        Ok(())
    })
}

fn changed_clean(job: &Job, tier: &TierDir) -> TestResult {
    tier.write("f", b"first")?;
    tier.write("gone", b"here")?;
    let path = job.cached("f");
    for node in [0, 1] {
        ensure!(job.node(node)?.read_file(&path)? == b"first");
        ensure!(job.node(node)?.read_file(&job.cached("gone"))? == b"here");
    }
    let open = job.node(0)?.open(&path, "r")?;
    tier.write("f.new", b"second!")?;
    std::fs::rename(tier.file("f.new"), tier.file("f"))?;
    std::fs::remove_file(tier.file("gone"))?;
    tier.write("fresh", b"made outside")?;
    for node in [0, 1] {
        let node = job.node(node)?;
        eventually(NOTICED, || {
            let bytes = node.read_file(&path)?;
            ensure!(bytes == b"second!", "{bytes:?}");
            Ok(())
        })?;
        eventually(NOTICED, || expect_errno(node.stat(&job.cached("gone")), &["ENOENT"]))?;
        ensure!(node.read_file(&job.cached("fresh"))? == b"made outside");
    }
    // Who opened the version before reads on in it.
    ensure!(open.pread(0, 9)? == b"first");
    Ok(())
}

fn changed_dirty(job: &Job, tier: &TierDir) -> TestResult {
    tier.write("f", b"before")?;
    let node = job.node(0)?;
    let file = node.open(&job.cached("f"), "rw")?;
    file.pwrite(0, Data::bytes(b"ours!!"))?;
    tier.write("f", b"theirs")?;
    // Two that make the same name, here and outside.
    let made = node.open(&job.cached("new"), "rw+creat+trunc")?;
    made.pwrite(0, Data::bytes(b"ours"))?;
    tier.write("new", b"theirs")?;
    file.close()?;
    made.close()?;
    flush(job)?;
    ensure!(tier.read("f")? == b"theirs" && tier.read("new")? == b"theirs", "theirs stay");
    let files = tier.files()?;
    ensure!(files.len() == 4, "{files:?}");
    let ours = |of: &str| {
        let prefix = format!("{of}.hayase-conflict-");
        files.iter().find(|name| name.starts_with(&prefix)).cloned()
    };
    let kept = ours("f").context("a second version of f")?;
    ensure!(tier.read(&kept)? == b"ours!!");
    ensure!(tier.read(&ours("new").context("a second version of new")?)? == b"ours");
    let status = job.cluster().context("a real job")?.run("status", &["--json"])?.success()?;
    ensure!(status.stdout.contains(&kept), "status tells of it: {}", status.stdout);
    for node in [0, 1] {
        let node = job.node(node)?;
        eventually(NOTICED, || {
            let bytes = node.read_file(&job.cached("f"))?;
            ensure!(bytes == b"theirs", "{bytes:?}");
            Ok(())
        })?;
        ensure!(node.read_file(&job.cached(&kept))? == b"ours!!");
    }
    Ok(())
}

fn names(job: &Job, tier: &TierDir) -> TestResult {
    let path = |name: &str| job.cached(name);
    let (a, b) = (job.node(0)?, job.node(1)?);
    tier.write("old", b"old")?;
    tier.write("victim", b"victim")?;
    // In the tier: at once.
    a.rename(&path("old"), &path("moved"))?;
    ensure!(tier.files()? == ["moved", "victim"], "{:?}", tier.files());
    b.rename(&path("moved"), &path("victim"))?;
    ensure!(tier.files()? == ["victim"] && tier.read("victim")? == b"old", "{:?}", tier.files());
    ensure!(a.read_file(&path("victim"))? == b"old");
    a.mkdir(&path("d"))?;
    ensure!(tier.file("d").is_dir());
    b.symlink("victim", &path("d/l"))?;
    ensure!(std::fs::read_link(tier.file("d/l"))?.as_os_str() == "victim");
    expect_errno(a.rmdir(&path("d")), &["ENOTEMPTY"])?;
    a.unlink(&path("d/l"))?;
    // A file that nobody here has looked at keeps its directory too.
    tier.write("d/unseen", b"x")?;
    expect_errno(a.rmdir(&path("d")), &["ENOTEMPTY"])?;
    std::fs::remove_file(tier.file("d/unseen"))?;
    eventually(NOTICED, || Ok(a.rmdir(&path("d"))?))?;
    ensure!(!tier.file("d").exists());
    b.unlink(&path("victim"))?;
    expect_errno(a.stat(&path("victim")), &["ENOENT"])?;
    flush(job)?;
    ensure!(tier.files()?.is_empty(), "{:?}", tier.files());
    expect_errno(a.stat(&path("victim")), &["ENOENT"])?;
    // Made and removed before anybody could flush it: the tier never gets it.
    a.write_file(&path("short"), Data::bytes(b"x"))?;
    a.unlink(&path("short"))?;
    // The same while it is open: its bytes are there for who has it open, and go nowhere.
    let open = a.open(&path("open"), "rw+creat")?;
    open.pwrite(0, Data::bytes(b"nameless"))?;
    a.unlink(&path("open"))?;
    open.pwrite(8, Data::bytes(b"!"))?;
    flush(job)?;
    ensure!(open.pread(0, 99)? == b"nameless!");
    open.close()?;
    flush(job)?;
    ensure!(tier.files()?.is_empty(), "{:?}", tier.files());
    Ok(())
}

fn in_part(job: &Job, tier: &TierDir) -> TestResult {
    let mut bytes = bytes_of(&pattern(7, 10 << 20))?;
    tier.write("f", &bytes)?;
    let path = job.cached("f");
    // Both nodes write into the file of the tier: one of them is not its home.
    for (node, at) in [(0, 1_000_000), (1, 9_999_999)] {
        let file = job.node(node)?.open(&path, "rw")?;
        file.pwrite(at, Data::bytes(b"changed"))?;
        file.close()?;
        bytes[at as usize..][..7].copy_from_slice(b"changed");
    }
    let map = job.node(0)?.open(&path, "r")?;
    map.map(4096, MapKind::Private)?.check(0, &bytes[..4096])?;
    flush(job)?;
    ensure!(tier.read("f")? == bytes, "changed in part");
    job.node(1)?.truncate(&path, 5)?;
    flush(job)?;
    ensure!(tier.read("f")? == bytes[..5], "cut");
    let appending = job.node(1)?.open(&path, "w+append")?;
    appending.write(Data::bytes(b"+"))?;
    appending.close()?;
    flush(job)?;
    ensure!(tier.read("f")? == [&bytes[..5], b"+"].concat(), "appended");
    // Cut to nothing without being fetched.
    tier.write("g", &bytes)?;
    job.node(0)?.write_file(&job.cached("g"), Data::bytes(b"new"))?;
    flush(job)?;
    ensure!(tier.read("g")? == b"new");
    Ok(())
}

fn evicted(job: &Job, tier: &TierDir) -> TestResult {
    let bytes = pattern(5, 6 << 20);
    job.node(0)?.write_file(&job.cached("f"), bytes.clone())?;
    let cluster = job.cluster().context("a real job")?;
    flush(job)?;
    let path = job.cached("f");
    let evict = || -> anyhow::Result<Finished> {
        let mut process = cluster.exec(0, &[&binary()?]);
        run(process.arg("evict").arg(&path), NOTICED)
    };
    evict()?.success()?;
    let before = job.node(1)?.stat(&path)?;
    ensure!(before.size == bytes.len(), "{before:?}");
    let explain = || -> anyhow::Result<Finished> {
        let mut process = cluster.exec(1, &[&binary()?]);
        run(process.arg("explain").arg(&path), NOTICED)?.success()
    };
    let told = explain()?.stdout;
    ensure!(told.contains("no bytes of it are here") && told.contains(", 0 B allocated"), "{told}");
    let again = evict()?.stdout;
    ensure!(again.contains("already evicted: 1 file"), "{again}");
    for node in [1, 0] {
        expect_file(&job.node(node)?, &path, &bytes)?;
    }
    // What the tier does not have stays.
    let open = job.node(0)?.open(&path, "rw")?;
    open.pwrite(0, Data::bytes(b"new"))?;
    let told = evict()?;
    ensure!(told.code == Some(3) && told.stdout.contains("not evicted"), "{told:?}");
    let told = explain()?.stdout;
    ensure!(told.contains("does not have this version yet"), "{told}");
    open.close()?;
    flush(job)?;
    ensure!(tier.read("f")?[..3] == *b"new");
    Ok(())
}

/// What the tier has, as somebody outside of the job asks for it.
fn in_tier(tier: &TierDir, name: &str, xattr: &str) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0; 256];
    let len = rustix::fs::getxattr(tier.file(name), xattr, &mut value[..])?;
    value.truncate(len);
    Ok(value)
}

fn xattrs(job: &Job, tier: &TierDir) -> TestResult {
    let path = |name: &str| job.cached(name);
    let (node, other) = (job.node(0)?, job.node(1)?);
    // Made by the job: with the first version that the tier shows.
    let file = node.open(&path("f"), "rw+creat")?;
    file.pwrite(0, Data::bytes(b"first"))?;
    node.set_xattr(&path("f"), "user.a", "1")?;
    node.set_xattr(&path("f"), "user.b", "2")?;
    file.close()?;
    ensure!(other.get_xattr(&path("f"), "user.a")? == "1");
    flush(job)?;
    ensure!(tier.read("f")? == b"first");
    ensure!(in_tier(tier, "f", "user.a")? == b"1" && in_tier(tier, "f", "user.b")? == b"2");
    // Of what the tier has: there at once.
    other.set_xattr(&path("f"), "user.a", "3")?;
    ensure!(in_tier(tier, "f", "user.a")? == b"3");
    let removed = node.shell(&format!("setfattr -x user.b {}", path("f")))?;
    ensure!(removed.code == Some(0), "{removed:?}");
    ensure!(in_tier(tier, "f", "user.b") == Err(Errno::NODATA));
    // By others in the tier: the next who opens it.
    let before = node.stat(&path("f"))?.ino;
    rustix::fs::setxattr(tier.file("f"), "user.c", b"4", XattrFlags::empty())?;
    eventually(NOTICED, || {
        let file = node.open(&path("f"), "r")?;
        let now = file.attr()?.ino;
        file.close()?;
        ensure!(now != before, "the tier's version before that");
        Ok(())
    })?;
    ensure!(node.get_xattr(&path("f"), "user.c")? == "4");
    // A copy keeps them, and so does a file that is changed, renamed and sent again.
    let copied = node.shell(&format!("cp -a {} {}/f", path("f"), job.shared()))?;
    ensure!(copied.code == Some(0), "{copied:?}");
    ensure!(other.get_xattr(&format!("{}/f", job.shared()), "user.c")? == "4");
    let file = other.open(&path("f"), "rw")?;
    file.pwrite(0, Data::bytes(b"again"))?;
    other.rename(&path("f"), &path("g"))?;
    file.close()?;
    flush(job)?;
    ensure!(tier.read("g")? == b"again");
    eventually(NOTICED, || {
        ensure!(tier.files()? == ["g"], "{:?}", tier.files());
        Ok(())
    })?;
    ensure!(in_tier(tier, "g", "user.a")? == b"3" && in_tier(tier, "g", "user.c")? == b"4");
    // A directory, and what the mount answers for itself.
    node.mkdir(&path("d"))?;
    node.set_xattr(&path("d"), "user.a", "1")?;
    ensure!(in_tier(tier, "d", "user.a")? == b"1");
    ensure!(other.get_xattr(&path("g"), "user.hayase.explain")?.contains("layout"));
    let layout = node.get_xattr(&path("d"), "user.hayase.layout")?;
    ensure!(layout == "whole", "{layout}");
    Ok(())
}

fn refusals(job: &Job, tier: &TierDir) -> TestResult {
    let path = |name: &str| job.cached(name);
    let node = job.node(0)?;
    tier.write("f", b"f")?;
    node.mkdir(&path("d"))?;
    expect_errno(node.link(&path("f"), &path("g")), &["EPERM"])?;
    expect_errno(node.rename(&path("d"), &path("e")), &["EXDEV"])?;
    let security = node.set_xattr(&path("f"), "security.x", "y");
    expect_errno(security, &["ENOTSUP", "EOPNOTSUPP"])?;
    expect_errno(node.rename(&path("f"), &format!("{}/f", job.shared())), &["EXDEV"])?;
    let hidden = format!("{}/.hayase-cache", job.shared());
    expect_errno(node.rename(&hidden, &format!("{}/x", job.shared())), &["EPERM", "EBUSY"])?;
    expect_errno(node.mkdir(&hidden), &["EPERM", "EEXIST"])?;
    ensure!(!node.names(&job.shared())?.iter().any(|name| name.starts_with(".hayase")));
    let fifo = node.shell(&format!("mkfifo {}", path("p")));
    ensure!(fifo.is_err(), "a pipe was made");
    ensure!(tier.read("f")? == b"f");
    Ok(())
}

/// Where a file of `shared` would be striped over the other nodes.
fn of_a_nearly_full_node() -> TestResult {
    let tier = TierDir::new()?;
    let job = Job::up(tier.job(3).shared("300MiB"))?;
    let fill = format!("fallocate -l 255MiB {}/fill", job.shared());
    ensure!(job.node(0)?.shell(&fill)?.code == Some(0), "{fill}");
    for number in 0..4_u8 {
        let (name, bytes) = (format!("f{number}"), pattern(number, 5 << 20));
        job.node(0)?.write_file(&job.cached(&name), bytes.clone())?;
        flush(&job)?;
        expect_tier(&tier, &name, &bytes)?;
        expect_file(&job.node(1)?, &job.cached(&name), &bytes)?;
    }
    job.down()
}

fn fsync_in_the_tier() -> TestResult {
    let tier = TierDir::new()?;
    let mut options = tier.job(2);
    options.extra.extend(["--fsync".into(), "tier".into()]);
    let job = Job::up(options)?;
    for (version, node) in [(1, 0), (2, 1), (3, 0)] {
        let bytes = pattern(version, 3 << 20);
        let file = job.node(node)?.open(&job.cached("f"), "rw+creat+trunc")?;
        file.pwrite(0, bytes.clone())?;
        file.fsync()?;
        expect_tier(&tier, "f", &bytes)?;
        file.close()?;
    }
    job.down()
}
