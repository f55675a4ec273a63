//! Jobs whose servers speak UCX: over its own TCP, since test machines have no RDMA.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use hayase_e2e::process::run;
use hayase_e2e::{
    Command, Data, Job, JobOptions, Suite, TestResult, eventually, expect_errno, note, skip,
};
use hayase_layout::ServerId;
use hayase_ucx::UcxTransport;
use hayase_wire::transport::Address;
use hayase_wire::{CallError, Connector, Credentials, PeerIdentity, PeerLink, Secret, ServerKey};
use rustix::process::{Pid, Signal, kill_process};

/// This program as one of another user of the network.
const STRANGER: &str = "--stranger";

/// What this program does when a test of this file has started it as a stranger.
pub(crate) fn as_stranger() -> Option<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() != Some(STRANGER) {
        return None;
    }
    let told = stranger(&arguments.next().unwrap_or_default());
    let code = if told.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    hayase_e2e::suite::print(&told.unwrap_or_else(|error| format!("{error:#}")));
    Some(code)
}

pub(crate) fn suite() -> Suite {
    Suite::new("ucx", JobOptions::three())
        .alone("ucx_nodes_read_what_others_wrote", || {
            on_a_job("ucx_nodes_read_what_others_wrote", others_read)
        })
        .alone("ucx_a_killed_server_is_found_again", || {
            on_a_job("ucx_a_killed_server_is_found_again", found_again)
        })
        .alone("ucx_a_lost_node_is_told_and_nobody_hangs", || {
            on_a_job("ucx_a_lost_node_is_told_and_nobody_hangs", lost)
        })
        .alone("ucx_strangers_are_refused", || on_a_job("ucx_strangers_are_refused", strangers))
        .alone("ucx_is_told_where_it_is_missing", missing)
}

const MIB: u64 = 1 << 20;
/// A node is declared lost in 3 to 5 s; generous, for loaded machines.
const DECLARED: Duration = Duration::from_secs(40);
const COMMAND: Duration = Duration::from_secs(40);

fn options() -> JobOptions {
    let mut options = JobOptions::three();
    options.extra = vec!["--transport".into(), "ucx".into()];
    options
}

fn on_a_job(name: &str, test: fn(&Job) -> TestResult) -> TestResult {
    if let Err(missing) = UcxTransport::library_version() {
        skip(name, &format!("{missing}; {}", missing.help()));
        return Ok(());
    }
    let job = Job::up(options())?;
    test(&job).map_err(|error| error.context(job.logs()))?;
    job.down()
}

fn status(job: &Job) -> anyhow::Result<serde_json::Value> {
    let said = job.cluster().context("a real job")?.run("status", &["--json"])?.success()?;
    Ok(serde_json::from_str(&said.stdout)?)
}

/// Every value of that name in a text of JSON, wherever it stands.
fn values<'a>(told: &'a serde_json::Value, name: &str) -> Vec<&'a serde_json::Value> {
    match told {
        serde_json::Value::Object(fields) => fields
            .iter()
            .flat_map(|(key, value)| match key == name {
                true => vec![value],
                false => values(value, name),
            })
            .collect(),
        serde_json::Value::Array(list) => list.iter().flat_map(|it| values(it, name)).collect(),
        _ => Vec::new(),
    }
}

/// All servers say that they speak UCX with their slots registered, and no connection of theirs stayed on TCP.
fn expect_all_over_ucx(job: &Job) -> TestResult {
    let told = status(job)?;
    let words = values(&told, "network");
    ensure!(words.len() == 3, "transports of the servers: {words:?}");
    for words in words {
        let words = words.as_str().unwrap_or_default();
        ensure!(words.starts_with("ucx ") && words.ends_with("asked for"), "{words}");
        ensure!(words.contains("slots registered once"), "{words}");
    }
    let over: Vec<_> = values(&told, "over").into_iter().filter(|over| !over.is_null()).collect();
    ensure!(over.len() >= 2, "connected peers: {over:?}");
    ensure!(over.iter().all(|over| *over == "ucx"), "a connection stayed on TCP: {over:?}");
    Ok(())
}

