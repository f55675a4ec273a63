#!/usr/bin/env bash
# Every test of the repository, in two streams of suites; the last line tells how it went.
#
#   ./test.sh                 all suites that this machine can run
#   ./test.sh --long          also many simulations, long searches in decoders, millions of files, mpi4py in an area, versitygw,
#                             and both commands of the README in a fresh Debian 12 root
#   ./test.sh --only SUITE    one suite (may be given again); ./test.sh --list names them
#
# Exit status: 0 when nothing failed. A skip is printed with its reason at the end; where this machine has
# all that the tests need (root, /dev/fuse, namespaces) a skip is a failure.
set -uo pipefail
cd "$(dirname "$0")" || exit 1
. scripts/prepare.sh

usage() { sed -n '2,10s/^# \{0,1\}//p' "$0"; }

suites=(scripts format clippy tidy unit bench)
suites+=(e2e e2e-6.1 pjdfstest pjdfstest-6.1 fsx fsx-6.1 fio fio-6.1 fsx-cache fio-cache)
suites+=(mpi mpiio mpiio-foreign mpiio-faults mpiio-romio areas cached s3 gfarm ssh slurm user)
long_suites=(sim-long fuzz-long entries-long files-long areas-mpi4py s3-versitygw fresh-debian)

only=()
long=
while [ $# -gt 0 ]; do
  case $1 in
    --long) long=1 ;;
    --only) shift; only+=("${1:?--only needs the name of a suite}") ;;
    --list) printf '%s\n' "${suites[@]}" "${long_suites[@]}"; exit 0 ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
  shift
done
[ -z "$long" ] || suites+=("${long_suites[@]}")
for name in ${only[@]+"${only[@]}"}; do
  case " ${suites[*]} ${long_suites[*]} " in *" $name "*) ;; *) die "no suite $name; ./test.sh --list" ;; esac
