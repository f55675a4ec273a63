# Running suites: several at a time, each on its island, and once more what failed (sourced by test.sh, not run).
# Needs scripts/test/{suites,tally,leftovers}.sh, and `isolation`, which is empty where there are no namespaces. Sets run, run_disk; results are $run/results/SUITE: "passed failed skipped
# flaky seconds", logs $run/logs/SUITE.

# Suites at a time: tests of whole jobs wait more than they compute.
streams=${HAYASE_TEST_STREAMS:-3}
# If more suites than this fail, they are not flaky, so they are not retried.
again_max=2

declare -A suite_of=() started=()

# run_begin: makes the directories of this run, and removes those of runs that were killed. They are locked as long as
# their run lives, so that the number of a dead process that lives again means nothing.
run_begin() {
  local parent
  for parent in "${TMPDIR:-/tmp}" "${HAYASE_WORK_DIR:-/var/tmp}"; do remove_dead_runs "$parent"; done
  remove_dead_directories
  run=$(mktemp -d "${TMPDIR:-/tmp}/hayase-run.XXXXXX")
  run_disk=$(mktemp -d "${HAYASE_WORK_DIR:-/var/tmp}/hayase-run.XXXXXX")
  mkdir "$run/results" "$run/logs"
  exec 8>"$run/lock" 9>"$run_disk/lock"
  flock 8 && flock 9
  chmod 755 "$run" "$run_disk"
}

remove_dead_runs() {
  local directory
  for directory in "$1"/hayase-run.*; do
    [ -e "$directory/lock" ] && flock --nonblock "$directory/lock" true || continue
    say "removing what a run that was killed has left: $directory"
    remove_run "$directory"
  done
}

# remove_run DIRECTORY: also what is mounted there, which can be only where a suite had no mount namespace.
remove_run() {
  local mount loop
  cut -d' ' -f5 /proc/self/mountinfo | grep "^$1/" | sort -r | while read -r mount; do umount -l "$mount"; done
  loops_below "$1" | while read -r loop; do losetup --detach "$loop" 2>/dev/null; done
  rm -rf --one-file-system "$1"
}

run_end() {
  local pid
  for pid in "${!suite_of[@]}"; do end_island "$pid"; done
  end_fetch
  end_load
  wait
  exec 8>&- 9>&-
  [ -z "${run:-}" ] || remove_run "$run"
  [ -z "${run_disk:-}" ] || remove_run "$run_disk"
}

fetch_pid=

# start_fetch SUITE...: the same while other suites run, which come first: most of it waits for a registry, and what it
# compiles takes two minutes.
start_fetch() {
  (fetch "$@") >"$run/fetch.log" 2>&1 </dev/null 8>&- 9>&- &
  fetch_pid=$!
}

# finish_fetch: returns when all is there, and prints what was said about it.
finish_fetch() {
  [ -n "$fetch_pid" ] || return 0
  wait "$fetch_pid" 2>/dev/null # which may have been waited for among the suites
  fetch_pid=
  cat "$run/fetch.log"
}

# end_fetch: whatever it is doing.
end_fetch() {
  [ -n "$fetch_pid" ] || return 0
  pkill -TERM -P "$fetch_pid"
  kill "$fetch_pid" 2>/dev/null
  fetch_pid=
}

load_pid=

# start_load CMD: something else that this machine is busy with, in a session of its own. It ends with this run, however
# that ends: its first process waits for the lock of the run.
start_load() {
  # shellcheck disable=SC2016 # for the other shell
  setsid bash -c 'bash -c "$1" & flock "$2" true; pkill -KILL -s "$$"' load "$1" "$run/lock" \
    >"$run/load.log" 2>&1 </dev/null 8>&- 9>&- &
  load_pid=$!
}

# load_is_over: when it ended before the run; its last words.
load_is_over() {
  [ -n "$load_pid" ] && [ "$(pgrep -c -s "$load_pid")" -lt 3 ] && tail -n 3 "$run/load.log"
}

end_load() {
  [ -n "$load_pid" ] || return 0
  pkill -KILL -s "$load_pid"
  wait "$load_pid" 2>/dev/null # or the shell says that it was killed
  load_pid=
}

