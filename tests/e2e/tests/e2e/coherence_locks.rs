//! Tests 28-33 of the coherence protocol: a lock is held by one, wherever it is asked for, and ends
//! with its holder.

use std::time::Duration;

use anyhow::{Context, ensure};
use hayase_e2e::actor::LockKind::{self, Fcntl, Flock};
use hayase_e2e::{
    Command, Data, File, JobOptions, Loop, Node, Scene, Suite, TestResult, Until, eventually,
    expect_errno, note,
};

/// A holder that is gone is known to be so after this (one look at processes, and what it needs).
const GONE_BOUND: Duration = Duration::from_secs(4);

pub(crate) fn suite() -> Suite {
    Suite::new("coherence_locks", JobOptions::three())
        // First: nobody has locked anything yet, so the kernel does not tell of closes.
        .posix("coherence_31_a_close_ends_the_locks_of_the_process", a_close_ends_the_locks)
        .posix("coherence_28_fcntl_locks_end_with_their_holder", |scene| ends(scene, Fcntl))
        .posix("coherence_28_flocks_end_with_their_holder", |scene| ends(scene, Flock))
        .posix("coherence_28_ranges", ranges)
        .job("coherence_29_flock_and_fcntl_exclude_each_other", one_space)
        .posix("coherence_30_a_killed_waiter_is_gone", killed_waiter)
        .posix("coherence_30_a_signal_ends_a_wait", interrupted_waiter)
        .posix("coherence_32_a_counter_under_a_lock_is_exact", counter)
        .posix("coherence_33_a_circle_is_refused", circle)
}

/// A program that locks the whole of `$1` by fcntl(2) and then does `then`.
fn perl(path: &str, then: &str) -> String {
    format!(
        "perl -MFcntl -e 'open F, q(+<), $ARGV[0] or die; \
         my $l = pack(q(s s x4 q q i x4), F_WRLCK, 0, 0, 0, 0); \
         fcntl(F, F_SETLKW, $l) or die $!; {then}' {path}"
    )
}

/// Starts a command in a process group of its own, whose number it returns.
fn background(node: &Node, command: &str) -> anyhow::Result<String> {
    let script = format!("setsid {command} >/dev/null 2>&1 & echo $!");
    Ok(node.shell(&script)?.stdout.trim().to_owned())
}

/// Locks and then waits to be ended.
fn holder(path: &str, kind: LockKind) -> String {
    match kind {
        Fcntl => perl(path, "sleep 60"),
        Flock => format!("flock {path} sleep 60"),
    }
}

fn held_elsewhere(file: &File, kind: LockKind) -> TestResult {
    let tried = file.lock(kind);
    if tried.is_ok() {
        file.unlock(kind)?;
    }
    expect_errno(tried, &["EAGAIN", "EACCES"])
}

/// Free now, or soon; free again after this.
fn becomes_free(file: &File, kind: LockKind) -> TestResult {
    eventually(GONE_BOUND, || Ok(file.lock(kind)?))?;
    Ok(file.unlock(kind)?)
}

/// By close, by unlock, by exit and by kill -9.
fn ends(scene: &Scene<'_>, kind: LockKind) -> TestResult {
    let path = scene.path("file");
    scene.a.write_file(&path, Data::fill(1, 10))?;
    for (one, other) in
        [(&scene.a, &scene.b), (&scene.b, &scene.a), (&scene.b, &scene.c), (&scene.a, &scene.a)]
    {
        let story = || format!("node {} and node {}", one.index(), other.index());
        // Two of one actor are one process: fcntl(2) does not tell them apart.
        if kind == Flock || one.index() != other.index() {
            let (holder, waiter) = (one.open(&path, "rw")?, other.open(&path, "rw")?);
            holder.lock(kind).with_context(story)?;
            held_elsewhere(&waiter, kind).with_context(story)?;
            let waiting = waiter.begin_lock(kind);
            holder.unlock(kind)?;
            waiting.wait().with_context(story)?;
            held_elsewhere(&holder, kind).with_context(story)?;
            let waiting = holder.begin_lock(kind);
            waiter.close()?;
            waiting.wait().with_context(story)?;
            holder.close()?;
        }
        let file = other.open(&path, "rw")?;
        for signal in ["KILL", "TERM"] {
            end_process(one, &path, kind, signal, &file).with_context(story)?;
        }
        file.close()?;
    }
    Ok(())
}

fn end_process(node: &Node, path: &str, kind: LockKind, signal: &str, file: &File) -> TestResult {
    // All of the shell's group: flock(1) gives its descriptor to its child.
    let group = background(node, &holder(path, kind))?;
    eventually(Duration::from_secs(10), || held_elsewhere(file, kind))
        .context("a program locks")?;
    node.shell(&format!("kill -{signal} -{group}"))?;
    becomes_free(file, kind).with_context(|| format!("after SIG{signal}"))
}

