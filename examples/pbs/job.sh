#!/bin/bash
#PBS -l select=4:ncpus=16
#PBS -l walltime=01:00:00
# A job of PBS whose programs write checkpoints into the disks of their nodes; the directory of submission gets them.
# PBS names the nodes in $PBS_NODEFILE, which `hayase up` reads. The nodes need hayase in PATH and ssh to each other.
set -u
areas=/tmp/hayase-areas
cd "$PBS_O_WORKDIR" || exit 1

hayase up --storage "${HAYASE_DISK:-/local/scratch}" --mount "$areas" --tier "$PBS_O_WORKDIR" || exit 1
hayase exec --mpiio -- mpiexec ./model "$areas/cache/checkpoint"
status=$?
# Waits until the tier has every file; else keeps and lists them, and ends with 3 (docs/guide/cache.md).
hayase down || status=$?
exit $status
