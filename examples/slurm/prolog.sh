#!/bin/sh
# Prolog of slurmd (slurm.conf: Prolog=): gives each job a directory on the node's own disk that only its user
# can enter. In the job: hayase up --job "slurm-$SLURM_JOB_ID" --storage "/srv/hayase-$SLURM_JOB_ID"
# A prolog that fails drains the node, so it fails only when the disk can not be written.
set -eu
disk=${HAYASE_DISK:-/srv}
storage=$disk/hayase-$SLURM_JOB_ID
[ -d "$storage" ] || mkdir -m 700 "$storage"
chown "$SLURM_JOB_UID" "$storage"
