#!/usr/bin/env bash
# Bad input and faults of MPI-IO through containers: killed ranks, damage, two programs at once, a full disk, hints
# and views that mean nothing, threads. What was synced is read, the rest is reported, never wrong bytes.
# Prints `ok`, `FAILED` and `SKIP` lines.
#
#   tests/mpi/faults.sh [mpich|openmpi]...
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
. scripts/prepare.sh
. tests/mpi/launch.sh
mpiio_session

faults=$work/bin/faults
marked=$work/marked

compiles() { "$(tool "$1" mpicc)" -O1 -Wall -Werror -pthread -o "$faults" tests/mpi/programs/faults.c; }

# What a killed program left is sound as far as it was synced, and says that somebody did not close.
killed_after() {
  local mpi=$1 microseconds=$2 file=$marked/killed-$2 shown
  run "$mpi" 3 preloaded "$faults" rounds "$file" 25 "$microseconds" >"$work/killed" 2>&1
  if grep WRONG "$work/killed"; then return 1; fi
  if [ ! -e "$file/.hayase-container" ]; then
    say "killed before it made the file"
    return 0
  fi
  "$hayase" container check "$file" || return 1
  "$hayase" container export "$file" "$work/plain/killed" || return 1
  "$faults" verify "$file" 3 "$work/plain/killed" || return 1
  rm -f "$work/plain/killed"
  # Whoever comes next reads it too, and writes it again.
  run "$mpi" 2 preloaded "$faults" blocks "$file" 0 && "$hayase" container check "$file" &&
    "$hayase" container export "$file" "$work/plain/killed" || return 1
  rm -f "$work/plain/killed"
}
# Before, in and behind syncs and the close: a rank kills itself after so many microseconds.
killed_at_any_time() {
  local mpi=$1 microseconds
  for microseconds in 300 4000 15000 40000 90000 170000 300000 500000 900000 1500000; do
    killed_after "$mpi" "$microseconds" || { say "killed after $microseconds us"; return 1; }
  done
}
nobody_is_killed() {
  local file=$marked/whole
  run "$1" 3 preloaded "$faults" rounds "$file" 5 0 && "$hayase" container export "$file" "$work/plain/whole" &&
    "$faults" verify "$file" 3 "$work/plain/whole" | grep '^15 blocks found, 5 syncs'
}

two_programs() {
  local mpi=$1 file=$marked/two second status=0 own
  # Two launchers of Open MPI that make the same directory at the same moment: one of them ends.
  own=$(mktemp -d) || return 1
  TMPDIR=$own run "$mpi" 3 preloaded "$faults" blocks "$file" 0 >"$work/first" 2>&1 &
  second=$!
  run "$mpi" 3 preloaded "$faults" blocks "$file" 3 || status=1
  wait "$second" || { cat "$work/first"; status=1; }
  rm -rf "$own"
  [ "$status" = 0 ] && "$hayase" container check "$file" && "$hayase" container export "$file" "$work/plain/two" || return 1
  # Block by block, as one of them wrote it: six of eight, the others are holes.
  run "$mpi" 6 preloaded "$faults" blocks "$file" 0 && "$hayase" container export "$file" "$work/plain/again" &&
    cmp "$work/plain/two" "$work/plain/again"
}

