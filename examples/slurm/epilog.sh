#!/bin/sh
# Epilog of slurmd (slurm.conf: Epilog=): what a job left on this node goes, however the job ended.
# It never fails: a failing epilog drains the node, and a file system that is gone is no reason for that.
hayase=${HAYASE:-/opt/hayase}
disk=${HAYASE_DISK:-/srv}
name=slurm-$SLURM_JOB_ID
# The registry of the job's user; `--here` reaches no other node.
export HAYASE_RUNTIME_DIR="/tmp/hayase-$SLURM_JOB_UID"
if [ -e "$HAYASE_RUNTIME_DIR/jobs/$name" ]; then
  timeout 60 "$hayase" down --here --job "$name" 2>&1 | logger -t hayase-epilog 2>/dev/null
fi
rm -rf --one-file-system "$disk/hayase-$SLURM_JOB_ID"
exit 0
