//! How a server meets the others at each start, as the server that it was at the first.
//!
//! It listens where it did before, has the key that it had before, and knows the others by the keys that they had when the
//! job began. Both are kept in two small files of its storage that can be read before the rest is open: a server that is
//! still starting proves already which one it is.
//!
//! Not here: what the files look like (`hayase_wire::keys`, `hayase_wire::members`), and which server is lost
//! ([`crate::membership`]).

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use hayase_wire::message::PROTOCOL_VERSION;
use hayase_wire::transport::{Address, Listener};
use hayase_wire::{
    COORDINATOR, Credentials, KnownServers, Member, Members, MembersError, PeerIdentity, ServerKey,
    members,
};
use tokio::time::Instant;

use crate::ground::Ground;
use crate::limits::STARTING_MAX;
use crate::serve_error::ServeError;
use crate::settings::Settings;
use crate::starting::ROOM_PAUSE;

/// The private half of the server's key, next to its names.
const KEY_FILE: &str = "server.key";

/// By what the other servers prove themselves, in the same place.
const KNOWN_FILE: &str = "servers.json";

/// The doors of a server, open.
pub(crate) struct Doors {
    pub(crate) listeners: Vec<Box<dyn Listener>>,
    pub(crate) addresses: Vec<Address>,
    pub(crate) key: ServerKey,
    /// It was started before.
    pub(crate) is_restart: bool,
}

impl Doors {
    /// Opens them at the addresses of the server's former life where they are free, else at others.
    pub(crate) async fn open(ground: &Ground, settings: &Settings) -> Result<Self, ServeError> {
        let before = members::published(&settings.job_dir, settings.server, &settings.secret)
            .map_err(|source| ServeError::Members { source })?;
        let key = key(settings, before.as_ref())?;
        let is_restart = before.is_some();
        let before = before.map(|member| member.addresses).unwrap_or_default();
        let (mut listeners, mut addresses) = (Vec::new(), Vec::new());
        for address in &ground.listen {
            let former = before.iter().find(|former| are_on_one_host(former, address));
            let listener = listen(ground, former, address).await?;
            addresses.push(listener.address());
            listeners.push(listener);
        }
        Ok(Self { listeners, addresses, key, is_restart })
    }
}

async fn listen(
    ground: &Ground,
    former: Option<&Address>,
    address: &Address,
) -> Result<Box<dyn Listener>, ServeError> {
    let transport = &ground.network.transport;
    if let Some(former) = former
        && let Ok(listener) = transport.listen(former).await
    {
        return Ok(listener);
    }
    let listening = transport.listen(address).await;
    listening.map_err(|source| ServeError::Listen { address: address.clone(), source })
}

fn are_on_one_host(one: &Address, other: &Address) -> bool {
    match (one, other) {
        (Address::Tcp(one), Address::Tcp(other)) => one.ip() == other.ip(),
        _ => one == other,
    }
}

/// The key that the server made at its first start; it makes one only where no other server can know of an older one.
fn key(settings: &Settings, published: Option<&Member>) -> Result<ServerKey, ServeError> {
    let (path, server) = (file(settings, KEY_FILE), settings.server);
    let failed = |source| ServeError::Key { server, source };
    match (ServerKey::read(&path).map_err(failed)?, published) {
        (Some(key), published) if published.is_none_or(|it| it.key == key.public()) => Ok(key),
        (None, None) => ServerKey::make(&path).map_err(failed),
        _ => {
            let path = members::published_path(&settings.job_dir, server);
            let source = MembersError::NotItsKey { server, host: settings.host.clone(), path };
            Err(ServeError::Members { source })
        }
    }
}

fn file(settings: &Settings, name: &str) -> PathBuf {
    settings.area.names().with_file_name(name)
}

/// Credentials of a server that only says that it is starting.
pub(crate) fn starting(settings: &Settings, key: &ServerKey) -> Credentials {
    let me = PeerIdentity { server: settings.server, start_id: 0 };
    settings.credentials(me, key.clone(), Arc::default())
}

