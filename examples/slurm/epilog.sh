#!/bin/sh
# Epilog of slurmd (slurm.conf: Epilog=): what a job left on this node goes, however the job ended; but for storage that
# holds what exists nowhere else, or of which nobody can say: the system log names it then.
# It never fails: a failing epilog drains the node, and a file system that is gone is no reason for that.
hayase=${HAYASE:-/opt/hayase}
disk=${HAYASE_DISK:-/srv}
name=slurm-$SLURM_JOB_ID
storage=$disk/hayase-$SLURM_JOB_ID
# The registry of the job's user; `--here` reaches no other node.
export HAYASE_RUNTIME_DIR="/tmp/hayase-$SLURM_JOB_UID"

log() { logger -t hayase-epilog 2>/dev/null; }

keep() {
  echo "$storage is kept: $1; look at it with hayase resume, then remove it" | log
  exit 0
}

entry=$HAYASE_RUNTIME_DIR/jobs/$name
# A link that leads nowhere is one whose directory can not be reached.
if [ -e "$entry" ] || [ -L "$entry" ]; then
  said=$(timeout 60 "$hayase" down --here --job "$name" 2>&1)
  status=$?
  echo "$said" | log
  [ "$status" = 0 ] || keep "hayase down --here ended with $status"
fi
# Ledgers go when the tier has everything. `hayase down` in the job itself leaves them where it has not.
for ledger in "$storage"/*/node-*/ledger "$storage"/*/node-*/shared/ledger; do
  [ -e "$ledger" ] && keep "the tier may not have everything of $ledger"
done
rm -rf --one-file-system "$storage"
exit 0
