# A job of simulated nodes for scripts (sourced after prepare.sh): comes up, is used, and always goes away.
#
# $hayase must name the binary. job_begin makes $job_work; everything of the job lies in it.

job_work=
# Names of functions that job_end calls when the job is down, the last one first, to undo what a script has added.
job_ends=()

# job_begin: directories for a job, removed at the end of the script. job_up does it when the script has not.
job_begin() {
  # Not /tmp: that may be in memory, and the areas' images want a disk.
  job_work=$(mktemp -d "${HAYASE_WORK_DIR:-/var/tmp}/hayase-$(basename "$0" .sh).XXXXXX") || exit 1
  chmod 755 "$job_work"
  echo "$$ $(readlink /proc/self/ns/pid)" >"$job_work/owner"
  trap 'job_end $?' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  mkdir "$job_work/storage" "$job_work/mount" "$job_work/tier"
  # A registry of our own: other jobs of this user are none of our business.
  export HAYASE_RUNTIME_DIR=$job_work/run
  export HAYASE_JOB=$job_work/job
}

# job_up NODES [OPTION...]: further options as `hayase up` knows them; @work in one is $job_work.
job_up() {
  local nodes=$1
  shift
  [ -n "$job_work" ] || job_begin
  env -u HAYASE_JOB "$hayase" up --nodes "$nodes" --storage "$job_work/storage" --mount "$job_work/mount" \
    --job-dir "$HAYASE_JOB" "${@//@work/$job_work}"
}

# on NODE CMD...: runs a command on a node.
on() {
  local node=$1
  shift
  "$hayase" exec --node "$node" -- "$@"
}

# area NODE shared|local: where that node sees it. The same path on each node, unless nodes are plain processes.
area() {
  if [ -d "$job_work/mount/node-$1" ]; then say "$job_work/mount/node-$1/$2"; else say "$job_work/mount/$2"; fi
}

# job_down: ends the job; fails when something of it is left.
job_down() {
  local failed=0
  "$hayase" down || failed=1
  if grep -q " $job_work/" /proc/self/mountinfo; then
    printf 'still mounted after down:\n' >&2
    grep " $job_work/" /proc/self/mountinfo >&2
    failed=1
  fi
  return $failed
}

# At the end of the script, however it came.
job_end() {
  local status=$1 i
  trap - EXIT
  trap '' INT TERM HUP # or a second Ctrl-C leaves mounts
  if [ -d "$HAYASE_JOB" ]; then
    if [ "$status" = 1 ]; then tail -n 15 "$HAYASE_JOB"/node-*/*.log >&2 2>/dev/null; fi
    # What is not in the tier is of no use to anybody.
    "$hayase" down --discard >&2 || true
  fi
  for ((i = ${#job_ends[@]} - 1; i >= 0; i--)); do "${job_ends[i]}"; done
  rm -rf --one-file-system "${job_work:?}"
  exit "$status"
}

# mpi_run RANKS_PER_NODE PROGRAM ARG...: real MPICH, its ranks on three nodes; @shared in an ARG is the area.
mpi_run() {
  local ranks=$1 node words=()
  shift
  for node in 0 1 2; do
    [ "$node" = 0 ] || words+=(:)
    words+=(-n "$ranks" "$hayase" exec --node "$node" -- "${@//@shared/$(area "$node" shared)}")
  done
  mpiexec.mpich "${words[@]}"
}

# Bytes that a node has received from other nodes so far.
received_bytes() {
  on "$1" awk -F'[: ]+' '/:/ && $2 != "lo" { sum += $3 } END { print sum + 0 }' /proc/net/dev
}
