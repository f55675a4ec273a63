//! A job of which some nodes carry storage and serve the others (LLIO's groups).

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, ensure};
use hayase_e2e::actor::LockKind::{Fcntl, Flock};
use hayase_e2e::job::is_alive;
use hayase_e2e::{
    Command, Data, Job, JobOptions, Node, Scene, Suite, TestResult, eventually, expect_errno, note,
};
use rustix::process::{Pid, Signal, kill_process};

pub(crate) fn suite() -> Suite {
    Suite::new("storage_nodes", options())
        .job("storage_nodes_keep_all_parts_and_names", keep_all_parts_and_names)
        .job("storage_nodes_give_room", give_room)
        .job("storage_nodes_shared_is_one_file_system", shared_is_one_file_system)
        .job("storage_nodes_local_is_private", local_is_private)
        .job("storage_nodes_local_is_a_file_system", local_is_a_file_system)
        .job("storage_nodes_are_told", are_told)
        .alone("storage_nodes_restarts_are_survived", || on_a_job(restarts_are_survived))
        .alone("storage_nodes_a_guest_is_lost_without_loss", || on_a_job(a_guest_is_lost))
}

const MIB: u64 = 1 << 20;
/// Of each storage node.
const SHARE: u64 = 320 * MIB;
const NODES: u16 = 5;
/// Not node 0, which speaks for the job and holds the root of `shared`.
const STORAGE: [u16; 2] = [1, 2];
/// The others, in the order of their nodes, and whose storage they use.
const GUESTS: [(u16, u16); 3] = [(0, 1), (3, 2), (4, 2)];

fn options() -> JobOptions {
    let mut options = JobOptions::nodes(NODES).shared("320MiB");
    options.extra = vec!["--storage-nodes".into(), "1,2".into()];
    options
}

fn on_a_job(test: fn(&Job) -> TestResult) -> TestResult {
    let job = Job::up(options())?;
    test(&job).map_err(|error| error.context(job.logs()))?;
    job.down()
}

fn storage_of(node: u16) -> u16 {
    GUESTS.iter().find(|(guest, _)| *guest == node).map_or(node, |(_, storage)| *storage)
}

/// What `hayase explain` tells of a file, asked on a node.
fn explained(node: &Node, path: &str) -> anyhow::Result<serde_json::Value> {
    Ok(serde_json::from_str(&node.get_xattr(path, "user.hayase.explain")?)?)
}

fn servers_of(told: &serde_json::Value) -> BTreeSet<u64> {
    let parts = told["parts"].as_array().into_iter().flatten();
    parts.filter_map(|part| part["server"].as_u64()).collect()
}

/// A new file's bytes lie on its maker's storage, or its group's; striped ones on all storage nodes, and on no
/// other; nothing is kept on the others.
fn keep_all_parts_and_names(scene: &Scene<'_>) -> TestResult {
    for index in 0..NODES {
        let node = scene.job.node(index)?;
        let path = scene.path(&format!("of-{index}"));
        node.write_file(&path, Data::pattern(u64::from(index), 3 * MIB))?;
        let told = explained(&node, &path)?;
        let storage = u64::from(storage_of(index));
        ensure!(told["home"] == storage, "made on node {index}: {told}");
        ensure!(servers_of(&told) == [storage].into(), "made on node {index}: {told}");
        let dir = scene.path(&format!("dir-{index}"));
        node.mkdir(&dir)?;
        ensure!(explained(&node, &dir)?["home"] == storage, "a directory of node {index}");
    }
    for index in 0..NODES {
        for maker in 0..NODES {
            let reader = scene.job.node(index)?.open(&scene.path(&format!("of-{maker}")), "r")?;
            reader.check(0, Data::pattern(u64::from(maker), 3 * MIB))?;
            reader.close()?;
        }
    }
    let striped = scene.path("striped");
    scene.a.mkdir(&striped)?;
    scene.job.stripe(&striped, "64KiB", 0)?;
    for index in 0..NODES {
        let node = scene.job.node(index)?;
        let path = format!("{striped}/{index}");
        node.write_file(&path, Data::pattern(7, MIB))?;
        let servers = servers_of(&explained(&node, &path)?);
        ensure!(servers == STORAGE.map(u64::from).into(), "striped over {servers:?}");
        scene.b.open(&path, "r")?.check(0, Data::pattern(7, MIB))?;
    }
    let too_wide = scene.job.stripe(&striped, "64KiB", 3);
    ensure!(too_wide.is_err(), "wider than there is storage");
    let cluster = scene.job.cluster().context("a real job")?;
    for (guest, _) in GUESTS {
        ensure!(!cluster.node_storage(guest)?.exists(), "node {guest} keeps something");
    }
    Ok(())
}

