#!/usr/bin/env bash
# Tests of what runs the tests: suites that leave things behind, hang, fail once, and a run that is killed. Prints `ok`
# and `FAILED` lines.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
. scripts/prepare.sh
. scripts/test/suites.sh
. scripts/test/leftovers.sh
. scripts/test/tally.sh
. scripts/test/schedule.sh
. scripts/test/times.sh
. scripts/test/report.sh

# Not in a directory for temporary files: these are other ones for suites.
own_directory tests-of-tests || exit 1
work=$own
export TMPDIR=$work HAYASE_WORK_DIR=$work HAYASE_TEST_SUITES=$work/suites HAYASE_TEST_LEFTOVER_SECONDS=1
isolation=
! can_isolate || isolation=1
trap 'run_end; rm -rf "$work"' EXIT

cat >"$HAYASE_TEST_SUITES" <<'SUITES'
suite_good() { echo "ok good_test 1.50 s"; }
suite_bad() { echo "FAILED bad_test: it is bad"; return 1; }
suite_empty() { :; }
suite_process() { echo "ok process_test"; setsid sleep 1000 & }
suite_mount() { echo "ok mount_test"; mkdir "$TMPDIR/there" && mount -t tmpfs tmpfs "$TMPDIR/there"; }
suite_file() { echo "ok file_test"; touch "$TMPDIR/hayase-forgotten"; }
suite_loop() { echo "ok loop_test"; truncate -s 1M "$HAYASE_WORK_DIR/image" && losetup --find "$HAYASE_WORK_DIR/image"; }
suite_network() { ip -br addr show; ip netns list; echo "ok network_test"; }
suite_sleep() { echo "ok sleep_test"; sleep 1000; }
suite_signals() { sh -c 'kill -INT $$; echo deaf'; echo "ok signals_test"; }
suite_hang() { echo "ok hang_test"; sleep 1000; }
suite_once() {
  [ ! -e "$ONCE" ] || { echo "ok once_test"; return; }
  touch "$ONCE"
  echo "FAILED once_test"
  return 1
}
seconds_max() { case $1 in hang) echo 1 ;; *) echo 100 ;; esac; }
needs_network() { false; }
SUITES
export ONCE=$work/once
needs_network() { false; }

