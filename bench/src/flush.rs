//! The cache area: writes that drain behind a program, and what is read through it.

mod computation;
mod distant_tier;
mod requests;
mod slow_tier;
mod small;
mod through;

use crate::report::summary::Summary;
use crate::run::{Compared, Group};

/// The first paragraph of the page.
pub(crate) const SUMMARY: Summary = Summary {
    measured: "A program writes into `cache` in front of a disk of limited speed, and reads files of a \
               distant tier for the first time; the rates are compared with `shared`, with the limit of \
               that disk, with cp and rclone.",
    found: &[
        "writing into `cache` reaches {write in cache, of the same in shared} of the rate of `shared`, the \
         flush {drain, of what the tier's disk may do} of what the disk of the tier may do, reading from \
         the tier {read from the tier, of what the tier's disk may do}",
        "the first read of small files takes {first read of small files, time of that of the best parallel \
         copy tool} of the time of the best copy tool",
        "a computation takes {computation during a flush, time of that without one} times as long during a \
         flush",
    ],
};

/// How it was measured.
pub(crate) const INTRO: &str = "\
Written by `./bench.sh flush --write-docs`.
The tier of the first group is an ext4 file system on a loop device of its own, mounted `sync`; a control group limits what \
the job's servers read and write there, and a direct write by a program in the same group shows that it does.
The tier of the others is a directory behind a FUSE daemon of the bench, which answers late and counts writes.
One simulated node; its own storage is not limited.
Absolute figures are this machine's; the ratios are the result.
Raw samples are written to `bench/out/`.";

/// In the order in which they run.
pub(crate) const GROUPS: &[Group] = &[
    Group {
        name: "through",
        title: "Written behind, drained and read again, in front of a limited disk",
        compared: Compared::Work(&[]),
        run: through::run,
    },
    Group {
        name: "small",
        title: "Small files of a distant tier, read for the first time",
        compared: Compared::Work(&["cp", "rclone"]),
        run: small::run,
    },
    Group {
        name: "requests",
        title: "Requests of files that many processes wrote in small blocks",
        compared: Compared::Figures,
        run: requests::run,
    },
    Group {
        name: "computation",
        title: "A computation during a flush",
        compared: Compared::Work(&["idle"]),
        run: computation::run,
    },
];