/// Makes this server known to the others, waits for them, and says who they are.
pub(crate) async fn meet(
    settings: &Settings,
    key: &ServerKey,
    addresses: Vec<Address>,
    incarnation: u64,
) -> Result<(Members, Credentials), ServeError> {
    let me = settings.identity(incarnation);
    let member = Member {
        server: settings.server,
        host: settings.host.clone(),
        addresses,
        start_id: me.start_id,
        key: key.public(),
        version: PROTOCOL_VERSION,
    };
    let members = once_there_is_room(settings, &member, incarnation > 1).await?;
    let known = Arc::new(members.known());
    Ok((members, settings.credentials(me, key.clone(), known)))
}

/// Fault: others have filled the disk of the job directory, or of the server's own files, before all of them were written.
/// A server that was started before waits for room as long as it does for its names.
async fn once_there_is_room(
    settings: &Settings,
    member: &Member,
    is_restart: bool,
) -> Result<Members, ServeError> {
    let begin = Instant::now();
    loop {
        let met = members_of_job(settings, member, is_restart).await;
        let error = match met {
            Ok(members) => return Ok(members),
            Err(source) => ServeError::Members { source },
        };
        if !is_restart || !error.is_full() || begin.elapsed() >= STARTING_MAX {
            return Err(error);
        }
        let why = error.source().map(ToString::to_string).unwrap_or_default();
        tracing::warn!("{error}: {why}: the disk is full; the server waits for room");
        tokio::time::sleep(ROOM_PAUSE).await;
    }
}

async fn members_of_job(
    settings: &Settings,
    member: &Member,
    is_restart: bool,
) -> Result<Members, MembersError> {
    let (job_dir, secret) = (&settings.job_dir, &settings.secret);
    let sealed = members::read(job_dir, secret)?;
    if let Some(sealed) = &sealed {
        // Before anybody else can take the other key for this server's.
        expect_list(settings, member, sealed)?;
        if !is_restart {
            return Err(names_gone(settings));
        }
    }
    members::publish(job_dir, member, secret)?;
    let sealed = match sealed {
        Some(sealed) => sealed,
        None if settings.server == COORDINATOR => {
            members::seal(job_dir, settings.servers, secret, settings.wait).await?
        }
        None => members::wait_sealed(job_dir, secret, settings.wait).await?,
    };
    expect_list(settings, member, &sealed)?;
    expect_known(settings, &sealed.known())?;
    match is_restart {
        true => Ok(members::current(job_dir, sealed, secret)),
        false => Ok(sealed),
    }
}

/// That the list is of all servers of this job, and has this server's own key.
fn expect_list(settings: &Settings, member: &Member, sealed: &Members) -> Result<(), MembersError> {
    let path = members::sealed_path(&settings.job_dir);
    let (listed, servers) = (sealed.len(), settings.servers);
    match sealed.get(member.server) {
        Some(own) if own.key != member.key => {
            let (server, host) = (member.server, member.host.clone());
            Err(MembersError::NotItsKey { server, host, path })
        }
        Some(_) if listed == usize::from(servers) => Ok(()),
        _ => Err(MembersError::Count { path, listed, servers }),
    }
}

/// The list is sealed when all servers have begun their names, and this one has none: it would begin the job again, and
/// nobody would miss what is gone.
fn names_gone(settings: &Settings) -> MembersError {
    MembersError::NamesGone {
        server: settings.server,
        host: settings.host.clone(),
        path: members::sealed_path(&settings.job_dir),
        names: settings.area.names(),
    }
}

/// That the servers of the list are those of the first list that this server has read, which it keeps.
fn expect_known(settings: &Settings, now: &KnownServers) -> Result<(), MembersError> {
    let path = file(settings, KNOWN_FILE);
    let Some(first) = members::kept_known(&path, &settings.secret)? else {
        return members::keep_known(&path, now, &settings.secret);
    };
    let Some(server) = first.first_changed(now) else { return Ok(()) };
    let host = first.get(server).or(now.get(server)).map(|known| known.host.clone());
    let (host, path) = (host.unwrap_or_default(), members::sealed_path(&settings.job_dir));
    Err(MembersError::KeyChanged { server, host, path })
}