/// Small and large, each way between each pair of nodes, and striped over all.
fn others_read(job: &Job) -> TestResult {
    let path = |name: &str| format!("{}/{name}", job.shared());
    let nodes = [job.node(0)?, job.node(1)?, job.node(2)?];
    for (index, writer) in nodes.iter().enumerate() {
        let seed = index as u64;
        writer.write_file(&path(&format!("small-{index}")), Data::pattern(seed, 100))?;
        writer.write_file(&path(&format!("large-{index}")), Data::pattern(seed, 16 * MIB + 77))?;
    }
    for reader in &nodes {
        for index in 0..3 {
            for (name, len) in [("small", 100), ("large", 16 * MIB + 77)] {
                let file = reader.open(&path(&format!("{name}-{index}")), "r")?;
                file.check(0, Data::pattern(index, len))?;
                file.close()?;
            }
        }
    }
    // Over what lies on another node.
    for (index, writer) in nodes.iter().enumerate() {
        let of = (index + 1) % 3;
        let file = writer.open(&path(&format!("large-{of}")), "w")?;
        file.pwrite(12_345, Data::pattern(70 + of as u64, 5 * MIB))?;
        file.close()?;
    }
    for index in 0..3 {
        for reader in &nodes {
            let file = reader.open(&path(&format!("large-{index}")), "r")?;
            file.check(12_345, Data::pattern(70 + index, 5 * MIB))?;
            file.close()?;
        }
    }
    let striped = path("striped");
    nodes[0].mkdir(&striped)?;
    job.stripe(&striped, "256KiB", 0)?;
    let striped = format!("{striped}/file");
    nodes[0].write_file(&striped, Data::pattern(9, 20 * MIB))?;
    nodes[2].open(&striped, "r")?.check(0, Data::pattern(9, 20 * MIB))?;
    expect_all_over_ucx(job)
}

fn pid_of(job: &Job, node: u16, kind: &str) -> anyhow::Result<Pid> {
    let daemons = job.cluster().context("a real job")?.daemons();
    let pids = if kind == "serve" { daemons.servers } else { daemons.supervisors };
    let is_of = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        let mut words = line.split('\0').skip_while(|word| *word != "--node");
        words.nth(1) == Some(&node.to_string())
    };
    let pid = pids.into_iter().find(is_of).with_context(|| format!("{kind} of node {node}"))?;
    Pid::from_raw(pid as i32).context("a process number")
}

/// kill -9 of a server in the middle of transfers, several times: they go on with the next one, over UCX again.
fn found_again(job: &Job) -> TestResult {
    let path = format!("{}/file", job.shared());
    let (home, other) = (job.node(1)?, job.node(2)?);
    home.write_file(&path, Data::fill(0, 8 * MIB))?;
    for round in 1..=4 {
        let server = pid_of(job, 1, "serve")?;
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20 * round));
            kill_process(server, Signal::KILL)
        });
        let begin = Instant::now();
        let file = other.open(&path, "rw")?;
        for pass in 0..4 {
            let data = Data::pattern(round * 10 + pass, 8 * MIB);
            file.pwrite(0, data.clone()).context("a write across a kill")?;
            file.check(0, data).context("a read across a kill")?;
        }
        file.close()?;
        killer.join().ok().context("the killer")??;
        note(&format!("round {round}: {:?}", begin.elapsed()));
        ensure!(begin.elapsed() < COMMAND, "a kill cost {:?}", begin.elapsed());
    }
    eventually(DECLARED, || expect_all_over_ucx(job))?;
    Ok(())
}

/// A node that is gone with all its daemons: its bytes answer EIO soon, all else goes on.
fn lost(job: &Job) -> TestResult {
    let path = |name: &str| format!("{}/{name}", job.shared());
    let (a, b, c) = (job.node(0)?, job.node(1)?, job.node(2)?);
    b.write_file(&path("of-b"), Data::fill(1, 4 * MIB))?;
    c.write_file(&path("of-c"), Data::pattern(2, 4 * MIB))?;
    let (of_b, of_c) = (a.open(&path("of-b"), "r")?, a.open(&path("of-c"), "r")?);
    of_b.check(0, Data::fill(1, 4 * MIB))?;
    kill_process(pid_of(job, 1, "node")?, Signal::KILL)?;
    // Its daemons end a moment later: until then its bytes may be read, and never others.
    let mut wrong = None;
    let gone = eventually(DECLARED, || {
        let read = of_b.pread(MIB, 100);
        if let Ok(bytes) = &read
            && *bytes != [1; 100]
        {
            wrong = Some(bytes.clone());
        }
        expect_errno(read, &["EIO"])
    })?;
    ensure!(wrong.is_none(), "bytes that were never written: {wrong:?}");
    note(&format!("EIO after {gone:?}"));
    of_c.check(0, Data::pattern(2, 4 * MIB)).context("a node that lives")?;
    eventually(DECLARED, || {
        let said = job.cluster().context("a real job")?.run("status", &[])?.stdout;
        ensure!(said.contains("node 1 is lost"), "{said}");
        Ok(())
    })?;
    job.restart_actors();
    Ok(())
}

/// As a program with UCX that does not know the secret: what it is told.
fn stranger(address: &str) -> anyhow::Result<String> {
    let at: Address = address.parse().context("an address")?;
    let transport = Rc::new(UcxTransport::new(None, &[])?);
    let me = PeerIdentity { server: ServerId(1), start_id: 1 };
    let (secret, key, known) = (Secret::generate()?, ServerKey::generate()?, Arc::default());
    let credentials = Credentials { secret, me, key, known, encrypt: false };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let asking = async {
        let connector = Connector::new(transport, credentials);
        let link = PeerLink::new(connector, ServerId(0), vec![at]);
        link.call(b"anything".to_vec(), None, None, Duration::from_secs(2)).await
    };
    match runtime.block_on(tokio::task::LocalSet::new().run_until(asking)) {
        Ok(answer) => bail!("answered with {} bytes", answer.body.len()),
        Err(CallError::Unreachable { source: Some(source), .. }) => Ok(source.to_string()),
        Err(error) => bail!("another answer: {error}"),
    }
}

