//! A real Gfarm on three nodes: our mount and containers beside gfarm2fs, on the same cluster.

mod cluster;
mod local;
mod locality;
mod names;
mod programs;
mod shared;

use crate::run::{Compared, Group};

/// What a reader of the page must know first.
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