# damage NAME COMMAND...: a container that COMMAND has spoiled; no byte of it may be read as if nothing were.
damage() {
  local mpi=$1 file=$marked/damaged-$2
  shift 2
  run "$mpi" 2 preloaded "$faults" blocks "$file" 0 || return 1
  "$@" "$file" || return 1
  if "$hayase" container check "$file"; then say "the check has not found it"; return 1; fi
  run "$mpi" 1 preloaded "$faults" damaged "$file" >"$work/said" 2>&1 || { cat "$work/said"; return 1; }
  grep 'hayase mpiio: .*damaged-' "$work/said" || { cat "$work/said"; say "nobody said which file it is"; return 1; }
}
first_of() { printf '%s\n' "$1"/*."$2" | head -n 1; }
spoil_index() { printf '\xff\xff\xff\xff' | dd of="$(first_of "$1" index)" bs=1 seek=100 conv=notrunc status=none; }
remove_part() { rm "$(first_of "$1" part)"; }
shorten_part() { truncate -s 50000 "$(first_of "$1" part)"; }
spoil_mark() { printf 'X' | dd of="$1/.hayase-container" bs=1 seek=20 conv=notrunc status=none; }

# A torn publication of a writer that did not close: what it published before is there.
torn_index() {
  local mpi=$1 file=$marked/torn index
  run "$mpi" 1 preloaded "$faults" rounds "$file" 4 0 || return 1
  index=$(first_of "$file" index)
  # The last blocks say that it closed; cut into the one before, as a kill does.
  truncate -s $(($(stat -c %s "$index") - 40)) "$index"
  "$hayase" container check "$file" || return 1
  "$hayase" container export "$file" "$work/plain/torn" || return 1
  rm -f "$file".noted.*
  "$faults" verify "$file" 1 "$work/plain/torn"
}

# An index that has lost its end can not be told from one whose writer was killed: it is said, and what the others
# published is there.
shortened_index() {
  local mpi=$1 file=$marked/shortened
  run "$mpi" 2 preloaded "$faults" blocks "$file" 0 || return 1
  truncate -s 70 "$(first_of "$file" index)"
  "$hayase" container check "$file" >"$work/said" || { cat "$work/said"; return 1; }
  grep 'unpublished .*index at byte 64: 6 bytes are no whole block' "$work/said" &&
    grep 'unpublished .*part: no index tells of its 1880320 bytes' "$work/said" &&
    "$hayase" container export "$file" "$work/plain/shortened" && "$faults" verify "$file" 8 "$work/plain/shortened"
}

full_disk() {
  local mpi=$1 small=$work/small
  mkdir -p "$small"
  mount -t tmpfs -o size=2m tmpfs "$small" || return 1
  "$hayase" container enable "$small" >/dev/null || return 1
  head -c 500000 /dev/zero >"$small/file.hog"
  local status=0
  run "$mpi" 2 preloaded "$faults" full "$small/file" || status=1
  umount "$small"
  return $status
}

hints_are_left_out() {
  HAYASE_MPIIO=whatever HAYASE_MPIIO_CONSISTENCY=best run "$1" 2 preloaded "$faults" hints "$marked/hints" >"$work/said" 2>&1 ||
    { cat "$work/said"; return 1; }
  grep 'hint hayase=perhaps is not known' "$work/said" && grep 'HAYASE_MPIIO=whatever is not known' "$work/said" &&
    [ -e "$marked/hints/.hayase-container" ]
}
views_are_refused() { run "$1" 2 preloaded "$faults" views "$marked/views" && [ -e "$marked/views/.hayase-container" ]; }
threads_agree() {
  local mpi=$1 file=$marked/threads
  run "$mpi" 2 preloaded "$faults" threads "$file" >"$work/said" 2>&1 || { cat "$work/said"; return 1; }
  if grep '^no MPI_THREAD_MULTIPLE' "$work/said"; then return 0; fi
  "$hayase" container check "$file" && "$hayase" container export "$file" "$work/plain/threads" || return 1
  [ "$(stat -c %s "$work/plain/threads")" = $((2 * 4 * 40 * 47008)) ]
}

[ $# -gt 0 ] || set -- mpich openmpi
for mpi; do
  if ! has "mpiexec.$mpi" || ! has "mpicc.$mpi"; then
    say "SKIP mpiio_faults_$mpi: not installed"
    continue
  fi
  rm -rf "${marked:?}"/* "${work:?}/plain/"*
  try "${mpi}_faults_compile" compiles "$mpi"
  try "${mpi}_nobody_is_killed" nobody_is_killed "$mpi"
  try "${mpi}_a_rank_is_killed_at_any_time" killed_at_any_time "$mpi"
  try "${mpi}_two_programs_write_one_file" two_programs "$mpi"
  for how in spoil_index remove_part shorten_part spoil_mark; do
    try "${mpi}_damage_is_told_$how" damage "$mpi" "$how" "$how"
  done
  try "${mpi}_a_torn_publication_does_not_count" torn_index "$mpi"
  try "${mpi}_an_index_that_lost_its_end_is_told" shortened_index "$mpi"
  try "${mpi}_hints_that_mean_nothing" hints_are_left_out "$mpi"
  try "${mpi}_views_that_are_forbidden" views_are_refused "$mpi"
  try "${mpi}_threads_of_one_process" threads_agree "$mpi"
  if [ "$(id -u)" = 0 ]; then
    try "${mpi}_a_disk_that_is_full" full_disk "$mpi"
  else
    say "SKIP mpiio_${mpi}_a_disk_that_is_full: a small disk is mounted by root"
  fi
done
[ "$failures" = 0 ]
