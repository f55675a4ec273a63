//! What a server stands on: storage of names, network, clock, threads.
//!
//! Parameters, so that a simulation can own them: [`Ground::of`] is this machine's.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use hayase_store::{FjallStore, MetaError, MetaStore};
use hayase_wire::message::TimeSpec;
use hayase_wire::transport::{Address, TcpTransport, Transport};
use rustix::time::{ClockId, clock_gettime};

use crate::disk::Disk;
use crate::settings::Settings;

/// Opens the store of names in a directory.
pub type OpenNames = dyn Fn(&Path) -> Result<Arc<dyn MetaStore>, MetaError>;

/// What a server stands on. Parts come with the area ([`Settings::area`]); time outs are the async
/// runtime's.
pub struct Ground {
    pub(crate) names: Box<OpenNames>,
    pub(crate) transport: Rc<dyn Transport>,
    pub(crate) listen: Vec<Address>,
    pub(crate) clock: Clock,
    pub(crate) disk: Disk,
}

impl Ground {
    /// This machine: an embedded store, TCP, the clock of the kernel, a pool of threads for disks.
    pub fn of(settings: &Settings) -> Self {
        // A node simulated by a loopback address speaks from it, too.
        let transport = match settings.listen.first() {
            Some(ip) if ip.is_loopback() => TcpTransport::from_address(*ip),
            _ => TcpTransport::new(),
        };
        let address = |ip: &std::net::IpAddr| Address::Tcp((*ip, settings.port).into());
        Self {
            names: Box::new(|path| Ok(Arc::new(FjallStore::open(path)?))),
            transport: Rc::new(transport),
            listen: settings.listen.iter().map(address).collect(),
            clock: Clock::Kernel,
            disk: Disk::threads(),
        }
    }

    /// The same with names kept elsewhere: in a store that a test can stop.
    #[must_use]
    pub fn with_names(self, names: Arc<dyn MetaStore>) -> Self {
        Self { names: Box::new(move |_| Ok(Arc::clone(&names))), ..self }
    }

    /// The same over another network, made of this one: one with faults.
    #[must_use]
    pub fn with_transport(
        self,
        change: impl FnOnce(Rc<dyn Transport>) -> Rc<dyn Transport>,
    ) -> Self {
        Self { transport: change(self.transport), ..self }
    }

    /// A simulation: these names, this network, the time of a paused runtime, and no threads.
    pub fn simulated(
        names: Arc<dyn MetaStore>,
        transport: Rc<dyn Transport>,
        listen: Address,
        began: tokio::time::Instant,
    ) -> Self {
        Self {
            names: Box::new(move |_| Ok(Arc::clone(&names))),
            transport,
            listen: vec![listen],
            clock: Clock::Since(began),
            disk: Disk::Here,
        }
    }
}

/// Where times of files come from.
pub(crate) enum Clock {
    /// The clock that the local file system stamps its files with.
    Kernel,
    /// The runtime's time since then.
    Since(tokio::time::Instant),
}

impl Clock {
    pub(crate) fn now(&self) -> TimeSpec {
        match self {
            Self::Kernel => {
                let now = clock_gettime(ClockId::RealtimeCoarse);
                TimeSpec { seconds: now.tv_sec, nanos: now.tv_nsec as u32 }
            }
            Self::Since(began) => {
                let since = began.elapsed();
                TimeSpec { seconds: since.as_secs() as i64, nanos: since.subsec_nanos() }
            }
        }
    }
}
