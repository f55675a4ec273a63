//! A real Gfarm on three nodes: our mount and containers beside gfarm2fs, on the same cluster.

mod cluster;
mod local;
mod locality;
mod names;
mod programs;
mod shared;

use crate::report::summary::Summary;
use crate::run::{Compared, Group};

/// The first paragraph of the page.
pub(crate) const SUMMARY: Summary = Summary {
    measured: "A real Gfarm on three simulated nodes is used through `hayase mount`, and through gfarm2fs \
               with the options that suit it best.",
    found: &[
        "files on their own node are written at {local files, write, of native} and read at {local files, \
         read, of native} of the native rate, {local files, write, of gfarm2fs} and {local files, read, of \
         gfarm2fs} times as fast as through gfarm2fs",
        "one file of three MPI processes (N-1) is written at {N-1 of three nodes on our mount, write, of \
         N-N there} of the rate of a file for each process (N-N)",
        "files are made {create+close through the mount, of gfarm2fs} times as fast as through gfarm2fs, \
         and removed at {1 program on node 1|unlink|of gfarm2fs} of its rate",
    ],
};

/// How it was measured.
pub(crate) const INTRO: &str = "\
Written by `./bench.sh gfarm --write-docs`.
A Gfarm of one metadata server and three file servers, from the distribution's packages, runs on nodes of namespaces of one \
machine; each node mounts it with `hayase mount` and with gfarm2fs.
Spools and the files next to them, which \"native\" stands for, lie in memory (tmpfs), so that no disk is measured; the metadata \
server keeps its journal nowhere.
gfarm2fs is measured with several sets of options; the fastest set of each row is what we are compared with.
All bytes that are read are checked.
Absolute figures are this machine's; the ratios are the result.
Raw samples are written to `bench/out/`.";

/// In the order in which they run.
pub(crate) const GROUPS: &[Group] = &[
    Group {
        name: "local",
        title: "A file for each process, on its own node",
        compared: Compared::Work(&["native", "gfarm2fs"]),
        run: local::run,
    },
    Group {
        name: "locality",
        title: "What crosses the network",
        compared: Compared::Figures,
        run: locality::run,
    },
    Group {
        name: "names",
        title: "Names and inodes",
        compared: Compared::Work(&["gfarm2fs", "libgfarm"]),
        run: names::run,
    },
    Group {
        name: "shared",
        title: "One shared file of three nodes",
        compared: Compared::Work(&["N-N, gfarm2fs", "N-1, gfarm2fs"]),
        run: shared::run,
    },
];
