//! Interrupts of network cards and disks, and the kernel's workers that may run anywhere, on the processors of the
//! daemons: `up --move-interrupts`.
//!
//! Rooms: [`knobs`] finds what of the kernel decides about them, [`moved`] sets it and puts it back.

mod knobs;
mod moved;

use std::path::PathBuf;

pub(crate) use moved::{Moved, Told, give_back_left};

/// Where the kernel shows itself, and where we write down what we changed; another place in tests.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    /// `/sys`.
    sys: PathBuf,
    /// `/proc`.
    proc: PathBuf,
    /// What was before: a file that is gone after the machine's next start, as the changes are.
    record: PathBuf,
}

impl Machine {
    /// This one.
    pub(crate) fn this() -> Self {
        let record = PathBuf::from("/run/hayase-interrupts.json");
        Self { sys: "/sys".into(), proc: "/proc".into(), record }
    }

    /// Interrupts that `--move-interrupts` is about, as `36 (virtio1-req.0)`.
    pub(crate) fn interrupts(&self) -> Vec<String> {
        knobs::interrupts(self).into_iter().map(|knob| knob.what).collect()
    }
}

/// A tree that looks like `/sys` and `/proc` of a machine with a network card and a disk.
#[cfg(test)]
fn sample(top: &std::path::Path) -> Machine {
    use std::fs::{create_dir_all, write};
    let machine =
        Machine { sys: top.join("sys"), proc: top.join("proc"), record: top.join("record") };
    let card = machine.sys.join("devices/pci/0000:00:03.0");
    let disk = machine.sys.join("devices/pci/0000:00:02.0");
    for (device, numbers) in [(&card, ["38", "39"]), (&disk, ["35", "36"])] {
        create_dir_all(device.join("msi_irqs")).unwrap();
        for number in numbers {
            write(device.join("msi_irqs").join(number), "msix").unwrap();
            let irq = machine.proc.join("irq").join(number);
            create_dir_all(irq.join(format!("virtio-{number}"))).unwrap();
            write(irq.join("smp_affinity_list"), "0-1\n").unwrap();
        }
    }
    let link = |from: PathBuf, to: PathBuf| {
        create_dir_all(&from).unwrap();
        std::os::unix::fs::symlink(to, from.join("device")).unwrap();
    };
    create_dir_all(card.join("virtio2")).unwrap();
    link(machine.sys.join("class/net/eth0"), card.join("virtio2"));
    create_dir_all(machine.sys.join("class/net/lo")).unwrap();
    link(machine.sys.join("block/vda"), disk);
    let workers = machine.sys.join("devices/virtual/workqueue");
    create_dir_all(&workers).unwrap();
    write(workers.join("cpumask"), "3\n").unwrap();
    machine
}
