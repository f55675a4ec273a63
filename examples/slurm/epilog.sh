#!/bin/sh
# Epilog of slurmd (slurm.conf: Epilog=): what a job left on this node goes, however the job ended; but for storage that
# holds what exists nowhere else, or of which nobody can say: the system log names it then.
# It never fails: a failing epilog drains the node, and a file system that is gone is no reason for that.
hayase=${HAYASE:-/opt/hayase}
disk=${HAYASE_DISK:-/srv}
name=slurm-$SLURM_JOB_ID
storage=$disk/hayase-$SLURM_JOB_ID
# The registry of the job's user. Only that user's own commands act on what is in it: root would follow it anywhere.
registry=/tmp/hayase-$SLURM_JOB_UID
# Seconds that what is not in the tier yet is waited for, and those that `hayase down` may take as a whole: it ends mounts
# and servers in at most 30 s each. PrologEpilogTimeout (slurm.conf), where it is set, has to be longer.
drain=20
patience=100
entry=$registry/jobs/$name

log() { printf '%s\n' "$1" | logger -t hayase-epilog 2>/dev/null; }

# Why, and what the job has in the storage. Where `hayase down` left no settings in that, the registry has them.
keep() {
  place=$2
  [ -e "$place/resume.json" ] || [ ! -e "$entry" ] || place=$entry
  log "$storage is kept: $1; as the job's user, bring what is there to the tier with hayase resume $place, then remove $storage"
  exit 0
}

# A link that leads nowhere is one whose directory can not be reached.
if [ -e "$entry" ] || [ -L "$entry" ]; then
  # `--here` reaches no other node. What it says goes to a file: a process of the user that keeps a pipe open would be
  # waited for.
  group=${SLURM_JOB_GID:-$(id -g "$SLURM_JOB_UID")}
  said=$(mktemp) || keep "no temporary file can be made" "$storage/$name"
  timeout -k 5 "$patience" setpriv --reuid "$SLURM_JOB_UID" --regid "$group" --init-groups \
    env HAYASE_RUNTIME_DIR="$registry" "$hayase" down --here --drain "$drain" --job "$name" >"$said" 2>&1 </dev/null
  status=$?
  log "$(head -c 10000 "$said" | tr -c '[:print:]\n' ' ')"
  rm -f "$said"
  [ "$status" = 0 ] || keep "hayase down --here ended with $status" "$storage/$name"
fi
[ -d "$storage" ] || exit 0
# Ledgers go when the tier has everything. `hayase down` in the job itself leaves them where it does not. A job may have
# another name, or lie deeper: what can not be searched is kept as well.
ledger=$(find "$storage" -xdev -type d -name ledger -print -quit 2>/dev/null)
searched=$?
[ -z "$ledger" ] || keep "the tier may not have everything of $ledger" "${ledger%/node-*}"
[ "$searched" = 0 ] || keep "not all of it can be read" "$storage/$name"
rm -rf --one-file-system "$storage"
exit 0
