//! Who could reach the servers of a job: the addresses that they would listen on here, and what lies before them.
//!
//! A server listens on the addresses from which its host speaks to the other hosts of the job, never on all. Those
//! are asked for when hosts are known (`--hosts`, a batch job); otherwise every address of this host is one that
//! some list of hosts could lead to. Nothing is sent.
//! Sources: the kernel's tables (`/proc/net/fib_trie`, `/proc/net/if_inet6`); RFC 1918, 4193, 6598 (private and
//! shared addresses), RFC 3927, 4291 (link-local).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::Serialize;

use super::{Check, read};
use crate::config::Environment;
use crate::job::addresses;
use crate::launch::allocation::{Choice, choose};
use crate::launch::options::JobOptions;

const NAME: &str = "exposed addresses";

/// Addresses of one host that are looked at.
const ADDRESSES_MAX: usize = 64;

/// From where an address can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Reach {
    /// This machine alone.
    Loopback,
    /// Machines of a private network.
    Private,
    /// Whoever the routers let through.
    Public,
}

/// One address on which a server would listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Listening {
    /// Which; the port is chosen by the kernel.
    address: IpAddr,
    reach: Reach,
}

/// The addresses of servers on this host, and what to think of them.
pub(super) fn examine(hosts: Option<&str>, environment: &Environment) -> (Check, Vec<Listening>) {
    let wish = JobOptions { hosts: hosts.map(str::to_owned), ..JobOptions::default() };
    let (asked, found) = match choose(&wish, environment) {
        // A job of one host has nobody to listen to.
        Ok((Choice::Hosts { hosts, .. }, why)) if hosts.len() == 1 => (Some(why), Ok(Vec::new())),
        Ok((Choice::Hosts { hosts, .. }, why)) => (Some(why), addresses::toward_all(&hosts)),
        Ok((Choice::Local, _)) => (None, Ok(own_addresses())),
        Err(error) => {
            let chain = anyhow::Error::new(error);
            let todo = "name the hosts as for `hayase up`";
            return (Check::warn(NAME, format!("{chain:#}"), "nothing is known", todo), Vec::new());
        }
    };
    let found = match found {
        Ok(found) => found,
        Err(error) => {
            let (means, todo) =
                ("servers would not start", "name hosts that this one can reach by their names");
            return (Check::fail(NAME, error.to_string(), means, todo), Vec::new());
        }
    };
    let listening: Vec<_> =
        found.into_iter().map(|ip| Listening { address: ip, reach: reach(ip) }).collect();
    (judge(asked.as_deref(), &listening), listening)
}

/// `asked`: where the list of hosts came from, when there is one.
fn judge(asked: Option<&str>, listening: &[Listening]) -> Check {
    let of = |wanted: Reach| {
        let some = listening.iter().filter(move |found| found.reach == wanted);
        some.map(|found| found.address.to_string()).collect::<Vec<_>>().join(", ")
    };
    let (public, private) = (of(Reach::Public), of(Reach::Private));
    let would = match asked {
        Some(why) => format!("servers would listen on {{}} ({why})"),
        None => "servers of a job on several hosts may listen on {}".to_owned(),
    };
    if !public.is_empty() {
        let means = "machines outside of the job can reach the port: who lacks the job's secret gets no answer, \
                     but can try, and without --encrypt data crosses that network in the clear";
        let todo = "let --hosts name the hosts by addresses of a private network, or let a firewall pass the \
                    job's hosts only; use --encrypt";
        return Check::warn(
            NAME,
            format!("{} (public)", would.replace("{}", &public)),
            means,
            todo,
        );
    }
    if private.is_empty() {
        return Check::ok(NAME, "servers would listen on loopback addresses only");
    }
    let protected = "private: machines of that network reach the port, the handshake refuses who lacks the secret";
    Check::ok(NAME, format!("{} ({protected})", would.replace("{}", &private)))
}

fn reach(ip: IpAddr) -> Reach {
    let is_loopback = ip.is_loopback();
    let is_private = match ip {
        IpAddr::V4(ip) => ip.is_private() || ip.is_link_local() || is_shared(ip),
        IpAddr::V6(ip) => match ip.to_ipv4_mapped() {
            Some(inner) => return reach(inner.into()),
            None => ip.is_unique_local() || ip.is_unicast_link_local(),
        },
    };
    match (is_loopback, is_private) {
        (true, _) => Reach::Loopback,
        (false, true) => Reach::Private,
        (false, false) => Reach::Public,
    }
}

