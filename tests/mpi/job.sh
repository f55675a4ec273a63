# MPI programs in a job of simulated nodes (sourced after scripts/job.sh): their ranks on all nodes, with and without
# libhayase_mpiio.so, and tests of what they leave. Skips and ends the script where a job can not be.

suite=$(basename "$0" .sh)
obstacle=$(fuse_obstacle)
if [ -n "$obstacle" ]; then
  say "SKIP $suite: $obstacle"
  exit 0
fi
target=$(realpath -m "$(target_dir)")
library=$(built libhayase_mpiio.so) || exit 1
hayase=${HAYASE_BIN:-$(built hayase)} || exit 1
. tests/mpi/patience.sh
export HAYASE_MPIIO_LIBRARY=$library
SECONDS_MAX=400 # of one program: mpi4py's tests sync a thousand times

failures=0
# The MPI that tests are about, where they are about one.
mpi=
# try NAME: one test, the function of that name.
try() {
  local start=$SECONDS
  if "$1" >"$job_work/out" 2>&1; then say "ok ${suite}_$1${mpi:+ $mpi} ($((SECONDS - start)) s)"; else
    say "FAILED ${suite}_$1${mpi:+ $mpi}"
    tail -n 60 "$job_work/out"
    failures=$((failures + 1))
  fi
}

# mpi_job_up OPTION...: a job of three nodes, as `hayase up` makes it with these options. Sets work, a directory for tests.
mpi_job_up() {
  job_up 3 "$@" >/dev/null || { say "FAILED $suite: no job"; exit 1; }
  if [ -d "$job_work/mount/node-0" ]; then
    # Ranks of one program would see one path as three directories.
    say "SKIP $suite: without namespaces the nodes have no common path"
    exit 0
  fi
  work=$job_work
  mkdir "$work/bin"
  patience=$(patience "$work/bin") || exit 1
}
programs_compile() {
  local program
  "mpicc.$mpi" -O2 -o "$work/bin/blocks" tests/mpi/blocks.c || return 1
  for program in killed exchanged nested; do
    "mpicc.$mpi" -O1 -o "$work/bin/$program" "tests/mpi/programs/$program.c" || return 1
  done
}

# spread RANKS stock|ours CMD...: the launcher on node 0, its ranks on all nodes. To what is preloaded already `hayase exec`
# adds our library. With `impatient` nothing is preloaded already, as with users.
spread() {
  local ranks=$1 how=$2 exec=("$hayase" exec) patience=$patience
  shift 2
  [ -z "${impatient:-}" ] || patience=
  [ "$how" = stock ] || exec+=(--mpiio)
  local launch=("mpiexec.$mpi")
  case $mpi in
    mpich)
      launch+=(-n "$ranks" -genv MPIR_CVAR_POLLS_BEFORE_YIELD 1)
      [ "$how" != stock ] || launch+=(-genv LD_PRELOAD "$patience")
      ;;
    openmpi)
      launch+=(--oversubscribe -n "$ranks" --host "$(on 0 paste -sd, "$HAYASE_JOB/hostfile")" --map-by node)
      launch+=(--mca plm_rsh_agent "$hayase exec --launcher" --mca plm_rsh_no_tree_spawn 1 --mca mpi_yield_when_idle 1)
      launch+=(-x TMPDIR -x MPI4PY_MPIABI -x HAYASE_MPIIO_TRACE -x LD_LIBRARY_PATH -x EXCHANGE -x BUFFER)
      [ "$(id -u)" != 0 ] || launch+=(--allow-run-as-root)
      [ "$how" != stock ] || launch+=(-x "LD_PRELOAD=$patience")
      ;;
  esac
  env ${patience:+LD_PRELOAD="$patience"} timeout "$SECONDS_MAX" "${exec[@]}" -- "${launch[@]}" "$@"
}

# server_of NODE: its process.
server_of() {
  local process words
  for process in /proc/[0-9]*; do
    words=$(tr '\0' ' ' 2>/dev/null <"$process/cmdline") || continue
    case $words in *" serve "*"$HAYASE_JOB"*"--node $1 "* | *" serve --node $1 "*"$HAYASE_JOB"*) echo "${process#/proc/}" && return ;; esac
  done
  return 1
}
# kill_servers_of FILE: all servers, one after the other, while ranks write and sync FILE. Fails when the program says less
# than it did; sets synced, its rounds that were synced.
kill_servers_of() {
  local file=$1 node running status
  spread 3 ours "$work/bin/killed" "$file" never 200 >"$work/said" 2>&1 &
  running=$!
  for node in 1 0 2; do
    sleep 1
    kill -9 "$(server_of "$node")" || { say "no server of node $node"; wait "$running"; return 1; }
  done
  wait "$running"
  status=$?
  synced=$(sed -n 's/^synced //p' "$work/said" | tail -n 1)
  synced=${synced:-0}
  say "the program ended with $status after $synced rounds"
  [ "$status" != 0 ] || [ "$synced" = 200 ]
}
