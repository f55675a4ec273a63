//! What keeps the daemons away from programs: interrupts that can be moved, control groups with a limit.

use rustix::fs::{Access, access};

use super::Check;
use crate::cpu_budget::group::Group;
use crate::interrupts::Machine;

/// Tried, and removed at once.
const TRIED_CORES: f64 = 1.0;

pub(super) fn checks() -> Vec<Check> {
    vec![interrupts(), budget()]
}

/// Whether one can be moved is known when it is tried: the kernel keeps some where they are.
fn interrupts() -> Check {
    let name = "interrupts";
    let all = Machine::this().interrupts();
    let found = format!("{} of network cards and disks", all.len());
    if access("/proc/irq/default_smp_affinity", Access::WRITE_OK).is_ok() {
        return Check::ok(name, format!("{found}; `up --move-interrupts` may move them"));
    }
    Check::warn(
        name,
        format!("{found}; only root may move them"),
        "programs on the processors that take them are disturbed; `up --move-interrupts` moves none",
        "ask the machine's owner to put them on the processors of --system-cores",
    )
}

fn budget() -> Check {
    let name = "CPU budget";
    let made = Group::make(&format!("hayase-doctor-{}", std::process::id()), TRIED_CORES);
    match made {
        Ok(group) => {
            let found = group.path().parent().unwrap_or(group.path()).display().to_string();
            match group.remove() {
                Ok(()) => Check::ok(name, format!("control groups below {found}")),
                Err(error) => Check::warn(name, error, "a control group is left", "remove it"),
            }
        }
        Err(error) => {
            let why = anyhow::Error::from(error);
            Check::warn(
                name,
                format!("{why:#}"),
                "`up --cpu-budget` is refused",
                "be root, or in a control group that was delegated to you",
            )
        }
    }
}
