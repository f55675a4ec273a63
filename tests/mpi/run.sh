#!/usr/bin/env bash
# A real MPI program (stock MPI-IO of Debian's MPICH) over three simulated nodes: contiguous blocks of one
# shared file, written by all, read and verified on other nodes. Prints `ok`, `FAILED` and `SKIP` lines.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
. scripts/prepare.sh
. scripts/job.sh

obstacle=$(fuse_obstacle)
if [ -n "$obstacle" ]; then
  say "SKIP mpi: $obstacle"
  exit 0
fi
if ! has mpiexec.mpich || ! has mpich/mpi.h; then
  say "SKIP mpi: MPICH is not installed (mpich, libmpich-dev)"
  exit 0
fi
hayase=${HAYASE_BIN:-$(built hayase)} || exit 1

failures=0
# try NAME CMD...: one test.
try() {
  local name=$1 start=$SECONDS
  shift
  if "$@" >"$job_work/out" 2>&1; then say "ok mpi_$name ($((SECONDS - start)) s)"; else
    say "FAILED mpi_$name"
    tail -n 20 "$job_work/out"
    failures=$((failures + 1))
  fi
}

job_up 3 --shared 512MiB --local 300MiB >/dev/null || { say "FAILED mpi: no job"; exit 1; }
blocks=$job_work/blocks
mpicc.mpich -O2 -Wall -Werror -o "$blocks" tests/mpi/blocks.c || exit 1
shared=$(area 0 shared)
on 0 mkdir "$shared/striped" && on 0 "$hayase" layout set --stripe 1MiB --width 3 "$shared/striped" >/dev/null ||
  { say "FAILED mpi: no striped directory"; exit 1; }

# Not by MPI, not by this job: what the file must hold.
expected() { mpiexec.mpich -n 6 "$blocks" "$job_work/plain" 8 >/dev/null && sha256sum <"$job_work/plain"; }
expected=$(expected)

blocks_agree() {
  local file=$1 node
  shift
  mpi_run 2 "$blocks" "$@" "@shared/$file" 8 || return 1
  for node in 0 1 2; do
    [ "$(on "$node" sha256sum "$(area "$node" shared)/$file" | cut -d' ' -f1)" = "${expected%% *}" ] || {
      say "node $node sees other bytes"
      return 1
    }
  done
}
# Two ranks read the block with the wrong byte where a node runs two.
wrong_byte_is_noticed() {
  mpi_run 2 "$blocks" --verify-only @shared/whole 8 || return 1
  printf X | on 1 dd of="$(area 1 shared)/whole" bs=1 seek=5000000 conv=notrunc status=none || return 1
  local out
  out=$(mpi_run 2 "$blocks" --verify-only @shared/whole 8) && return 1
  grep '^WRONG: [12] words' <<<"$out"
}
ranks_run_on_all_nodes() {
  # shellcheck disable=SC2016 # the node's own variable
  [ "$(mpi_run 1 sh -c 'echo "$HAYASE_NODE"' | sort -u | tr '\n' ' ')" = "0 1 2 " ]
}

try ranks_run_on_all_nodes ranks_run_on_all_nodes
try independent_blocks_of_a_whole_file blocks_agree whole
try independent_blocks_of_a_striped_file blocks_agree striped/independent
try collective_blocks_of_a_whole_file blocks_agree collective --collective
try collective_blocks_of_a_striped_file blocks_agree striped/collective --collective
try wrong_byte_is_noticed wrong_byte_is_noticed
try down_leaves_nothing job_down
[ "$failures" = 0 ]
