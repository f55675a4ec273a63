//! What simulated nodes need: namespaces and `ip`.

use super::Check;
use crate::config::Environment;
use crate::system::{namespaces, program};

const LOOPBACK: &str =
    "simulated nodes are plain processes with loopback addresses (--no-namespaces)";

pub(super) fn checks(environment: &Environment) -> Vec<Check> {
    if !environment.is_privileged {
        return Vec::new();
    }
    vec![network_namespace(), ip(environment)]
}

fn network_namespace() -> Check {
    // In a thread, so that only it changes networks; the network ends with it.
    let tried = std::thread::spawn(|| namespaces::new_network().map(drop)).join();
    match tried.expect("trying does not panic") {
        Ok(()) => Check::ok("namespaces", "a network namespace was made"),
        Err(error) => Check::warn(
            "namespaces",
            error.to_string(),
            LOOPBACK,
            "in a container: give it CAP_SYS_ADMIN and CAP_NET_ADMIN",
        ),
    }
}

fn ip(environment: &Environment) -> Check {
    match program::find("ip", &environment.path) {
        Some(path) => Check::ok("ip", path.display().to_string()),
        None => Check::warn("ip", "not found", LOOPBACK, "install the package iproute2"),
    }
}