done
[ ${#only[@]} = 0 ] || suites=("${only[@]}")

logs=$(mktemp -d "${TMPDIR:-/tmp}/hayase-test.XXXXXX")
# A line "passed failed skipped" for each suite that has ended.
counts=$(mktemp "${TMPDIR:-/tmp}/hayase-test-counts.XXXXXX")
# Suites that failed beside another one: tried once more, alone, if they are few.
again=$(mktemp "${TMPDIR:-/tmp}/hayase-test-again.XXXXXX")
again_max=2
beside=
running=
streams=()
# Ends the suite that is running, with time to clean up after itself.
end_suite() {
  local tries=100
  kill -TERM -- "-$running" 2>/dev/null
  while kill -0 "$running" 2>/dev/null && [ $((tries -= 1)) -gt 0 ]; do sleep 0.2; done
  kill -KILL -- "-$running" 2>/dev/null
}
# Ends the suite of this process, and the streams that it has started.
end_all() {
  [ -z "$running" ] || end_suite
  [ ${#streams[@]} = 0 ] || { kill -TERM "${streams[@]}"; wait "${streams[@]}"; } 2>/dev/null
}
trap 'end_all; rm -rf "$logs" "$counts" "$again"' EXIT
trap 'exit 130' INT TERM
# The simulation's seeds: the same for a commit wherever it is tested.
HAYASE_COMMIT=$(git rev-parse HEAD 2>/dev/null) && export HAYASE_COMMIT
export CARGO_TERM_COLOR=never RUST_BACKTRACE=${HAYASE_BACKTRACE:-0}

# --- the suites: each is a function that prints what happened and fails when something failed ---

suite_scripts() {
  local script failed=0
  for script in *.sh .ci/run demo/*.sh scripts/*.sh tests/*/*.sh; do
    [ -e "$script" ] || continue
    if bash -n "$script"; then echo "ok $script"; else echo "FAILED $script"; failed=1; fi
  done
  return $failed
}
suite_format() {
  cargo fmt --all --check && cargo fmt --manifest-path bench/Cargo.toml --check && echo "ok format"
}
suite_clippy() { cargo clippy --workspace --all-targets --locked -- -D warnings && echo "ok clippy"; }
suite_tidy() { cargo test --locked -p hayase-tidy -- --show-output; }
suite_unit() {
  cargo test --locked --workspace --exclude hayase-tidy --exclude hayase-e2e --no-fail-fast -- --show-output
}
# A workspace of its own.
suite_bench() {
  local its=(--locked --manifest-path bench/Cargo.toml --target-dir "$targets" --all-targets)
  cargo clippy "${its[@]}" -- -D warnings && cargo test "${its[@]}" -- --show-output
}
# Everything below runs the binary on simulated nodes. Without namespaces these are plain processes, so
# only FUSE itself can not be done without.
job_suite() {
  local suite=$1
  shift
  if [ -n "$fuse_missing" ]; then
    echo "SKIP $suite: $fuse_missing"
  else
    cargo build --locked -q -p hayase && "$@"
  fi
}
# A test that fails is tried once more, alone: what fails twice fails the suite, what fails once is shown.
e2e() {
  local profile=$1 first status=0 name
  first=$(mktemp "$logs/first.XXXXXX")
  if HAYASE_E2E_PROFILE=$profile cargo test --locked -p hayase-e2e --no-fail-fast >"$first" 2>&1; then
    cat "$first"
    return
  fi
  sed 's/^FAILED /RETRIED /' "$first"
  grep -q '^FAILED ' "$first" || return 1
  for name in $(sed -n 's/^FAILED \([a-z0-9_]*\).*/\1/p' "$first" | sort -u); do
    HAYASE_E2E_PROFILE=$profile cargo test --locked -p hayase-e2e --no-fail-fast -- "$name" >"$first" 2>&1 || status=1
    cat "$first"
    grep -q '^ok ' "$first" || status=1
  done
  return $status
}
suite_e2e() { job_suite e2e e2e ""; }
suite_e2e-6.1() { job_suite e2e-6.1 e2e 6.1; }
suite_pjdfstest() { job_suite pjdfstest tests/foreign/run.sh pjdfstest; }
suite_pjdfstest-6.1() { job_suite pjdfstest-6.1 tests/foreign/run.sh --profile 6.1 pjdfstest; }
suite_fsx() { job_suite fsx tests/foreign/run.sh fsx; }
suite_fsx-6.1() { job_suite fsx-6.1 tests/foreign/run.sh --profile 6.1 fsx; }
suite_fio() { job_suite fio tests/foreign/run.sh fio; }
suite_fio-6.1() { job_suite fio-6.1 tests/foreign/run.sh --profile 6.1 fio; }
suite_fsx-cache() { job_suite fsx-cache tests/foreign/run.sh --cache fsx; }
suite_fio-cache() { job_suite fio-cache tests/foreign/run.sh --cache fio; }
suite_mpi() { job_suite mpi tests/mpi/run.sh; }
# Needs no mount: containers lie in any directory.
suite_mpiio() {
  cargo build --locked -q -p hayase -p hayase-mpi &&
    cargo rustc --locked -q -p hayase-mpi --features static --crate-type staticlib && tests/mpi/mpiio.sh
}
suite_mpiio-foreign() { cargo build --locked -q -p hayase -p hayase-mpi && tests/mpi/foreign.sh; }
suite_mpiio-faults() { cargo build --locked -q -p hayase -p hayase-mpi && tests/mpi/faults.sh; }
suite_mpiio-romio() { cargo build --locked -q -p hayase -p hayase-mpi && tests/mpi/romio.sh; }
suite_areas() { cargo build --locked -q -p hayase-mpi && job_suite areas tests/mpi/areas.sh; }
suite_cached() { cargo build --locked -q -p hayase-mpi && job_suite cached tests/mpi/cached.sh; }
suite_areas-mpi4py() { cargo build --locked -q -p hayase-mpi && job_suite areas-mpi4py tests/mpi/areas.sh --mpi4py; }
suite_s3() { tests/s3/run.sh; }
suite_s3-versitygw() { tests/s3/versitygw.sh; }
suite_gfarm() {
  local failed=0
  tests/gfarm/gfarm.sh || failed=1
  tests/gfarm/mount.sh || failed=1
  tests/gfarm/cache.sh || failed=1
  return $failed
}
suite_ssh() { job_suite ssh tests/launch/ssh.sh; }
suite_slurm() { job_suite slurm tests/launch/slurm.sh; }
suite_user() { cargo build --locked -q -p hayase-mpi && job_suite user tests/launch/user.sh; }
# Many seeds that nobody has tried, and a long search in the decoders; what fails is printed.
suite_sim-long() {
  local first=$((RANDOM * 32768 + RANDOM))
  HAYASE_SIM_FIRST=$first HAYASE_SIM_SEEDS=10000 HAYASE_SIM_SCALE=1000 cargo test --locked -p hayase-sim -- --show-output
}
suite_fuzz-long() { HAYASE_FUZZ_SECONDS=300 cargo test --locked -p hayase-fuzz -- --show-output; }
# Two million entries, into packs and out of them.
suite_entries-long() { HAYASE_ENTRIES=2000000 cargo test --release --locked -p hayase-stage --test stage transfer::many; }
# A hundred thousand files through `cache`.
suite_files-long() { HAYASE_CACHE_FILES=100000 job_suite files-long cargo test --locked -p hayase-e2e -- cache_many_files; }
suite_fresh-debian() { scripts/fresh-debian.sh; }

# Skips that nothing on this machine could turn into runs: calls that only other systems have.
never_here='^SKIP [0-9]+ tests of pjdfstest: '

# Longest that a suite may take, in seconds: a hang is a failure, not a wait.
seconds_max() {
  case $1 in
    unit | bench) echo 2400 ;;
    e2e* | mpiio* | areas* | cached | s3* | gfarm) echo 1500 ;;
    sim-long) echo 10800 ;;
    *-long) echo 3600 ;;
    fresh-debian) echo 7200 ;;
    *) echo 600 ;;
  esac
}

