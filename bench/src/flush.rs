//! The cache area: writes that drain behind a program, and what is read through it.

mod slow_tier;
mod through;

use crate::run::Group;

/// What a reader of the page must know first.
pub(crate) const INTRO: &str = "\
Written by `./bench.sh flush --write-docs`.
The tier is an ext4 file system on a loop device of its own, mounted `sync`; a control group limits what the job's servers \
read and write there, and a direct write by a program in the same group shows that it does.
One simulated node; its own storage is not limited.
Not measured here: many small files in front of a slow tier, the requests of recorded files, computation beside a flush.
Absolute figures are this machine's; the ratios are the result.
Raw samples are written to `bench/out/`.";

/// In the order in which they run.
pub(crate) const GROUPS: &[Group] = &[Group {
    name: "through",
    title: "Written behind, drained and read again, in front of a limited disk",
    run: through::run,
}];
