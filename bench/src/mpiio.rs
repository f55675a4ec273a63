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

use crate::report::summary::Summary;
use crate::run::{Compared, Group};

/// The first paragraph of the page.
pub(crate) const SUMMARY: Summary = Summary {
    measured: "Processes of one MPI program write and read one file (N-1) on one machine, with Hayase's \
               library, with MPICH and Open MPI alone, and with a file for each process (N-N).",
    found: &[
        "four processes of MPICH write nested sub-arrays at {MPICH x4 nested sub-arrays, collective, \
         write: of N-N} and read blocks of 47008 B at {MPICH x4 47008 B blocks, independent, read: of N-N} \
         of the rate of N-N; the sub-arrays are written {MPICH x4 nested sub-arrays, collective, write: of \
         the best stock setting} times as fast as by MPICH alone",
        "weaker with cold caches: two processes read what four wrote at {BT-IO W read by 2, cold: of \
         stock} of the rate of a plain file, and an export of nested sub-arrays reaches {export, nested \
         sub-arrays, cold: of cp} of the rate of cp",
    ],
};

/// How it was measured.
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

/// The first paragraph of the page of several nodes.
pub(crate) const NODES_SUMMARY: Summary = Summary {
    measured: "Processes on one to seven simulated nodes, with disks and links of limited speed, write and \
               read one file (N-1) in `shared`, with Hayase's library, with the MPI alone on a striped \
               file, and with a file for each process (N-N).",
    found: &[
        "on 7 nodes IOR writes at {figure 8, IOR write on 7 nodes: of N-N} and reads back at {figure 8, \
         IOR read back on 7 nodes: of N-N} of the rate of N-N, BT-IO writes at {figure 11, BT-IO written \
         on 7 nodes, large: of N-N}",
        "regions of 8 bytes (HPIO) are the weak side: {HPIO, regions by size (MiB/s)|8|hayase} MiB/s, \
         {HPIO, regions by size (MiB/s)|8|N-N} with N-N, {HPIO, regions by size (MiB/s)|8|striping} on the \
         striped file",
        "one process writes {IOR, write (MiB/s)|1|hayase} MiB/s, and {IOR, write (MiB/s)|1|striping} on \
         the striped file, which uses the disks of all nodes",
    ],
};

/// How that was measured.
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
