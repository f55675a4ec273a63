//! Which transport a server speaks to the others, and why.
//!
//! Each server chooses for itself: one over UCX understands one over TCP, since connections begin as TCP.

use std::net::IpAddr;
use std::rc::Rc;

use hayase_wire::transport::{TcpTransport, Transport, UcxError, UcxTransport, rdma_devices};

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
    words: String,
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
        Self { transport, ucx: None, words: words.to_owned() }
    }

    /// The same with its transport changed: one with faults.
    pub(crate) fn over(self, change: impl FnOnce(Rc<dyn Transport>) -> Rc<dyn Transport>) -> Self {
        Self { transport: change(self.transport), ..self }
    }

    /// For people: `tcp: no RDMA device works here`.
    pub(crate) fn words(&self) -> String {
        match &self.ucx {
            Some(ucx) if ucx.is_used_up() => {
                format!("{}; new connections stay on TCP, as too many have ended", self.words)
            }
            _ => self.words.clone(),
        }
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
            words: format!("ucx {version}: over {over}{why}"),
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
