#!/usr/bin/env bash
# MPI-IO into `cache` of a job of three simulated nodes: recorded as one part per process, one plain file in the tier; its
# names, sizes and copies; processes, servers and whole jobs that are killed. With Debian's MPICH and Open MPI, their ranks on all
# nodes. Prints `ok`, `FAILED` and `SKIP` lines.
#
#   tests/mpi/cached.sh [mpich|openmpi]...
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
. scripts/prepare.sh
. scripts/job.sh
. tests/mpi/job.sh

mpi_job_up --shared 1GiB --local 300MiB --tier @work/tier
cache=$(area 0 cache) shared=$(area 0 shared) tier=$job_work/tier

layout_of() { on 0 "$hayase" explain --json "$cache/$1" | sed -n 's/.*"layout": *"\([^"]*\)".*/\1/p'; }
containers() { on 0 sh -c 'ls -A "$1" 2>/dev/null | wc -l' sh "$shared/.hayase-recorded"; }
same_on_all_nodes() { # FILE PLAIN
  local node
  for node in 0 1 2; do
    on "$node" cmp "$cache/$1" "$2" || { say "node $node sees other bytes"; return 1; }
    [ "$(on "$node" ls -A "$cache" | grep -cx "$1")" = 1 ] || { say "node $node does not list it once"; return 1; }
  done
}
# The tier has the file, as PLAIN is, when a flush has come to its end.
in_tier() { # FILE PLAIN
  "$hayase" flush || { say "the flush fails"; "$hayase" status --ledger; return 1; }
  cmp "$tier/$1" "$2" || { say "the tier has other bytes"; return 1; }
  [ "$(find "$tier" -name '*hayase*' | wc -l)" = 0 ] || { say "more is in the tier"; ls -lA "$tier"; return 1; }
}
# What the program leaves, here and in the tier, is what it leaves in a plain directory without us.
agrees() { # PROGRAM RANKS [ARGUMENT AFTER FILE]
  local program=$1 ranks=$2 file=$1-$mpi
  shift 2
  rm -f "$work/plain-$program"
  spread "$ranks" stock "$work/bin/$program" "$work/plain-$program" "$@" || { say "it fails without us"; return 1; }
  spread "$ranks" ours "$work/bin/$program" "$cache/$file" "$@" || return 1
  [ "$(layout_of "$file")" = recorded ] || { say "it is no container"; return 1; }
  same_on_all_nodes "$file" "$work/plain-$program" && in_tier "$file" "$work/plain-$program" || return 1
  [ "$(layout_of "$file")" = recorded ] || { say "the flush made a whole file of it"; return 1; }
  on 1 "$hayase" container check "$cache/$file"
}
nested_subarrays_agree() { impatient=yes agrees nested 3; }
blocks_agree() { agrees blocks 6 4; }
verified() { "$hayase" flush --verify; }
# In a directory, and by a name that is made from another one's.
directories_and_renames() {
  local plain=$work/plain-blocks
  on 0 mkdir "$cache/run-$mpi" || return 1
  spread 6 ours "$work/bin/blocks" --write-only "$cache/run-$mpi/out.tmp" 4 || return 1
  on 2 mv "$cache/run-$mpi/out.tmp" "$cache/run-$mpi/out" && on 1 cmp "$cache/run-$mpi/out" "$plain" || { say "renamed"; return 1; }
  in_tier "run-$mpi/out" "$plain" && [ ! -e "$tier/run-$mpi/out.tmp" ] || return 1
  # Renamed when the tier has it, over another one.
  spread 3 ours "$work/bin/blocks" --write-only "$cache/run-$mpi/new" 8 || return 1
  on 1 cp "$cache/run-$mpi/new" "$work/new" && "$hayase" flush || return 1
  on 1 mv "$cache/run-$mpi/new" "$cache/run-$mpi/out" && in_tier "run-$mpi/out" "$work/new" || { say "over another"; return 1; }
  on 0 cmp "$cache/run-$mpi/out" "$work/new" && on 0 rm -r "$cache/run-$mpi" && "$hayase" flush || return 1
  [ ! -e "$tier/run-$mpi" ]
}
# Whoever writes it otherwise has it made one whole file.
cut_appended_and_removed() {
  local plain=$work/plain-blocks file=cut-$mpi
  spread 6 ours "$work/bin/blocks" --write-only "$cache/$file" 4 && "$hayase" flush || return 1
  on 1 truncate -s 1000000 "$cache/$file" && head -c 1000000 "$plain" >"$work/cut" || return 1
  [ "$(layout_of "$file")" = whole ] && same_on_all_nodes "$file" "$work/cut" && in_tier "$file" "$work/cut" || { say "cut"; return 1; }
  spread 6 ours "$work/bin/blocks" --write-only "$cache/tail-$mpi" 4 || return 1
  on 2 sh -c 'printf tail >>"$1"' sh "$cache/tail-$mpi" && { cat "$plain" && printf tail; } >"$work/tail" || return 1
  same_on_all_nodes "tail-$mpi" "$work/tail" && in_tier "tail-$mpi" "$work/tail" || { say "appended"; return 1; }
  on 0 rm "$cache/$file" "$cache/tail-$mpi" && "$hayase" flush || return 1
  [ ! -e "$tier/$file" ] && [ ! -e "$tier/tail-$mpi" ]
}
# Its room comes back, and what is fetched again is a plain file, to MPI programs as well.
evicted_and_read_again() {
  local file=blocks-$mpi before try
  before=$(containers)
  for try in $(seq 20); do
    on 0 "$hayase" evict "$cache/$file" && break
    sleep 0.5
  done
  [ "$(layout_of "$file")" = whole ] || { say "it is not given up"; return 1; }
  for try in $(seq 20); do
    [ "$(containers)" -lt "$before" ] && break
    sleep 0.5
  done
  [ "$(containers)" -lt "$before" ] || { say "its container stays"; return 1; }
  same_on_all_nodes "$file" "$work/plain-blocks" || return 1
  spread 6 ours "$work/bin/blocks" --verify-only "$cache/$file" 4 || { say "an MPI program reads it otherwise"; return 1; }
  in_tier "$file" "$work/plain-blocks"
}
# Open, it is told as that, read by others as it is published, and not the last version in the tier; then another program
# goes on with it.
open_and_written_again() {
  local running seen= file=open-$mpi
  : >"$work/said"
  spread 3 ours "$work/bin/killed" "$cache/$file" never 100 >"$work/said" 2>&1 &
  running=$!
  for _ in $(seq 200); do
    grep -q '^synced 3$' "$work/said" && seen=1 && break
    sleep 0.1
  done
  [ -n "$seen" ] || { say "it did not begin"; cat "$work/said"; wait "$running"; return 1; }
  "$hayase" status --ledger | grep "$file" | grep -q open || { say "not told as open"; "$hayase" status --ledger; wait "$running"; return 1; }
  on 1 "$work/bin/killed" --check "$cache/$file" 3 3 || { wait "$running"; return 1; }
  ! on 1 sh -c 'printf x >>"$1"' sh "$cache/$file" 2>"$work/errors" && grep -qi 'busy' "$work/errors" ||
    { cat "$work/errors"; wait "$running"; return 1; }
  wait "$running" || { cat "$work/said"; return 1; }
  "$hayase" flush && "$work/bin/killed" --check "$tier/$file" 100 3 || return 1
  spread 3 ours "$work/bin/killed" "$cache/$file" never 120 >"$work/said" || { say "it can not be written again"; return 1; }
  [ "$(layout_of "$file")" = recorded ] || { say "it became whole"; return 1; }
  "$hayase" flush && "$work/bin/killed" --check "$tier/$file" 120 3
}
# What was synced comes to the tier, nothing is wrong there, and another program can go on with the file.
rank_killed() {
  local synced file=killed-$mpi
  spread 3 ours "$work/bin/killed" "$cache/$file" synced 4 >"$work/said" 2>"$work/errors"
  synced=$(sed -n 's/^synced //p' "$work/said" | tail -n 1)
  [ "${synced:-0}" -ge 1 ] || { cat "$work/errors"; return 1; }
  "$hayase" flush && "$work/bin/killed" --check "$tier/$file" "$synced" 3 || return 1
  spread 3 ours "$work/bin/killed" "$cache/$file" never 6 >/dev/null || { say "it can not be written again"; return 1; }
  "$hayase" flush && "$work/bin/killed" --check "$tier/$file" 6 3
}
# Servers are killed while ranks write and sync, and while it comes to the tier.
servers_killed() {
  local node running synced try
  kill_servers_of "$cache/servers" || return 1
  for node in 0 2 1; do
    "$hayase" flush >/dev/null 2>&1 &
    running=$!
    kill -9 "$(server_of "$node")" || say "no server of node $node"
    wait "$running"
  done
  for try in $(seq 30); do
    "$hayase" flush >"$work/flushed" 2>&1 && break
    sleep 1
  done
  for node in 0 1 2; do
    on "$node" "$work/bin/killed" --check "$cache/servers" "$synced" 3 || return 1
  done
  "$work/bin/killed" --check "$tier/servers" "$synced" 3 || { cat "$work/flushed"; "$hayase" status --ledger; return 1; }
  on 1 cmp "$cache/servers" "$tier/servers" && [ "$(find "$tier" -name '*conflict*' | wc -l)" = 0 ]
}
# Without a word to us: the end of the job waits for what is written.
down_brings_everything() {
  spread 6 ours "$work/bin/blocks" --write-only "$cache/last" 4 || return 1
  job_down && cmp "$tier/last" "$work/plain-blocks"
}
resume() { # STATUS: as it is to end; images are busy until the kernel has let go of the dead nodes' mounts
  local try status
  for try in $(seq 20); do
    timeout 120 "$hayase" resume --verify "$HAYASE_JOB"
    status=$?
    [ "$status" = 1 ] || break
    sleep 2
  done
  [ "$status" = "$1" ] || { say "resume ends with $status"; return 1; }
}
# All of a job is killed, with the ranks of a program, before its tier has taken anything: what was published comes there.
killed_job_is_resumed() {
  local running synced try node plain=$work/plain
  spread 6 stock "$work/bin/blocks" --write-only "$plain-blocks" 4 && spread 3 stock "$work/bin/nested" "$plain-nested" || return 1
  spread 6 ours "$work/bin/blocks" --write-only "$cache/blocks" 4 && spread 3 ours "$work/bin/nested" "$cache/nested" || return 1
  : >"$work/said"
  spread 3 ours "$work/bin/killed" "$cache/killed" never 1000000 >"$work/said" 2>&1 &
  running=$!
  for try in $(seq 200); do
    grep -q '^synced 3$' "$work/said" && break
    sleep 0.1
  done
  pgrep -f -- "$HAYASE_JOB|$work/bin/killed" | xargs kill -KILL
  wait "$running"
  synced=$(sed -n 's/^synced \([0-9]*\)$/\1/p' "$work/said" | tail -n 1)
  [ "${synced:-0}" -ge 3 ] || { say "it did not begin"; cat "$work/said"; return 1; }
  [ -z "$(ls -A "$tier")" ] || { say "the tier has taken something"; ls -lA "$tier"; return 1; }
  node=$(find "$job_work/storage" -maxdepth 2 -name node-2) && mv "$node" "$work/aside" || return 1
  resume 3 >"$work/told" && grep 'not in the tier: nested' "$work/told" | grep -q 'node 2 is not found' || { cat "$work/told"; return 1; }
  [ -z "$(ls -A "$tier")" ] || { say "something was sent without a node"; ls -lA "$tier"; return 1; }
  mv "$work/aside" "$node" && resume 0 || return 1
  cmp "$tier/blocks" "$plain-blocks" && cmp "$tier/nested" "$plain-nested" || return 1
  "$work/bin/killed" --check "$tier/killed" "$synced" 3 || return 1
  [ "$(find "$tier" -type f | wc -l)" = 3 ] && [ ! -e "$HAYASE_JOB" ] || { ls -lA "$tier" "$HAYASE_JOB"; return 1; }
}

[ $# -gt 0 ] || set -- mpich openmpi
first=
for mpi; do
  if ! has "mpiexec.$mpi" || ! has "mpicc.$mpi"; then
    say "SKIP cached_$mpi: not installed"
    continue
  fi
  : "${first:=$mpi}"
  try programs_compile
  try nested_subarrays_agree
  try blocks_agree
  try verified
  try directories_and_renames
  try cut_appended_and_removed
  try evicted_and_read_again
  try open_and_written_again
  if [ "$mpi" = "$first" ]; then
    try rank_killed
    try servers_killed
  fi
done
if [ -n "$first" ]; then
  mpi=$first
  try programs_compile
  try down_brings_everything
  rm -rf --one-file-system "$job_work"
  job_work= # job_up makes another one
  # Nothing comes to this tier while its servers are up.
  mpi_job_up --shared 1GiB --local 300MiB --tier @work/tier --tier-faults one-in=1
  cache=$(area 0 cache) shared=$(area 0 shared) tier=$job_work/tier
  try programs_compile
  try killed_job_is_resumed
fi
[ "$failures" = 0 ]
