#!/usr/bin/env bash
# Shows the cache area on two nodes of this machine: programs write at the nodes' speed, the bytes drain to a
# directory that stands for shared storage; servers are killed in the middle; then everything is killed, and
# `hayase resume` brings the rest. Every checksum in the directory is compared in the end.
#
#   HAYASE_BIN=target/release/hayase demo/cache.sh [--mib N]     MiB written by each node (192)
#
# Needs root for namespaces and images.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
. scripts/prepare.sh
. scripts/job.sh

mib=192
while [ $# -gt 0 ]; do
  case $1 in
    --mib) mib=${2:?} && shift ;;
    *) sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
  shift
done
hayase=$(readlink -f "${HAYASE_BIN:?the binary to show}") || exit 2

title() { printf '\n== %s\n' "$*"; }
must() { "$@" || die "this failed: $*"; }
seconds() { date +%s.%N; }
since() { awk -v a="$1" -v b="$(seconds)" 'BEGIN { printf "%.2f", b - a }'; }
obstacles=$(fuse_obstacle)$(node_obstacles)
if [ -n "$obstacles" ]; then
  say "The cache area is not shown here: $obstacles"
  exit 0
fi

files=8
tier=$(mktemp -d "${HAYASE_WORK_DIR:-/var/tmp}/hayase-tier.XXXXXX")
sums=$tier.sums
cleaned() {
  fsfreeze -u "$tier" 2>/dev/null
  umount "$tier" 2>/dev/null
  rm -rf --one-file-system "$tier" "$sums" "$sums.new" "$tier.img"
}
# A small file system, which can be made to stand still: so that there is something to kill in the middle of.
truncate -s $((5 * mib + 256))M "$tier.img"
mkfs.ext4 -q -F "$tier.img" && mount -o loop "$tier.img" "$tier" && rmdir "$tier/lost+found" ||
  { cleaned; die "no file system can be made for the demonstration"; }

# daemons VERB [NODE]: process numbers of this job's daemons.
daemons() {
  local dir line
  for dir in /proc/[0-9]*; do
    line=$(tr '\0' ' ' 2>/dev/null <"$dir/cmdline") || continue
    case $line in
      *" $1 "*"$HAYASE_JOB"*) ;;
      *) continue ;;
    esac
    case "$line " in *"--node ${2:-}"*) say "${dir#/proc/}" ;; esac
  done
}
# write NODE ROUND: that node's files of a round, and their checksums beside the tier.
write() {
  local dir
  dir=$(area "$1" cache)/node-$1
  on "$1" sh -c 'cd "$1" && i=0 && while [ $i -lt "$2" ]; do
      sum=$(head -c "$3" /dev/urandom | tee "$4-$i" | sha256sum) || exit 1
      echo "${sum%% *}  $5/$4-$i"; i=$((i + 1)); done' \
    sh "$dir" "$files" $((mib * 1048576 / files)) "$2" "node-$1" >>"$sums.new"
}
in_tier() { find "$tier" -type f -not -name '.hayase-partial-*' | wc -l; }
# some_daemons VERB [NODE]: the same, and there are some.
some_daemons() {
  local pids
  pids=$(daemons "$@")
  [ -n "$pids" ] || die "no $1 runs that could be killed"
  say "$pids"
}

# The job first: it uses the tier. In a shell of its own, since job_end ends the script.
ended() {
  fsfreeze -u "$tier" 2>/dev/null # Or it would wait for ever.
  (job_end "$1")
  cleaned
  exit "$1"
}
trap 'cleaned' EXIT # Until job_up sets one.
job_up 2 --shared $((4 * mib + 512))MiB --tier "$tier" || { trap 'ended $?' EXIT; die "the job does not come up"; }
trap 'ended $?' EXIT

on 0 mkdir "$(area 0 cache)/node-0" "$(area 0 cache)/node-1"

title "two nodes write $((2 * mib)) MiB into cache while the shared storage stands still"
must fsfreeze -f "$tier"
: >"$sums.new"
start=$(seconds)
write 0 first &
write 1 first || die "writing failed"
wait $! || die "writing failed"
say "written in $(since "$start") s, with checksums; the directory has $(in_tier) of $((2 * files)) files by then"
must "$hayase" status

title "the shared storage goes on; kill -9 of both servers while they drain"
# Known before it goes on: looking for them takes longer than the drain may.
servers=$(some_daemons serve 0 && some_daemons serve 1) || exit 1
must fsfreeze -u "$tier"
for _ in $(seq 3000); do
  [ "$(in_tier)" = 0 ] || break
  sleep 0.01
done
arrived=$(in_tier)
[ "$arrived" != 0 ] || die "nothing drains"
# shellcheck disable=SC2086 # Numbers.
must kill -9 $servers
say "killed when the directory had $arrived files"
arrived=$(in_tier)
[ "$arrived" -lt $((2 * files)) ] || die "everything had drained before the kill: write more (--mib)"
must "$hayase" flush
[ "$(in_tier)" = $((2 * files)) ] || die "the directory has $(in_tier) of $((2 * files)) files after the flush"
say "flushed by the servers that came after them; the directory has $(in_tier) files"

title "two nodes write as much again, and the whole job is killed"
must fsfreeze -f "$tier"
write 0 second &
write 1 second || die "writing failed"
wait $! || die "writing failed"
all=$(some_daemons node && some_daemons serve && some_daemons serve-mount) || exit 1
# shellcheck disable=SC2086 # Numbers; some end with the first.
kill -9 $all 2>/dev/null
must fsfreeze -u "$tier" # Who waits for it is gone only now.
arrived=$(in_tier)
[ "$arrived" -lt $((4 * files)) ] || die "everything had drained before the kill"
say "the directory has $arrived of $((4 * files)) files"

title "hayase resume"
status=1
for _ in $(seq 50); do
  resumed=$("$hayase" resume "$HAYASE_JOB" 2>&1) && status=0 && break
  sleep 0.2 # The kernel lets go of the dead nodes' mounts.
done
say "$resumed"
[ $status = 0 ] || die "resume did not come to its end"

title "every checksum"
sort -u "$sums.new" >"$sums"
[ "$(wc -l <"$sums")" = $((4 * files)) ] || die "not all checksums are known"
(cd "$tier" && sha256sum --quiet -c "$sums") || die "the directory has other bytes"
found=$(find "$tier" -mindepth 1 -not -type d -not -name '.hayase-partial-*')
[ "$(wc -l <<<"$found")" = $((4 * files)) ] || die "the directory has other files than those: $found"
say "$((4 * files)) files in the directory, and no others, are what the programs wrote"
left=$(find "$tier" -name '.hayase-partial-*' | wc -l)
[ "$left" = 0 ] || say "beside them, hidden: $left files that flushes had begun when they were killed"
