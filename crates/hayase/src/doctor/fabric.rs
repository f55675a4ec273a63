//! What servers would speak to each other: RDMA devices and UCX, and what protects the bytes.

use hayase_ucx::{UcxTransport, rdma_devices};
use hayase_wire::session::authenticates_payloads;

use super::Check;

const NAME: &str = "transport";

pub(super) fn checks() -> [Check; 2] {
    [transport(), payload()]
}

/// What an attacker on the path of messages can do (docs/SECURITY.md).
fn payload() -> Check {
    let (found, means) = match authenticates_payloads() {
        true => (
            "authenticated, not encrypted",
            "an attacker on the network between nodes can read the bytes of files, and change none unnoticed",
        ),
        false => (
            "not authenticated: these processors have no AES instructions",
            "an attacker on the network between nodes can read the bytes of files and change them unnoticed; messages are \
             authenticated",
        ),
    };
    Check {
        means: means.to_owned(),
        todo: "on a network with others: `hayase up --encrypt`".to_owned(),
        ..Check::ok("payload", found)
    }
}

fn transport() -> Check {
    let devices = rdma_devices();
    match (UcxTransport::library_version(), &devices[..]) {
        (Ok(version), []) => Check::ok(
            NAME,
            format!("tcp: no RDMA device works here (UCX {version} for `up --transport ucx`)"),
        ),
        (Ok(version), devices) => {
            Check::ok(NAME, format!("ucx {version} over {}", devices.join(", ")))
        }
        (Err(_), []) => Check::ok(NAME, "tcp: no RDMA device works here, and no UCX is installed"),
        (Err(error), devices) => Check::warn(
            NAME,
            format!("tcp: {} is here, but {error}", devices.join(", ")),
            "servers speak TCP where they could use RDMA",
            error.help(),
        ),
    }
}
