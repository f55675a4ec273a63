#!/usr/bin/env bash
# Shows a job on three nodes of this machine, with disks, links and shared storage of known speed: a checkpoint of an MPI
# program, write-behind, small files, S3, and a killed job that is resumed. Everything is verified, and done without Hayase
# on the same limits too. Figures and pictures are in demo/out/index.html afterwards, logs in demo/out/logs.
#
#   ./demo.sh [--ranks N] [--mib N]     ranks on each node (2), MiB of the checkpoint written by each rank (48)
#
# Builds with the profile `demo` in some minutes (HAYASE_BIN names a program that is already built), then runs for two to
# three. Needs root for namespaces, images and limits; where something is missing it says so, and compares nothing.
set -uo pipefail
cd "$(dirname "$0")" || exit 1
export LC_ALL=C.UTF-8
. scripts/prepare.sh
. scripts/job.sh
for part in terminal figures limits dead-runs shared-storage trees checkpoint small-files s3 killed page; do . "demo/$part.sh"; done

usage() { sed -n '2,9s/^# \{0,1\}//p' "$0"; }
ranks=2 checkpoint_mib=48
while [ $# -gt 0 ]; do
  case $1 in
    --ranks) ranks=${2:?} && shift ;;
    --mib) checkpoint_mib=${2:?} && shift ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
  shift
done
[[ $ranks =~ ^[1-9][0-9]?$ ]] || die "--ranks $ranks: expected 1 to 99"
[[ $checkpoint_mib =~ ^[1-9][0-9]{0,3}$ ]] && [ $((checkpoint_mib % 4)) = 0 ] || die "--mib $checkpoint_mib: expected a multiple of 4 below 10000"
round_mib=$(((checkpoint_mib / 2 + 3) / 4 * 4))
tree_files=1500
out=demo/out
begun=$SECONDS

prepare() {
  title "prepare"
  prepare_packages build || die "nothing can be built without these packages"
  prepare_packages run demo || warn "something will be missing below"
  prepare_cargo
  rm -rf "$out"
  mkdir -p "$out/logs"
  figures_begin "$out"
}

# build: $hayase and $s3_server, and the sources of bzip2.
build() {
  local start=$SECONDS
  if [ -n "${HAYASE_BIN:-}" ]; then
    hayase=$(readlink -e "$HAYASE_BIN") || die "$HAYASE_BIN is not there"
    s3_server=${HAYASE_S3_SERVER:-$(dirname "$hayase")/hayase-s3-server}
  else
    say "cargo build --profile demo: some minutes on two cores"
    must cargo build --locked --profile demo -p hayase -p hayase-mpi -p hayase-s3-server
    hayase=$(realpath "$(target_dir)")/demo/hayase
    s3_server=$(dirname "$hayase")/hayase-s3-server
    say "built in $((SECONDS - start)) s"
  fi
  logged build cargo fetch --locked --manifest-path demo/source-tree/Cargo.toml
  sources=$(ls "${CARGO_HOME:-$HOME/.cargo}"/registry/cache/*/bzip2-sys-0.1.13*.crate 2>/dev/null | head -n 1)
  [ -n "$sources" ] || die "the sources of bzip2 did not arrive"
  run_begun=$SECONDS
}

# without_mounts: all that can be shown where nothing can be mounted.
without_mounts() {
  say "Nothing can be mounted here. Instead: the tests of the libraries that need no mount."
  must cargo test --locked --profile demo -q -p hayase-layout -p hayase-store -p hayase-tier
  say ""
  say "demo: done without nodes"
  exit 0
}

programs() {
  has mpiexec.mpich && has mpich/mpi.h || die "MPICH is missing and could not be installed"
  logged build mpicc.mpich -O2 -o "$job_work/model" demo/model.c
  logged build gcc -O2 -shared -fPIC -o "$job_work/latency.so" demo/latency.c -ldl
}

# cluster: three nodes in front of shared storage, all of known speed where this machine can do that.
cluster() {
  local why
  title "three nodes on this machine, in front of shared storage"
  job_begin
  job_ends+=(control_end storage_end watch_end s3_end)
  programs
  control_begin
  dead_runs_end
  storage_begin
  logged up job_up 3 --shared 2GiB --local 1GiB --tier @work/tier
  one_network=
  [ ! -d "$job_work/mount/node-0" ] || one_network=1
  why=$(limit_obstacle)
  if [ -z "$why" ] && { [ -z "$storage_device" ] || ! limit_nodes 2>>"$out/logs/up.log"; }; then
    why="a limit could not be set (see $out/logs)"
  fi
  if [ -z "$why" ]; then
    if limits_hold >"$job_work/limits"; then limited=1; else why=$(cat "$job_work/limits"); fi
    [ -z "$limited" ] || cat "$job_work/limits"
  fi
  if [ -z "$limited" ]; then
    limits_end
    condition "Disks, links and shared storage are not limited here: $why"
    condition "So nothing is compared: the figures are those of Hayase on this machine's disk alone"
  fi
  condition "One run each: other runs differ"
  condition "Linux $(uname -r), $(nproc) cores for all nodes together, $("$hayase" --version), $(date -u '+%Y-%m-%d %H:%M') UTC"
}

conditions() {
  figure slower "The shared storage here has no lock conflicts between nodes, which slow such writes on Lustre. The ratio of a checkpoint is that of the nodes' disks to the shared storage, nothing more."
  figure slower "When nothing is computed meanwhile, the shared storage has everything later than with stock MPI: the bytes are written to the nodes first."
  figure slower "Creating files: one program makes some 4,000 files a second in \`shared\`, XFS alone 50,000 (not measured here: \`docs/results/foundation.md\`).$unpack_wins"
  figure slower "Compiling takes processor time on either: a build gains nothing, and can be slower."
  figure slower "One program that reads another node's file gets 70 % of what a bare TCP connection carries (not measured here: \`docs/results/foundation.md\`)."
  figure slower "The S3 server has no latency, which favours one object for each file: real ones answer after 10 to 30 ms."
  figure slower "What only one node's disk has is lost when that node is lost before it is on the shared storage: there are no copies."
  figure command "./demo.sh"
  figure command "hayase up --storage /local/scratch --mount /tmp/areas --tier /lustre/me/run7"
  figure command "hayase exec --mpiio -- mpiexec -n 64 ./model /tmp/areas/cache/checkpoint"
  figure command "hayase flush && hayase down"
}

scenes() {
  tree_begin
  demo_checkpoint
  demo_rounds
  demo_small_files
  if [ -n "$one_network" ]; then
    say "S3 is not shown: these nodes are plain processes of one network"
  elif [ ! -x "$s3_server" ]; then
    say "S3 is not shown: there is no $s3_server"
  else
    demo_s3
  fi
  logged report "$hayase" report -o "$out/job.html"
  figure link job.html "The page of the job (hayase report): what its nodes moved and when"
  demo_killed
}

prepare
build
[ -z "$(fuse_obstacle)" ] || without_mounts
cluster
scenes
conditions
title "without Hayase and with it"
figures_table
page "$figures" "$out/index.html" || die "the page could not be made"
ended=$SECONDS
say ""
say "pictures: $out/index.html   logs: $out/logs"
say "demo: done in $((ended - begun)) s, $((ended - run_begun)) of them after the build"