/// 100.64/10, between a provider and its customers.
fn is_shared(ip: Ipv4Addr) -> bool {
    ip.octets()[0] == 100 && ip.octets()[1] & 0xc0 == 64
}

/// What the kernel answers to, without loopback and what is only for one link.
fn own_addresses() -> Vec<IpAddr> {
    let (trie, inet6) = (read("/proc/net/fib_trie"), read("/proc/net/if_inet6"));
    let v4 = ipv4_of(&trie.unwrap_or_default()).into_iter().map(IpAddr::from);
    let v6 = ipv6_of(&inet6.unwrap_or_default()).into_iter().map(IpAddr::from);
    let is_of_one_link = |ip: &IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    let mut found: Vec<_> =
        v4.chain(v6).filter(|ip| !ip.is_loopback() && !is_of_one_link(ip)).collect();
    found.sort_unstable();
    found.dedup();
    found.truncate(ADDRESSES_MAX);
    found
}

/// Lines `|-- ADDRESS` that are followed by one with `host LOCAL`.
fn ipv4_of(trie: &str) -> Vec<Ipv4Addr> {
    let mut found = Vec::new();
    let mut last: Option<Ipv4Addr> = None;
    for line in trie.lines().map(str::trim) {
        match line.strip_prefix("|-- ") {
            Some(address) => last = address.parse().ok(),
            None if line.ends_with("host LOCAL") => found.extend(last),
            None => {}
        }
    }
    found
}

/// 32 hex digits at the beginning of each line.
fn ipv6_of(table: &str) -> Vec<Ipv6Addr> {
    let address = |line: &str| {
        let digits = line.split_ascii_whitespace().next().filter(|digits| digits.len() == 32)?;
        Some(Ipv6Addr::from_bits(u128::from_str_radix(digits, 16).ok()?))
    };
    table.lines().filter_map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Health;

    #[test]
    fn addresses_are_told_apart_by_who_can_reach_them() {
        for (address, expected) in [
            ("127.0.0.1", Reach::Loopback),
            ("::1", Reach::Loopback),
            ("10.1.2.3", Reach::Private),
            ("172.31.0.1", Reach::Private),
            ("172.32.0.1", Reach::Public),
            ("192.168.7.7", Reach::Private),
            ("100.64.0.1", Reach::Private),
            ("100.128.0.1", Reach::Public),
            ("169.254.1.1", Reach::Private),
            ("203.0.113.5", Reach::Public),
            ("fd00::1", Reach::Private),
            ("fe80::1", Reach::Private),
            ("2001:db8::1", Reach::Public),
            ("::ffff:10.0.0.1", Reach::Private),
            ("::ffff:8.8.8.8", Reach::Public),
        ] {
            assert_eq!(reach(address.parse().unwrap()), expected, "{address}");
        }
    }

    #[test]
    fn only_public_addresses_are_a_warning() {
        let check = |addresses: &[&str], health, words: &str| {
            let listening = |text: &&str| {
                let address = text.parse().unwrap();
                Listening { address, reach: reach(address) }
            };
            let listening: Vec<_> = addresses.iter().map(listening).collect();
            let check = judge(None, &listening);
            assert_eq!(check.health, health, "{check:?}");
            assert!(check.found.contains(words), "{check:?}");
            assert_eq!(check.todo.is_empty(), health == Health::Ok);
        };
        check(&[], Health::Ok, "loopback addresses only");
        check(&["127.0.0.1"], Health::Ok, "loopback addresses only");
        check(&["10.0.0.1"], Health::Ok, "10.0.0.1 (private");
        check(&["10.0.0.1", "203.0.113.5"], Health::Warn, "listen on 203.0.113.5 (public)");
    }

    #[test]
    fn the_kernels_tables_are_read() {
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     \
                    +-- 10.0.0.0/24 2 0 2\n        |-- 10.0.0.0\n           /24 link UNICAST\n        \
                    |-- 10.0.0.7\n           /32 host LOCAL\n        |-- 10.0.0.255\n           \
                    /32 link BROADCAST\n";
        assert_eq!(ipv4_of(trie), [Ipv4Addr::new(10, 0, 0, 7)]);
        let table = "00000000000000000000000000000001 01 80 10 80       lo\n\
                     20010db8000000000000000000000005 02 40 00 80     eth0\nshort 1\n";
        let expected: [Ipv6Addr; 2] = ["::1".parse().unwrap(), "2001:db8::5".parse().unwrap()];
        assert_eq!(ipv6_of(table), expected);
        assert!(ipv4_of("").is_empty() && ipv6_of("").is_empty());
    }
}
