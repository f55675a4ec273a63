#!/usr/bin/env bash
# Every test of the repository; the last line tells how it went.
#
#   ./test.sh                 all suites that this machine can run
#   ./test.sh --long          also the long ones: many simulations, long searches in decoders, millions of files, mpi4py
#                             in an area, versitygw, and both commands of the README on a fresh Debian 12
#   ./test.sh --only SUITE...    only these; `foreign` means all in which programs of others use a job. ./test.sh --list
#                             names the suites
#   ./test.sh --only SUITE... --times N    N times, to find what fails now and then; continues a series that was cut
#   ./test.sh --load CMD      runs CMD at the same time, so that the machine is busy, and ends it after the last suite:
#                             --load "stress-ng --cpu 4 --io 2"
#   ./test.sh --write-docs    at the end, also writes counts and minutes of each suite into docs/results/tests.md
#
# Exit status: 0 when nothing failed. A skip is printed with its reason at the end; where this machine has all that the
# tests need (root, /dev/fuse, namespaces) a skip is a failure. A test that passes only at its second try is printed as
# `flaky NAME`. Each suite runs on an island (scripts/test/island.sh): what it leaves behind fails it, and no other one.
set -uo pipefail
cd "$(dirname "$0")" || exit 1
. scripts/prepare.sh
. scripts/test/suites.sh
. scripts/test/leftovers.sh
. scripts/test/tally.sh
. scripts/test/schedule.sh
. scripts/test/times.sh
. scripts/test/report.sh

# The comment above, up to the exit status.
usage() { sed -n '2,/^# Exit status/{/^# Exit status/d;s/^# \{0,1\}//p}' "$0"; }

suites=("${first_suites[@]}" "${island_suites[@]}")
only=() long='' times='' load='' write_docs=''
while [ $# -gt 0 ]; do
  case $1 in
    --long) long=1 ;;
    --only)
      [[ ${2:--} != -* ]] || die "--only needs the name of a suite: ./test.sh --list"
      while [ $# -gt 1 ] && [[ $2 != -* ]]; do
        shift
        if [ "$1" = foreign ]; then only+=("${foreign_suites[@]}"); else only+=("$1"); fi
      done
      ;;
    --times) shift; times=${1:?--times needs a number} ;;
    --load) shift; load=${1:?--load needs a command, for example "stress-ng --cpu 4 --io 2"} ;;
    --write-docs) write_docs=1 ;;
    --list) printf '%s\n' "${suites[@]}" "${long_suites[@]}"; exit 0 ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
  shift
done
[ -z "$long" ] || suites+=("${long_suites[@]}")
for name in ${only[@]+"${only[@]}"}; do
  case " ${suites[*]} ${long_suites[*]} " in *" $name "*) ;; *) die "there is no suite $name: ./test.sh --list" ;; esac
