//! Files of the kernel that say on which processors its work for devices is done.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::Machine;
use crate::processors::Processors;

/// Interrupts that are looked at, at most: a large node has a few thousand.
const INTERRUPTS_MAX: usize = 65_536;

/// How far up from a network interface or disk the device is looked for that has the interrupts.
const PARENTS_MAX: usize = 8;

/// One such file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Knob {
    pub(super) path: PathBuf,
    /// For people.
    pub(super) what: String,
    pub(super) form: Form,
}

/// How it writes processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `0-3,8`
    List,
    /// `ff,00000103`: 32 of them in each group, the highest first.
    Mask,
}

impl Form {
    /// As the kernel reads it.
    pub(super) fn write(self, processors: &Processors) -> String {
        match self {
            Self::List => processors.to_string(),
            Self::Mask => mask(processors),
        }
    }
}

fn mask(processors: &Processors) -> String {
    let most = processors.numbers().iter().max().copied().unwrap_or(0);
    let mut groups = vec![0_u32; most / 32 + 1];
    for number in processors.numbers() {
        groups[number / 32] |= 1 << (number % 32);
    }
    let groups: Vec<String> = groups.iter().rev().map(|group| format!("{group:08x}")).collect();
    groups.join(",")
}

/// All of them that this machine has.
pub(super) fn all(machine: &Machine) -> Vec<Knob> {
    let mut knobs = interrupts(machine);
    let path = machine.sys.join("devices/virtual/workqueue/cpumask");
    if path.exists() {
        let what = "workers of the kernel (loop devices, write-back)".to_owned();
        knobs.push(Knob { path, what, form: Form::Mask });
    }
    knobs
}

/// Those of network cards and disks.
pub(super) fn interrupts(machine: &Machine) -> Vec<Knob> {
    let mut numbers = BTreeSet::new();
    for places in ["class/net", "class/infiniband", "class/nvme", "block"] {
        for entry in fs::read_dir(machine.sys.join(places)).into_iter().flatten().flatten() {
            // What is virtual (lo, veth, loop) is no device.
            if let Ok(device) = fs::canonicalize(entry.path().join("device")) {
                numbers.extend(of_device(&device, &machine.sys));
            }
        }
    }
    let known = numbers.into_iter().take(INTERRUPTS_MAX).map(|number| {
        let place = machine.proc.join("irq").join(number.to_string());
        let what = match name(&place) {
            Some(name) => format!("{number} ({name})"),
            None => number.to_string(),
        };
        Knob { path: place.join("smp_affinity_list"), what, form: Form::List }
    });
    known.filter(|knob| knob.path.exists()).collect()
}

/// Of the device, or of the next one above it that has some.
fn of_device(device: &Path, sys: &Path) -> Vec<u32> {
    for place in device.ancestors().take(PARENTS_MAX).take_while(|place| place.starts_with(sys)) {
        let entries = fs::read_dir(place.join("msi_irqs")).into_iter().flatten().flatten();
        let found: Vec<u32> =
            entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        if !found.is_empty() {
            return found;
        }
        let line = fs::read_to_string(place.join("irq")).unwrap_or_default();
        if let Some(number) = line.trim().parse().ok().filter(|number| *number != 0) {
            return vec![number];
        }
    }
    Vec::new()
}

/// Whoever takes it: a directory beside its settings.
fn name(interrupt: &Path) -> Option<String> {
    let entries = fs::read_dir(interrupt).ok()?.flatten();
    let mut names = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    names.next()?.file_name().into_string().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_written_as_the_kernel_reads_them() {
        let check = |list: &str, mask: &str| {
            let processors: Processors = list.parse().unwrap();
            assert_eq!(Form::Mask.write(&processors), mask, "{list}");
            assert_eq!(Form::List.write(&processors), list);
        };
        check("0", "00000001");
        check("1,4-5", "00000032");
        check("31-33", "00000003,80000000");
        check("96", "00000001,00000000,00000000,00000000");
    }

    #[test]
    fn devices_are_found_from_their_interfaces_and_disks() {
        let top = tempfile::tempdir().unwrap();
        let top = fs::canonicalize(top.path()).unwrap();
        let machine = super::super::sample(&top);
        let found: Vec<_> = all(&machine).into_iter().map(|knob| knob.what).collect();
        let devices = ["35 (virtio-35)", "36 (virtio-36)", "38 (virtio-38)", "39 (virtio-39)"];
        assert_eq!(found[..4], devices);
        assert_eq!(found.len(), 5, "{found:?}");
        assert_eq!(machine.interrupts(), devices);
        // One that has ended has no settings any more.
        fs::remove_dir_all(machine.proc.join("irq/36")).unwrap();
        assert_eq!(interrupts(&machine).len(), 3);
    }
}
