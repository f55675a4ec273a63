//! The way of bytes through a server: its disk, its network, its memory; and what programs beside it feel of it.

mod disk;
mod homed;
mod idle;
mod memory;
mod multiplicity;
mod noise;
mod peers;
mod remote;
mod small;

use crate::report::summary::Summary;
use crate::run::{Compared, Group};

/// The first paragraph of the page.
pub(crate) const SUMMARY: Summary = Summary {
    measured: "Bytes pass through a server, by its disk, its network and its memory; the rates and the CPU \
               are compared with fio, with a bare TCP loop, with GlusterFS and gfarm2fs.",
    found: &[
        "a server reads from its disk at {server to disk, read, of fio with registered buffers} and writes \
         at {server to disk, write, of fio with registered buffers} of the rate of fio",
        "four programs on another node read at {remote read by 4 programs, of a bare loop} and write at \
         {remote write by 4 programs, of a bare loop} of the rate of the loop, one program writes at \
         {Files of another node|write, 1 programs|ratio}",
        "writes of 4 KiB to another node are {4 KiB write, another node's file, of the rate when each is \
         sent} times as fast when they are gathered (`up --gather`)",
    ],
};

/// How it was measured.
pub(crate) const INTRO: &str = "\
Written by `./bench.sh dataplane --write-docs`.
Simulated nodes on one machine; the disk of each is an XFS image on a loop device with direct I/O.
CPU time is that of processes and of the kernel for them: the share of loop devices and network interrupts is not in it, \
on either side.
Absolute figures are this machine's; the ratios are the result.
Raw samples are written to `bench/out/`.";

/// In the order in which they run.
pub(crate) const GROUPS: &[Group] = &[
    Group {
        name: "disk",
        title: "Direct I/O of a server's ring, and fio",
        compared: Compared::Work(&["fio"]),
        run: disk::run,
    },
    Group {
        name: "remote",
        title: "Files of another node, and a bare loop that receives and writes",
        compared: Compared::Work(&["loop"]),
        run: remote::run,
    },
    Group {
        name: "peers",
        title: "Files of another node, GlusterFS and gfarm2fs",
        compared: Compared::Work(&["GlusterFS", "gfarm2fs"]),
        run: peers::run,
    },
    Group {
        name: "multiplicity",
        title: "Files of another node by 1 to 32 programs of 1 and 2 nodes",
        compared: Compared::Work(&[]),
        run: multiplicity::run,
    },
    Group {
        name: "small",
        title: "Small writes by messages, gathered and each one sent",
        compared: Compared::Work(&[]),
        run: small::run,
    },
    Group {
        name: "memory",
        title: "Memory while bytes pass through",
        compared: Compared::Figures,
        run: memory::run,
    },
    Group {
        name: "noise",
        title: "Programs on another processor than the servers",
        compared: Compared::Figures,
        run: noise::run,
    },
    Group {
        name: "idle",
        title: "A job that does nothing",
        compared: Compared::Figures,
        run: idle::run,
    },
];
