//! Bringing up one node, and keeping it until somebody or something ends it.
//!
//! Order: namespaces, network, areas, server, mount, `local`. [`super::teardown`] goes the same way
//! back, from wherever the start has come to.

use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use hayase_server::NAMES_LOST;
use rustix::process::Signal;

use super::apart::Apart;
use super::areas::{covered, hide, hide_cache, show_cache, show_local};
use super::control::{Caller, DaemonState, NodeState, Reply, Request};
use super::daemon::{Daemon, DaemonFailed, raise_open_files};
use super::events::{Event, Events};
use super::fate::Fate;
use super::restarts::{RESTARTS_MAX, Restarts};
use super::said::{Failure, MountTold, Ready, Said};
use crate::config::Environment;
use crate::exit::Status;
use crate::job::{JobDir, Kind, NodeDir, Settings, SupervisorRecord, addresses};
use crate::output::Output;
use crate::process::ProcessId;
use crate::system::network::Hub;
use crate::system::{namespaces, storage_kind};
use crate::wiring::areas::NodeAreas;

/// How long a daemon that did not come up again may take to end.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// What is up of a node.
#[derive(Debug)]
pub(crate) struct Keeper {
    pub(super) dir: JobDir,
    pub(super) settings: Settings,
    pub(super) node: u16,
    events: Events,
    /// Held so that the network in the middle lives as long as its nodes.
    hub: Option<Hub>,
    pub(super) apart: Apart,
    pub(super) areas: Option<NodeAreas>,
    pub(super) server: Option<Daemon>,
    pub(super) mount: Option<Daemon>,
    pub(super) shows_local: bool,
    pub(super) is_unmounted: bool,
    ready: Option<Ready>,
    server_restarts: Restarts,
    pub(super) mount_restarts: Restarts,
}

/// The two daemons, in the order of their start.
const SERVER: &str = "serve";
const MOUNT: &str = "serve-mount";

/// Why a node is to end.
#[derive(Debug)]
pub(crate) enum End {
    /// A command asked; it waits for the answer.
    Asked {
        /// Who.
        caller: Caller,
        /// What becomes of the bytes of the areas.
        fate: Fate,
    },
    /// The launcher is gone.
    LifelineBroken,
    /// Somebody sent a signal.
    Signal(Signal),
    /// It did not come up.
    Failed(anyhow::Error),
}

/// Keeps node `node` of the job in `dir`; returns when it is down again.
pub(crate) fn run(
    dir: JobDir,
    node: u16,
    hub: Option<&Path>,
    environment: &Environment,
    output: &Output,
) -> anyhow::Result<Status> {
    crate::process::set_name(c"hayase-node");
    // A session of its own: signals of the terminal are for whoever started the job.
    let _ = rustix::process::setsid();
    raise_open_files();
    let mut settings = dir.settings()?;
    if settings.kind == Kind::Hosts {
        settings.made = dir.node(node).made();
    }
    let lifeline: OwnedFd = std::io::stdin().as_fd().try_clone_to_owned()?;
    let events = Events::new(&dir.node(node), lifeline)?;
    let mut keeper = Keeper::new(dir, settings, node, events);
    let end = match keeper.bring_up(hub, environment) {
        Ok(ready) => {
            output.line(&Said::Ready(ready.clone()))?;
            keeper.ready = Some(ready);
            keeper.keep()
        }
        Err(end) => end,
    };
    Ok(keeper.end(end, output))
}

impl Keeper {
    /// Of a node of which nothing is up.
    fn new(dir: JobDir, settings: Settings, node: u16, events: Events) -> Self {
        Self {
            dir,
            settings,
            node,
            events,
            hub: None,
            apart: Apart::default(),
            areas: None,
            server: None,
            mount: None,
            shows_local: false,
            is_unmounted: false,
            ready: None,
            server_restarts: Restarts::default(),
            mount_restarts: Restarts::default(),
        }
    }

