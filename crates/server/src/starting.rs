//! A server that is starting: it opens its storage, and tells the other servers meanwhile that it is coming.
//!
//! Fault: a start that takes longer than a node is waited for that may be lost (a million names to recover, a
//! machine under load). Its supervisor has started it, so its node is not lost; until it serves, it
//! answers each handshake with that it is starting.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::{Duration, Instant};

use hayase_store::{Device, Ledger, Namespace, PartId, Parts, SlotPool, Time};
use hayase_wire::transport::Listener;
use hayase_wire::{Credentials, put_off_listener};

use crate::ground::{Ground, OpenNames};
use crate::limits::{PARTS_OPEN_MAX, SLOTS, STARTING_MAX};
use crate::meta::Answers;
use crate::names::given_up::GivenUp;
use crate::serve_error::ServeError;
use crate::settings::Settings;

/// Between two looks at a disk that is full.
pub(crate) const ROOM_PAUSE: Duration = Duration::from_millis(500);

/// What a server keeps, open.
pub(crate) struct Stores {
    pub(crate) names: Arc<Namespace>,
    pub(crate) incarnation: u64,
    pub(crate) answers: Answers,
    pub(crate) given_up: GivenUp,
    pub(crate) ledger: Option<Ledger>,
    pub(crate) parts: Parts,
    pub(crate) slots: SlotPool,
}

/// What of it can be opened on any thread, which is what takes long.
struct Opened {
    names: Namespace,
    incarnation: u64,
    ledger: Option<Ledger>,
    parts: Arc<dyn Device>,
}

/// Opens the storage of a server, on a thread that may wait for the disk; a restart waits for room on a full one.
pub(crate) async fn open(
    ground: &Ground,
    settings: Settings,
    is_restart: bool,
) -> Result<(Settings, Stores), ServeError> {
    let now = ground.clock.now();
    let now = Time { seconds: now.seconds, nanos: now.nanos };
    let (open_names, boot) = (Arc::clone(&ground.names), ground.boot.clone());
    let patience = if is_restart { STARTING_MAX } else { Duration::ZERO };
    let work = move || {
        let open = || open_disks(&*open_names, &boot, &settings, now);
        let opened = once_there_is_room(patience, open);
        opened.map(|opened| (settings, opened))
    };
    let (settings, opened) = match ground.disk.waits() {
        false => work()?,
        true => {
            let opened = tokio::task::spawn_blocking(work).await;
            opened.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))?
        }
    };
    let Opened { names, incarnation, ledger, parts } = opened;
    let server = settings.server;
    let refused = |source| ServeError::Names { server, source };
    let names = Arc::new(names);
    let answers = Answers::load(&names).map_err(refused)?;
    let given_up = GivenUp::load(&names).map_err(refused)?;
    let slots = SlotPool::new(SLOTS).map_err(|source| ServeError::Slots { source })?;
    let parts = Parts::open(parts, PARTS_OPEN_MAX);
    ground.serves.store(true, Ordering::Release);
    Ok((settings, Stores { names, incarnation, answers, given_up, ledger, parts, slots }))
}

/// Waits for `preparing`, and answers each handshake at `listeners` meanwhile with that the server is starting, for at
/// most [`STARTING_MAX`].
pub(crate) async fn put_off_while<T>(
    listeners: &mut [Box<dyn Listener>],
    credentials: &Credentials,
    preparing: impl Future<Output = T>,
) -> T {
    tokio::select! {
        biased;
        prepared = preparing => prepared,
        never = put_off(listeners, credentials) => match never {},
    }
}

async fn put_off(listeners: &mut [Box<dyn Listener>], credentials: &Credentials) -> Infallible {
    let tell = |listener| Box::pin(put_off_listener(listener, credentials.clone()));
    let mut telling: Vec<_> = listeners.iter_mut().map(|it| tell(&mut **it)).collect();
    let all = poll_fn(|cx| {
        let ended = telling.iter_mut().map(|one| one.as_mut().poll(cx)).find(Poll::is_ready);
        ended.unwrap_or(Poll::Pending)
    });
    match tokio::time::timeout(STARTING_MAX, all).await {
        Ok(never) => never,
        Err(_) => std::future::pending().await,
    }
}

