#!/bin/sh
# Prolog of slurmd (slurm.conf: Prolog=): gives each job a directory on the node's own disk that only its user
# can enter. In the job: hayase up --job "slurm-$SLURM_JOB_ID" --storage "/srv/hayase-$SLURM_JOB_ID"
# The disk (HAYASE_DISK) has to be root's, with the sticky bit if others may write there.
# A prolog that fails drains the node, so it fails only when the disk can not be written.
set -eu
disk=${HAYASE_DISK:-/srv}
storage=$disk/hayase-$SLURM_JOB_ID
if ! mkdir -m 700 "$storage" 2>/dev/null; then
  # It is from an earlier try; or another user has made it, or a link of that name.
  case $(stat -c '%F %u' "$storage") in
  "directory 0" | "directory $SLURM_JOB_UID") ;;
  *)
    rm -rf --one-file-system "$storage"
    mkdir -m 700 "$storage"
    ;;
  esac
fi
chown -h "$SLURM_JOB_UID" "$storage"