    fn bring_up(&mut self, hub: Option<&Path>, environment: &Environment) -> Result<Ready, End> {
        let dir = self.node_dir();
        self.apart.begin(&self.settings, self.node, &dir).map_err(End::Failed)?;
        self.make_node(hub, environment).map_err(End::Failed)?;
        tracing::info!(job = %self.settings.job, node = self.node, "areas");
        self.areas = Some(NodeAreas::create(&self.settings, self.node).map_err(End::Failed)?);
        self.start_daemon(SERVER)?;
        let told = match self.settings.no_mounts {
            true => MountTold { path: "none".to_owned(), why: String::new() },
            false => {
                let told = self.start_daemon(MOUNT)?.unwrap_or_default();
                self.finish().map_err(End::Failed)?;
                told
            }
        };
        tracing::info!("ready");
        self.describe(told).map_err(End::Failed)
    }

    /// Namespaces and network, then the record by which others find this process.
    fn make_node(&mut self, hub: Option<&Path>, environment: &Environment) -> anyhow::Result<()> {
        if self.settings.has_namespaces() {
            let hub = Hub::open(hub.context("a node with namespaces needs --hub")?)?;
            namespaces::leave(&self.settings.host(self.node))
                .context("make the node's namespaces")?;
            crate::job::hide_others(&self.settings);
            let address =
                self.settings.address(self.node).context("a simulated node has an address")?;
            hub.connect(self.node, address, &environment.path)?;
            self.hub = Some(hub);
            self.show_files()?;
        }
        let own = self.settings.has_namespaces();
        self.node_dir().write_record(&SupervisorRecord {
            node: self.node,
            process: ProcessId::current()?,
            boot_id: crate::process::boot_id()?,
            pid_namespace: crate::process::pid_namespace(),
            host: self.settings.host(self.node),
            address: self.address()?.to_string(),
            namespaces: if own { namespaces::names() } else { Vec::new() },
        })?;
        Ok(())
    }

    /// Files that differ between simulated nodes: the names of all nodes, and `self` in the job
    /// directory, which is always the node's own `node-<i>`, whatever environment a program was given.
    fn show_files(&self) -> anyhow::Result<()> {
        let hosts = Path::new("/etc/hosts");
        if hosts.exists() {
            rustix::mount::mount_bind(self.dir.hosts(), hosts)
                .context("show the nodes in /etc/hosts")?;
        }
        let own = self.dir.own_node();
        // Before `own` gets its content: until then it is empty.
        if let Err(error) = namespaces::show_interfaces(own.path()) {
            tracing::warn!("show the node's interfaces in /sys: {error}");
        }
        rustix::mount::mount_bind(self.node_dir().path(), own.path())
            .with_context(|| format!("show the node's directory as {}", own.path().display()))
    }

    /// Starts a daemon and waits until it serves.
    fn start_daemon(&mut self, name: &'static str) -> Result<Option<MountTold>, End> {
        tracing::info!("starting {name}");
        let daemon = Daemon::start(name, &self.dir, self.node, self.events.signals());
        self.take_in(name, daemon.map_err(End::Failed)?)
    }

    /// Waits until a daemon serves that was started, and keeps it.
    fn take_in(
        &mut self,
        name: &'static str,
        mut daemon: Daemon,
    ) -> Result<Option<MountTold>, End> {
        // Before it has threads of its own, or soon after: they go with it.
        let entered = self.apart.take(daemon.process()).map_err(End::Failed);
        let result = entered.and_then(|()| self.until_it_serves(name, &mut daemon));
        let failed_to_start = matches!(result, Err(End::Failed(_)));
        if failed_to_start && self.ready.is_some() {
            // What is left of it must not be taken for one that runs.
            daemon.stop(END_PATIENCE);
        }
        let is_unwanted = name == MOUNT && self.is_unmounted;
        if is_unwanted {
            self.take_back(&mut daemon);
        }
        let result =
            if is_unwanted { result.and(self.expect_areas().map(|()| None)) } else { result };
        let place = if name == SERVER { &mut self.server } else { &mut self.mount };
        *place = Some(daemon);
        // Its end may have been signalled while nobody had it.
        self.reap();
        match self.ended(name) {
            Some(end) if result.is_ok() && self.ready.is_none() => Err(end),
            _ => result,
        }
    }

