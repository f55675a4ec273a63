//! Names of hosts: when two of them mean the same machine, and when one means this machine.

/// Whether a list means this very machine by `host`.
pub(crate) fn is_this_host(host: &str) -> bool {
    let uname = rustix::system::uname();
    let here = uname.nodename().to_string_lossy();
    is_same_host(host, &here) || matches!(host, "localhost" | "127.0.0.1" | "::1")
}

/// `node7` and `node7.cluster.example` are the same machine; `node7.a` and `node7.b` are not.
pub(crate) fn is_same_host(one: &str, other: &str) -> bool {
    let is_name = |host: &str| !host.contains(':') && host.parse::<std::net::IpAddr>().is_err();
    let short = |host: &str| host.split('.').next().unwrap_or_default().to_owned();
    one == other
        || (is_name(one)
            && is_name(other)
            && (!one.contains('.') || !other.contains('.'))
            && short(one) == short(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_names_are_one_host() {
        let check = |one: &str, other: &str, expected: bool| {
            assert_eq!(is_same_host(one, other), expected, "{one} {other}");
        };
        check("n1", "n1", true);
        check("n1", "n1.example.org", true);
        check("n1.example.org", "n1", true);
        check("n1.a", "n1.b", false);
        check("n1", "n10", false);
        check("10.0.0.1", "10", false);
    }
}
