//! Calls to the servers of the job, this one included: remote procedure calls in sessions, as NFSv4.1 has them.
//!
//! Here: what every call needs: the links ([`peers`]), which servers have met ([`sessions`]), which are lost ([`crate::membership`]) and
//! what of a former life is still unknown ([`crate::grace`]). Before a server that was started again is asked for anything, it
//! hears what this node holds there. A request to this server travels nowhere: whatever serves it stands behind [`OwnService`].
//! Not here: what requests do (`peer_service`), what each of them is ([`crate::request`]).
//! Source: `docs/design/001-coherence.md`, "Sessions and restarts".

pub(crate) mod peers;
pub(crate) mod reply_cache;
pub(crate) mod sessions;
mod silence;

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::future::Future;
use std::rc::Rc;

use hayase_layout::{Groups, InodeId, NodeId, ServerId};
use hayase_wire::message::{Holding, InodeRequest, MemberRequest, PeerReply, PeerRequest, Refused};
use hayase_wire::{BoxBuffer, COORDINATOR};
use tokio::time::{Instant, timeout};

use self::peers::{Peers, Served};
use self::sessions::{NOBODY, Sessions};
use crate::boxed::Local;
use crate::clients::Clients;
use crate::convert::meta_refused;
use crate::grace::Grace;
use crate::limits::CALL_DEADLINE;
use crate::membership::{Membership, lost};
use crate::meta::Meta;
use crate::refusals::{libc_errno, refusal, unexpected};
use crate::request::{Grants, Properties, once};

/// What serves requests of this server to itself.
pub(crate) trait OwnService {
    /// Boxed: a role here may ask another role here.
    fn serve(&self, request: PeerRequest) -> Local<Served>;
}

/// The servers of the job.
pub(crate) struct Servers {
    me: ServerId,
    node: NodeId,
    count: u16,
    groups: Groups,
    /// Starts of this server, this one included.
    incarnation: u64,
    meta: Rc<Meta>,
    clients: Rc<Clients>,
    here: OnceCell<Rc<dyn OwnService>>,
    pub(crate) peers: Peers,
    pub(crate) sessions: Sessions,
    pub(crate) membership: Membership,
    pub(crate) grace: Grace,
}

/// This server among the others.
pub(crate) struct Identity {
    pub(crate) me: ServerId,
    pub(crate) node: NodeId,
    pub(crate) servers: u16,
    pub(crate) groups: Groups,
    pub(crate) incarnation: u64,
}

/// To the server that is asked.
enum Way {
    Here(Local<Served>),
    There(Rc<Servers>, PeerRequest),
}

impl Servers {
    pub(crate) fn new(
        identity: Identity,
        peers: Peers,
        membership: Membership,
        grace: Grace,
        (meta, clients): (&Rc<Meta>, &Rc<Clients>),
    ) -> Rc<Self> {
        let Identity { me, node, servers: count, groups, incarnation } = identity;
        Rc::new(Self {
            me,
            node,
            count,
            groups,
            incarnation,
            meta: Rc::clone(meta),
            clients: Rc::clone(clients),
            here: OnceCell::new(),
            peers,
            sessions: Sessions::new(),
            membership,
            grace,
        })
    }

    /// From now on `here` serves what this server asks itself.
    pub(crate) fn serve_here_by(&self, here: Rc<dyn OwnService>) {
        let first = self.here.set(here);
        debug_assert!(first.is_ok(), "set once");
    }

    /// Asks a server, this one included (nothing travels then). `EIO` when it does not answer.
    pub(crate) fn ask<R: Into<PeerRequest>>(
        self: &Rc<Self>,
        to: ServerId,
        request: R,
    ) -> impl Future<Output = Result<PeerReply, Refused>> + use<R> {
        self.ask_request(to, request.into())
    }

    fn ask_request(
        self: &Rc<Self>,
        to: ServerId,
        request: PeerRequest,
    ) -> impl Future<Output = Result<PeerReply, Refused>> + use<> {
        self.clients.remembers_answer(to, once(&request));
        let way = match self.here.get().filter(|_| to == self.me) {
            Some(here) => Way::Here(here.serve(request)),
            None => Way::There(Rc::clone(self), request),
        };
        async move {
            let served = match way {
                Way::Here(served) => served.await,
                Way::There(servers, request) => servers.call(to, &request, None, None).await?,
            };
            refusal(served.reply)
        }
    }