    /// Of a mount whose areas were taken down while it came up: nobody else knows of it.
    fn take_back(&self, daemon: &mut Daemon) {
        daemon.stop(END_PATIENCE);
        hide(&self.settings.shared_mount(self.node), self.settings.is_privileged);
        if !self.settings.has_storage(self.node) {
            hide(&self.settings.local_mount(self.node), self.settings.is_privileged);
        }
    }

    /// That of the start of a node, if a daemon has ended.
    fn ended(&self, name: &'static str) -> Option<End> {
        let daemon = if name == SERVER { &self.server } else { &self.mount };
        match daemon.as_ref()?.state() {
            DaemonState::Ended(how) => Some(End::Failed(anyhow!("`hayase {name}` ended: {how}"))),
            _ => None,
        }
    }

    /// Meanwhile the other daemon may end: a server is started again at once, since a mount that has begun waits for it.
    fn until_it_serves(
        &mut self,
        name: &'static str,
        daemon: &mut Daemon,
    ) -> Result<Option<MountTold>, End> {
        loop {
            let told = daemon.poll_ready(&self.dir, self.node).map_err(End::Failed)?;
            // Whatever became of the signal: it may have come before anybody waited for this one.
            self.reap();
            if name == MOUNT {
                self.expect_server()?;
                // Meanwhile somebody may have asked for it.
                self.expect_areas()?;
            }
            if let Some(told) = told {
                return Ok(told);
            }
            let due = self.server_restarts.due().filter(|_| name == MOUNT);
            let event = self.events.wait(Some(daemon.as_fd()), due);
            if let Some(end) = self.handle(event) {
                return Err(end);
            }
            if name == MOUNT {
                self.expect_areas()?;
            }
        }
    }

    /// While a mount starts: nobody has taken the areas down.
    fn expect_areas(&self) -> Result<(), End> {
        match self.is_unmounted {
            true => Err(End::Failed(anyhow!("the areas are taken down"))),
            false => Ok(()),
        }
    }

    /// While a mount starts: its server runs, or is started again when that is due.
    fn expect_server(&mut self) -> Result<(), End> {
        match self.ended(SERVER) {
            // Before the node is up for the first time, its end is the end of the start.
            Some(end) if self.ready.is_none() => Err(end),
            Some(_) => self.restart_server_due(Instant::now()),
            None => Ok(()),
        }
    }

    /// What needs the mount: the layout of the whole area, and `local` beside it.
    fn finish(&mut self) -> anyhow::Result<()> {
        if let (Some(stripe), 0) = (self.settings.stripe, self.node) {
            let shared = self.settings.shared_mount(0);
            crate::layout_attribute::set(&shared, stripe)?;
        }
        // Without storage it is the mount's second face.
        if self.settings.has_storage(self.node) {
            show_local(&self.settings, self.node)?;
        }
        self.shows_local = true;
        show_cache(&self.settings, self.node)?;
        Ok(())
    }

    /// Waits for the end; answers questions meanwhile, and starts daemons that ended again.
    fn keep(&mut self) -> End {
        loop {
            let restarts = [&self.server_restarts, &self.mount_restarts];
            let due = restarts.into_iter().filter_map(Restarts::due).min();
            let event = self.events.wait(None, due);
            if let Some(end) = self.handle(event) {
                return end;
            }
            if let Err(end) = self.restart_due() {
                return end;
            }
        }
    }

    /// Starts what is due. The server first: a mount without one does not come up.
    fn restart_due(&mut self) -> Result<(), End> {
        let now = Instant::now();
        self.restart_server_due(now)?;
        if self.mount_restarts.is_due(now) {
            if let Some(what) = covered(&self.settings, self.node) {
                tracing::error!("{MOUNT} is not started again yet: {what}");
                self.mount_restarts.put_off(now);
                return Ok(());
            }
            self.mount_restarts.begin(now);
            // The kernel's side of a mount whose daemon is gone stays until somebody takes it away.
            hide_cache(&self.settings, self.node);
            hide(&self.settings.shared_mount(self.node), self.settings.is_privileged);
            if !self.settings.has_storage(self.node) {
                hide(&self.settings.local_mount(self.node), self.settings.is_privileged);
            }
            self.restart(MOUNT)?;
        }
        Ok(())
    }