/// df of `shared` is what the storage nodes have; of a guest's `local`, what its group's server has.
fn give_room(scene: &Scene<'_>) -> TestResult {
    let all = scene.a.space(scene.dir())?;
    let asked = 2 * SHARE;
    ensure!((asked..=asked * 5 / 4).contains(&all.total), "{} for two shares", all.total);
    for (guest, _) in GUESTS {
        let local = scene.job.node(guest)?.space(&scene.job.local())?;
        ensure!((SHARE..=SHARE * 5 / 4).contains(&local.total), "{} for a share", local.total);
    }
    let own = scene.b.space(&scene.job.local())?;
    ensure!((290 * MIB..=330 * MIB).contains(&own.available), "local of a storage node: {own:?}");
    Ok(())
}

/// Names, locks and bytes between nodes with and without storage.
fn shared_is_one_file_system(scene: &Scene<'_>) -> TestResult {
    let (guest, other, keeper) = (&scene.a, &scene.job.node(4)?, &scene.b);
    let path = scene.path("file");
    guest.write_file(&path, Data::fill(0, 100))?;
    let files = [guest.open(&path, "rw")?, other.open(&path, "rw")?, keeper.open(&path, "rw")?];
    for (writer, byte) in files.iter().zip(1..) {
        writer.pwrite(0, Data::fill(byte, 100))?;
        for reader in &files {
            reader.check(0, Data::fill(byte, 100))?;
        }
    }
    for holder in &files {
        for kind in [Fcntl, Flock] {
            holder.lock(kind)?;
            for (index, rival) in files.iter().enumerate() {
                if !std::ptr::eq(rival, holder) {
                    expect_errno(rival.lock(kind), &["EAGAIN", "EACCES"])
                        .with_context(|| format!("rival {index}"))?;
                }
            }
            holder.unlock(kind)?;
        }
    }
    // Whoever makes names in a directory of a guest is seen by the guest, which had looked before.
    let dir = scene.path("dir");
    guest.mkdir(&dir)?;
    let name = |node: u16| format!("{dir}/by-{node}");
    for index in 0..NODES {
        for looker in 0..NODES {
            expect_errno(scene.job.node(looker)?.stat(&name(index)), &["ENOENT"])?;
        }
        scene.job.node(index)?.write_file(&name(index), Data::fill(1, 10))?;
        for looker in 0..NODES {
            scene.job.node(looker)?.stat(&name(index))?;
        }
    }
    ensure!(other.names(&dir)?.len() == usize::from(NODES), "{:?}", other.names(&dir)?);
    expect_errno(keeper.rmdir(&dir), &["ENOTEMPTY"])?;
    keeper.rename(&name(0), &name(9))?;
    guest.link(&name(9), &scene.path("link"))?;
    for index in [9, 1, 2, 3, 4] {
        other.unlink(&name(index))?;
    }
    keeper.rmdir(&dir)?;
    ensure!(guest.stat(&scene.path("link"))?.nlink == 1, "one name is left");
    Ok(())
}

