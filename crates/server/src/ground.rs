//! What a server stands on: storage of names, network, clock, threads.
//!
//! Parameters, so that a simulation can own them: [`Ground::of`] is this machine's.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hayase_store::{FjallStore, MetaError, MetaStore};
use hayase_ucx::UcxError;
use hayase_wire::message::{MachineLife, TimeSpec};
use hayase_wire::transport::{Address, Transport};
use rustix::time::{ClockId, clock_gettime};

use crate::alarm::Alarm;
use crate::disk::Disk;
use crate::failed_names::{EndingStore, Exit};
use crate::network::Network;
use crate::settings::Settings;

/// Opens the store of names in a directory.
pub type OpenNames = dyn Fn(&Path) -> Result<Arc<dyn MetaStore>, MetaError> + Send + Sync;

/// What a server stands on. Parts come with the area ([`Settings::area`]); time outs are the async
/// runtime's.
pub struct Ground {
    pub(crate) names: Arc<OpenNames>,
    /// From when on a write of names that fails ends the process ([`Ground::ending`]).
    pub(crate) serves: Arc<AtomicBool>,
    pub(crate) network: Network,
    pub(crate) listen: Vec<Address>,
    pub(crate) clock: Clock,
    pub(crate) disk: Disk,
    /// Which life of the machine this is: another one after a power cut, the same after a kill.
    pub(crate) boot: String,
}

impl Ground {
    /// This machine: an embedded store, its network, the clock of the kernel, a pool of threads for disks. Fails
    /// where UCX was asked for and can not be had.
    pub fn of(settings: &Settings) -> Result<Self, UcxError> {
        let network = Network::choose(settings.transport, &settings.listen)?;
        let address = |ip: &std::net::IpAddr| Address::Tcp((*ip, settings.port).into());
        Ok(Self {
            names: Arc::new(|path| Ok(Arc::new(FjallStore::open_with_reserve(path)?))),
            serves: Arc::default(),
            network,
            listen: settings.listen.iter().map(address).collect(),
            clock: Clock::Kernel { alarm: Alarm::default() },
            disk: Disk::threads(),
            boot: boot_id(),
        })
    }

    /// The same in a process of its own, which ends when names could not be written.
    #[must_use]
    pub(crate) fn ending(self, exit: Exit) -> Self {
        let (open, serves) = (self.names, Arc::clone(&self.serves));
        let names: Arc<OpenNames> = Arc::new(move |path| {
            Ok(Arc::new(EndingStore::new(open(path)?, Arc::clone(&serves), exit)))
        });
        Self { names, ..self }
    }

    /// The same with names kept elsewhere: in a store that a test can stop.
    #[must_use]
    pub fn with_names(self, names: Arc<dyn MetaStore>) -> Self {
        Self { names: Arc::new(move |_| Ok(Arc::clone(&names))), ..self }
    }

    /// The same over another network, made of this one: one with faults.
    #[must_use]
    pub fn with_transport(
        self,
        change: impl FnOnce(Rc<dyn Transport>) -> Rc<dyn Transport>,
    ) -> Self {
        Self { network: self.network.over(change), ..self }
    }

    /// A simulation: these names, this network, the time of a paused runtime, no threads, and so many power cuts so far.
    pub fn simulated(
        names: Arc<dyn MetaStore>,
        transport: Rc<dyn Transport>,
        listen: Address,
        began: tokio::time::Instant,
        power_cuts: u64,
    ) -> Self {
        Self {
            names: Arc::new(move |_| Ok(Arc::clone(&names))),
            serves: Arc::default(),
            network: Network::given(transport, "simulated"),
            listen: vec![listen],
            clock: Clock::Since(began),
            disk: Disk::Here,
            boot: power_cuts.to_string(),
        }
    }
}

impl Ground {
    /// The same number for the same life of the machine, whichever server asks.
    pub(crate) fn life(&self) -> MachineLife {
        MachineLife(xxhash_rust::xxh3::xxh3_64(self.boot.as_bytes()))
    }
}

/// Of the running kernel; the same for ever where it does not tell.
pub(crate) fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_else(|error| {
        tracing::warn!(%error, "the boot id of the kernel cannot be read");
        String::new()
    })
}

/// Where times of files come from.
pub(crate) enum Clock {
    /// The clock that the local file system stamps its files with.
    Kernel { alarm: Alarm },
    /// The runtime's time since then.
    Since(tokio::time::Instant),
}

impl Clock {
    pub(crate) fn now(&self) -> TimeSpec {
        match self {
            Self::Kernel { .. } => {
                let now = clock_gettime(ClockId::RealtimeCoarse);
                TimeSpec { seconds: now.tv_sec, nanos: now.tv_nsec as u32 }
            }
            Self::Since(began) => {
                let since = began.elapsed();
                TimeSpec { seconds: since.as_secs() as i64, nanos: since.subsec_nanos() }
            }
        }
    }

    /// A long pause, which wakes the process once.
    pub(crate) async fn rest(&self, pause: Duration) {
        match self {
            Self::Kernel { alarm } => alarm.rest(pause).await,
            Self::Since(_) => tokio::time::sleep(pause).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_simulation_rests_on_its_own_time() {
        let began = tokio::time::Instant::now();
        Clock::Since(began).rest(Duration::from_secs(3600)).await;
        assert!(began.elapsed() >= Duration::from_secs(3600));
    }
}