    fn restart_server_due(&mut self, now: Instant) -> Result<(), End> {
        if self.server_restarts.is_due(now) {
            self.server_restarts.begin(now);
            self.restart(SERVER)?;
        }
        Ok(())
    }

    /// A daemon that does not come up again is tried again, as one that ended.
    fn restart(&mut self, name: &'static str) -> Result<(), End> {
        match self.start_daemon(name) {
            Ok(told) => {
                tracing::info!("{name} is back");
                if name == MOUNT
                    && let Err(error) = show_cache(&self.settings, self.node)
                {
                    tracing::error!("{error:#}");
                }
                if let (Some(told), Some(ready)) = (told, &mut self.ready) {
                    ready.mount = told;
                }
                Ok(())
            }
            Err(End::Failed(error)) => {
                tracing::error!("{name} did not come up again: {error:#}");
                self.schedule(name);
                Ok(())
            }
            Err(end) => Err(end),
        }
    }

    fn schedule(&mut self, name: &'static str) {
        if self.is_unmounted {
            return;
        }
        if name == SERVER && self.server.as_ref().is_some_and(|it| it.ended_with(NAMES_LOST)) {
            tracing::error!(
                "{name} may have lost names that it had answered for: it is not started again, \
                 and the other nodes work without this one"
            );
            return;
        }
        let restarts = match name {
            SERVER => &mut self.server_restarts,
            _ => &mut self.mount_restarts,
        };
        if restarts.ended(Instant::now()).is_none() {
            tracing::error!(
                "{name} ended {RESTARTS_MAX} times within minutes: it is left as it is"
            );
        }
    }

    /// Reacts to an event; `Some` when it is the end.
    fn handle(&mut self, event: Event) -> Option<End> {
        match event {
            Event::Asked(caller, Request::Stop { keep, discard }) => {
                Some(End::Asked { caller, fate: Fate::of(keep, discard) })
            }
            Event::Asked(caller, Request::Status) => {
                caller.answer(&Reply::Status(Box::new(self.state())));
                None
            }
            Event::Asked(caller, Request::History | Request::Checksums { .. }) => {
                caller.answer(&Reply::Refused { why: "ask the server".to_owned() });
                None
            }
            Event::Asked(caller, Request::Unmount) => {
                let notes = self.unmount(caller.pid);
                caller.answer(&Reply::Done { notes, kept: None });
                None
            }
            // All nodes stay up or none: who ends the launcher may do so after it told some of them.
            Event::LifelineBroken if self.dir.is_kept() => None,
            Event::LifelineBroken => Some(End::LifelineBroken),
            Event::Signal(signal) => Some(End::Signal(signal)),
            Event::Child => {
                self.reap();
                None
            }
            Event::Readable | Event::Late => None,
        }
    }

    fn reap(&mut self) {
        let mut ended = Vec::new();
        for (name, daemon) in [(SERVER, &mut self.server), (MOUNT, &mut self.mount)] {
            if let Some(news) = daemon.as_mut().and_then(Daemon::reap)
                && !self.is_unmounted
            {
                tracing::error!("{news}");
                ended.push(name);
            }
        }
        // Before it is up for the first time, its end is the end of the start.
        if self.ready.is_some() {
            ended.into_iter().for_each(|name| self.schedule(name));
        }
    }

    /// As it is now: what the mount has said since it was ready counts.
    fn state(&mut self) -> NodeState {
        if let (Some(mount), Some(ready)) = (&mut self.mount, &mut self.ready)
            && let Some(told) = mount.changed()
        {
            ready.mount = told;
        }
        let of = |daemon: &Option<Daemon>| {
            daemon.as_ref().map_or(DaemonState::NotStarted, Daemon::state)
        };
        NodeState {
            ready: self.ready.clone(),
            server: of(&self.server),
            mount: of(&self.mount),
            server_restarts: self.server_restarts.total(),
            mount_restarts: self.mount_restarts.total(),
            local: self.areas.as_ref().and_then(NodeAreas::local_room),
        }
    }