/// The same names on every node, and each sees its own; guests of one group, too. Through FUSE where the storage is
/// elsewhere.
fn local_is_private(scene: &Scene<'_>) -> TestResult {
    let local = scene.job.local();
    let path = format!("{local}/dir/file");
    for index in 0..NODES {
        let node = scene.job.node(index)?;
        expect_errno(node.stat(&path), &["ENOENT"])?;
        node.mkdir(&format!("{local}/dir"))?;
        node.write_file(&path, Data::pattern(u64::from(index), 100_000))?;
    }
    for index in 0..NODES {
        let node = scene.job.node(index)?;
        node.open(&path, "r")?.check(0, Data::pattern(u64::from(index), 100_000))?;
        ensure!(node.names(&local)? == ["dir"], "node {index} sees {:?}", node.names(&local)?);
        let kind = node.shell(&format!("stat -f -c %T {local}"))?.stdout;
        ensure!(kind.contains("fuse") != STORAGE.contains(&index), "node {index}: {kind}");
    }
    for (guest, storage) in GUESTS {
        let told = explained(&scene.job.node(guest)?, &path)?;
        ensure!(told["home"] == u64::from(storage), "{told}");
        ensure!(servers_of(&told) == [u64::from(storage)].into(), "{told}");
        let dir = explained(&scene.job.node(guest)?, &format!("{local}/dir"))?;
        ensure!(dir["home"] == u64::from(storage), "{dir}");
    }
    // Nobody sees them in `shared` either.
    let seen = scene.b.names(&scene.job.shared())?;
    ensure!(!seen.iter().any(|name| name == "dir"), "{seen:?}");
    for index in 0..NODES {
        let node = scene.job.node(index)?;
        node.unlink(&path)?;
        node.rmdir(&format!("{local}/dir"))?;
        ensure!(node.names(&local)?.is_empty(), "node {index}");
    }
    Ok(())
}

/// What programs do in a scratch directory, in the `local` of a guest.
fn local_is_a_file_system(scene: &Scene<'_>) -> TestResult {
    let local = scene.job.local();
    let path = |name: &str| format!("{local}/{name}");
    for (guest, _) in GUESTS {
        let node = scene.job.node(guest)?;
        let root = node.stat(&local)?;
        node.write_file(&path("a"), Data::pattern(1, 2 * MIB))?;
        ensure!(node.stat(&local)?.mtime >= root.mtime, "the root's time");
        node.rename(&path("a"), &path("b"))?;
        node.link(&path("b"), &path("c"))?;
        ensure!(node.stat(&path("c"))?.nlink == 2, "links");
        node.symlink("b", &path("s"))?;
        node.open(&path("s"), "r")?.check(0, Data::pattern(1, 2 * MIB))?;
        node.chmod(&local, 0o700)?;
        ensure!(node.stat(&local)?.mode & 0o777 == 0o700, "the root's mode");
        node.set_xattr(&local, "user.colour", "red")?;
        ensure!(node.get_xattr(&local, "user.colour")? == "red", "an xattr of the root");
        // Owner rwx, user 65534 and mask r-x: also of the root's default list.
        let list = "0x0200000001000700ffffffff02000500feff000004000000ffffffff10000500ffffffff20000000ffffffff";
        let script = format!(
            "cd {local} && setfattr -n system.posix_acl_access -v {list} . && \
             setfattr -n system.posix_acl_default -v {list} . && umask 0 && mkdir l && echo x > l/f && \
             stat -c %a . l l/f | tr '\\n' ' '"
        );
        let modes = node.shell(&script)?.stdout;
        ensure!(modes == "750 750 640 ", "{modes:?}");
        let read = Command::Open { path: path("l/f"), flags: "r".into(), mode: 0 };
        ensure!(node.as_nobody(read.clone()).is_ok(), "a list allows");
        node.shell(&format!("cd {local} && setfattr -x system.posix_acl_access l"))?;
        expect_errno(node.as_nobody(read), &["EACCES"])?;
        node.shell(&format!("cd {local} && rm -r l && setfattr -x system.posix_acl_default ."))?;
        let (one, two) = (node.open(&path("b"), "rw")?, node.open(&path("c"), "rw")?);
        one.lock(Flock)?;
        expect_errno(two.lock(Flock), &["EAGAIN"])?;
        one.unlock(Flock)?;
        two.pwrite(5, Data::fill(9, 10))?;
        one.check(5, Data::fill(9, 10))?;
        one.fsync()?;
        one.close()?;
        two.close()?;
        let script = format!(
            "cd {local} && mkdir -p t/u/v && for i in $(seq 100); do echo $i > t/u/f$i; done && \
             cat t/u/f* | wc -l && mv t/u/v t/w && ls t/u | wc -l && tar cf - t | tar tf - | wc -l && \
             find . | wc -l && cp -r t /tmp/hayase-$$ && diff -r t /tmp/hayase-$$ && rm -r /tmp/hayase-$$ && \
             rm -r t && ls -A | tr '\\n' ' '"
        );
        let done = node.shell(&script)?;
        ensure!(done.code == Some(0), "{done:?}");
        let expected = "100\n100\n103\n107\nb c s ";
        ensure!(done.stdout == expected, "{:?}, not {expected:?}", done.stdout);
        // Another file system than `shared`.
        expect_errno(node.rename(&path("b"), &scene.path("b")), &["EXDEV"])?;
        for name in ["b", "c", "s"] {
            node.unlink(&path(name))?;
        }
    }
    Ok(())
}

