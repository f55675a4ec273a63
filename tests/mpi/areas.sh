#!/usr/bin/env bash
# MPI-IO through containers in `shared` of a job of three simulated nodes: one plain file on every node, its parts on
# the nodes of their writers; processes and servers that are killed, parts that are missing; a node that is lost. With
# Debian's MPICH and Open MPI, their ranks on all nodes. Prints `ok`, `FAILED` and `SKIP` lines.
#
#   tests/mpi/areas.sh [--mpi4py] [mpich|openmpi]...     --mpi4py: mpi4py's own tests instead
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
. scripts/prepare.sh
. scripts/job.sh
. tests/mpi/mpi4py.sh
. tests/mpi/job.sh

mpi_job_up --shared 1GiB --local 300MiB
shared=$(area 0 shared)


layout_of() { on 0 "$hayase" explain --json "$shared/$1" | sed -n 's/.*"layout": *"\([^"]*\)".*/\1/p'; }
same_on_all_nodes() { # FILE PLAIN
  local node expected
  expected=$(sha256sum <"$2")
  for node in 0 1 2; do
    [ "$(on "$node" sh -c 'sha256sum <"$1"' sh "$shared/$1")" = "$expected" ] || { say "node $node sees other bytes"; return 1; }
    [ "$(on "$node" stat -c %s "$shared/$1")" = "$(stat -c %s "$2")" ] || { say "node $node sees another size"; return 1; }
    [ "$(on "$node" ls "$shared" | grep -cx "$1")" = 1 ] || { say "node $node does not list it once"; return 1; }
  done
}
# What the program leaves in `shared` is what it leaves in a plain directory without us.
agrees() { # PROGRAM RANKS [ARGUMENT AFTER FILE]
  local program=$1 ranks=$2
  shift 2
  rm -f "$work/plain-$program"
  spread "$ranks" stock "$work/bin/$program" "$work/plain-$program" "$@" || { say "it fails without us"; return 1; }
  spread "$ranks" ours "$work/bin/$program" "$shared/$program-$mpi" "$@" || return 1
  [ "$(layout_of "$program-$mpi")" = recorded ] || { say "it is no container"; return 1; }
  same_on_all_nodes "$program-$mpi" "$work/plain-$program" || return 1
  on 1 "$hayase" container check "$shared/$program-$mpi" || return 1
  on 2 "$hayase" container export "$shared/$program-$mpi" "$work/exported" && cmp "$work/exported" "$work/plain-$program" || return 1
  rm -f "$work/exported"
}
nested_subarrays_agree() { impatient=yes agrees nested 3; }
blocks_agree() { agrees blocks 6 4; }
# What four processes wrote on three nodes, read together by others: as independently, whoever reads for whom.
reads_by_others_agree() {
  local file=$shared/others-$mpi ranks bytes
  EXCHANGE=auto BUFFER=16MiB spread 4 ours "$work/bin/exchanged" write "$file" || return 1
  for ranks in 2 3 9; do
    EXCHANGE=on BUFFER=1MiB HAYASE_MPIIO_TRACE=1 spread $ranks ours "$work/bin/exchanged" read "$file" 2>"$work/trace" ||
      { cat "$work/trace"; return 1; }
    bytes=$(awk '/trace exchanged/ { sum += $(NF - 1) } END { print sum + 0 }' "$work/trace")
    [ "$bytes" -gt 1000000 ] || { say "$ranks ranks exchanged $bytes bytes"; cat "$work/trace"; return 1; }
    EXCHANGE=auto BUFFER=16MiB spread $ranks ours "$work/bin/exchanged" read "$file" || return 1
  done
}
received_by_all() { echo $(($(received_bytes 0) + $(received_bytes 1) + $(received_bytes 2))); }
# 48 MiB from six ranks on three nodes: without us two thirds of them cross the network.
parts_are_local() {
  local before crossed server
  before=$(received_by_all)
  spread 6 ours "$work/bin/blocks" --write-only "$shared/local-$mpi" 8 || return 1
  crossed=$(($(received_by_all) - before))
  say "crossed the network: $crossed bytes"
  [ "$crossed" -lt $((3 << 20)) ] || return 1
  for server in 0 1 2; do
    [ "$(on 0 "$hayase" explain --json "$shared/local-$mpi" | tr -d ' \n' |
      grep -o "{\"bytes_allocated\":[0-9]*,\"server\":$server}" | wc -l)" = 2 ] ||
      { say "server $server does not have two parts"; on 0 "$hayase" explain "$shared/local-$mpi"; return 1; }
  done
}
names_and_sizes() {
  local file=$shared/renamed-$mpi plain=$work/plain-blocks
  spread 3 ours "$work/bin/blocks" --write-only "$shared/names-$mpi" 4 || return 1
  on 2 mv "$shared/names-$mpi" "$file" && on 1 cmp -n $((12 << 20)) "$file" "$plain" || { say "renamed"; return 1; }
  # Whoever writes it otherwise has it made one whole file.
  on 1 truncate -s 1000000 "$file" && [ "$(on 0 stat -c %s "$file")" = 1000000 ] && on 2 cmp -n 1000000 "$file" "$plain" ||
    { say "cut"; return 1; }
  [ "$(layout_of "renamed-$mpi")" = whole ] || { say "it is still a container"; return 1; }
  spread 3 ours "$work/bin/blocks" --write-only "$shared/names-$mpi" 4 || return 1
  on 2 sh -c 'printf tail >>"$1"' sh "$shared/names-$mpi" && [ "$(on 0 tail -c 4 "$shared/names-$mpi")" = tail ] &&
    [ "$(on 1 stat -c %s "$shared/names-$mpi")" = $((12 * 1048576 + 4)) ] || { say "appended"; return 1; }
  spread 3 ours "$work/bin/blocks" --write-only "$shared/gone-$mpi" 4 || return 1
  on 1 rm "$shared/gone-$mpi" && ! on 0 test -e "$shared/gone-$mpi" || { say "removed"; return 1; }
}
# All containers belong to a file: those of files that are gone, or whole, go soon.
nothing_is_left_over() {
  local try
  on 0 sh -c 'rm -rf "$1"/*; mkdir "$1/mpi4py"' sh "$shared"
  for try in 1 2 3 4 5 6 7 8 9 10; do
    [ "$(on 0 ls -A "$shared/.hayase-recorded" | wc -l)" != 0 ] || return 0
    sleep 0.5
  done
  on 0 ls -A "$shared/.hayase-recorded"
  return 1
}