failures=0
# try NAME: one test, a function.
try() {
  if "$1" >"$work/said" 2>&1; then say "ok runner_$1"; else
    say "FAILED runner_$1"
    cat "$work/said"
    failures=$((failures + 1))
  fi
}
# comes_to SUITE "PASSED FAILED SKIPPED FLAKY" [WORDS]: checks the counts of a suite and the words in its log.
comes_to() {
  run_suites 1 "$1"
  [ "$(cut -d' ' -f1-4 "$run/results/$1")" = "$2" ] || { cat "$run/results/$1" "$run/logs/$1"; return 1; }
  [ -z "${3:-}" ] || grep -q -e "$3" "$run/logs/$1" || { cat "$run/logs/$1"; return 1; }
}
a_good_suite_passes() { comes_to good "1 0 0 0" && [ "$(times_of "$run/logs/good")" = "1.50 good good_test" ]; }
a_bad_suite_fails() { comes_to bad "0 1 0 0" "it is bad"; }
a_suite_that_runs_nothing_fails() { comes_to empty "0 1 0 0" "ran nothing"; }
a_process_that_is_left_fails_its_suite() { comes_to process "1 1 0 0" "process .*sleep 1000" && ! pgrep -f 'sleep 1000'; }
a_file_that_is_left_fails_its_suite() { comes_to file "1 1 0 0" "file .*hayase-forgotten"; }
a_mount_that_is_left_fails_its_suite() { comes_to mount "1 1 0 0" "mount .*there" && ! grep there /proc/self/mountinfo; }
a_loop_device_that_is_left_fails_its_suite() {
  comes_to loop "1 1 0 0" "loop device /dev/loop" && [ -z "$(losetup --noheadings --list | grep "$work")" ]
}
a_suite_has_a_network_of_its_own() { comes_to network "1 0 0 0" "^lo .*127.0.0.1" && ! grep -v '^lo\|^ok' "$run/logs/network"; }
programs_of_a_suite_hear_sigint() {
  trap '' INT QUIT HUP
  comes_to signals "1 0 0 0" && ! grep -x deaf "$run/logs/signals"
  local status=$?
  trap - INT QUIT HUP
  return $status
}
a_suite_that_hangs_is_ended() { comes_to hang "1 1 0 0" "not done after 1 s"; }
what_passes_the_second_time_is_flaky() {
  comes_to once "0 1 0 0" && run_again once && [ "$(cut -d' ' -f1-4 "$run/results/once")" = "1 0 0 1" ] &&
    grep -q '^FLAKY once_test (once)' "$run/logs/once"
}
end_to_end_tests_run_once_at_a_time() {
  local -A suite_of=([1]=unit [2]=e2e)
  [ "$(next_suite e2e-6.1 gfarm)" = gfarm ] && ! next_suite e2e-6.1 && suite_of=([1]=unit) && [ "$(next_suite e2e-6.1 gfarm)" = e2e-6.1 ]
}
results_of_all_kinds_are_counted() {
  printf '%s\n' 'test result: FAILED. 3 passed; 1 failed; 0 ignored' 'Summary: 5 passed, 1 failed' 'ok a' 'FLAKY b (x)' \
    'SKIP 28 tests of c: d' 'SKIP e: f' 'FAILED g' 'test h ... ok <2.000s>' >"$work/log"
  [ "$(count "$work/log")" = "10 3 29 1" ] && [ "$(times_of "$work/log")" = "2.000 log h" ]
}
# A run that is killed ends with all that it started, and with its load; the next one removes its files.
a_run_that_is_killed_leaves_nothing() {
  CARGO_TARGET_DIR=$work setsid bash -c '. scripts/prepare.sh; for part in suites leftovers tally schedule; do . scripts/test/$part.sh; done
    . "$HAYASE_TEST_SUITES"; isolation=$1; run_begin; start_load "sleep 2000"; own_directory guided
    echo $run $run_disk $own >$2; run_suites 1 sleep' \
    run "$isolation" "$work/killed" >"$work/killed.log" 2>&1 &
  local killed=$! directory
  wait_until 10 sh -c "grep -q ok '$work'/hayase-run.*/logs/sleep" && wait_until 10 pgrep -f 'slee[p] 2000' || return 1
  CARGO_TARGET_DIR=$work remove_dead_directories
  remove_dead_runs "$work"
  for directory in $(cat "$work/killed"); do [ -e "$directory" ] || return 1; done
  kill -KILL "$killed"
  wait "$killed" 2>/dev/null
  [ -z "$isolation" ] || wait_until 10 sh -c "! pgrep -f 'slee[p] 1000'" || return 1
  wait_until 10 sh -c "! pgrep -f 'slee[p] 2000'" || return 1
  remove_dead_runs "$work"
  CARGO_TARGET_DIR=$work remove_dead_directories
  for directory in $(cat "$work/killed"); do [ ! -e "$directory" ] || return 1; done
  [ -d "$run" ] && [ -d "$work" ]
}
a_load_runs_until_the_run_ends() {
  start_load 'echo begun; sleep 3000 & wait' && wait_until 10 pgrep -f 'slee[p] 3000' && ! load_is_over && end_load &&
    wait_until 10 sh -c "! pgrep -f 'slee[p] 3000'"
}
a_load_that_ends_early_is_named() {
  start_load 'echo no such load; false' && wait_until 10 load_is_over && load_is_over | grep -x 'no such load'
  local status=$?
  end_load
  return $status
}
# series SUITE "RESULT" LOG...: the result of each run of a series of two; the second one is good.
series() {
  mkdir -p "$work/series"
  echo "$2" >"$work/series/$1.1"
  echo "1 0 0 0 5" >"$work/series/$1.2"
  printf '%s\n' "$3" >"$work/series/$1.1.log"
  echo "ok a" >"$work/series/$1.2.log"
  tell_times "$work/series" 2 "$1" >"$work/series/said"
}
a_series_fails_with_any_of_its_runs() {
  series good "1 0 0 0 3" "ok a" || return 1
  ! series named "0 1 0 0 3" "FAILED it: why" && grep -q '^flaky it (named): failed in 1 of 2 runs' "$work/series/said" || return 1
  ! series nothing "0 1 0 0 3" "the suite ran nothing" &&
    grep -qx 'flaky nothing (no test named): failed in 1 of 2 runs' "$work/series/said" || return 1
  ! series skipped "0 0 3 0 3" "SKIP a: b" && grep -qx 'flaky skipped (all skipped): in 1 of 2 runs' "$work/series/said" || return 1
  ! series flaky "1 0 0 1 3" "FLAKY it (flaky)" && grep -q '^flaky it (flaky)' "$work/series/said"
}
seconds_are_counted_once() {
  local run=$work/kinds name
  mkdir -p "$run/results" "$run/logs"
  for name in format deny site build unit e2e bench fuzz-long; do
    echo "1 0 0 0 10" >"$run/results/$name"
    echo "ok a" >"$run/logs/$name"
  done
  printf 'compiled in 3 s\ncompiled in 4 s\n' >>"$run/logs/bench"
  [ "$(seconds_by_kind)" = "30 17 33" ]
}
flaky_tests_name_their_suite() {
  local suite=e2e-6.1
  failed_tests() { echo it; }
  in_package() { echo 'ok it 1.0 s'; }
  echo 'FAILED it 1.0 s' >"$work/log"
  # In a shell of its own, with its own functions.
  (try_again hayase-e2e dir program "$work/log")
  grep -qx 'FLAKY it (e2e-6.1, hayase-e2e)' "$work/log"
}
long_suites_are_on_their_page() {
  local run=$work/long page=$work/long_page
  mkdir -p "$run/results" "$run/logs"
  printf '| suite | result | seeds | seconds | date | commit |\n|---|---|---|---:|---|---|\n' >"$page"
  echo "4 1 0 0 70" >"$run/results/sim-cuts"
  printf 'first seed 7\nFAILED seeds_of_this_commit\nseed 12 of cuts\nHAYASE_SIM_SEED=15\nseed 12 again\n' >"$run/logs/sim-cuts"
  record_long sim-cuts "$page"
  echo "1 0 0 0 9" >"$run/results/appends-long"
  printf 'seed 8\nok a\n' >"$run/logs/appends-long"
  record_long appends-long "$page"
  grep -q '^| `sim-cuts` | FAILED (1) | 7, failed 12 15 | 70 | ' "$page" && grep -q '^| `appends-long` | passed | - | 9 | ' "$page" &&
    grep -qx '| `sim-tier` | not run | - | - | - | - |' "$page" && [ "$(grep -c '^| `' "$page")" = ${#long_suites[@]} ]
}
suites_are_on_their_page() {
  local run=$work/docs page=$work/tests_page real=docs/results/tests.md all=("${first_suites[@]}" "${island_suites[@]}" "${long_suites[@]}") name
  mkdir -p "$run/results"
  for name in "${all[@]}"; do about "$name" >/dev/null || { echo "about does not know $name"; return 1; }; done
  cp "$real" "$page"
  echo "4 1 2 0 90" >"$run/results/unit"
  write_docs "${all[@]}" -- "$page"
  rm "$run/results/unit"
  echo "3 0 0 0 30" >"$run/results/e2e"
  write_docs "${all[@]}" -- "$page"
  grep -q '^| `unit` | .* | 4 | 1 | 2 | 1.5 | `' "$page" && grep -q '^| `e2e` | .* | 3 | 0 | 0 | 0.5 | `' "$page" || return 1
  # Nothing but the figures of these two differs from the page as it is, which has every suite once.
  diff <(grep -v '^| `\(unit\|e2e\)` ' "$real") <(grep -v '^| `\(unit\|e2e\)` ' "$page") &&
    diff <(printf '%s\n' "${all[@]}") <(sed -n '/^<!-- end/q;s/^| `\([^`]*\)` | .*/\1/p' "$real")
}

run_begin
try a_good_suite_passes
try a_bad_suite_fails
try a_suite_that_runs_nothing_fails
try a_process_that_is_left_fails_its_suite
try a_file_that_is_left_fails_its_suite
if [ -n "$isolation" ]; then
  try a_mount_that_is_left_fails_its_suite
  try a_loop_device_that_is_left_fails_its_suite
  try a_suite_has_a_network_of_its_own
fi
try programs_of_a_suite_hear_sigint
try a_suite_that_hangs_is_ended
try what_passes_the_second_time_is_flaky
try end_to_end_tests_run_once_at_a_time
try results_of_all_kinds_are_counted
try a_run_that_is_killed_leaves_nothing
try a_load_runs_until_the_run_ends
try a_load_that_ends_early_is_named
try a_series_fails_with_any_of_its_runs
try seconds_are_counted_once
try flaky_tests_name_their_suite
try long_suites_are_on_their_page
try suites_are_on_their_page
[ "$failures" = 0 ]