/// `up`, `status` and `explain` say whose storage is whose.
fn are_told(scene: &Scene<'_>) -> TestResult {
    let cluster = scene.job.cluster().context("a real job")?;
    let stored: Vec<_> = cluster.said()["storage_nodes"].as_array().into_iter().flatten().collect();
    ensure!(
        stored == STORAGE.map(serde_json::Value::from).iter().collect::<Vec<_>>(),
        "{stored:?}"
    );
    let status = cluster.run("status", &["--json"])?.success()?.stdout;
    let status: serde_json::Value = serde_json::from_str(&status)?;
    let job = &status["jobs"][0];
    ensure!(job["state"] == "up", "{job:#}");
    for index in 0..NODES {
        let node = &job["nodes"][usize::from(index)];
        ensure!(node["storage_node"] == storage_of(index), "node {index}: {node:#}");
        let has_room = node["server"]["shared_total"].as_u64().is_some_and(|total| total > 0);
        ensure!(has_room == STORAGE.contains(&index), "node {index}: {node:#}");
    }
    let words = cluster.run("status", &[])?.success()?.stdout;
    ensure!(words.contains("on each of nodes 1, 2") && words.contains("by node 1"), "{words}");
    let path = format!("{}/told", scene.job.local());
    let guest = scene.job.node(4)?;
    guest.write_file(&path, Data::fill(1, 100))?;
    let hayase = hayase_e2e::job::binary()?.display().to_string();
    let told = guest.shell(&format!("{hayase} explain {path}"))?;
    ensure!(told.code == Some(0) && told.stdout.contains("on server 2"), "{told:?}");
    let stripe = format!("{hayase} layout set --stripe 64KiB {} 2>&1 || true", scene.job.local());
    let refused = guest.shell(&stripe)?.stdout;
    ensure!(refused.contains("not supported"), "a private tree has no stripes: {refused}");
    guest.unlink(&path)?;
    Ok(())
}

/// A daemon that was killed is back after this; generous, for loaded machines.
const BACK: Duration = Duration::from_secs(40);

fn server_of(job: &Job, node: u16) -> anyhow::Result<Option<u32>> {
    let servers = job.cluster().context("a real job")?.daemons().servers;
    Ok(servers.into_iter().find(|pid| is_alive(*pid) && is_of(*pid, node)))
}

