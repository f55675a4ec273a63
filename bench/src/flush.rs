//! The cache area: writes that drain behind a program, and what is read through it.

mod computation;
mod distant_tier;
mod requests;
mod slow_tier;
mod small;
mod through;

use crate::run::{Compared, Group};

/// What a reader of the page must know first.
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