# A rank is killed: what was synced is there, nothing is wrong, and another program can go on with the file.
rank_killed() { # WHEN
  local when=$1 synced node
  spread 3 ours "$work/bin/killed" "$shared/killed-$when" "$when" 4 >"$work/said" 2>"$work/errors"
  synced=$(sed -n 's/^synced //p' "$work/said" | tail -n 1)
  say "$when: ${synced:-0} rounds were synced"
  [ "${synced:-0}" -ge 1 ] || { cat "$work/errors"; return 1; }
  # That late it had synced all of them, though its launcher may lose the last line of a program that is killed.
  case $when in closing | closed) synced=4 ;; esac
  for node in 0 1 2; do
    on "$node" "$work/bin/killed" --check "$shared/killed-$when" "$synced" 3 || return 1
  done
  on 1 "$hayase" container check "$shared/killed-$when" || return 1
  spread 3 ours "$work/bin/killed" "$shared/killed-$when" never 6 >/dev/null || { say "it can not be written again"; return 1; }
  on 2 "$work/bin/killed" --check "$shared/killed-$when" 6 3
}

rank_killed_before_sync() { rank_killed written; }
rank_killed_in_sync() { rank_killed syncing; }
rank_killed_after_sync() { rank_killed synced; }
rank_killed_in_close() { rank_killed closing; }
rank_killed_after_close() { rank_killed closed; }