    /// The server that takes what this node makes: itself, or its group's where it has no storage.
    pub(crate) fn own_storage(&self) -> ServerId {
        self.groups.server_of(self.node)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = ServerId> + use<> {
        (0..self.count).map(ServerId)
    }

    /// Makes sure that what processes of this node hold at `ino`'s home was told to it since this server
    /// was started: only then is it known what of it is lost.
    pub(crate) async fn meet_home(self: &Rc<Self>, ino: InodeId) -> Result<(), Refused> {
        let home = ino.home();
        let is_known = home == self.me || self.sessions.ours.borrow().contains_key(&home);
        if self.incarnation > 1 && !is_known {
            self.ask(home, InodeRequest::GetAttr { ino }).await?;
        }
        Ok(())
    }

    /// Asks another server; begins a session with it where there is none.
    pub(crate) async fn call(
        &self,
        to: ServerId,
        request: &PeerRequest,
        mut send: Option<(BoxBuffer, usize)>,
        mut into: Option<BoxBuffer>,
    ) -> Result<Served, Refused> {
        let is = Properties::of(request);
        let mut until = Instant::now() + is.deadline;
        if is.grants == Grants::Keeps {
            self.sessions.asks(to);
        }
        let mut told = None;
        loop {
            let sent = send.as_ref().map(|(_, len)| *len);
            let left = until.saturating_duration_since(Instant::now());
            let called = tokio::select! {
                biased;
                called = self.peers.call(to, request, send, into, left) => {
                    called.inspect_err(|error| tracing::warn!(%error, "no answer"))?
                }
                () = self.membership.until_lost(to) => return Err(lost(to)),
                () = self.peers.until_unreachable(to) => {
                    let why = format!("server {to} can not be reached");
                    return Err(Refused::because(libc_errno::EIO, why));
                }
            };
            if !matches!(called.served.reply, PeerReply::Dead) {
                self.sessions.heard(to);
            }
            match called.served.reply {
                PeerReply::NoSession { start_id } => {
                    if told.replace(start_id) == Some(start_id) {
                        // It was told, and does not know it any more.
                        self.sessions.ours.borrow_mut().insert(to, NOBODY);
                    } else {
                        // It was waited for while it started.
                        until = Instant::now() + is.deadline;
                    }
                    self.begin_session(to, start_id).await?;
                    if is.held.is_some_and(|ino| ino.home() == to) {
                        // With the former session a lock may have been lost: the caller looks again.
                        return Ok(PeerReply::Stale.into());
                    }
                }
                PeerReply::Dead => {
                    self.membership.told_lost_by(to);
                    let why = format!("server {to} answers that this node was declared lost");
                    return Err(Refused::because(libc_errno::EIO, why));
                }
                _ => return Ok(called.served),
            }
            send = called.sent.zip(sent);
            into = called.served.payload.map(|(buffer, _)| buffer);
        }
    }

    /// Tells `to` what this node holds there, if that was not done meanwhile.
    pub(crate) async fn begin_session(&self, to: ServerId, start_id: u64) -> Result<(), Refused> {
        let _turn = self.sessions.telling.lock(to).await;
        let before = self.sessions.ours.borrow().get(&to).copied();
        if before == Some(start_id) {
            return Ok(());
        }
        self.grace.own_known().await;
        self.end_lost_locks().await?;
        // At a first meeting of two first incarnations nobody holds anything.
        let mut locks = Vec::new();
        if before.is_some() || self.incarnation > 1 {
            locks = self.clients.locks_at(to).await?;
            locks.retain(|held| !self.clients.has_lost(held));
            self.clients.home_lost(to).await;
        }
        let as_of = self.clients.asked();
        let opens: Vec<_> = self.clients.held_at(to, as_of);
        tracing::info!(%to, opens = opens.len(), locks = locks.len(), "a session begins");
        let mut lost = Vec::new();
        for holding in Holding::in_batches(&opens, &locks) {
            let request = MemberRequest::Reclaim { holding: Box::new(holding), as_of }.into();
            match self.peers.call(to, &request, None, None, CALL_DEADLINE).await?.served.reply {
                PeerReply::Reclaimed { lost: more } => lost.extend(more),
                PeerReply::Refused(refused) => return Err(refused),
                other => return Err(unexpected(&other)),
            }
        }
        self.sessions.ours.borrow_mut().insert(to, start_id);
        self.clients.tell_lost(lost).await;
        Ok(())
    }

    /// Where a former incarnation was declared lost, its homes have released what processes of this node
    /// had locked there, and others may have changed the files since. A home says so, but not one that was
    /// itself restarted before it was asked: so the processes lose it here, before any home hears of it.
    pub(crate) async fn end_lost_locks(&self) -> Result<(), Refused> {
        let mut is_done = self.sessions.own_loss.lock().await;
        if *is_done || self.incarnation == 1 || self.me == COORDINATOR {
            return Ok(());
        }
        if timeout(CALL_DEADLINE, self.membership.until_heard()).await.is_err() {
            let why =
                "server 0 has not said since this server was restarted which servers were lost";
            return Err(Refused::because(libc_errno::EIO, why));
        }
        if let Some(loss) = self.membership.loss_of(self.me)
            && self.meta.store().own_loss().map_err(meta_refused)? != Some(loss)
        {
            let mut lost = BTreeSet::new();
            for home in self.all().filter(|home| *home != self.me) {
                let held = self.clients.locks_at(home).await?.into_iter();
                lost.extend(held.filter(|held| held.ticket.is_none()).map(|held| held.ino));
            }
            self.clients.tell_lost(lost.into_iter().collect()).await;
            self.meta.store().keep_own_loss(loss).map_err(meta_refused)?;
            self.meta.disk.sync().await?;
        }
        *is_done = true;
        Ok(())
    }
}
