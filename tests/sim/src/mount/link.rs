//! A mount's way to its server: waits for one that ended, tells the next what it holds, and sends
//! again what was not answered.
//!
//! The same rules as `hayase_client::session`, which threads and sockets keep out of a simulation.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use hayase_server::{AnswerCallback, LocalProcess};
use hayase_wire::Arena;
use hayase_wire::message::{Holding, NodeReply, NodeRequest};
use hayase_wire::times::RESTART_WAIT;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::kept::Kept;
use super::{EIO, Failure, Mount};
use crate::job::Job;

mod memory;

/// One mount's connection, over all lives of its server.
pub(super) struct Link {
    job: Rc<Job>,
    node: u16,
    id: u64,
    arena: Arena,
    process: RefCell<Option<(u64, LocalProcess)>>,
    dead: Cell<bool>,
    changed: Notify,
    /// Slots of requests that happen once: the free ones with their last number.
    turns: RefCell<Vec<(u32, u64)>>,
    turns_made: Cell<u32>,
}

impl Link {
    pub(super) fn new(job: Rc<Job>, node: u16, id: u64, arena: Arena) -> Rc<Self> {
        Rc::new(Self {
            job,
            node,
            id,
            arena,
            process: RefCell::default(),
            dead: Cell::new(false),
            changed: Notify::new(),
            turns: RefCell::default(),
            turns_made: Cell::new(0),
        })
    }

    pub(super) fn arena(&self) -> &Arena {
        &self.arena
    }

    pub(super) fn job(&self) -> &Job {
        &self.job
    }

    pub(super) fn node(&self) -> u16 {
        self.node
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead.get()
    }

    /// The process is killed: its server is told by the end of its connections.
    pub(super) fn die(&self) {
        self.dead.set(true);
        self.changed.notify_waiters();
        if let Some((_, process)) = self.process.take() {
            tokio::task::spawn_local(process.leave());
        }
    }

    /// Joins each life of the server, and tells all but the first what is held.
    pub(super) async fn stay_connected(self: Rc<Self>, mount: Rc<Mount>) {
        let kept = Rc::clone(&mount.kept);
        let mut returning = false;
        while !self.dead.get() {
            let (life, server) = tokio::select! {
                biased;
                () = self.until_dead() => return,
                way_in = self.job.way_in(self.node) => way_in,
            };
            let arena = memory::for_server(&self.arena);
            let answer = answers(&mount);
            let joined = server.join(self.id, arena, Some(answer), returning).await;
            if self.dead.get() {
                // Killed meanwhile, by which its connections end: a server must not wait for its answers.
                if let Ok(process) = joined {
                    let _the_server_ended_too = process.leave().await;
                }
                return;
            }
            if let Ok(process) = joined {
                *self.process.borrow_mut() = Some((life, process.clone()));
                self.changed.notify_waiters();
                if returning {
                    self.tell(&process, &kept).await;
                }
                returning = true;
            }
            tokio::select! {
                biased;
                () = self.job.life_over(self.node, life) => {}
                () = self.until_dead() => {}
            }
            self.process.take();
            // Whatever it granted is void.
            kept.forget(|_| true);
        }
    }

    async fn tell(&self, process: &LocalProcess, kept: &Kept) {
        let (opens, locks) = kept.held(|_| true);
        for holding in Holding::in_batches(&opens, &locks) {
            match process.ask(NodeRequest::Reclaim(Box::new(holding))).await {
                Ok(NodeReply::Reclaimed { lost }) => kept.not_given_back(&lost),
                Ok(other) => panic!("{other:?} to a reclaim"),
                Err(_ended_again) => return,
            }
        }
    }

    /// Asks until there is an answer, as long as patience lasts.
    pub(super) async fn ask(&self, request: NodeRequest) -> Result<NodeReply, Failure> {
        if !request.happens_once() {
            return self.ask_patiently(request).await;
        }
        let (slot, last) = self.turns.borrow_mut().pop().unwrap_or_else(|| {
            self.turns_made.set(self.turns_made.get() + 1);
            (self.turns_made.get() - 1, 0)
        });
        let number = last + 1;
        let request = NodeRequest::Once { slot, number, request: Box::new(request) };
        let result = self.ask_patiently(request).await;
        self.turns.borrow_mut().push((slot, number));
        result
    }

