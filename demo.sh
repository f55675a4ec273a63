#!/usr/bin/env bash
# Shows a job on three nodes of this machine: a real MPI program, a real build, checksums on every node, what
# stayed local, what went over the network, the same work without Hayase beside it, and a tree staged from S3.
#
#   ./demo.sh [--ranks N] [--mib N]     ranks on each node (2), MiB written by each rank (32)
#
# Needs root for namespaces and images; where something is missing it says what it cannot show.
set -uo pipefail
cd "$(dirname "$0")" || exit 1
. scripts/prepare.sh
. scripts/job.sh
. demo/staging.sh

ranks=2 mib=32
while [ $# -gt 0 ]; do
  case $1 in
    --ranks) ranks=${2:?} && shift ;;
    --mib) mib=${2:?} && shift ;;
    -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
  shift
done

title() { printf '\n== %s\n' "$*"; }
# must CMD...: the demo is over when this fails.
must() { "$@" || die "this failed: $*"; }
seconds() { date +%s.%N; }
since() { awk -v a="$1" -v b="$(seconds)" 'BEGIN { printf "%.2f", b - a }'; }
mib_of() { awk -v b="$1" 'BEGIN { printf "%.1f", b / 1048576 }'; }
# rate TEXT LINE: the MiB/s in a line of `blocks`.
rate() { sed -n "s,^$1 .*: \([0-9]*\) MiB/s\$,\1,p" <<<"$2"; }

title "prepare"
prepare_packages build || die "nothing can be built without these packages"
prepare_packages run test bench || warn "something will be missing below"
prepare_cargo
say "$(cargo --version), Linux $(uname -r), $(nproc) cores"
if [ -n "${HAYASE_BIN:-}" ]; then
  hayase=$HAYASE_BIN
  s3_server=${HAYASE_S3_SERVER:-$(dirname "$HAYASE_BIN")/hayase-s3-server}
else
  must cargo build --locked --release -p hayase -p hayase-mpi -p hayase-s3-server
  hayase=$(target_dir)/release/hayase
  s3_server=$(target_dir)/release/hayase-s3-server