/// Fault: others have filled the disk while the server was away. It comes back when there is room, unless that takes
/// longer than the other servers wait for one that starts.
fn once_there_is_room<T>(
    patience: Duration,
    open: impl Fn() -> Result<T, ServeError>,
) -> Result<T, ServeError> {
    let begin = Instant::now();
    loop {
        match open() {
            Err(error) if error.is_full() && begin.elapsed() < patience => {
                tracing::warn!("{error}: the disk is full; the server waits for room");
                std::thread::sleep(ROOM_PAUSE);
            }
            opened => return opened,
        }
    }
}

fn open_disks(
    open_names: &OpenNames,
    boot: &str,
    settings: &Settings,
    now: Time,
) -> Result<Opened, ServeError> {
    let (meta, server) = (settings.area.names(), settings.server);
    std::fs::create_dir_all(&meta)
        .map_err(|source| ServeError::Directory { path: meta.clone(), source })?;
    let device = settings.area.parts().map_err(|source| ServeError::Parts { server, source })?;
    let store = open_names(&meta).map_err(|source| ServeError::Meta { server, source })?;
    let names = Namespace::open(store, server, now)
        .map_err(|source| ServeError::Names { server, source })?;
    let refused = |source| ServeError::Names { server, source };
    let incarnation = names.begin_incarnation().map_err(refused)?;
    if names.begin_boot(boot).map_err(refused)? {
        tracing::warn!(%server, "the machine was restarted: what was not synced may be lost");
    }
    for guest in settings.groups.guests_of(server) {
        names.open_private(guest, now).map_err(refused)?;
    }
    let ledger = match settings.cache {
        Some(_) => Some(open_ledger(settings, &*device)?),
        None => None,
    };
    Ok(Opened { names, incarnation, ledger, parts: device })
}

fn open_ledger(settings: &Settings, parts: &dyn Device) -> Result<Ledger, ServeError> {
    let server = settings.server;
    let failed = |source| ServeError::Parts { server, source };
    let device = settings.area.ledger_device().map_err(failed)?;
    if device.list().map_err(failed)?.is_empty() {
        // The first start, as long as nothing says otherwise.
        let is_own = |part: &&PartId| part.ino.is_cached() && part.ino.home() == server;
        let files = parts.list().map_err(failed)?.iter().filter(is_own).count();
        if files > 0 {
            return Err(ServeError::LedgerGone { server, files });
        }
    }
    Ledger::open(device).map_err(|source| ServeError::Ledger { server, source })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use hayase_layout::ServerId;
    use hayase_store::MetaError;

    use super::*;

    fn full() -> ServeError {
        let source = rustix::io::Errno::DQUOT.into();
        let source = MetaError::Full { path: "names".into(), source };
        ServeError::Meta { server: ServerId(1), source }
    }

    #[test]
    fn a_restart_waits_for_room_and_a_first_start_does_not() {
        let tries = Cell::new(0);
        let open = || match tries.replace(tries.get() + 1) {
            0 => Err(full()),
            _ => Ok(()),
        };
        once_there_is_room(Duration::ZERO, open).unwrap_err();
        tries.set(0);
        once_there_is_room(STARTING_MAX, open).unwrap();
        assert_eq!(tries.get(), 2);
    }

    #[test]
    fn what_is_damaged_is_not_waited_for() {
        let tries = Cell::new(0);
        let open = || -> Result<(), _> {
            tries.set(tries.get() + 1);
            let source = MetaError::Corrupt { path: "names".into(), detail: "it is".to_owned() };
            Err(ServeError::Meta { server: ServerId(1), source })
        };
        once_there_is_room(STARTING_MAX, open).unwrap_err();
        assert_eq!(tries.get(), 1);
    }

    /// The names are not the only ones on that disk.
    #[test]
    fn a_directory_without_room_is_waited_for() {
        let of = |errno: rustix::io::Errno| ServeError::Directory {
            path: "d".into(),
            source: errno.into(),
        };
        assert!(of(rustix::io::Errno::NOSPC).is_full() && !of(rustix::io::Errno::IO).is_full());
    }
}