    fn describe(&self, mount: MountTold) -> anyhow::Result<Ready> {
        Ok(Ready {
            node: self.node,
            host: self.settings.host(self.node),
            address: self.address()?.to_string(),
            shared: self.settings.shared_mount(self.node),
            local: self.settings.local_mount(self.node),
            cache: self.settings.cache_mount(self.node),
            limiter: self.areas.as_ref().map_or("", NodeAreas::limiter).to_owned(),
            mount,
            interrupts: self.apart.interrupts(),
            storage_warning: self.storage_warning(),
        })
    }

    fn storage_warning(&self) -> Option<String> {
        let has_storage = self.settings.has_storage(self.node);
        has_storage.then(|| storage_kind::warning(&self.settings.storage)).flatten()
    }

    pub(super) fn node_dir(&self) -> NodeDir {
        self.dir.node(self.node)
    }

    /// The best address of the node's server.
    fn address(&self) -> anyhow::Result<IpAddr> {
        let addresses = addresses::of(&self.settings, self.node)?;
        addresses.first().copied().context("the node has no address")
    }

    /// Takes everything down and says how it went.
    fn end(mut self, end: End, output: &Output) -> Status {
        match end {
            End::Asked { caller, fate } => {
                tracing::info!("asked to stop");
                let (notes, kept) = self.tear_down(fate, caller.pid);
                caller.answer(&Reply::Done { notes, kept });
                Status::Done
            }
            End::LifelineBroken => {
                tracing::warn!("the launcher is gone; taking the node down");
                self.tear_down(Fate::of(self.has_undurable(), false), None);
                Status::Failed
            }
            End::Signal(signal) => {
                tracing::warn!("{signal:?}; taking the node down");
                self.drain_for_a_while();
                self.tear_down(Fate::of(self.has_undurable(), false), None);
                Status::Failed
            }
            End::Failed(error) => {
                tracing::error!("{error:#}");
                let told = error.downcast_ref::<DaemonFailed>().map(|failed| failed.0.clone());
                let failure = told.unwrap_or_else(|| Failure::new(&error, output));
                // Said first: the log that it quotes is about to go.
                let _ = output.line(&Said::Failed(failure));
                self.tear_down(Fate::Remove, None);
                Status::Failed
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

    use super::*;
    use crate::job::sample_settings;

    /// The keeper of a node without areas, and the other end of its lifeline.
    fn keeper(place: &Path) -> (Keeper, OwnedFd) {
        let dir = JobDir::new(place.join("job"));
        dir.create(1).unwrap();
        let (lifeline, held) = rustix::pipe::pipe().unwrap();
        let events = Events::new(&dir.node(0), lifeline).unwrap();
        (Keeper::new(dir, sample_settings(Kind::ThisMachine, 1), 0, events), held)
    }

    fn ready() -> Ready {
        Ready {
            node: 0,
            host: "host".to_owned(),
            address: "127.0.0.1".to_owned(),
            shared: "/shared".into(),
            local: "/local".into(),
            cache: None,
            limiter: String::new(),
            mount: MountTold::default(),
            interrupts: None,
            storage_warning: None,
        }
    }

    fn daemon(keeper: &Keeper, name: &'static str, script: &str) -> Daemon {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Daemon::spawn(name, command, keeper.events.signals()).unwrap()
    }

    /// One that has ended, of which nobody has heard yet.
    fn ended(keeper: &Keeper, name: &'static str, script: &str) -> Daemon {
        let daemon = daemon(keeper, name, script);
        let child = Pid::from_raw(daemon.process() as i32).unwrap();
        waitid(WaitId::Pid(child), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
        daemon
    }

    #[test]
    fn the_end_of_a_server_is_noticed_while_a_mount_starts() {
        let place = tempfile::tempdir().unwrap();
        let (mut keeper, _held) = keeper(place.path());
        keeper.ready = Some(ready());
        keeper.server = Some(ended(&keeper, SERVER, "exit 7"));
        let mut mount = ended(&keeper, MOUNT, r#"echo '{"ready":{"path":"fuse","why":""}}'"#);
        let told = keeper.until_it_serves(MOUNT, &mut mount).unwrap().unwrap();
        assert_eq!(told.path, "fuse");
        assert!(keeper.server_restarts.due().is_some(), "it is to be started again");
    }

    #[test]
    fn a_server_that_may_have_lost_names_is_not_started_again() {
        let place = tempfile::tempdir().unwrap();
        let (mut keeper, _held) = keeper(place.path());
        keeper.ready = Some(ready());
        for (status, is_started_again) in [(NAMES_LOST, false), (hayase_server::NAMES_FULL, true)] {
            keeper.server = Some(ended(&keeper, SERVER, &format!("exit {status}")));
            keeper.reap();
            assert_eq!(keeper.server_restarts.due().is_some(), is_started_again, "{status}");
        }
    }

    #[test]
    fn a_daemon_that_ends_right_after_it_was_ready_is_noticed() {
        let place = tempfile::tempdir().unwrap();
        let (mut keeper, _held) = keeper(place.path());
        let says = r#"echo '{"ready":null}'; exit 7"#;
        let server = ended(&keeper, SERVER, says);
        let Err(End::Failed(error)) = keeper.take_in(SERVER, server) else { panic!() };
        assert_eq!(error.to_string(), "`hayase serve` ended: exit status: 7");
        assert!(keeper.server_restarts.due().is_none(), "it was the first start");

        keeper.ready = Some(ready());
        let server = ended(&keeper, SERVER, says);
        keeper.take_in(SERVER, server).unwrap();
        assert!(keeper.server_restarts.due().is_some(), "it is to be started again");
    }

    #[test]
    fn a_mount_that_comes_up_after_the_areas_were_taken_down_is_taken_back() {
        let place = tempfile::tempdir().unwrap();
        let (mut keeper, _held) = keeper(place.path());
        keeper.ready = Some(ready());
        keeper.is_unmounted = true;
        let says = r#"echo '{"ready":{"path":"fuse","why":""}}'; exec sleep 60"#;
        let mount = daemon(&keeper, MOUNT, says);
        // It is ready before anybody looks at it.
        let deadline = Instant::now() + Duration::from_secs(30);
        assert!(crate::process::wait_readable(mount.as_fd(), deadline));
        let Err(End::Failed(error)) = keeper.take_in(MOUNT, mount) else { panic!() };
        assert_eq!(error.to_string(), "the areas are taken down");
        let state = keeper.mount.as_ref().unwrap().state();
        assert!(matches!(state, DaemonState::Ended(_)), "{state:?}");
        assert!(keeper.mount_restarts.due().is_none());
    }

    #[test]
    fn what_a_mount_says_later_is_its_state() {
        let place = tempfile::tempdir().unwrap();
        let (mut keeper, _held) = keeper(place.path());
        let says = r#"echo '{"ready":{"path":"passthrough","why":""}}'
            echo '{"changed":{"path":"fuse","why":"refused"}}'"#;
        let mount = ended(&keeper, MOUNT, says);
        let told = keeper.take_in(MOUNT, mount);
        assert!(told.is_err(), "it has ended");
        keeper.ready = Some(Ready {
            mount: MountTold { path: "passthrough".to_owned(), ..MountTold::default() },
            ..ready()
        });
        for _ in 0..2 {
            let mount = keeper.state().ready.unwrap().mount;
            assert_eq!((mount.path.as_str(), mount.why.as_str()), ("fuse", "refused"));
        }
    }

    #[test]
    fn the_end_of_a_server_ends_the_first_start_of_a_mount() {
        let place = tempfile::tempdir().unwrap();
        let (mut keeper, _held) = keeper(place.path());
        keeper.server = Some(ended(&keeper, SERVER, "exit 7"));
        let mut mount = daemon(&keeper, MOUNT, "exec sleep 60");
        let end = keeper.until_it_serves(MOUNT, &mut mount).unwrap_err();
        mount.stop(END_PATIENCE);
        let End::Failed(error) = end else { panic!("{end:?}") };
        assert_eq!(error.to_string(), "`hayase serve` ended: exit status: 7");
        assert!(keeper.server_restarts.due().is_none());
    }
}
