# The test programs that cargo builds: built once, listed, run several at a time, tried twice (sourced, not run).
#
# Test programs and what they run (the binary, the libraries, the examples) are built with the same features, so that foreign
# crates are compiled once; ours are compiled for tests as they are, and optimized for what moves data (Cargo.toml).

. tests/foreign/install.sh

# The list of test programs, one a line: package, its directory, the program.
programs_list() { say "$(target_dir)/test-programs"; }

# Compiled with the daemons, whose server is optimized: it runs that server for minutes.
optimized_test=sim

# other_tests: options for cargo that name all other programs of `tests` directories.
other_tests() {
  local program
  for program in {crates/*,tests/*,fuzz}/tests/*; do
    [ -f "$program" ] || [ -n "$(find "$program" -maxdepth 1 -name main.rs 2>/dev/null)" ] || continue
    program=$(basename "$program" .rs)
    [ "$program" = "$optimized_test" ] || printf -- '--test %s ' "$program"
  done
}

build_programs() {
  local json others status=0
  others=$(other_tests)
  [ -n "$others" ] || { echo "FAILED: there are no programs of tests in $PWD"; return 1; }
  json=$(mktemp "${TMPDIR:-/tmp}/hayase-build.XXXXXX")
  # First the test programs, then what they run: cargo puts a binary of either into the same place.
  # shellcheck disable=SC2086 # options
  cargo test --locked --workspace --no-run --lib --bins $others --message-format json-render-diagnostics >"$json" &&
    cargo build --locked --workspace --bins --example s3_check --example gfarm_check --test "$optimized_test" \
      --message-format json-render-diagnostics >>"$json" || status=1
  [ $status != 0 ] || list_programs <"$json" >"$(programs_list)"
  rm -f "$json"
  [ $status = 0 ] &&
    cargo build --locked -p hayase-mpi &&
    # Linked into programs that have their MPI library inside; a feature of its own, so a crate of its own.
    cargo rustc --locked -q -p hayase-mpi --features static --crate-type staticlib
}

# list_programs: cargo's messages -> "PACKAGE DIRECTORY PROGRAM" of each test program.
list_programs() {
  sed -n 's|.*"manifest_path":"\([^"]*\)/Cargo.toml".*"profile":{[^}]*"test":true}.*"executable":"\([^"]*\)".*|\1 \2|p' |
    while read -r directory program; do
      printf '%s %s %s\n' "$(sed -n 's/^name = "\(.*\)"/\1/p;T;q' "$directory/Cargo.toml")" "$directory" "$program"
    done
}

# Programs at a time; each runs as many tests at a time as there are processors.
programs_at_once=${HAYASE_TEST_PROGRAMS:-2}
# They come first, so that none of them is left alone at the end.
longest='/(hayase_server|server|sim|commands|stage)-[0-9a-f]*$'
# More failures than this in one program are not flaky tests, so they are not retried.
tries_max=5

# programs_of unit|PACKAGE: lines of the list.
programs_of() {
  case $1 in
    unit)
      local units
      units=$(grep -v -e '^hayase-tidy ' -e '/e2e-[0-9a-f]*$' "$(programs_list)")
      grep -E "$longest" <<<"$units"
      grep -v -E "$longest" <<<"$units"
      ;;
    e2e) grep '/e2e-[0-9a-f]*$' "$(programs_list)" ;;
    *) grep "^$1 " "$(programs_list)" ;;
  esac
}

# run_programs unit|PACKAGE [TEST]: all of their tests, or those whose names hold TEST.
run_programs() {
  local running=0 failed=0 package directory program
  [ -s "$(programs_list)" ] || { echo "FAILED: nothing is built: ./test.sh --only build"; return 1; }
  while read -r package directory program; do
    if [ $running -ge "$programs_at_once" ]; then
      wait -n || failed=1
      running=$((running - 1))
    fi
    run_program "$package" "$directory" "$program" "${2:-}" &
    running=$((running + 1))
  done < <(programs_of "$1")
  while [ $running -gt 0 ]; do
    wait -n || failed=1
    running=$((running - 1))
  done
  return $failed
}
run_tests() { run_programs "$1" "$2"; }

# run_program PACKAGE DIRECTORY PROGRAM TEST: what it prints, in one piece; what fails is tried once more, alone.
run_program() {
  local package=$1 directory=$2 program=$3 wanted=$4 out status=0
  out=$(mktemp "${TMPDIR:-/tmp}/hayase-program.XXXXXX")
  # shellcheck disable=SC2086 # nothing, or one word
  in_package "$directory" "$program" $wanted >"$out" 2>&1 || status=$?
  [ $status = 0 ] || try_again "$package" "$directory" "$program" "$out" || status=1
  if [ $status != 0 ] && ! grep -q -E '^FAILED|^test result: FAILED' "$out"; then
    if grep -q '^FLAKY' "$out"; then status=0; else echo "FAILED $package: $(basename "$program") ended with $status" >>"$out"; fi
  fi
  flock "$(programs_list)" cat "$out"
  rm -f "$out"
  return $status
}

# try_again PACKAGE DIRECTORY PROGRAM OUT: the tests that failed in OUT, each alone; OUT then has what came of it.
try_again() {
  local package=$1 directory=$2 program=$3 out=$4 names name
  names=$(failed_tests "$out")
  [ -n "$names" ] && [ "$(wc -l <<<"$names")" -le "$tries_max" ] || return 1
  for name in $names; do
    in_package "$directory" "$program" --exact "$name" >"$out.again" 2>&1
    if grep -q -E "^(ok $name |test $name .*\.\.\. ok)" "$out.again"; then
      sed -i -e "s/^FAILED $name /failed once: $name /" \
        -e "s/^test $name \(.*\)\.\.\. FAILED/failed once: $name \1/" "$out"
      # Suites may run the same program: e2e and e2e-6.1 do.
      echo "FLAKY $name (${suite:+$suite, }$package)" >>"$out"
    fi
    sed 's/^/    again: /' "$out.again" >>"$out"
    rm -f "$out.again"
  done
  # Where every failure was one that passed alone, libtest's own count of failures is theirs.
  grep -q -E '^FAILED|^test .*\.\.\. FAILED' "$out" || sed -i -E 's/^(test result: )FAILED(\..* passed; )[0-9]+ failed/\1ok\2 0 failed/' "$out"
}

# in_package DIRECTORY PROGRAM ARGUMENT...: as cargo runs it. libtest tells the time of each test only to those who say
# that they know how unstable that is; the variable is for the test program alone, no compiler sees it.
in_package() {
  local directory=$1 program=$2
  shift 2
  case $(basename "$program") in
    # Our own harness: its lines have the time.
    e2e-*) ;;
    *) set -- --show-output -Z unstable-options --report-time "$@" ;;
  esac
  # A shell may ignore SIGINT in the background, and then all that it starts does.
  (cd "$directory" && CARGO_MANIFEST_DIR=$directory RUSTC_BOOTSTRAP=1 env --default-signal=INT,QUIT "$program" "$@")
}

# failed_tests FILE: of libtest and of our own harness.
failed_tests() {
  sed -n -e 's/^test \([^ ]*\).* \.\.\. FAILED.*/\1/p' -e 's/^FAILED \([a-z0-9_]*\) .*/\1/p' "$1" | sort -u
}