done
case $times in *[!0-9]* | 0*) die "--times $times: expected a number from 1 on, for example 10" ;; esac
[ -z "$times" ] || [ ${#only[@]} != 0 ] || die "--times needs --only SUITE"
[ -z "$times" ] || [ -z "$write_docs" ] || die "--write-docs is about one run, not with --times"
# wanted SUITE...: those of them that were asked for, in this order.
wanted() {
  local name
  for name; do
    if [ ${#only[@]} = 0 ]; then
      case " ${suites[*]} " in *" $name "*) say "$name" ;; esac
    else
      case " ${only[*]} " in *" $name "*) say "$name" ;; esac
    fi
  done
}

# --- room ---

# Room that a whole run takes at most, in GiB: what cargo builds, and the areas of the jobs that run at once.
room_of_builds=6
room_of_areas=21
targets=$(target_dir)

# on_disk FIELD DIR: of df(1), in KiB where it is a size.
on_disk() { df -Pk "$2" 2>/dev/null | awk -v field="$1" 'NR == 2 { print $field }'; }

# has_room DIR GIB VARIABLE: where another directory is named
has_room() {
  local free
  free=$(on_disk 4 "$1")
  [ -z "$free" ] || [ $((free >> 20)) -ge "$2" ] ||
    die "$1 has $((free >> 20)) GiB free, and all suites together need $2: free some, set $3 to a directory with more, or choose suites with --only"
}

# Suites that meet a full disk fail in ways that look like anything else.
check_room() {
  local builds=0 variable directory needed
  mkdir -p "$targets" || die "there is no directory for what cargo builds"
  [ -d "$targets/debug/.fingerprint" ] || builds=$room_of_builds
  has_room "$targets" "$builds" CARGO_TARGET_DIR
  for variable in TMPDIR HAYASE_WORK_DIR; do
    directory=${!variable:-/tmp}
    [ "$variable" = TMPDIR ] || directory=${!variable:-/var/tmp}
    needed=$room_of_areas
    [ "$(on_disk 1 "$directory")" != "$(on_disk 1 "$targets")" ] || needed=$((needed + builds))
    has_room "$directory" "$needed" "$variable"
  done
}

# --- now ---

trap run_end EXIT
trap 'exit 130' INT TERM
run_begin
[ ${#only[@]} != 0 ] || check_room
# The simulation's seeds: the same for a commit wherever it is tested.
HAYASE_COMMIT=$(git rev-parse HEAD 2>/dev/null) && export HAYASE_COMMIT
export CARGO_TERM_COLOR=never RUST_BACKTRACE=${HAYASE_BACKTRACE:-0}
# In a checkout that nobody works in each thing is built once: what makes building it again faster takes twice its room.
[ -n "$(ls "$targets/debug/incremental" 2>/dev/null)" ] || export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}
mapfile -t first < <(wanted "${first_suites[@]}")
mapfile -t second < <(wanted "${island_suites[@]}")
mapfile -t last < <(wanted "${long_suites[@]}")
all=(${first[@]+"${first[@]}"} ${second[@]+"${second[@]}"} ${last[@]+"${last[@]}"})

prepare_packages build || die "nothing can be built without these packages"
prepare_packages run test || warn "some suites will be skipped"
prepare_cargo
if [ -n "$load" ]; then
  case $load in stress-ng*) prepare_packages load || die "--load needs stress-ng" ;; esac
  has "${load%% *}" || die "--load ${load%% *}: there is no such command"
  start_load "$load"
fi
obstacles=$(node_obstacles)
isolation=
! can_isolate || isolation=1
say "$(cargo --version), Linux $(uname -r), $(nproc) cores"
[ -z "$obstacles" ] || printf 'this machine can not run everything:\n%s\n' "$obstacles"
time_links
for name in ${first[@]+"${first[@]}"}; do
  # Not before: some of what is fetched needs what was built.
  [ "$name" != unit ] || start_fetch ${second[@]+"${second[@]}"} ${last[@]+"${last[@]}"}
  run_suites 1 "$name"
done
for name in ${second[@]+"${second[@]}"} ${last[@]+"${last[@]}"}; do
  ! needs_programs "$name" || [ -s "$(programs_list)" ] || die "nothing is built: ./test.sh --only build"
done
[ -n "$fetch_pid" ] || start_fetch ${second[@]+"${second[@]}"} ${last[@]+"${last[@]}"}
finish_fetch
if [ -n "$times" ]; then
  status=0
  run_times "$times" "${all[@]}" || status=1
  ! load_is_over || { say "the load ended before the tests did"; status=1; }
  exit $status
fi
run_suites "$streams" ${second[@]+"${second[@]}"}
run_again ${second[@]+"${second[@]}"}
for name in ${last[@]+"${last[@]}"}; do
  run_suites 1 "$name"
  record_long "$name"
done
[ -z "$write_docs" ] || write_docs "${first_suites[@]}" "${island_suites[@]}" "${long_suites[@]}"
report "${all[@]}"
