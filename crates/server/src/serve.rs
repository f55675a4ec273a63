//! Starting, running and stopping one server.
//!
//! Order of a start: the node's socket and the ports are bound, the stores opened, the server made
//! known, the members waited for ([`meeting`]); then it is ready. Everything runs on one thread.

use crate::membership::MemberTasks;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use hayase_layout::ServerId;
use hayase_store::{Namespace, ops};
use hayase_wire::message::MembersNow;
use hayase_wire::transport::Address;
use hayase_wire::{
    COORDINATOR, Connector, Credentials, Members, NodeListener, PeerLink, ServerKey, serve_listener,
};
use tokio::task::LocalSet;

use crate::activity::Activity;
use crate::cache::area::CacheArea;
use crate::cache::{Cache, TombstoneLog, rewriting};
use crate::clients::Clients;
use crate::data::{Data, Storage};
use crate::failed_names::Exit;
use crate::grace::Grace;
use crate::ground::Ground;
use crate::homes::Homes;
use crate::keyed_lock::KeyedLock;
use crate::late::Late;
use crate::limits::LOCKS_MAX;
use crate::local::LocalServer;
use crate::locks::Locks;
use crate::meeting::{self, Doors};
use crate::membership::{Losses, Membership};
use crate::meta::{Meta, NamesDisk, Tombstones};
use crate::names::{Names, Shard};
use crate::node::Node;
use crate::peer_service::Roles;
use crate::peer_service::entrance::PeerService;
use crate::rpc::peers::Peers;
use crate::rpc::{Identity, OwnService, Servers};
use crate::serve_error::ServeError;
use crate::settings::Settings;
use crate::starting::{self, Stores};
use crate::when_woken::when_woken;

/// Runs one server until `stop` is done. `ready` is called once every server of the job is known
/// and this one answers; `exit` when names could not be written, with [`crate::NAMES_FULL`] or [`crate::NAMES_LOST`].
pub async fn serve(
    settings: Settings,
    exit: Exit,
    ready: impl FnOnce(),
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let ground = Ground::of(&settings).map_err(|source| ServeError::Ucx { source })?;
    let ground = ground.ending(exit);
    serve_on(ground, settings, |_| (), ready, stop).await
}

/// The same on a ground of the caller's. `opened` gets the way in for what runs beside the server in
/// this process: before `ready`, because a server that was started anew waits to be told what its
/// processes hold. When the future is dropped, the server stops as if it were killed.
pub async fn serve_on(
    ground: Ground,
    settings: Settings,
    opened: impl FnOnce(LocalServer),
    ready: impl FnOnce(),
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    LocalSet::new().run_until(run(ground, settings, opened, ready, stop)).await
}

async fn run(
    ground: Ground,
    settings: Settings,
    opened: impl FnOnce(LocalServer),
    ready: impl FnOnce(),
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let socket =
        NodeListener::bind(&settings.socket).map_err(|source| ServeError::Socket { source })?;
    let Doors { mut listeners, addresses, key, is_restart } =
        Doors::open(&ground, &settings).await?;
    let starting = meeting::starting(&settings, &key);
    let preparing = prepare(ground, settings, &key, addresses.clone(), is_restart);
    let (node, credentials) = match is_restart {
        true => starting::put_off_while(&mut listeners, &starting, preparing).await?,
        // Nobody misses it yet.
        false => preparing.await?,
    };
    let incarnation = node.incarnation;
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn_local(Rc::clone(&node).serve_socket(socket));
    for listener in listeners {
        let service = Rc::new(PeerService(Rc::clone(&node)));
        tasks.spawn_local(serve_listener(listener, credentials.clone(), service));
    }
    let (local, processes) = LocalServer::of(&node);
    tasks.spawn_local(processes);
    opened(local);
    // Before others are told of this incarnation: one that ends in between must be missed.
    tasks.spawn_local(Rc::clone(&node.members).keep());
    if incarnation > 1 {
        node.ask_others_to_tell(addresses).await;
    }
    if node.cache.get().is_some() {
        node.cache.make_root()?;
        tasks.spawn_local(Rc::clone(&node).keep_flushing());
        let this = Rc::clone(&node);
        tasks.spawn_local(async move {
            if let Some(cache) = this.cache.get() {
                rewriting::keep_short(cache, &this.data.disk).await;
            }
        });
    }
    tasks.spawn_local(Rc::clone(&node.rpc).watch_homes());
    node.recover().await;
    if incarnation > 1 {
        tasks.spawn_local(Rc::clone(&node).collect_stray_parts());
    }
    ready();
    tracing::info!(server = %node.me, servers = node.servers, incarnation, "serving");
    let end = when_woken(async {
        tokio::select! {
            biased;
            () = stop => Ok(()),
            () = node.rpc.membership.is_lost.notified() => Err(ServeError::Lost { server: node.me }),
        }
    })
    .await;
    tracing::info!(server = %node.me, "stopping");
    tasks.shutdown().await;
    if let Err(error) = node.meta.store().sync() {
        tracing::error!(%error, "the name space could not be made durable at the end");
    }
    end
}

