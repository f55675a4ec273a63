#!/usr/bin/env bash
# The tutorial about HDF5 (docs/tutorials/hdf5.md): its blocks `sh,needs-mpi` as they stand, in one shell, in an empty
# home directory. Prints `ok`, `FAILED` and `SKIP` lines.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
. scripts/prepare.sh

skip() { say "SKIP mpi_tutorial: $1"; exit 0; }
obstacle=$(fuse_obstacle)
[ -z "$obstacle" ] || skip "$obstacle"
[ "$(id -u)" = 0 ] || skip "needs root"
unshare --net --mount true 2>/dev/null || skip "needs namespaces"
for program in h5pcc.mpich mpiexec.mpich; do has "$program" || skip "$program is not installed"; done
library=$(realpath "$(built libhayase_mpiio.so)") && hayase=$(realpath "${HAYASE_BIN:-$(built hayase)}") || exit 1

work=$(mktemp -d "${HAYASE_WORK_DIR:-/var/tmp}/hayase-tutorial.XXXXXX") || exit 1
export HOME=$work HAYASE_RUNTIME_DIR=$work/run HAYASE_MPIIO_LIBRARY=$library PATH="$(dirname "$hayase"):$PATH"
unset HAYASE_JOB
finish() {
  [ ! -d "$work/run/jobs" ] || "$hayase" down --discard >/dev/null 2>&1
  rm -rf --one-file-system "${work:?}"
}
trap finish EXIT

blocks=$(awk '/^```/ { inside = !inside && $0 == "```sh,needs-mpi"; next } inside' docs/tutorials/hdf5.md)
[ -n "$blocks" ] || { say "FAILED mpi_tutorial: docs/tutorials/hdf5.md has no block"; exit 1; }
start=$SECONDS
if (cd "$work" && timeout 300 bash -euo pipefail -c "$blocks") >"$work/out" 2>&1; then
  say "ok mpi_tutorial ($((SECONDS - start)) s)"
else
  say "FAILED mpi_tutorial"
  tail -n 40 "$work/out"
  exit 1
fi
