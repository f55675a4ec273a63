//! Links and addresses of simulated nodes: one bridge in a network of its own, a cable per node.
//!
//! ```text
//!   node 0: eth0 10.a.b.1/24 ──┐
//!   node 1: eth0 10.a.b.2/24 ──┤ hub (a bridge; network of its own, no way out)
//!   node 2: eth0 10.a.b.3/24 ──┘
//! ```
//!
//! The hub's network lives as long as a supervisor holds it open; there is no route to the machine
//! or beyond. Uses `ip` (iproute2), whose `-batch` sets up a node with one process.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::system::{namespaces, program};

/// Why a node has no network.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NetworkError {
    /// iproute2 is not installed.
    #[error(
        "the program `ip` (package iproute2) is missing; simulated nodes need it for their network"
    )]
    NoIp,
    /// The kernel or the rights of this process.
    #[error("make a network namespace")]
    Namespace(#[source] io::Error),
    /// `ip` said no.
    #[error("set up the network: ip: {0}")]
    Refused(String),
    /// `ip` could not be run.
    #[error("run {}", .program.display())]
    Run {
        /// Its path.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// The network in the middle, and its bridge. Other processes open it by [`Hub::path`].
#[derive(Debug)]
pub(crate) struct Hub {
    network: File,
}

impl Hub {
    /// Makes the bridge; the calling thread stays in its own network.
    pub(crate) fn create(path: &OsStr) -> Result<Self, NetworkError> {
        let ip = find_ip(path)?;
        let make = move || {
            let network = namespaces::new_network().map_err(NetworkError::Namespace)?;
            // Without multicast snooping and spanning tree a new port forwards at once.
            let bridge = "link add hub type bridge stp_state 0 forward_delay 0 mcast_snooping 0";
            batch(&ip, &format!("{bridge}\nlink set hub up\n"))?;
            pass_no_firewall();
            Ok(Self { network })
        };
        // A thread, so that only it changes networks.
        std::thread::spawn(make).join().expect("making the hub does not panic")
    }

    /// Where another process of this user can open it while this one lives.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.network.as_raw_fd()))
    }

    /// Opens the hub of another process, to keep it alive from now on.
    pub(crate) fn open(path: &Path) -> Result<Self, NetworkError> {
        Ok(Self { network: File::open(path).map_err(NetworkError::Namespace)? })
    }

    /// Lays a cable between the hub and this process's own, empty network.
    pub(crate) fn connect(
        &self,
        node: u16,
        address: Ipv4Addr,
        path: &OsStr,
    ) -> Result<(), NetworkError> {
        let ip = find_ip(path)?;
        let hub = self.path();
        let here = format!(
            "link set lo up\n\
             link add eth0 type veth peer name n{node} netns {}\n\
             addr add {address}/24 dev eth0\n\
             link set eth0 up\n",
            hub.display()
        );
        batch(&ip, &here)?;
        std::thread::scope(|scope| {
            let plug = scope.spawn(|| {
                move_into_link_name_space(self.network.as_fd(), Some(LinkNameSpaceType::Network))
                    .map_err(|error| NetworkError::Namespace(error.into()))?;
                batch(&ip, &format!("link set n{node} master hub up\n"))
            });
            plug.join().expect("plugging in does not panic")
        })
    }
}

/// Where the module br_netfilter is loaded every frame of a bridge goes through the hooks of a firewall. The
/// hub's network has no rules, so that is work for nothing.
fn pass_no_firewall() {
    for hook in ["iptables", "ip6tables", "arptables"] {
        // Of the network that this thread is in; not there without the module.
        let _ = std::fs::write(format!("/proc/sys/net/bridge/bridge-nf-call-{hook}"), "0");
    }
}

/// Where `ip` is.
fn find_ip(path: &OsStr) -> Result<PathBuf, NetworkError> {
    program::find("ip", path).ok_or(NetworkError::NoIp)
}

/// Runs lines of `ip`, in the network of this thread.
fn batch(ip: &Path, lines: &str) -> Result<(), NetworkError> {
    let failed = |source| NetworkError::Run { program: ip.to_owned(), source };
    let mut child = Command::new(ip)
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut stdin = child.stdin.take().expect("stdin is a pipe");
    let written = stdin.write_all(lines.as_bytes());
    drop(stdin);
    let ended = child.wait_with_output().map_err(failed)?;
    if !ended.status.success() {
        let text = String::from_utf8_lossy(&ended.stderr);
        return Err(NetworkError::Refused(text.trim().replace('\n', "; ")));
    }
    written.map_err(failed)
}

/// A /24 that no route of this machine and no address in `taken` uses, found from `seed`.
///
/// Simulated nodes reach nothing but each other, so a clash would do no harm; it would only confuse
/// the person who reads the addresses.
pub(crate) fn free_subnet(first: u8, seed: u64, taken: &[Ipv4Addr]) -> Ipv4Addr {
    let routes = routes();
    let candidate = |n: u64| Ipv4Addr::new(first, 64 + (n >> 8 & 127) as u8, n as u8, 0);
    let is_free = |subnet: &Ipv4Addr| {
        let net = subnet.to_bits();
        let clashes = |&(target, mask): &(u32, u32)| {
            mask != 0 && (net & mask == target & mask || target & 0xffff_ff00 == net)
        };
        !taken.contains(subnet) && (first == 127 || !routes.iter().any(clashes))
    };
    (0..1 << 15).map(|step| candidate(seed + step)).find(is_free).unwrap_or(candidate(seed))
}

/// Destination and mask of this machine's IPv4 routes.
fn routes() -> Vec<(u32, u32)> {
    let text = std::fs::read_to_string("/proc/net/route").unwrap_or_default();
    let hex = |field: &str| u32::from_str_radix(field, 16).ok().map(u32::swap_bytes);
    let parse = |line: &str| {
        let fields: Vec<_> = line.split_ascii_whitespace().collect();
        Some((hex(fields.get(1)?)?, hex(fields.get(7)?)?))
    };
    text.lines().skip(1).filter_map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_job_finds_a_subnet_of_its_own() {
        let first = free_subnet(10, 77, &[]);
        let second = free_subnet(10, 77, &[first]);
        assert_ne!(first, second);
        for subnet in [first, second] {
            assert_eq!((subnet.octets()[0], subnet.octets()[3]), (10, 0));
            assert!(subnet.octets()[1] >= 64);
        }
        assert_eq!(free_subnet(127, 0x1234, &[]), Ipv4Addr::new(127, 64 + 0x12, 0x34, 0));
        assert_eq!(free_subnet(127, u64::from(u32::MAX), &[]).octets()[0], 127);
    }

    #[test]
    fn a_missing_ip_is_named() {
        let error = NetworkError::NoIp.to_string();
        assert!(error.contains("iproute2"), "{error}");
    }
}
