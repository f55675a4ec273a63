#!/usr/bin/env bash
# `hayase up --tier gfarm:///DIR` on nodes of a real Gfarm, which is started here: what is written in `cache` comes to Gfarm
# and what lies there is seen, names and moves, two jobs in front of one directory, servers of Gfarm and of the job that
# end in the middle, and a job that is killed. Prints `ok`, `FAILED` and `SKIP` lines.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
. scripts/prepare.sh
. tests/gfarm/cluster.sh

skip() { say "SKIP gfarm_cache: $1"; exit 0; }
[ "$(id -u)" = 0 ] || skip "nodes of namespaces need root"
[ -e /dev/fuse ] || skip "there is no /dev/fuse"
prepare_daemon_packages gfarm || skip "Gfarm's packages can not be installed"
unshare --net --uts --mount true 2>/dev/null || skip "namespaces may not be made here"

hayase=$(built hayase) || exit 1

# Not /tmp: that may be in memory, and the areas' images want a disk.
work=$(mktemp -d "${HAYASE_WORK_DIR:-/var/tmp}/hayase-gfarm-cache.XXXXXX")
export HAYASE_RUNTIME_DIR=$work/run
unset HAYASE_JOB
finish() {
  local node
  [ -z "${elsewhere:-}" ] || kill "$elsewhere" 2>/dev/null
  for node in 1 2; do [ ! -e "$work/job-$node" ] || job "$node" down --discard >/dev/null 2>&1; done
  cluster_down
  rm -rf --one-file-system "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM

failures=0
# try NAME: one test, a function.
try() {
  local start=$SECONDS
  if "$1" >"$work/out" 2>&1; then say "ok cache_$1 ($((SECONDS - start)) s)"; else
    say "FAILED cache_$1"
    tail -n 20 "$work/out"
    tail -n 8 "$work"/job-*/node-0/*.log 2>/dev/null
    failures=$((failures + 1))
  fi
}
# up NODE [OPTION...]: a job of that node alone, in front of gfarm:///project, which its area cache-NODE shows.
up() {
  local node=$1
  shift
  mkdir -p "$work/storage-$node" "$work/mount-$node"
  on "$node" "$hayase" up --job "gf$node" --storage "$work/storage-$node" --mount "$work/mount-$node" \
    --job-dir "$work/job-$node" --shared 300MiB --local 16MiB --tier gfarm:///project "$@"
}
# job NODE COMMAND...: of the job of that node.
job() {
  local node=$1
  shift
  on "$node" "$hayase" "$1" --job "$work/job-$node" "${@:2}"
}
flush() { on 0 timeout 90 "$hayase" flush --job "$work/job-$1" "${@:2}"; }
evict() { HAYASE_JOB=$work/job-$1 timeout 90 "$hayase" evict "$(cache "$1" "$2")"; }
cache() { say "$work/mount-$1/cache/${2:-}"; }
sum() { sha256sum <"$1"; }
# in_gfarm NAME FILE: another node's Gfarm tools find these bytes there.
in_gfarm() { [ "$(on 3 gfexport "/project/$1" | sha256sum)" = "$(sum "$2")" ]; }
# Whether unfinished uploads lie in a directory.
unfinished() { on 0 gfls -a "/project/$1" | grep -q hayase-partial; }
all_finished() { ! unfinished "$1"; }

# --- a directory of Gfarm, seen and filled ---

what_lies_there_is_read() {
  head -c 5000000 /dev/urandom >"$work/input" && on 2 gfreg "$work/input" /project/input || return 1
  # So slow that what is on its way can be met there.
  up 1 --tier-faults rate=40MiB && cmp "$work/input" "$(cache 1 input)" && [ "$(stat -c %s "$(cache 1 input)")" = 5000000 ]
}
what_is_written_comes_there() {
  mkdir "$(cache 1 out)" && head -c 30000000 /dev/urandom >"$work/large" && cp "$work/large" "$(cache 1 out/large)" &&
    printf 'small\n' >"$(cache 1 out/small)" && ln -s small "$(cache 1 out/link)" && chmod 640 "$(cache 1 out/small)" || return 1
  flush 1 --verify || return 1
  in_gfarm out/large "$work/large" && lies_on /project/out/large 1 || return 1
  on 3 gfls -l /project/out | grep -q -- '-rw-r-----.* small' && on 3 gfls -l /project/out | grep -q 'link -> small'
}
names_follow() {
  local out
  out=$(cache 1 out)
  printf 'second\n' >"$work/second" && cp "$work/second" "$out/small.new" && mv "$out/small.new" "$out/small" &&
    mv "$out/large" "$out/moved" && rm "$out/link" && mkdir "$out/gone" && rmdir "$out/gone" && flush 1 || return 1
  in_gfarm out/small "$work/second" && in_gfarm out/moved "$work/large" &&
    [ "$(on 3 gfls /project/out | sort | paste -sd,)" = moved,small ]
}
room_is_given_back_and_read_again() {
  evict 1 out/moved && cmp "$work/large" "$(cache 1 out/moved)"
}

# --- two jobs in front of one directory ---

another_job_sees_what_was_flushed() {
  up 2 && cmp "$work/large" "$(cache 2 out/moved)" || return 1
  # A version that somebody else has put there is seen by the next open, after a second at most.
  head -c 100000 /dev/urandom >"$work/third" && cp "$work/third" "$(cache 2 out/small)" && flush 2 || return 1
  wait_until 10 cmp "$work/third" "$(cache 1 out/small)"
}
two_versions_are_both_kept() {
  local small other
  small=$(cache 1 out/both)
  cp "$work/second" "$small" && flush 1 && wait_until 10 cmp "$work/second" "$(cache 2 out/both)" || return 1
  # Open for writing on one node, so that it is not flushed before the other one is done.
  exec 7>>"$small" && printf 'ours\n' >&7 && cp "$work/third" "$(cache 2 out/both)" && flush 2 || return 1
  exec 7>&-
  flush 1
  other=$(on 3 gfls /project/out | grep 'both.hayase-conflict') || return 1
  in_gfarm out/both "$work/third" && on 3 gfexport "/project/out/$other" | grep -q ours
}

# --- servers that end ---

a_file_server_that_ends_is_waited_for() {
  # New files may go to another host meanwhile; what only it has, is read again when it is back.
  spool_stop 1
  head -c 3000000 /dev/urandom >"$work/meanwhile" && cp "$work/meanwhile" "$(cache 1 meanwhile)" || return 1
  spool_start 1 && wait_until 20 spools_ready && flush 1 && in_gfarm meanwhile "$work/meanwhile" &&
    evict 1 meanwhile && cmp "$work/meanwhile" "$(cache 1 meanwhile)"
}
a_server_of_the_job_that_is_killed_goes_on() {
  local round pid
  mkdir -p "$(cache 1 killed)"
  for round in 1 2 3; do
    head -c 40000000 /dev/urandom >"$work/killed-$round" && cp "$work/killed-$round" "$(cache 1 "killed/$round")" || return 1
    wait_until 10 unfinished killed || { say "no upload was seen on its way"; return 1; }
    pid=$(pgrep -f -- "^[^ ]*hayase serve --job-dir $work/job-1 ") || return 1
    kill -KILL "$pid"
    wait_until 20 flush 1 || return 1
    in_gfarm "killed/$round" "$work/killed-$round" || return 1
  done
  wait_until 10 all_finished killed || { say "unfinished uploads are left"; return 1; }
}
# Also while a program of the job, which stands in its area, still writes, and a mount namespace that was made meanwhile
# keeps all mounts: what it writes until its end is not lost.
a_job_that_is_killed_is_resumed() {
  local pids writer
  spool_stop 1 && spool_stop 2 && spool_stop 3
  head -c 3000000 /dev/urandom >"$work/late" && cp "$work/late" "$(cache 1 late)" && sync "$(cache 1 late)" || return 1
  (cd "$(cache 1)" && exec tail -n +1 -f --pid=$$ "$work/lines" >written) &
  writer=$!
  echo first >>"$work/lines"
  unshare --mount --propagation private sleep infinity &
  elsewhere=$!
  wait_until 10 grep -q first "$(cache 1 written)" || return 1
  pids=$(pgrep -f -- "--job-dir $work/job-1( |\$)") || return 1
  # shellcheck disable=SC2086 # a list of process ids
  kill -KILL $pids
  for node in 1 2 3; do spool_start "$node"; done
  wait_until 20 spools_ready || return 1
  (sleep 2 && echo last >>"$work/lines" && sleep 2 && kill "$writer") &
  timeout 90 env GFARM_CONFIG_FILE="$cluster_dir/client.conf" \
    nsenter --net="/run/netns/$cluster_id-1" --uts="$cluster_dir/uts-1" "$hayase" resume --verify "$work/job-1" || return 1
  in_gfarm late "$work/late" && in_gfarm written "$work/lines" && kill "$elsewhere" && elsewhere=
}
a_job_ends_with_all_in_gfarm() {
  cp "$work/large" "$(cache 2 last)" && timeout 90 "$hayase" down --job "$work/job-2" && in_gfarm last "$work/large"
}

cluster_up "$work/gfarm" || { say "FAILED cache: the cluster did not start"; cluster_logs; exit 1; }
on 0 gfmkdir /project
try what_lies_there_is_read
try what_is_written_comes_there
try names_follow
try room_is_given_back_and_read_again
try another_job_sees_what_was_flushed
try two_versions_are_both_kept
try a_file_server_that_ends_is_waited_for
try a_server_of_the_job_that_is_killed_goes_on
try a_job_that_is_killed_is_resumed
try a_job_ends_with_all_in_gfarm

[ "$failures" = 0 ] || cluster_logs
[ "$failures" = 0 ]