# end_island PID: namespaces end with their first process, whatever is in them; a process group is asked.
end_island() {
  local tries=150
  if [ -n "$isolation" ]; then kill -KILL "$1" 2>/dev/null; return; fi
  kill -TERM "$1" 2>/dev/null
  while kill -0 "$1" 2>/dev/null && [ $((tries -= 1)) -gt 0 ]; do sleep 0.1; done
  kill -KILL -- "-$1" 2>/dev/null
}

can_isolate() { [ "$(id -u)" = 0 ] && unshare --mount --pid --net --ipc --uts --fork --mount-proc true 2>/dev/null; }

# island SUITE: becomes the process that runs it. It ends when this one does, however that ends.
island() {
  local apart=(setsid)
  if [ -n "$isolation" ]; then
    apart=(unshare --mount --pid --ipc --uts --fork --kill-child --mount-proc --propagation private)
    needs_network "$1" || apart+=(--net)
  fi
  exec 8>&- 9>&-
  # Who started this run in the background may have made it, and all that it starts, deaf for these signals.
  exec env --default-signal=INT,QUIT,HUP setpriv --pdeathsig KILL "${apart[@]}" \
    bash scripts/test/island.sh "$1" "$run/islands/$1" "$run_disk/islands/$1"
}

start_suite() {
  mkdir -p "$run/islands" "$run_disk/islands"
  (island "$1") >"$run/logs/$1" 2>&1 </dev/null &
  suite_of[$!]=$1
  started[$1]=$SECONDS
}

# finish_suite PID STATUS
finish_suite() {
  local name=${suite_of[$1]} status=$2 p f s k seconds
  unset "suite_of[$1]"
  seconds=$((SECONDS - started[$name]))
  remove_run "$run/islands/$name"
  remove_run "$run_disk/islands/$name"
  read -r p f s k < <(count "$run/logs/$name")
  if [ "$status" != 0 ] && [ "$f" = 0 ]; then f=1; fi
  if [ "$status" = 0 ] && [ $((p + f + s)) = 0 ]; then
    echo "the suite ran nothing" >>"$run/logs/$name"
    f=1
  fi
  echo "$p $f $s $k $seconds" >"$run/results/$name"
  printf '%-14s %5d passed %3d failed %3d skipped %3d flaky %6d s\n' "$name" "$p" "$f" "$s" "$k" "$seconds"
  [ "$f" != 0 ] || return 0
  say "--- $name"
  failures_of "$run/logs/$name" | sed 's/^/    /'
  say "---"
}

# run_suites N SUITE...: N at a time, in this order; of the suites of our end-to-end tests one at a time, since each
# runs several jobs at once.
run_suites() {
  local most=$1 pid status next queue
  shift
  queue=("$@")
  while [ ${#queue[@]} -gt 0 ] || [ ${#suite_of[@]} -gt 0 ]; do
    while [ ${#suite_of[@]} -lt "$most" ] && next=$(next_suite "${queue[@]}"); do
      start_suite "$next"
      mapfile -t queue < <(printf '%s\n' "${queue[@]}" | awk -v next_one="$next" '$0 != next_one || done++')
      [ -n "${queue[0]:-}" ] || queue=()
    done
    status=0
    wait -n -p pid "${!suite_of[@]}" || status=$?
    finish_suite "$pid" "$status"
  done
}

# next_suite SUITE...: the first that may start now.
next_suite() {
  local name
  for name; do
    case "$name ${suite_of[*]-}" in e2e*\ e2e*) continue ;; esac
    say "$name"
    return
  done
  return 1
}

# has_failed SUITE
has_failed() {
  local p f
  read -r p f _ <"$run/results/$1" && [ "$f" != 0 ]
}

# run_again SUITE...: those that failed, once more and alone. What passes then is flaky, and is named.
run_again() {
  local name names failed=() k
  for name in "$@"; do
    case $name in unit | e2e*) continue ;; esac # have tried their tests twice themselves
    ! has_failed "$name" || failed+=("$name")
  done
  [ ${#failed[@]} -gt 0 ] && [ ${#failed[@]} -le $again_max ] || return 0
  for name in "${failed[@]}"; do
    say "once more, alone: $name"
    names=$(failed_names "$run/logs/$name")
    run_suites 1 "$name"
    ! has_failed "$name" || continue
    for k in ${names:-$name}; do echo "FLAKY $k ($name)" >>"$run/logs/$name"; done
    read -r p f s k seconds <"$run/results/$name"
    echo "$p $f $s $((k + $(wc -w <<<"${names:-$name}"))) $seconds" >"$run/results/$name"
  done
}