# --- counting: libtest's results, pjdfstest's summary, and lines that begin with `ok`, `FAILED`, `SKIP` ---

# count LOG: "passed failed skipped"
count() {
  awk '
    /^test result: / { for (i = 2; i <= NF; i++) { if ($i ~ /^passed/) p += $(i-1); if ($i ~ /^failed/) f += $(i-1) } }
    /^Summary: / { for (i = 2; i <= NF; i++) { if ($i ~ /^passed/) p += $(i-1); if ($i ~ /^failed/) f += $(i-1) } }
    /^ok / { p++ }
    /^FAILED / { f++ }
    /^SKIP [0-9]+ tests / { s += $2; next }
    /^SKIP / { s++ }
    END { print p+0, f+0, s+0 }' "$1"
}

run_suite() {
  local name=$1 log=$logs/$1 start=$SECONDS status=0 p f s seconds_max
  seconds_max=$(seconds_max "$name")
  # A process group of its own, so that a hang can be ended as a whole.
  set -m
  ("suite_$name") >"$log" 2>&1 </dev/null &
  running=$!
  set +m
  while kill -0 "$running" 2>/dev/null; do
    if [ $((SECONDS - start)) -ge "$seconds_max" ]; then
      echo "FAILED $name: not done after $seconds_max s" >>"$log"
      end_suite
    fi
    sleep 0.2
  done
  wait "$running" 2>/dev/null || status=$?
  running=
  read -r p f s < <(count "$log")
  if [ "$status" != 0 ] && [ "$f" = 0 ]; then f=1; fi
  if [ "$status" = 0 ] && [ $((p + f + s)) = 0 ]; then
    echo "the suite ran nothing" >>"$log"
    f=1
  fi
  if [ -n "$beside" ] && [ "$f" != 0 ]; then
    echo "$name $p $f $s" >>"$again"
  else
    echo "$p $f $s" >>"$counts"
  fi
  printf '%-12s %5d passed %3d failed %3d skipped %6d s\n' "$name" "$p" "$f" "$s" $((SECONDS - start))
  if [ "$f" != 0 ]; then
    say "--- $name"
    failures_of "$log" | sed 's/^/    /'
    say "---"
  fi
}

