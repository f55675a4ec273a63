# A job of simulated nodes for scripts (sourced after prepare.sh): comes up, is used, and always goes away.
#
# $hayase must name the binary. job_up makes $job_work (everything of the job lies in it), $job_shared and
# $job_local (the mount points, the same on each node).

job_work=

# job_up NODES [OPTION...]: further options as `hayase up` knows them.
job_up() {
  local nodes=$1
  shift
  # Not /tmp: that may be in memory, and the areas' images want a disk.
  job_work=$(mktemp -d "${HAYASE_WORK_DIR:-/var/tmp}/hayase-$(basename "$0" .sh).XXXXXX")
  chmod 755 "$job_work"
  trap 'job_end $?' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  mkdir "$job_work/storage" "$job_work/mount"
  # A registry of our own: other jobs of this user are none of our business.
  export HAYASE_RUNTIME_DIR=$job_work/run
  export HAYASE_JOB=$job_work/job
  job_shared=$job_work/mount/shared
  job_local=$job_work/mount/local
  env -u HAYASE_JOB "$hayase" up --nodes "$nodes" --storage "$job_work/storage" --mount "$job_work/mount" \
    --job-dir "$HAYASE_JOB" "$@"
}

# on NODE CMD...: runs a command on a node.
on() {
  local node=$1
  shift
  "$hayase" exec --node "$node" -- "$@"
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
  local status=$1
  trap - EXIT INT TERM
  if [ -d "$HAYASE_JOB" ]; then
    if [ "$status" != 0 ]; then tail -n 15 "$HAYASE_JOB"/node-*/*.log >&2 2>/dev/null; fi
    "$hayase" down >&2 || true
  fi
  rm -rf --one-file-system "$job_work"
  exit "$status"
}

# mpi_run RANKS_PER_NODE PROGRAM ARG...: real MPICH, its ranks on three nodes.
mpi_run() {
  local ranks=$1
  shift
  mpiexec.mpich -n "$ranks" "$hayase" exec --node 0 -- "$@" \
    : -n "$ranks" "$hayase" exec --node 1 -- "$@" \
    : -n "$ranks" "$hayase" exec --node 2 -- "$@"
}

# Bytes that a node has received from other nodes so far.
received_bytes() {
  on "$1" awk -F'[: ]+' '/:/ && $2 != "lo" { sum += $3 } END { print sum + 0 }' /proc/net/dev
}
