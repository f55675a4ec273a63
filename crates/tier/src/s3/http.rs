//! HTTP/1.1 as object stores speak it: one request, one answer, on connections that are kept.
//!
//! Our own, since this is the data path: bodies go from the socket into the caller's memory with one
//! copy and no allocation. An async client costs twice the CPU per byte here, and this house gives the CPU
//! to the application. Heads are parsed by `httparse`, TLS is `rustls`.
//! Rooms: [`connection`] (a stream and its deadlines), [`answer`] (heads and framing), [`pool`], [`proxy`].
//! Source: RFC 9110, RFC 9112; what we never send (trailers, upgrades, pipelines) is not read either.

mod answer;
mod connection;
mod pool;
mod proxy;
mod tls;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;

pub(super) use self::answer::Head;
pub(super) use self::answer::parse as parse_head;
use self::connection::Connection;
pub(super) use self::pool::{Exchange, Pool};
pub use self::proxy::Proxies;
pub(super) use self::proxy::Proxy;
pub(super) use self::tls::client_config;

/// Where to connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) tls: bool,
    /// Looked up unless `address` is there; what the certificate must bear.
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) address: Option<SocketAddr>,
    /// By way of this one.
    pub(super) proxy: Option<Arc<Proxy>>,
}

impl Target {
    pub(super) fn plain(host: &str, port: u16) -> Self {
        Self { tls: false, host: host.to_owned(), port, address: None, proxy: None }
    }
}

/// How patient and how eager connections are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    /// Longest silence.
    pub(super) patience: Duration,
    /// `TCP_QUICKACK` before each read.
    pub(super) acknowledge_at_once: bool,
}

/// One small request on a connection of its own: status and body.
pub(super) fn ask_once(
    target: &Target,
    tls: Option<Arc<ClientConfig>>,
    head: &[u8],
    body: &[u8],
    patience: Duration,
) -> io::Result<(u16, Vec<u8>)> {
    let manner = Manner { patience, acknowledge_at_once: true };
    let pool = Pool::new(tls, manner);
    let mut exchange = pool.exchange(target, head, &[body], patience)?;
    let status = exchange.head().status;
    Ok((status, exchange.document()?))
}
