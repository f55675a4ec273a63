#!/usr/bin/env bash
# Measures: ./bench.sh NAME [--quick] [--only GROUP] [--write-docs] (NAME: foundation, nodes, mpiio, mpiio-nodes, stage, flush, gfarm, dataplane).
#   Raw samples and conditions go to bench/out, the page with the results to docs/. Exit 0 only when all goals hold.
# ./bench.sh NAME --against DIR [--within 1.05] [--pairs COUNT] [--quick] [--only GROUP] [--write-docs]
#   Measures this build and another one in turn, and says what became slower or dearer. DIR: a checkout of another commit in
#   which `cargo build --release -p hayase -p hayase-mpi` was run, or a directory with the binary and the library.
#   "Before" or "today" in a document or an issue, without a commit, means commit 5057efb.
# ./bench.sh NAME --help tells the rest.
set -euo pipefail
cd "$(dirname "$0")"
. scripts/prepare.sh

if [ $# -lt 1 ] || [ "$1" = -h ] || [ "$1" = --help ]; then
  sed -n '2,8s/^# \{0,1\}//p' "$0"
  exit 2
fi
[ -e bench/Cargo.toml ] || die "bench/ is not written yet"
prepare_packages build || die "nothing can be built without these packages"
prepare_packages run test bench || warn "some figures will be missing"
[ "$1" != stage ] || prepare_packages peers || warn "some peers will be missing"
[ "$1" != dataplane ] || prepare_daemon_packages gfarm gluster || warn "some peers will be missing"
[ "$1" != gfarm ] || prepare_daemon_packages gfarm || die "Gfarm can not be measured without its packages"
prepare_cargo
cargo build --locked --release -p hayase -p hayase-mpi
# bench/ is a separate workspace; its program and the product end up in the same directory.
exec cargo run --locked --release --manifest-path bench/Cargo.toml --target-dir "$(target_dir)" -- "$@"
