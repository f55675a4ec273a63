#!/usr/bin/env bash
# Runs one suite so that it can disturb no other one, and fails it when it leaves something behind.
#
#   scripts/test/island.sh SUITE SCRATCH DISK
#
# As root the caller (scripts/test/schedule.sh) has made namespaces for it: this script is the first process of its own
# PID namespace, and has mounts and a host name of its own, and a network if it can do with loopback alone. /tmp and /var/tmp are directories below SCRATCH
# and DISK here. Whatever a suite leaves ends with this process; but it is named, and it is a failure of that suite.
# Without root, or without namespaces, the suite is a process group; what it leaves is found by SCRATCH in its
# environment.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
. scripts/prepare.sh
. scripts/test/suites.sh
. scripts/test/leftovers.sh
# Suites that try this script (scripts/test/check.sh).
[ -z "${HAYASE_TEST_SUITES:-}" ] || . "$HAYASE_TEST_SUITES"

suite=$1 scratch=$2 disk=$3
export HAYASE_TEST_SCRATCH=$scratch
isolated=
[ $$ != 1 ] || isolated=1

# hides DIRECTORY: something that tests need lies there, so that it may not be hidden.
hides() {
  local needed
  for needed in "$PWD" "$(realpath -m "$(target_dir)")" "${CARGO_HOME:-$HOME/.cargo}" "${RUSTUP_HOME:-$HOME/.rustup}"; do
    case $needed/ in "$1"/*) return 0 ;; esac
  done
  return 1
}

# place OWN DESCRIPTOR SHARED: prints where the suite finds its own directory: at the path of the shared one if that may
# be. By an open descriptor, since one of the two may lie below the other's place.
place() {
  if [ -n "$isolated" ] && ! hides "$3" && mount --no-canonicalize --bind "/proc/self/fd/$2" "$3"; then say "$3"; else say "$1"; fi
}

# own_file_system DIRECTORY: mounts an XFS there, in a sparse file below it; elsewhere it stays what it is. ext4 without a
# journal looks at each inode that was freed in the last minutes before it takes one: where thousands are, that costs
# ten times what tests do. It goes with the mounts of this island, and so does its loop device. Not larger than what is
# free: a write into a sparse file on a full disk is an I/O error there.
own_file_system() {
  local free
  free=$(df -Pk "$1" | awk 'NR == 2 { print int($4 / 2 / 1048576) }')
  if [ "${free:-0}" -ge 4 ] && truncate -s "$((free < 24 ? free : 24))G" "$1/image" && mkfs.xfs -q "$1/image" >/dev/null &&
    mount -o loop,discard "$1/image" "$1"; then
    say "the suite's /tmp is an XFS"
    return
  fi
  rm -f "$1/image"
  say "the suite's /tmp is on $(stat -f -c %T "$1")"
  return 1
}

mkdir -p "$scratch" "$disk"
own_loop=
if [ -n "$isolated" ] && has_small_files "$suite" && own_file_system "$scratch"; then
  own_loop=$(findmnt --noheadings --output SOURCE --target "$scratch")
fi
chmod 1777 "$scratch" "$disk"
if [ -n "$isolated" ]; then
  needs_network "$suite" || ip link set lo up
  mkdir -p /run/netns && mount -t tmpfs -o mode=755 tmpfs /run/netns
  mount -t tmpfs -o mode=1777 tmpfs /dev/shm
fi
exec 6<"$scratch" 7<"$disk"
scratch=$(place "$scratch" 6 /tmp)
disk=$(place "$disk" 7 /var/tmp)
exec 6<&- 7<&-
# Names of their own on every island: the kernel shows the files behind loop devices to all of them.
TMPDIR=$(mktemp -d "$scratch/XXXXXX") && HAYASE_WORK_DIR=$(mktemp -d "$disk/XXXXXX") || exit 1
chmod 1777 "$TMPDIR" "$HAYASE_WORK_DIR"
export TMPDIR HAYASE_WORK_DIR
unset HAYASE_JOB HAYASE_RUNTIME_DIR HAYASE_E2E_DIR

mounts_before=$(mounts)
set -m
("suite_$suite") </dev/null &
running=$!
set +m
# Ends the suite, with time to clean up after itself.
end_suite() {
  local tries=100
  kill -TERM -- "-$running" 2>/dev/null
  while kill -0 "$running" 2>/dev/null && [ $((tries -= 1)) -gt 0 ]; do sleep 0.1; done
  kill -KILL -- "-$running" 2>/dev/null
}
trap 'end_suite; exit 130' INT TERM

seconds_max=$(seconds_max "$suite")
until ! kill -0 "$running" 2>/dev/null; do
  if [ "$SECONDS" -ge "$seconds_max" ]; then
    say "FAILED $suite: not done after $seconds_max s"
    end_suite
    break
  fi
  sleep 0.2
done
status=0
wait "$running" || status=$?
name_leftovers || status=1
# The caller does not see what lies in a file system of ours.
[ -z "$own_loop" ] || loops_left | while read -r _ _ name; do losetup --detach "$name"; done
exit $status