/// Who does not know the secret, and who sends noise to the ports of the servers and of UCX itself, learns nothing and
/// disturbs nobody.
fn strangers(job: &Job) -> TestResult {
    let cluster = job.cluster().context("a real job")?;
    let members = std::fs::read_to_string(cluster.job_dir().join("members.json"))?;
    let members: serde_json::Value = serde_json::from_str(&members)?;
    let address = members["content"]["servers"][0]["addresses"][0].as_str();
    let address = PathBuf::from(address.with_context(|| format!("an address in {members}"))?);
    let servers = cluster.daemons().servers;
    let me = std::env::current_exe()?;
    let said = run(&mut cluster.exec(1, &[&me, Path::new(STRANGER), &address]), COMMAND)?;
    let told = "the peer closed the connection during the handshake";
    ensure!(said.code == Some(0) && said.stdout.trim() == told, "a stranger was told: {said:?}");

    let (a, b) = (job.node(0)?, job.node(1)?);
    let path = format!("{}/file", job.shared());
    a.write_file(&path, Data::pattern(1, MIB))?;
    let server = pid_of(job, 0, "serve")?;
    let ports = listening_ports(server)?;
    ensure!(ports.len() >= 2, "the server's port and that of UCX: {ports:?}");
    let host = address.display().to_string();
    let host = host.split(':').nth(1).context("an address")?.to_owned();
    for port in ports {
        let noise = format!(
            "for n in 1 2 3 4 5 6 7 8 9 10; do \
             (exec 3<>/dev/tcp/{host}/{port} && head -c 100000 /dev/urandom >&3) & \
             (exec 3<>/dev/tcp/{host}/{port} && head -c $((n * 7)) /dev/urandom >&3) & done; wait"
        );
        let script = format!("bash -c '{noise}' 2>/dev/null; true");
        let noise = b.begin(Command::Shell { script });
        for round in 0..10 {
            let data = Data::pattern(round, MIB);
            b.open(&path, "w")?.pwrite(0, data.clone())?;
            let reader = a.open(&path, "r")?;
            reader.check(0, data).with_context(|| format!("noise at port {port}"))?;
            reader.close()?;
        }
        noise.wait()?;
    }
    ensure!(cluster.daemons().servers == servers, "a server has died");
    expect_all_over_ucx(job)
}

/// TCP ports at which a process listens, by the sockets that it has and its network's table.
fn listening_ports(pid: Pid) -> anyhow::Result<Vec<u16>> {
    let proc = PathBuf::from(format!("/proc/{}", pid.as_raw_nonzero()));
    let sockets: Vec<String> = std::fs::read_dir(proc.join("fd"))?
        .flatten()
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .filter_map(|to| Some(to.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let table = std::fs::read_to_string(proc.join("net/tcp"))?;
    let port = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let listens =
            fields.get(3) == Some(&"0A") && sockets.iter().any(|it| fields.get(9) == Some(&&**it));
        listens.then(|| u16::from_str_radix(fields[1].split_once(':')?.1, 16).ok()).flatten()
    };
    Ok(table.lines().skip(1).filter_map(port).collect())
}

/// Without the library `up --transport ucx` says what to install, and `auto` takes TCP; so says `doctor`.
fn missing() -> TestResult {
    const HIDE: &str = "for lib in $(ldconfig -p | sed -n 's/.*libucp.so.0.* => //p'); do \
                        mount --bind /dev/null \"$lib\" || exit 77; done; exec \"$@\"";
    let job = hayase_e2e::Trial::new()?;
    let hidden = |command: &std::process::Command| {
        let mut hidden = std::process::Command::new("unshare");
        hidden.args(["--mount", "--propagation", "private", "sh", "-c", HIDE, "sh"]);
        hidden.arg(command.get_program()).args(command.get_args());
        hidden
    };
    let said = run(&mut hidden(&job.up(&options())?), COMMAND)?;
    if said.code == Some(77) || said.stderr.contains("unshare") {
        skip("ucx_is_told_where_it_is_missing", &format!("hide a file: {}", said.stderr.trim()));
        return Ok(());
    }
    ensure!(matches!(said.code, Some(1 | 2)), "{said:?}");
    for part in ["--transport ucx", "libucp.so.0", "libucx0", "--transport tcp"] {
        ensure!(said.stderr.contains(part), "up does not say {part}: {}", said.stderr);
    }
    let mut doctor = std::process::Command::new(hayase_e2e::job::binary()?);
    let said = run(&mut hidden(doctor.arg("doctor")), COMMAND)?;
    ensure!(said.stdout.contains("transport: tcp: "), "doctor: {}", said.stdout);
    ensure!(said.stdout.contains("no UCX is installed"), "doctor: {}", said.stdout);
    job.end()
}
