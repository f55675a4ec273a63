//! Which transport a server speaks to the others, and why.
//!
//! Each server chooses for itself: one over UCX understands one over TCP, since connections begin as TCP.

use std::net::IpAddr;
use std::rc::Rc;

use hayase_store::SlotPool;
use hayase_ucx::{Registration, UcxError, UcxTransport, rdma_devices};
use hayase_wire::Arena;
use hayase_wire::region::Region;
use hayase_wire::transport::{TcpTransport, Transport};

/// What was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransportChoice {
    /// UCX where an RDMA device works, else TCP.
    #[default]
    Auto,
    /// TCP.
    Tcp,
    /// UCX, or no server.
    Ucx,
}

/// What was chosen.
pub(crate) struct Network {
    pub(crate) transport: Rc<dyn Transport>,
    /// The same, where it is UCX.
    ucx: Option<Rc<UcxTransport>>,
    slots: Option<Registration>,
    words: String,
    why: String,
}

impl Network {
    /// The network of a server that listens on `listen`. Fails only where UCX was asked for and can not be had.
    pub(crate) fn choose(choice: TransportChoice, listen: &[IpAddr]) -> Result<Self, UcxError> {
        let devices = rdma_devices();
        match choice {
            TransportChoice::Tcp => Ok(Self::tcp(listen, "asked for")),
            TransportChoice::Auto if devices.is_empty() => {
                Ok(Self::tcp(listen, "no RDMA device works here"))
            }
            TransportChoice::Auto => Self::ucx(listen, &devices, "").or_else(|error| {
                tracing::warn!(%error, "RDMA is here and not used: {}", error.help());
                Ok(Self::tcp(listen, &format!("{} is here, but {error}", devices.join(", "))))
            }),
            TransportChoice::Ucx => Self::ucx(listen, &devices, ", asked for"),
        }
    }

    /// One that somebody else made, in words of theirs.
    pub(crate) fn given(transport: Rc<dyn Transport>, words: &str) -> Self {
        Self { transport, ucx: None, slots: None, words: words.to_owned(), why: String::new() }
    }

    /// The same with its transport changed: one with faults.
    pub(crate) fn over(self, change: impl FnOnce(Rc<dyn Transport>) -> Rc<dyn Transport>) -> Self {
        Self { transport: change(self.transport), ..self }
    }

    /// Transfers will mostly go from and to these, for as long as the server runs.
    pub(crate) fn register_slots(&mut self, slots: &SlotPool) {
        self.slots = self.ucx.as_ref().map(|ucx| ucx.register(Region::new(slots.clone())));
    }

    /// And from and to the arena of a process that has come: what goes to other nodes goes from there. Until the
    /// result is dropped.
    pub(crate) fn register_arena(&self, arena: &Arena) -> Option<Registration> {
        Some(self.ucx.as_ref()?.register_when_used(Region::new(arena.clone())))
    }

    /// For people: `tcp: no RDMA device works here`.
    pub(crate) fn words(&self) -> String {
        let Self { words, why, .. } = self;
        let Some(ucx) = &self.ucx else { return format!("{words}{why}") };
        let memory = match ucx.refusal() {
            Some(refusal) => format!(", memory registered for each transfer ({refusal})"),
            None if self.slots.is_some() => ", slots registered once".to_owned(),
            None => String::new(),
        };
        let used_up = match ucx.is_used_up() {
            true => "; new connections stay on TCP, as too many have ended",
            false => "",
        };
        format!("{words}{memory}{why}{used_up}")
    }

    fn tcp(listen: &[IpAddr], why: &str) -> Self {
        let transport = source(listen).map_or_else(TcpTransport::new, TcpTransport::from_address);
        Self::given(Rc::new(transport), &format!("tcp: {why}"))
    }

    fn ucx(listen: &[IpAddr], devices: &[String], why: &str) -> Result<Self, UcxError> {
        let ucx = Rc::new(UcxTransport::new(source(listen), listen)?);
        let version = UcxTransport::library_version()?;
        let over = match devices {
            [] => "its own TCP, as no RDMA device works here".to_owned(),
            devices => devices.join(", "),
        };
        Ok(Self {
            transport: Rc::clone(&ucx) as Rc<dyn Transport>,
            ucx: Some(ucx),
            slots: None,
            words: format!("ucx {version}: over {over}"),
            why: why.to_owned(),
        })
    }
}

/// A node simulated by a loopback address speaks from it, too.
fn source(listen: &[IpAddr]) -> Option<IpAddr> {
    listen.first().copied().filter(IpAddr::is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ucx_tells_that_the_slots_are_registered() {
        let listen = ["127.0.0.1".parse().unwrap()];
        let mut network = match Network::choose(TransportChoice::Ucx, &listen) {
            Ok(network) => network,
            Err(error) => return eprintln!("SKIP {error}; {}", error.help()),
        };
        let ucx = Rc::clone(network.ucx.as_ref().unwrap());
        network.register_slots(&SlotPool::new(3).unwrap());
        assert_eq!(ucx.registered_bytes(), 3 << 20);
        let words = network.words();
        assert!(words.ends_with(", slots registered once, asked for"), "{words}");
        let arena = network.register_arena(&Arena::create(2).unwrap());
        assert!(arena.is_some() && ucx.registered_bytes() == 3 << 20, "not before it is used");
        drop(network);
        assert_eq!(ucx.registered_bytes(), 0);
    }

    #[test]
    fn the_choice_and_its_reason_are_told() {
        let listen = ["127.0.0.1".parse().unwrap()];
        let words = |choice| Network::choose(choice, &listen).map(|network| network.words());
        assert_eq!(words(TransportChoice::Tcp).unwrap(), "tcp: asked for");
        if rdma_devices().is_empty() {
            assert_eq!(words(TransportChoice::Auto).unwrap(), "tcp: no RDMA device works here");
        }
        match (words(TransportChoice::Ucx), UcxTransport::library_version()) {
            (Ok(words), Ok(version)) => {
                assert!(words.starts_with(&format!("ucx {version}: over ")), "{words}");
                assert!(words.ends_with(", asked for"), "{words}");
            }
            (Err(UcxError::NotLoaded(error)), Err(_)) => assert!(error.help().contains("libucx0")),
            (words, version) => panic!("{words:?} {version:?}"),
        }
    }
}
