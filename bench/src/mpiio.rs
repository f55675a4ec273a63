//! The goals of MPI-IO: one shared file, as fast as a file for each.
//!
//! Most of it through containers in a plain directory; [`mounted`] and [`figures`] in `shared` of jobs. One MPI program
//! (`bench/mpi/patterns.c`) does everything; it is compiled by each MPI that is here and run with and without
//! `libhayase_mpiio.so`.

mod export;
mod figures;
mod index;
pub(crate) mod launch;
mod mounted;
mod patterns;
mod records;
mod regions;
mod rereading;
mod views;

use crate::run::{Compared, Group};

/// What a reader of the page must know first.
pub(crate) const INTRO: &str = "\
Written by `./bench.sh mpiio --write-docs`.
One MPI program, run with and without Hayase's library, on one machine, in directories of one local disk:
containers in a plain directory, no job, no mount.
Absolute figures are this machine's; the ratios are the result.
A and B take turns in every round and figures are medians over rounds; \"A against A\" is the baseline's
median ratio to itself over two rounds in which its two runs changed places, and no goal is judged when it
is outside of 0.9 to 1.1; a cost in microseconds that every round keeps needs no such comparison.
Processes fill some steps, wait for each other, and move them: waiting is not timed, but what a call waits for is.
Where processes share a processor, each step begins and ends with all of them, so that nothing that is not timed
runs at the same time as what is.
Times are those of the slowest process: open, the calls, close; ratios are of their sum, the calls alone are
shown too.
Nothing is synced inside of what is timed, on either side; before each run all that earlier runs wrote is on the
disk. Of the patterns each process writes a file as large as its own and removes it right before, so that new files take
memory that the machine's host has not taken back. Reads find their bytes in the page cache unless the table says cold.
Not here but in `./bench.sh mpiio-nodes`: files in `shared` of a job, reads through mounts, several nodes.
Raw samples are written to `bench/out/`.";

/// In the order in which they run.
pub(crate) const GROUPS: &[Group] = &[
    Group {
        name: "patterns",
        title: "One shared file against a file for each",
        compared: Compared::Work(&["N-N", "stock"]),
        run: patterns::run,
    },
    Group {
        name: "regions",
        title: "Regions of 8 bytes",
        compared: Compared::Work(&["stock"]),
        run: regions::run,
    },
    Group {
        name: "views",
        title: "Setting a view",
        compared: Compared::Work(&["stock"]),
        run: views::run,
    },
    Group {
        name: "rereading",
        title: "Read by other processes than wrote",
        compared: Compared::Work(&["flat"]),
        run: rereading::run,
    },
    Group {
        name: "records",
        title: "Records and bytes of the index",
        compared: Compared::Figures,
        run: records::run,
    },
    Group {
        name: "lookup",
        title: "Lookups among many writers",
        compared: Compared::Linked,
        run: index::run,
    },
    Group {
        name: "export",
        title: "Export against cp",
        compared: Compared::Work(&["cp"]),
        run: export::run,
    },
];

/// The same for the page of several nodes.
pub(crate) const NODES_INTRO: &str = "\
Written by `./bench.sh mpiio-nodes --write-docs`.
Files of MPI programs in `shared` of jobs of simulated nodes, read through mounts, and the figures 8, 9, 11 and 12 of the \
first paper (MPI-IO/Gfarm): the same MPI program as of `./bench.sh mpiio`, by MPICH.
All nodes share the processors of one machine: where several of them compute or wait for messages at once, that is slower \
than on a cluster, for all variants.
A and B take turns in every round and figures are medians over rounds; \"A against A\" is the baseline's
median ratio to itself over two rounds in which its two runs changed places, and no goal is judged when it
is outside of 0.9 to 1.1.
Raw samples are written to `bench/out/`.";

/// In the order in which they run.
pub(crate) const NODES_GROUPS: &[Group] = &[
    Group {
        name: "mounted",
        title: "Read through a mount",
        compared: Compared::Work(&[]),
        run: mounted::run,
    },
    Group {
        name: "figure-8",
        title: "Figure 8 of the paper: IOR",
        compared: Compared::Work(&[]),
        run: figures::run_ior,
    },
    Group {
        name: "figure-9",
        title: "Figure 9 of the paper: HPIO",
        compared: Compared::Work(&[]),
        run: figures::run_hpio,
    },
    Group {
        name: "figure-11",
        title: "Figures 11 and 12 of the paper: BT-IO",
        compared: Compared::Work(&[]),
        run: figures::run_bt,
    },
];