/// All that goes before a server answers.
async fn prepare(
    ground: Ground,
    settings: Settings,
    key: &ServerKey,
    addresses: Vec<Address>,
    is_restart: bool,
) -> Result<(Rc<Node>, Credentials), ServeError> {
    let (settings, stores) = starting::open(&ground, settings, is_restart).await?;
    let met = meeting::meet(&settings, key, addresses, stores.incarnation).await?;
    let (members, credentials) = met;
    let node = node(ground, settings, stores, (&members, &credentials))?;
    node.hold_prepared_names().await;
    node.finish_evictions().await;
    Ok((node, credentials))
}

/// Files that a power cut gave their names back, at a home and a shard that had seen them go, while the ledger still
/// knows that they went: they are what programs see, so they come to the tier.
fn revive(cache: &Cache, names: &Namespace, server: ServerId) -> Result<(), ServeError> {
    for record in cache.records_where(|record| record.is_nameless) {
        let inode = ops::get_inode(&names.begin(), record.ino)
            .map_err(|source| ServeError::Names { server, source })?;
        if inode.is_some_and(|inode| inode.nlink > 0) {
            let again = cache.has_its_name_again(record);
            again.map_err(|source| ServeError::Ledger { server, source })?;
        }
    }
    Ok(())
}

fn node(
    mut ground: Ground,
    settings: Settings,
    stores: Stores,
    (members, credentials): (&Members, &Credentials),
) -> Result<Rc<Node>, ServeError> {
    ground.network.register_slots(&stores.slots);
    let me = credentials.me;
    let connector = Connector::new(Rc::clone(&ground.network.transport), credentials.clone());
    let addresses: HashMap<ServerId, Vec<Address>> =
        members.servers.iter().map(|member| (member.server, member.addresses.clone())).collect();
    let connecting = Rc::clone(&connector);
    let make = move |to: ServerId| {
        let addresses = addresses.get(&to).cloned().unwrap_or_default();
        PeerLink::new(Rc::clone(&connecting), to, addresses)
    };
    let peers = Peers::new(stores.slots.clone(), Box::new(make));
    if settings.server != COORDINATOR {
        connector.relay_through(&peers.link(COORDINATOR));
    }
    let names = stores.names;
    let server = settings.server;
    let kept = names.members().map_err(|source| ServeError::Names { server, source })?;
    let late = names.late().map_err(|source| ServeError::Names { server, source })?;
    let kept: MembersNow =
        kept.and_then(|bytes| hayase_wire::decode(&bytes).ok()).unwrap_or_default();
    // Who is lost holds nothing here.
    let others = (0..settings.servers)
        .map(ServerId)
        .filter(|other| *other != server && !kept.is_server_lost(*other))
        .collect();
    // At a first start nobody is missed: each has its own time to come up.
    let known = match stores.incarnation {
        1 => Vec::new(),
        _ => members.servers.iter().map(|member| (member.server, member.start_id)).collect(),
    };
    let life = ground.life();
    let disk = Rc::new(ground.disk);
    let cache = match (settings.cache, stores.ledger) {
        (Some(asked), Some(ledger)) => {
            let cache = Cache::open(asked, ledger, &ground.boot, &disk);
            let cache = cache.map_err(|source| ServeError::Ledger { server, source })?;
            revive(&cache, &names, server)?;
            Some(Rc::new(cache))
        }
        _ => None,
    };
    let membership = Membership::new(server, settings.servers, kept, &known);
    let meta = Meta::new(
        (settings.server, stores.incarnation),
        (Arc::clone(&names), NamesDisk::new(&names, &disk)),
        ground.clock,
        stores.answers,
        cache.clone().map(|cache| Rc::new(TombstoneLog(cache)) as Rc<dyn Tombstones>),
    );
    let clients = Rc::new(Clients::numbering_from(stores.incarnation));
    let identity = Identity {
        me: settings.server,
        node: settings.node,
        servers: settings.servers,
        groups: settings.groups.clone(),
        incarnation: stores.incarnation,
    };
    let grace = Grace::new((stores.incarnation > 1).then_some(others), settings.mounts);
    let rpc = Servers::new(identity, peers, membership, grace, (&meta, &clients));
    let identity = (settings.server, settings.servers, me.start_id);
    let member_tasks = MemberTasks::new(identity, (&rpc, &meta, &clients));
    let activity = Rc::new(Activity::default());
    let storage = Storage {
        parts: stores.parts,
        area: settings.area.into(),
        disk,
        direct_io: (stores.slots, settings.direct_io),
        life,
    };
    let data = Data::new((settings.server, stores.incarnation), storage, &meta, &activity);
    let cache = CacheArea::new(settings.server, cache, (&meta, &data));
    let inode_locks = Rc::new(KeyedLock::new());
    let shard = Shard {
        me: settings.server,
        groups: settings.groups.clone(),
        incarnation: stores.incarnation,
        kept_until: settings.kept_until,
    };
    let shard = Names::new(shard, (&meta, &rpc, &clients), &inode_locks, stores.given_up);
    let node = Rc::new(Node {
        me: settings.server,
        node: settings.node,
        servers: settings.servers,
        groups: settings.groups,
        host: settings.host,
        start_id: me.start_id,
        started: std::time::Instant::now(),
        activity,
        meta,
        data,
        names: shard,
        cache,
        network: ground.network,
        homes: Homes::new(Late::from_former_life(late)),
        handing_on: Default::default(),
        handed_on: Default::default(),
        clients,
        rpc,
        members: member_tasks,
        crowd: Default::default(),
        replies: Default::default(),
        incarnation: stores.incarnation,
        intent_age: settings.intent_age,
        appends: Default::default(),
        turns: Default::default(),
        locks: std::cell::RefCell::new(Locks::new(LOCKS_MAX)),
        renames: Default::default(),
        files: Default::default(),
        inode_locks,
        inode_locks_of_opens: KeyedLock::new(),
        recorded: crate::recorded::RecordedFiles::default(),
        turn: Cell::new(0),
        replaced: RefCell::default(),
        finished_intents: Default::default(),
        told_renames: Default::default(),
        link_takers: Default::default(),
        unfinished: Default::default(),
        unsynced_elsewhere: Default::default(),
    });
    let roles = Rc::new(Roles { me: node.node, node: Rc::downgrade(&node) });
    node.rpc.serve_here_by(Rc::clone(&roles) as Rc<dyn OwnService>);
    node.members.tell(Rc::clone(&roles) as Rc<dyn Losses>);
    node.names.finish_by(roles);
    Ok(node)
}