# Killed while ranks write and sync: the file is whole afterwards, or what failed was said.
servers_killed() {
  local node synced
  kill_servers_of "$shared/servers" || return 1
  for node in 0 1 2; do
    on "$node" "$work/bin/killed" --check "$shared/servers" "$synced" 3 || return 1
  done
}
# A compaction merges the indexes and leaves the parts on the nodes of their writers; others write on, and read all of it.
compacted_agrees() {
  local file=compacted-$mpi inode container parts
  spread 6 ours "$work/bin/blocks" --write-only "$shared/$file" 4 || return 1
  inode=$(on 0 stat -c %i "$shared/$file")
  container=$shared/.hayase-recorded/$(printf %016x "$inode")
  parts=$(on 0 sh -c 'ls "$1"/*.part' sh "$container")
  on 1 "$hayase" container compact "$shared/$file" || return 1
  [ "$(on 2 sh -c 'ls "$1"/*.part' sh "$container")" = "$parts" ] || { say "other parts"; return 1; }
  [ "$(on 2 sh -c 'ls "$1" | grep -c index' sh "$container")" = 1 ] || { on 2 ls -l "$container"; return 1; }
  same_on_all_nodes "$file" "$work/plain-blocks" || return 1
  spread 6 ours "$work/bin/blocks" --write-only "$shared/$file" 4 || return 1
  on 0 "$hayase" container compact "$shared/$file" && on 2 "$hayase" container check "$shared/$file" || return 1
  same_on_all_nodes "$file" "$work/plain-blocks"
}
# What lies in a part that is gone can not be read, what lies in others can, and check says so.
part_missing() {
  local file=$shared/blocks-$mpi inode container part
  inode=$(on 0 stat -c %i "$file")
  container=$shared/.hayase-recorded/$(printf %016x "$inode")
  part=$(on 0 sh -c 'ls "$1"/*.part | head -n 1' sh "$container")
  on 1 "$hayase" container show "$file" || return 1
  on 0 rm "$part" || return 1
  local readable refused missing try
  # Who has the part open goes on reading it, as any file without a name: until servers and caches let go.
  for try in $(seq 30); do
    read_blocks 2 "$file" || return 1
    [ "$refused" = 0 ] || break
    sleep 1
  done
  say "$readable blocks are read, $refused refused"
  [ "$readable" = 5 ] && [ "$refused" = 1 ] || return 1
  ends_before_what_is_missing 2 "$file" "$missing" || return 1
  ! on 0 cat "$file" >/dev/null 2>"$work/errors" && grep -q 'Input/output error' "$work/errors" || return 1
  ! on 1 "$hayase" container check "$file" >"$work/said" 2>&1 && grep -q 'missing' "$work/said"
}
# read_blocks NODE FILE: what is read of its six blocks must be right, what is refused must say so. Sets readable, refused
# and missing, the last one that was refused.
read_blocks() {
  local node=$1 file=$2 plain=$work/plain-blocks block
  readable=0 refused=0
  for block in 0 1 2 3 4 5; do
    # Direct: the kernel's readahead fails for more than was asked. Whole blocks: the kernel asks for 1 MiB at a time, and
    # a read(2) of which a later MiB fails returns what came before.
    if on "$node" timeout 60 dd if="$file" iflag=direct,fullblock bs=4M skip=$block count=1 of="$work/block" status=none 2>"$work/errors"; then
      readable=$((readable + 1))
      cmp "$work/block" <(dd if="$plain" bs=4M skip=$block count=1 status=none) || return 1
    else
      refused=$((refused + 1)) missing=$block
      grep -q 'Input/output error' "$work/errors" || { cat "$work/errors"; return 1; }
    fi
  done
}
# One read(2) that begins a MiB before the missing block is refused, or ends there; whoever goes on is refused.
ends_before_what_is_missing() { # NODE FILE BLOCK
  local node=$1 file=$2 at=$((($3 * 4 - 1) << 20))
  [ "$3" -gt 0 ] || return 0
  if on "$node" dd if="$file" iflag=direct,skip_bytes bs=4M skip=$at count=1 of="$work/block" status=none 2>"$work/errors"; then
    say "$(stat -c %s "$work/block") bytes are read before the missing block"
    cmp "$work/block" <(tail -c +$((at + 1)) "$work/plain-blocks" | head -c 1048576) || return 1
  else
    grep -q 'Input/output error' "$work/errors" || return 1
  fi
  ! on "$node" dd if="$file" iflag=direct,skip_bytes,fullblock bs=4M skip=$at count=1 of="$work/block" status=none 2>"$work/errors" &&
    grep -q 'Input/output error' "$work/errors"
}

# The parts of a node that is lost go with it: their bytes answer EIO, the others are read.
node_lost() {
  local file=$shared/lost plain=$work/plain-blocks process words readable refused missing try
  spread 6 ours "$work/bin/blocks" --write-only "$file" 4 || return 1
  # A lost server takes names along as well: of several names some stay.
  for try in 1 2 3 4 5 6 7 8; do on 0 ln "$file" "$file-$try" || return 1; done
  for process in /proc/[0-9]*; do
    words=$(tr '\0' ' ' 2>/dev/null <"$process/cmdline") || continue
    case $words in *"hayase node --job-dir $HAYASE_JOB --node 2 "*) kill -9 "${process#/proc/}" && break ;; esac
  done
  for try in $(seq 60); do
    on 0 "$hayase" status 2>/dev/null | grep -qi 'lost' && break
    sleep 0.5
  done
  for try in 1 2 3 4 5 6 7 8; do on 1 stat "$file-$try" >/dev/null 2>&1 && file=$file-$try && break; done
  read_blocks 1 "$file" || return 1
  say "$readable blocks are read, $refused refused"
  [ "$readable" = 4 ] && [ "$refused" = 2 ] || return 1
  [ "$(on 0 stat -c %s "$file")" = "$(stat -c %s "$plain")" ]
}

