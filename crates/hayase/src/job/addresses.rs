//! Where the server of a node listens.
//!
//! Simulated nodes were given an address. A host asks its own kernel: the addresses from which it would speak to
//! the other hosts of the job are those by which they reach it, whatever else it is connected to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};

use super::Settings;

/// Other hosts that are asked for: they are in the same networks, so that few tell all.
const ASKED_MAX: usize = 8;

/// Addresses that a server listens on.
const ADDRESSES_MAX: usize = 4;

/// Any port: nothing is sent there.
const DISCARD: u16 = 9;

/// A host that finds no way to the others.
#[derive(Debug, thiserror::Error)]
#[error("no address of this host leads to another host of the job: {why}")]
pub(crate) struct AddressError {
    why: String,
}

/// Addresses of the server of `node`, the best one first; never empty.
pub(crate) fn of(settings: &Settings, node: u16) -> Result<Vec<IpAddr>, AddressError> {
    if let Some(address) = settings.address(node) {
        return Ok(vec![IpAddr::V4(address)]);
    }
    let others = (0..settings.nodes).filter(|other| *other != node).take(ASKED_MAX);
    let others: Vec<_> = others.map(|other| settings.host(other)).collect();
    match toward_all(&others) {
        Err(_) if settings.nodes == 1 => Ok(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)]),
        found => found,
    }
}

/// Addresses of this host on the ways to the first of these hosts, the best one first; never empty, none of them
/// loopback.
pub(crate) fn toward_all(hosts: &[String]) -> Result<Vec<IpAddr>, AddressError> {
    let mut found = Vec::new();
    let mut why = "it is the only one".to_owned();
    for host in hosts.iter().take(ASKED_MAX) {
        // `user@host` is for ssh.
        let name = host.rsplit('@').next().unwrap_or(host);
        match toward(name) {
            Ok(addresses) => found.extend(addresses),
            Err(error) => why = format!("{host}: {error}"),
        }
    }
    let mut distinct: Vec<IpAddr> = Vec::new();
    for address in found {
        // A host that resolves to a loopback address is known to itself alone.
        if !address.is_loopback() && !distinct.contains(&address) && distinct.len() < ADDRESSES_MAX
        {
            distinct.push(address);
        }
    }
    if distinct.is_empty() { Err(AddressError { why }) } else { Ok(distinct) }
}

/// Our own addresses on the way to `host`: connecting a datagram socket asks the routes and sends nothing.
fn toward(host: &str) -> std::io::Result<Vec<IpAddr>> {
    let mut found = Vec::new();
    for target in (host, DISCARD).to_socket_addrs()? {
        let any: IpAddr = match target {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((any, 0))?;
        if socket.connect(target).is_ok() {
            found.push(socket.local_addr()?.ip());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Kind, Reach, Way, sample_settings};

    #[test]
    fn simulated_nodes_know_theirs_and_hosts_ask_the_kernel() {
        let subnet = Ipv4Addr::new(127, 9, 9, 0);
        let plain = sample_settings(Kind::Loopback { subnet }, 2);
        assert_eq!(of(&plain, 1).unwrap(), [IpAddr::from([127, 9, 9, 2])]);

        let mut hosts = sample_settings(Kind::Hosts, 2);
        let way = Way::Ssh { command: vec!["ssh".into()] };
        let list = vec!["a".into(), "127.0.0.1".into()];
        hosts.reach = Some(Reach { hosts: list, way, fanout: 2, binary: "/h".into() });
        let error = of(&hosts, 0).unwrap_err().to_string();
        assert!(error.contains("no address of this host"), "{error}");
        hosts.nodes = 1;
        assert_eq!(of(&hosts, 0).unwrap(), [IpAddr::from([127, 0, 0, 1])]);
        assert_eq!(toward("127.0.0.1").unwrap(), [IpAddr::from([127, 0, 0, 1])]);
    }
}