/// Locks of different bytes do not disturb each other, and are split as fcntl(2) says.
fn ranges(scene: &Scene<'_>) -> TestResult {
    let path = scene.path("file");
    scene.a.write_file(&path, Data::fill(1, 10))?;
    // What a program on `node` is told of a lock: `type start len` of F_GETLK, after its own locks.
    let told = |node: &Node, locks: &str, start: u64, len: u64| -> anyhow::Result<String> {
        let script = format!(
            "perl -MFcntl -e 'open F, q(+<), $ARGV[0] or die; \
             sub l {{ my ($c, $t, $s, $n) = @_; my $l = pack(q(s s x4 q q i x4), $t, 0, $s, $n, 0); \
             fcntl(F, $c, $l) or return $!{{EAGAIN}} ? q(held) : $!; \
             return join q( ), (unpack q(s s x4 q q i x4), $l)[0, 2, 3] }} \
             {locks} print l(F_GETLK, F_WRLCK, {start}, {len}), qq(\\n)' {path}"
        );
        Ok(node.shell(&script)?.stdout.trim().to_owned())
    };
    let (write, unlocked) = ("1", "2");
    let keeper = format!(
        "perl -MFcntl -e 'open F, q(+<), $ARGV[0] or die; \
         sub l {{ my ($c, $t, $s, $n) = @_; \
         fcntl(F, $c, pack(q(s s x4 q q i x4), $t, 0, $s, $n, 0)) or die $! }} \
         l(F_SETLK, F_WRLCK, 0, 100); l(F_SETLK, F_UNLCK, 40, 20); \
         open L, q(>), $ARGV[1] and print L qq(ready\\n) and close L; sleep 60;' {path} {path}.log"
    );
    let group = background(&scene.b, &keeper)?;
    eventually(Duration::from_secs(10), || {
        let log = String::from_utf8(scene.b.read_file(&format!("{path}.log"))?)?;
        ensure!(log == "ready\n", "{log}");
        Ok(())
    })?;
    for node in [&scene.a, &scene.b, &scene.c] {
        let check = |start, len, expected: String| -> TestResult {
            let found = told(node, "", start, len)?;
            ensure!(found == expected, "node {}: {start}+{len}: {found}", node.index());
            Ok(())
        };
        check(0, 10, format!("{write} 0 40"))?;
        check(39, 1, format!("{write} 0 40"))?;
        check(40, 20, format!("{unlocked} 40 20"))?;
        check(55, 100, format!("{write} 60 40"))?;
        check(100, 0, format!("{unlocked} 100 0"))?;
        let own = told(node, "l(F_SETLK, F_WRLCK, 45, 5) eq q(held) and die;", 45, 5)?;
        ensure!(own == format!("{unlocked} 45 5"), "its own lock stands in its way: {own}");
    }
    scene.b.shell(&format!("kill -KILL -{group}"))?;
    Ok(())
}

fn one_space(scene: &Scene<'_>) -> TestResult {
    let path = scene.path("file");
    scene.a.write_file(&path, Data::fill(1, 10))?;
    for (first, second) in [(Flock, Fcntl), (Fcntl, Flock)] {
        for other in [&scene.b, &scene.c] {
            let (holder, waiter) = (scene.a.open(&path, "rw")?, other.open(&path, "rw")?);
            // What a close ended ends a moment later: the kernel tells some closes without waiting.
            becomes_free(&holder, first)?;
            holder.lock(first)?;
            held_elsewhere(&waiter, second)?;
            holder.unlock(first)?;
            waiter.lock(second)?;
            waiter.close()?;
            holder.close()?;
        }
    }
    Ok(())
}

/// kill -9 of a process that waits: gone in 2 s, and what it waited for is not held by nobody.
fn killed_waiter(scene: &Scene<'_>) -> TestResult {
    let path = scene.path("file");
    scene.a.write_file(&path, Data::fill(1, 10))?;
    for kind in [Fcntl, Flock] {
        for node in [&scene.a, &scene.c] {
            let holder = scene.b.open(&path, "rw")?;
            holder.lock(kind)?;
            let group = background(node, &self::holder(&path, kind))?;
            // It waits in the kernel: in a system call of FUSE, not to be interrupted.
            std::thread::sleep(Duration::from_millis(500));
            node.shell(&format!("kill -KILL -{group}"))?;
            let gone = eventually(Duration::from_secs(2), || {
                let state = node.shell(&format!("ps -o state= -g {group} || true"))?.stdout;
                ensure!(!state.contains(['D', 'S', 'R']), "it is there: {}", state.trim());
                Ok(())
            })?;
            note(&format!("{kind:?} on node {}: gone after {gone:?}", node.index()));
            holder.unlock(kind)?;
            let other = scene.a.open(&path, "rw")?;
            becomes_free(&other, kind).context("the lock is leaked")?;
            other.close()?;
            holder.close()?;
        }
    }
    Ok(())
}