    async fn ask_patiently(&self, request: NodeRequest) -> Result<NodeReply, Failure> {
        let is_append = matches!(request, NodeRequest::Append { .. });
        let mut until = None;
        loop {
            let connected = self.until(|| self.process.borrow().clone());
            let (life, process) = match until {
                None => connected.await?,
                Some(until) => match timeout_at(until, connected).await {
                    Ok(connected) => connected?,
                    Err(_) => return Err(Failure::Refused(EIO)),
                },
            };
            let answer = tokio::select! {
                biased;
                () = self.until_dead() => return Err(Failure::Gone),
                answer = process.ask(request.clone()) => answer,
            };
            match answer {
                // What a server says that has died already is not heard.
                Ok(reply) if self.job.is_alive(self.node, life) => match reply {
                    NodeReply::Refused(refused) => return Err(refused.into()),
                    reply => return Ok(reply),
                },
                // Bytes that may be at the end of the file already are not sent twice.
                _ if is_append => return Err(Failure::Refused(EIO)),
                _ => {
                    until.get_or_insert_with(|| Instant::now() + RESTART_WAIT);
                    let over = self.job.life_over(self.node, life);
                    tokio::select! {
                        biased;
                        () = over => {}
                        () = self.until_dead() => return Err(Failure::Gone),
                    }
                    if self.process.borrow().as_ref().is_some_and(|(of, _)| *of == life) {
                        self.process.take();
                    }
                }
            }
        }
    }

    pub(super) async fn until_dead(&self) {
        let _dead = self.until(|| None::<()>).await;
    }

    /// Waits until there is something, or the mount is dead.
    async fn until<T>(&self, look: impl Fn() -> Option<T>) -> Result<T, Failure> {
        loop {
            let changed = self.changed.notified();
            if self.dead.get() {
                return Err(Failure::Gone);
            }
            if let Some(found) = look() {
                return Ok(found);
            }
            changed.await;
        }
    }
}

/// What the server asks of a mount. Where that hands something on it goes on as a thread would, also when the server
/// waits for it no longer. Held by the mount's own connection, so it must not hold the mount.
fn answers(mount: &Rc<Mount>) -> Rc<AnswerCallback> {
    let mount = Rc::downgrade(mount);
    Rc::new(move |callback| {
        let Some(mount) = mount.upgrade() else { return Box::pin(std::future::ready(None)) };
        if !mount.kept.gathering.is_on() {
            return Box::pin(std::future::ready(Some(mount.kept.answer(&callback, true))));
        }
        let answer = tokio::task::spawn_local(async move { Some(mount.answer(callback).await) });
        Box::pin(async move { answer.await.expect("answers do not panic") })
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hayase_layout::ServerId;
    use hayase_wire::message::Access;
    use tokio::task::LocalSet;

    use super::*;
    use crate::job::Death;
    use crate::mount::Seat;
    use crate::network::Network;
    use crate::random::Random;
    use crate::run::runtime;

    const AWAY: Duration = Duration::from_millis(300);

    #[test]
    fn a_mount_that_is_killed_while_its_server_is_away_joins_no_server() {
        LocalSet::new().block_on(&runtime(), async {
            let random = Random::new(1);
            let job = Job::up(2, Network::new(random.split()), random.split()).await;
            let [one, other] = [0, 1].map(|node| Seat::new(&job, node));
            let ino = other.mount().create("f", None).await.expect("nothing stands against it");
            assert_eq!(ino.home(), ServerId(1));
            assert_eq!(one.mount().lookup("f").await, Ok(ino), "it has joined");
            job.kill(0, Death { pause: Some(AWAY), power: false });
            tokio::time::sleep(AWAY / 2).await;
            one.kill();
            job.all_ready().await;
            // The new life of server 0 asks its mounts, before anything else, what they have locked at home 1.
            let opened = one.mount().open(ino, Access { read: true, write: false }).await;
            one.mount().close(opened.expect("every mount answers")).await.expect("it is open");
        });
    }
}