# What failed and why: `FAILED` lines and compiler errors, what libtest kept of each failed test, the last lines.
failures_of() {
  grep -E -A 12 '^(FAILED|error)|[ \t](FAILED|PASSED UNEXPECTEDLY)$' "$1" | head -n 80
  awk '
    /^test .* FAILED$/ { failed[$2] = 1 }
    /^---- .* stdout ----$/ { shown = ($2 in failed) ? 25 : 0 }
    shown > 0 { print; shown-- }' "$1" | head -n 120
  say "last lines:"
  tail -n 12 "$1"
}

# One suite after the other, beside other streams.
run_stream() {
  local suite
  streams=()
  beside=1
  trap end_all EXIT
  trap 'exit 130' INT TERM
  for suite in "$@"; do run_suite "$suite"; done
}

# What failed beside another suite, alone: what fails twice has failed. Many at once are no accident.
run_again() {
  local name p f s
  if [ "$(wc -l <"$again")" -gt "$again_max" ]; then
    cut -d ' ' -f 2- "$again" >>"$counts"
    return
  fi
  while read -r name p f s; do
    say "once more, alone: $name"
    run_suite "$name"
  done <"$again"
}

# Room that a whole run takes at most, in GiB: what cargo builds, and the areas of four jobs that run at once: three of
# our end-to-end tests (`HAYASE_E2E_STREAMS`), one of a suite with foreign programs.
room_of_builds=6
room_of_areas=21
targets=${CARGO_TARGET_DIR:-target}

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

[ ${#only[@]} != 0 ] || check_room
# In a checkout that nobody works in each thing is built once: what makes building it again faster takes twice its room.
[ -n "$(ls "$targets/debug/incremental" 2>/dev/null)" ] || export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}
prepare_packages build || die "nothing can be built without these packages"
prepare_packages run test || warn "some suites will be skipped"
[ "$(id -u)" != 0 ] || prepare_daemon_packages launch gfarm || warn "some suites will be skipped"
prepare_cargo
obstacles=$(node_obstacles)
fuse_missing=$(fuse_obstacle)
say "$(cargo --version), Linux $(uname -r), $(nproc) cores"
[ -z "$obstacles" ] || printf 'this machine can not run everything:\n%s\n' "$obstacles"
# What compiles and computes goes first and alone; end-to-end tests wait more than they compute, so ours run beside
# those with foreign programs; what takes hours comes last.
first=() own=() foreign=() last=()
for suite in "${suites[@]}"; do
  case $suite in
    scripts | format | clippy | tidy | unit | bench) first+=("$suite") ;;
    e2e*) own+=("$suite") ;;
    *-long | areas-mpi4py | fresh-debian) last+=("$suite") ;;
    *) foreign+=("$suite") ;;
  esac
done
for suite in ${first[@]+"${first[@]}"}; do run_suite "$suite"; done
run_stream ${own[@]+"${own[@]}"} & streams+=($!)
run_stream ${foreign[@]+"${foreign[@]}"} & streams+=($!)
wait "${streams[@]}"
streams=()
run_again
for suite in ${last[@]+"${last[@]}"}; do run_suite "$suite"; done
unfinished=$((${#suites[@]} - $(wc -l <"$counts")))
read -r passed failed skipped < <(awk '{ p += $1; f += $2; s += $3 } END { print p + 0, f + 0, s + 0 }' "$counts")

skips=$(cat "$logs"/* | grep '^SKIP ' | sort -u)
if [ "$unfinished" != 0 ]; then
  say "$unfinished suites did not come to their end."
  failed=$((failed + unfinished))
fi
[ -z "$skips" ] || printf '\n%s\n' "$skips"
wrong_skips=$(grep -E -v "$never_here" <<<"$skips" | grep -c .)
if [ -z "$obstacles" ] && [ "$wrong_skips" -gt 0 ]; then
  say "This machine has all that is needed: these skips are failures here."
  failed=$((failed + wrong_skips))
fi
say ""
say "hayase: $passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