fi
must cargo fetch --locked --manifest-path demo/source-tree/Cargo.toml
sources=$(ls "${CARGO_HOME:-$HOME/.cargo}"/registry/cache/*/bzip2-sys-0.1.13*.crate 2>/dev/null | head -n 1)
[ -n "$sources" ] || die "the sources of bzip2 did not arrive"

title "hayase doctor"
"$hayase" doctor || true

obstacles=$(node_obstacles)
if [ -n "$obstacles" ]; then
  title "what this machine can not show"
  say "$obstacles"
fi
if [ -n "$(fuse_obstacle)" ]; then
  say "Nothing can be mounted here. Instead: the tests of the libraries that need no mount."
  must cargo test --locked --release -q -p hayase-layout -p hayase-store -p hayase-tier
  say ""
  say "demo: done without nodes"
  exit 0
fi
has mpiexec.mpich && has mpich/mpi.h || die "MPICH is missing and could not be installed"

title "three nodes"
must job_up 3 --shared 1GiB --local 1GiB
stands_for_shared_storage=$job_work/shared-storage
mkdir "$stands_for_shared_storage" "$job_work/plain"
for node in 0 1 2; do
  printf 'node %s is %s: ' "$node" "$(on "$node" hostname)"
  on "$node" df -h --output=size,avail,target "$(area "$node" shared)" | tail -n 1
done

net_before=()
# network_mark; network_since: what crossed the network since the mark, by node.
network_mark() { for node in 0 1 2; do net_before[node]=$(received_bytes "$node"); done; }
network_since() {
  local node sum=0 now text=
  if [ -n "$one_network" ]; then say "over the network: not shown, these nodes share one"; network_sum=; return; fi
  for node in 0 1 2; do
    now=$(($(received_bytes "$node") - net_before[node]))
    sum=$((sum + now))
    text+=" node $node $(mib_of "$now")"
  done
  network_sum=$sum
  say "over the network: $(mib_of "$sum") MiB (received by$text)"
}
one_network=
[ ! -d "$job_work/mount/node-0" ] || one_network=1

title "an MPI program: $((3 * ranks)) ranks on three nodes, each writes $mib MiB of one shared file"
blocks=$job_work/blocks
must mpicc.mpich -O2 -o "$blocks" demo/blocks.c
total=$((3 * ranks * mib))
shared=$(area 0 shared)
must on 0 mkdir "$shared/whole" "$shared/striped" "$shared/recorded"
must on 0 "$hayase" layout set --stripe 1MiB --width 3 "$shared/striped"
declare -A wrote read net
for layout in whole striped; do
  say "-- $layout file"
  network_mark
  out=$(mpi_run "$ranks" "$blocks" "@shared/$layout/blocks" "$mib") || { say "$out"; die "the MPI program failed"; }
  if [ $layout = whole ]; then say "$out"; else grep -v '^  rank' <<<"$out"; fi
  network_since
  [ -n "$one_network" ] || say "stayed on its node: $(awk -v t="$total" -v n="$network_sum" 'BEGIN { printf "%.1f", 2 * t - n / 1048576 }') MiB of $((2 * total)) MiB written and read"
  wrote[$layout]=$(rate write+sync "$out") read[$layout]=$(rate read+verify "$out") net[$layout]=${network_sum:+$(mib_of "$network_sum")}
done

title "the same program once more, not built anew: hayase exec --mpiio keeps its file as one part per rank"
network_mark
# Debian's mpiexec finds the three nodes in its environment.
out=$("$hayase" exec --mpiio -- mpiexec.mpich -n $((3 * ranks)) "$blocks" "$shared/recorded/blocks" "$mib") ||
  { say "$out"; die "the MPI program failed"; }
grep -v '^  rank' <<<"$out"
network_since
wrote[recorded]=$(rate write+sync "$out") read[recorded]=$(rate read+verify "$out") net[recorded]=${network_sum:+$(mib_of "$network_sum")}
network_mark
must "$hayase" exec --mpiio -- mpiexec.mpich -n $((3 * ranks)) "$blocks" --write-only "$shared/recorded/written" "$mib"
say "written alone, without reading what other nodes wrote:"
network_since
say "one file, as each node sees it:"
for node in 0 1 2; do on "$node" ls -l "$shared/recorded/blocks"; done
must on 1 "$hayase" container show "$shared/recorded/blocks"

title "without us: the same program on a plain directory, all ranks on one node"
out=$(on 0 mpiexec.mpich -launcher fork -hosts localhost -n $((3 * ranks)) "$blocks" "$(area 0 local)/blocks" "$mib") ||
  { say "$out"; die "the MPI program failed on a plain directory"; }
say "$out"
wrote[plain]=$(rate write+sync "$out") read[plain]=$(rate read+verify "$out") net[plain]=0

title "a source tree (bzip2 1.0.8): unpacked, built and tested by its own Makefile"
# build NODE DIR: prints its seconds.
build() {
  local start
  start=$(seconds)
  on "$1" sh -c 'mkdir -p "$1" && cd "$1" && tar xzf "$2" --strip-components=1 && make -C bzip2-1.0.8 >make.log 2>&1 ||
    { tail -n 20 make.log >&2; exit 1; }' sh "$2" "$sources" || return 1
  since "$start"
}
network_mark
in_shared=$(build 1 "$(area 1 shared)/tree") || die "the build in shared failed"
network_since
in_plain=$(build 1 "$(area 1 local)/tree") || die "the build in a plain directory failed"
say "in shared, on node 1: $in_shared s; in a plain directory of node 1: $in_plain s"
say "the program that node 1 built runs on node 2: $(on 2 "$(area 2 shared)/tree/bzip2-1.0.8/bzip2" --version 2>&1 </dev/null | head -n 1 | cut -c1-60)"

title "the same bytes on every node"
sums() { on "$1" sh -c 'cd "$1" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum' sh "$2" | cut -d' ' -f1; }
want=$(sums 1 "$(area 1 shared)/tree")
for node in 0 1 2; do
  tree=$(sums "$node" "$(area "$node" shared)/tree")
  whole=$(on "$node" sha256sum "$(area "$node" shared)/whole/blocks" | cut -c1-16)
  striped=$(on "$node" sha256sum "$(area "$node" shared)/striped/blocks" | cut -c1-16)
  recorded=$(on "$node" sha256sum "$(area "$node" shared)/recorded/blocks" | cut -c1-16)
  say "node $node: tree ${tree:0:16}  whole $whole  striped $striped  by part $recorded"
  [ "$tree" = "$want" ] || die "node $node sees another tree"
  [ "$whole" = "$striped" ] && [ "$whole" = "$recorded" ] || die "node $node sees different files"
done

title "staging: a tree of ten thousand files, from an S3 server into three nodes"
if [ -n "$one_network" ]; then
  say "not shown: these nodes are plain processes of one network"
elif [ ! -x "$s3_server" ]; then
  say "not shown: there is no $s3_server"
else
  demo_staging
fi

title "hayase status"
must "$hayase" status
title "hayase explain: how files are served while they are open, and why"
# explain NODE FILE: with the file open for reading there.
explain() {
  say "-- on node $1"
  on "$1" sh -c 'exec 3<"$2" && head -c 1 <&3 >/dev/null && "$1" explain "$2"' sh "$hayase" "$(area "$1" shared)/$2"
}
must explain 0 whole/blocks
must explain 1 whole/blocks
must explain 1 striped/blocks
must explain 2 recorded/blocks

title "copy the result to the directory that stands for shared storage"
must on 2 cp -a "$(area 2 shared)/tree" "$(area 2 shared)/striped/blocks" "$stands_for_shared_storage/"
[ "$(cd "$stands_for_shared_storage/tree" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -d' ' -f1)" = "$want" ] ||
  die "the copy differs"
[ "$(sha256sum "$stands_for_shared_storage/blocks" | cut -c1-16)" = "$striped" ] || die "the copied file differs"
say "copied and verified: $(du -sh "$stands_for_shared_storage" | cut -f1)"

title "take it down"
start=$(seconds)
must job_down
say "down in $(since "$start") s; no mount is left"

HAYASE_BIN=$hayase must demo/cache.sh

title "the numbers"
printf '%-42s %12s %12s %14s\n' "" "write+sync" "read+verify" "network"
row() { printf '%-42s %8s MiB/s %6s MiB/s %10s MiB\n' "$1" "${wrote[$2]}" "${read[$2]}" "${net[$2]:--}"; }
row "MPI, three nodes, one whole file" whole
row "MPI, three nodes, one striped file" striped
row "MPI, three nodes, --mpiio, a part per rank" recorded
row "MPI, one node, a plain directory" plain
printf '%-42s %8s s\n' "unpack and build, shared" "$in_shared" "unpack and build, a plain directory" "$in_plain"
say ""
say "All nodes share this machine's $(nproc) cores and one disk: the figures show what it costs, not how it scales."
say "The plain directory is read from the page cache of the one node that wrote it."
say "demo: done"
