#!/bin/sh
# Prolog of slurmd (slurm.conf: Prolog=): gives each job a directory on the node's own disk that only its user
# can enter. In the job: hayase up --job "slurm-$SLURM_JOB_ID" --storage "/srv/hayase-$SLURM_JOB_ID"
# The disk (HAYASE_DISK) has to be root's, with the sticky bit if others may write there.
# What somebody else has put in the place of that directory is moved aside and logged; root removes nothing that it has not
# made. What cannot be moved (a file system that is mounted there) stays: then this job's `hayase up` refuses its storage.
# A prolog that fails drains the node, so it fails only when the disk can not be written.
set -eu
disk=${HAYASE_DISK:-/srv}
storage=$disk/hayase-$SLURM_JOB_ID
# Somebody may put things there faster than they are moved, and a file system of theirs (FUSE) may never answer.
tries=10
look=10

log() { printf '%s\n' "$1" | logger -t hayase-prolog 2>/dev/null || true; }

# What is there, whose, and on which device; a link is not followed. A file system that somebody has mounted there (FUSE) may
# name any owner, but is another device than the disk.
look_at_storage() { LC_ALL=C timeout -k 5 "$look" stat -c '%F %u on device %d' "$storage" 2>&1 || true; }

device=$(stat -c %d "$disk/.")

while ! mkdir -m 700 "$storage" 2>/dev/null; do
  found=$(look_at_storage)
  case $found in
  "directory $SLURM_JOB_UID on "*) exit 0 ;; # of an earlier try
  "directory 0 on device $device") break ;;  # the same, killed before it gave the directory away
  esac
  # A new name in the same directory: nobody else can make it first, and it fails where the disk can not be written.
  aside=$(mktemp -d "$storage.XXXXXXXXXX")
  if [ $((tries -= 1)) -ge 0 ] && timeout -k 5 "$look" mv -T "$storage" "$aside/found" 2>/dev/null; then
    chmod 711 "$aside"
    log "$storage was there before job $SLURM_JOB_ID ($found): it is $aside/found now; look whose it is"
  else
    rmdir "$aside" 2>/dev/null || true
    case $(look_at_storage) in
    *": No such file or directory") [ "$tries" -lt 0 ] || continue ;; # somebody has removed it meanwhile
    esac
    log "$storage is not of job $SLURM_JOB_ID and can not be moved ($found): the job has no storage there"
    exit 0
  fi
done
# Root has made it: nobody else can put a link to another file in its place.
timeout -k 5 "$look" chown -h "$SLURM_JOB_UID" "$storage" ||
  log "$storage could not be given to user $SLURM_JOB_UID: job $SLURM_JOB_ID has no storage there"
