//! The same copies on a real Ceph RADOS Gateway, whose daemons share the machine: small and medium files, and
//! encryption by nobody, by the client and by the server (figure 4 of the paper).

use super::figures;
use super::ground::{Files, Ground};
use super::sizes::{self, Size};
use crate::bench::Bench;
use crate::report::Outcome;
use crate::report::goal::Wanted;

pub(super) fn run_small(bench: &Bench) -> anyhow::Result<Outcome> {
    let size = Size {
        name: "16 KiB files on Ceph",
        files: Files { count: bench.rounds(8_000, 20_000), bytes: 16 << 10 },
        rounds: 2,
        both: &["loose", "packed", "sealed"],
        down_only: &["loose, 4 streams"],
        rate: &[("loose", Wanted::AtLeast(1.3)), ("packed", Wanted::AtLeast(15.0))],
        cpu: Some(0.33),
        four: Some(1000.0),
    };
    sizes::run(&Ground::at_gateway(bench)?, &size)
}

pub(super) fn run_medium(bench: &Bench) -> anyhow::Result<Outcome> {
    let size = Size {
        name: "1 MiB files on Ceph",
        files: Files { count: bench.rounds(100, 500), bytes: 1 << 20 },
        rounds: 2,
        both: &["loose"],
        down_only: &[],
        rate: &[("loose", Wanted::AtLeast(1.0))],
        cpu: Some(0.6),
        four: None,
    };
    sizes::run(&Ground::at_gateway(bench)?, &size)
}

pub(super) fn run_encryption(bench: &Bench) -> anyhow::Result<Outcome> {
    figures::with_encryption_by_the_server(bench, &Ground::at_gateway(bench)?)
}
