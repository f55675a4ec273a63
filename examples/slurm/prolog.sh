#!/bin/sh
# Prolog of slurmd (slurm.conf: Prolog=): gives each job a directory on the node's own disk that only its user
# can enter. In the job: hayase up --job "slurm-$SLURM_JOB_ID" --storage "/srv/hayase-$SLURM_JOB_ID"
# The disk (HAYASE_DISK) has to be root's, and nobody else may write to its top: others could make the directory first.
# A prolog that fails drains the node, so it fails only when the disk can not be written, or is not root's alone.
set -eu
disk=${HAYASE_DISK:-/srv}
storage=$disk/hayase-$SLURM_JOB_ID
case $(stat -L -c '%u %A' "$disk") in
"0 d"????-??-?) ;;
*) echo "$disk does not belong to root alone" >&2; exit 1 ;;
esac
[ -d "$storage" ] || mkdir -m 700 "$storage"
chown -h "$SLURM_JOB_UID" "$storage"
