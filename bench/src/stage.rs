//! The goals of staging: trees between a bucket and memory, against rclone.
//!
//! Rooms: [`ground`] (an S3 server in this process, trees in memory), [`gateway`] (a real one instead),
//! [`program`] (a copy as a process: its time, CPU and largest memory), [`sizes`] (small, medium and large
//! files, loose and packed), [`ceph`] (some of them on the gateway, and encryption), [`peers`] (every other
//! tool that is there), [`sealing`], [`unpacking`] (packs against tar), [`mounted`] (packs that are mounted
//! against files in `shared`), [`figures`] (those of the paper), [`tuning`] (the number of streams that is
//! found, and size of parts, against a sweep, through a [`proxy`]), [`nodes`] (several nodes with limited links).

mod ceph;
mod figures;
mod gateway;
mod ground;
mod mounted;
mod nodes;
mod peers;
mod program;
mod proxy;
mod sealing;
mod sizes;
mod tools;
mod tuning;
mod unpacking;

use crate::report::summary::Summary;
use crate::run::{Compared, Group};

/// The first paragraph of the page.
pub(crate) const SUMMARY: Summary = Summary {
    measured: "Trees of small, medium and large files are copied between memory and S3 servers (one in \
               memory, and a Ceph gateway) by `hayase stage`, and by rclone, aws and s3cmd where these are \
               there.",
    found: &[
        "files of 16 KiB come down {16 KiB files down, loose, of rclone's loose} and go up {16 KiB files \
         up, loose, of rclone's loose} times as fast as with rclone, files of 1 MiB {1 MiB files down, \
         loose, of rclone's loose} and {1 MiB files up, loose, of rclone's loose} times",
        "packs of files of 16 KiB come down from Ceph {16 KiB files on Ceph down, packed, of rclone's \
         loose} times as fast as rclone's loose files",
        "large files that can only be compared by MD5 come down at {4 x 512 MiB files|down, loose, by \
         MD5s|of rclone} of rclone's rate",
    ],
};

/// How it was measured.
pub(crate) const INTRO: &str = "\
Written by `./bench.sh stage --write-docs`.
The S3 server is `s3s` with objects in memory, on two threads of the bench's own process; it shares the machine with
what is measured, and its CPU is not counted.
An object costs little there; so what packs gain over loose objects is judged on a Ceph RADOS Gateway of Debian's \
packages (\"on Ceph\": one OSD on a file on the disk of this machine, the frontend as it comes), and reported for the \
server in memory.
The slow line is a proxy in the bench's process: 48 MiB/s, 6 MiB/s for each connection, 1 MiB objects where nothing
else is said, once with at most 30 requests a second, counted over a quarter of one; figures are of the window that
begins 3 s after the copy, or after the change, also where streams and parts are given.
Files come from memory and go to memory (/dev/shm); each copy begins with an empty target.
rclone is Debian's, at the settings that suited it best: 32 transfers and checkers, no HEAD after uploads.
Nobody signs the bodies of uploads: rclone never does, and for us it is an option; ours carry a CRC32C, rclone's an MD5.
A and B take turns in every round and figures are medians over rounds (those of the paper's figures are of one round \
with `--quick`, and on Ceph); \"A against A\" is rclone's
median ratio to itself over two rounds in which its two runs changed places, and no goal is judged when it
is outside of 0.9 to 1.1.
Raw samples are written to `bench/out/`.";

/// What the product is measured against, where that is every tool that is there.
const TOOLS: &[&str] = &["rclone", "aws", "s3cmd", "s5cmd", "s3fs", "tar"];

/// In the order in which they run.
pub(crate) const GROUPS: &[Group] = &[
    Group {
        name: "small",
        title: "Files of 16 KiB",
        compared: Compared::Work(&["rclone"]),
        run: sizes::run_small,
    },
    Group {
        name: "medium",
        title: "Files of 1 MiB",
        compared: Compared::Work(&["rclone"]),
        run: sizes::run_medium,
    },
    Group {
        name: "large",
        title: "Large files",
        compared: Compared::Work(&["rclone"]),
        run: sizes::run_large,
    },
    Group {
        name: "peers",
        title: "Every tool that is there",
        compared: Compared::Work(TOOLS),
        run: peers::run,
    },
    Group {
        name: "sealing",
        title: "Sealed packs",
        compared: Compared::Work(&[]),
        run: sealing::run,
    },
    Group {
        name: "unpacking",
        title: "Packs against tar",
        compared: Compared::Work(&["tar"]),
        run: unpacking::run,
    },
    Group {
        name: "tuning",
        title: "Streams found through a slow line",
        compared: Compared::Work(&[]),
        run: tuning::run,
    },
    Group {
        name: "figures",
        title: "Figures 2 to 5 of the paper",
        compared: Compared::Work(TOOLS),
        run: figures::run,
    },
    Group {
        name: "ceph-small",
        title: "Small files on a Ceph gateway",
        compared: Compared::Work(&["rclone"]),
        run: ceph::run_small,
    },
    Group {
        name: "ceph-medium",
        title: "1 MiB files on a Ceph gateway",
        compared: Compared::Work(&["rclone"]),
        run: ceph::run_medium,
    },
    Group {
        name: "ceph-encryption",
        title: "None, CSE and SSE-C on a Ceph gateway",
        compared: Compared::Work(TOOLS),
        run: ceph::run_encryption,
    },
    Group {
        name: "mounted",
        title: "Packs that are mounted",
        compared: Compared::Work(&[]),
        run: mounted::run,
    },
    Group {
        name: "nodes",
        title: "Several nodes with a link each",
        compared: Compared::Work(&[]),
        run: nodes::run,
    },
];