/// Whether a daemon says in its command line that it serves `node`.
fn is_of(pid: u32, node: u16) -> bool {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = String::from_utf8_lossy(&line).into_owned();
    words.split('\0').skip_while(|word| *word != "--node").nth(1) == Some(&node.to_string())
}

fn kill_server(job: &Job, node: u16) -> TestResult {
    let killed = server_of(job, node)?.with_context(|| format!("server {node}"))?;
    kill_process(Pid::from_raw(killed as i32).context("a process number")?, Signal::KILL)?;
    eventually(BACK, || {
        let now = server_of(job, node)?;
        ensure!(now.is_some_and(|pid| pid != killed), "server {node} is not back");
        Ok(())
    })?;
    Ok(())
}

/// kill -9 of the servers of a guest, of its storage, and of node 0, which is a guest here: open files, locks and
/// names go on in both areas.
fn restarts_are_survived(job: &Job) -> TestResult {
    let (guest, other) = (job.node(0)?, job.node(4)?);
    let (shared, local) = (format!("{}/file", job.shared()), format!("{}/file", job.local()));
    guest.write_file(&shared, Data::pattern(1, 100_000))?;
    guest.write_file(&local, Data::pattern(2, 100_000))?;
    let (mine, its) = (guest.open(&shared, "rw")?, other.open(&shared, "rw")?);
    let private = guest.open(&local, "rw")?;
    mine.lock(Fcntl)?;
    private.lock(Flock)?;
    for (round, node) in (3..).zip([1, 0, 4, 2, 0]) {
        kill_server(job, node)?;
        let story = || format!("after the server of node {node} was killed");
        mine.pwrite(0, Data::pattern(round, 1000)).with_context(story)?;
        its.check(0, Data::pattern(round, 1000)).with_context(story)?;
        private.pwrite(0, Data::pattern(round + 9, 1000)).with_context(story)?;
        private.check(0, Data::pattern(round + 9, 1000)).with_context(story)?;
        expect_errno(its.lock(Fcntl), &["EAGAIN", "EACCES"]).with_context(story)?;
        let name = format!("{}/after-{round}", job.local());
        guest.write_file(&name, Data::fill(1, 10)).with_context(story)?;
        ensure!(guest.names(&job.local())?.len() as u64 == round - 1, "names {}", story());
        other.write_file(&format!("{}/after-{round}", job.shared()), Data::fill(1, 10))?;
    }
    mine.unlock(Fcntl)?;
    its.lock(Fcntl)?;
    Ok(())
}

/// A node without storage that is lost takes nothing with it.
fn a_guest_is_lost(job: &Job) -> TestResult {
    let (guest, other) = (job.node(3)?, job.node(0)?);
    let path = |name: &str| format!("{}/{name}", job.shared());
    for i in 0..20 {
        guest.write_file(&path(&format!("f{i}")), Data::pattern(i, 10_000))?;
    }
    let held = guest.open(&path("f0"), "rw")?;
    held.lock(Fcntl)?;
    let supervisors = job.cluster().context("a real job")?.daemons().supervisors;
    let pid = supervisors.into_iter().find(|pid| is_of(*pid, 3)).context("a supervisor")?;
    kill_process(Pid::from_raw(pid as i32).context("a process number")?, Signal::KILL)?;
    let file = other.open(&path("f0"), "rw")?;
    let waited = eventually(BACK, || Ok(file.lock(Fcntl)?)).context("its lock is free")?;
    note(&format!("its lock is free after {waited:?}"));
    for i in 0..20 {
        other.open(&path(&format!("f{i}")), "r")?.check(0, Data::pattern(i, 10_000))?;
    }
    other.write_file(&path("new"), Data::fill(1, 10))?;
    ensure!(other.names(&job.shared())?.len() == 21, "names");
    let said = job.cluster().context("a real job")?.run("status", &[])?.stdout;
    ensure!(said.contains("node 3 is lost") && !said.contains("out of reach"), "{said}");
    job.restart_actors();
    Ok(())
}