/// A program that handles a signal while it waits is told EINTR and goes on; it holds nothing.
fn interrupted_waiter(scene: &Scene<'_>) -> TestResult {
    let path = scene.path("file");
    scene.a.write_file(&path, Data::fill(1, 10))?;
    for node in [&scene.a, &scene.c] {
        let holder = scene.b.open(&path, "rw")?;
        holder.lock(Fcntl)?;
        let script = format!(
            "perl -MFcntl -MErrno=EINTR -e 'open F, q(+<), $ARGV[0] or die; \
             $SIG{{ALRM}} = sub {{ }}; alarm 1; \
             my $l = pack(q(s s x4 q q i x4), F_WRLCK, 0, 0, 0, 0); \
             print fcntl(F, F_SETLKW, $l) ? q(held) : $! == EINTR ? q(EINTR) : $!' {path}"
        );
        let told = node.shell(&script)?.stdout;
        ensure!(told == "EINTR", "node {} was told: {told}", node.index());
        holder.unlock(Fcntl)?;
        let other = scene.a.open(&path, "rw")?;
        becomes_free(&other, Fcntl).context("who was interrupted holds it")?;
        other.close()?;
        holder.close()?;
    }
    Ok(())
}

/// The parent closes what it has locked, its child has it still open: nobody holds the lock.
fn a_close_ends_the_locks(scene: &Scene<'_>) -> TestResult {
    let path = scene.path("file");
    scene.a.write_file(&path, Data::fill(1, 10))?;
    let probe = scene.b.open(&path, "rw")?;
    for round in ["the first lock of the node", "a later one"] {
        let parent = perl(&path, "if (fork) { sleep 1; close F; sleep 20 } else { sleep 20 }");
        let group = background(&scene.c, &parent)?;
        eventually(Duration::from_secs(10), || held_elsewhere(&probe, Fcntl)).context(round)?;
        becomes_free(&probe, Fcntl).context(round)?;
        let alive = scene.c.shell(&format!("ps -o pid= -g {group} | wc -l"))?.stdout;
        ensure!(alive.trim() == "2", "{round}: {} processes", alive.trim());
        scene.c.shell(&format!("kill -KILL -{group}"))?;
    }
    probe.close()?;
    Ok(())
}

/// Read, add one, write, under a lock, on all nodes at once.
fn counter(scene: &Scene<'_>) -> TestResult {
    const ROUNDS: u64 = 3000;
    for kind in [Fcntl, Flock] {
        let path = scene.path(&format!("{kind:?}"));
        scene.b.write_file(&path, Data::fill(0, 8))?;
        let until = Until::rounds(ROUNDS, 8.0).at_least(100);
        let loops = scene.nodes().map(|node| {
            node.begin_loop(Loop::CountUnderLock { path: path.clone(), kind }, until.clone())
        });
        let mut counted = 0;
        for pending in loops {
            let report = pending.wait()?;
            ensure!(report.violations == 0 && report.errors.is_empty(), "{report:?}");
            counted += report.good;
        }
        let number = scene.a.read_file(&path)?;
        let number = u64::from_le_bytes(number.try_into().map_err(|_| anyhow::anyhow!("length"))?);
        ensure!(number == counted, "{kind:?}: counted to {number} in {counted} rounds");
        note(&format!("{kind:?}: counted to {number}"));
    }
    Ok(())
}

/// A has one and wants the other's, B has the other and wants the first.
fn circle(scene: &Scene<'_>) -> TestResult {
    let (x, y) = (scene.path("x"), scene.path("y"));
    for path in [&x, &y] {
        scene.a.write_file(path, Data::fill(1, 10))?;
    }
    let open = |node: &Node| -> anyhow::Result<[File; 2]> {
        Ok([node.open(&x, "rw")?, node.open(&y, "rw")?])
    };
    let ([ax, ay], [bx, by]) = (open(&scene.a)?, open(&scene.b)?);
    ax.lock(Fcntl)?;
    by.lock(Fcntl)?;
    let b_waits = bx.begin_lock(Fcntl);
    std::thread::sleep(Duration::from_millis(300));
    let command = |file: &File| Command::Lock {
        file: file.id(),
        kind: Fcntl,
        action: hayase_e2e::actor::LockAction::Wait,
    };
    expect_errno(scene.a.call(command(&ay)), &["EDEADLK"])?;
    ax.unlock(Fcntl)?;
    b_waits.wait().context("B goes on")?;
    for file in [ax, ay, bx, by] {
        file.close()?;
    }
    Ok(())
}