# While MPI programs have it open others can read what is published, and not write.
busy_while_open() {
  local running seen=
  # Not what the run with another library said.
  : >"$work/busy"
  spread 3 ours "$work/bin/killed" "$shared/busy" never 150 >"$work/busy" 2>&1 &
  running=$!
  for _ in $(seq 200); do
    grep -q '^synced 3$' "$work/busy" 2>/dev/null && seen=1 && break
    sleep 0.1
  done
  [ -n "$seen" ] || { say "it did not begin"; wait "$running"; return 1; }
  on 1 "$work/bin/killed" --check "$shared/busy" 3 3 || return 1
  ! on 1 sh -c 'printf x >>"$1"' sh "$shared/busy" 2>"$work/errors" && grep -qi 'busy' "$work/errors" || { cat "$work/errors"; return 1; }
  # Removed, it lives on for those who have it open.
  on 2 rm "$shared/busy" || return 1
  wait "$running" || { cat "$work/busy"; return 1; }
  grep -q '^synced 150$' "$work/busy"
}

# mpi4py's tests, their files in the area.
python_run() { # MPI RANKS stock|ours
  (
    mpi4py_environment "$1"
    cd "$mpi4py_tests" || exit 1
    export TMPDIR=$shared/mpi4py HAYASE_MPIIO_TRACE=1
    spread "$2" "$3" "$mpi4py_python" main.py -v -i test_io -i test_file
  )
}

mpi4py_by_1() { mpi4py_agrees python_run "$mpi" 1 ours; }
mpi4py_by_2() { mpi4py_agrees python_run "$mpi" 2 ours; }
mpi4py_by_4() { mpi4py_agrees python_run "$mpi" 4 ours; }

# `run` makes a job, and tells the launcher of the ranks what to preload; nothing else is told.
run_preloads_the_ranks_only() {
  local out
  out=$(env -u HAYASE_JOB "$hayase" run --nodes 2 --storage "$work/storage" --mount "$work/mount-run" --shared 300MiB --local 300MiB \
    --mpiio -- mpiexec.mpich -n 2 sh -c 'echo "rank [$LD_PRELOAD] [$(tr "\0" "\n" </proc/$PPID/environ | grep ^LD_PRELOAD=)]"') || return 1
  say "$out"
  [ "$(grep -cF "rank [$library] []" <<<"$out")" = 2 ]
}
unknown_launchers_are_refused() {
  local out
  ! out=$("$hayase" exec --mpiio -- ls 2>&1) && grep -q "env LD_PRELOAD=$library" <<<"$out"
}

down_leaves_nothing() { job_down; }

# What MPI leaves in an area, and what happens to it.
programs() {
  try programs_compile
  try nested_subarrays_agree
  try blocks_agree
  try reads_by_others_agree
  try parts_are_local
  try names_and_sizes
  try busy_while_open
  try compacted_agrees
  try part_missing
  if [ "$mpi" = mpich ]; then
    mkdir -p "$work/mount-run"
    try run_preloads_the_ranks_only
    try rank_killed_before_sync
    try rank_killed_in_sync
    try rank_killed_after_sync
    try rank_killed_in_close
    try rank_killed_after_close
    try servers_killed
  fi
}
of_mpi4py() {
  if ! mpi4py_prepare; then
    say "SKIP areas_mpi4py: mpi4py $MPI4PY could not be had: $(tail -n 1 "$work/pip" 2>/dev/null)"
    return
  fi
  try mpi4py_by_1
  try mpi4py_by_2
  try mpi4py_by_4
}

tests=programs
if [ "${1:-}" = --mpi4py ]; then tests=of_mpi4py && shift; fi
[ $# -gt 0 ] || set -- mpich openmpi
on 0 mkdir "$shared/mpi4py"
if [ $tests = programs ]; then
  try unknown_launchers_are_refused
fi
for mpi; do
  if ! has "mpiexec.$mpi" || ! has "mpicc.$mpi"; then
    say "SKIP areas_$mpi: not installed"
    continue
  fi
  "$tests"
  try nothing_is_left_over
done
if [ -e "$work/plain-blocks" ]; then
  try node_lost
fi
mpi=
try down_leaves_nothing
[ "$failures" = 0 ]
