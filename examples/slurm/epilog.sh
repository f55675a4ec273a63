#!/bin/sh
# Epilog of slurmd (slurm.conf: Epilog=): what a job left on this node goes, however the job ended; but for storage that
# holds what exists nowhere else, or of which nobody can say: the system log names it then.
# It never fails: a failing epilog drains the node, and a file system that is gone is no reason for that.
# All that looks into what the user has made runs as that user, and ends in time: a file system of theirs (FUSE) may never
# answer. Root removes only the directory that the prolog made, once it is empty.
hayase=${HAYASE:-/opt/hayase}
disk=${HAYASE_DISK:-/srv}
name=slurm-$SLURM_JOB_ID
storage=$disk/hayase-$SLURM_JOB_ID
# The registry of the job's user. Only that user's own commands act on what is in it: root would follow it anywhere.
registry=/tmp/hayase-$SLURM_JOB_UID
# Seconds that what is not in the tier yet is waited for; that `hayase down` may take as a whole: it ends mounts and servers
# in at most 30 s each; that one look at files may take, and the removal. PrologEpilogTimeout (slurm.conf), where it is set,
# has to be longer than 6 minutes.
drain=20
patience=100
look=10
removal=45
entry=$registry/jobs/$name

log() { printf '%s\n' "$1" | logger -t hayase-epilog 2>/dev/null; }

# as_user SECONDS COMMAND...: what it says goes to a file or nowhere. A process of the user that keeps a pipe open would be
# waited for.
as_user() {
  limit=$1
  shift
  timeout -k 5 "$limit" setpriv --reuid "$SLURM_JOB_UID" --regid "$group" --init-groups "$@" </dev/null
}

# may_be -e|-L PATH: whether it is so as the user sees it, or there is no answer.
may_be() {
  # shellcheck disable=SC2016 # the other shell reads it
  as_user "$look" sh -c '[ "$1" "$2" ] || exit 3' sh "$1" "$2" >/dev/null 2>&1
  [ $? != 3 ]
}

# What the storage is, and whose, in `found`; a link is not followed. By a file: a pipe would stay open as long as a program
# that the user's file system does not answer.
look_at_storage() {
  LC_ALL=C timeout -k 5 "$look" stat -c '%F %u' "$storage" >"$seen" 2>&1
  found=$(head -c 1000 "$seen")
}

# Why, and what the job has in the storage. Where `hayase down` left no settings in that, the registry has them.
keep() {
  place=$2
  may_be -e "$place/resume.json" || ! may_be -e "$entry" || place=$entry
  log "$storage is kept: $1; as the job's user, bring what is there to the tier with hayase resume $place, then remove $storage"
  exit 0
}

group=${SLURM_JOB_GID:-$(id -g "$SLURM_JOB_UID")}
# A link that leads nowhere is one whose directory can not be reached.
is_known=
if may_be -e "$entry" || may_be -L "$entry"; then is_known=yes; fi
said=$(mktemp) && seen=$(mktemp) || keep "no temporary file can be made" "$storage/$name"
trap 'rm -f "$said" "$seen"' EXIT
look_at_storage
case $is_known$found in
yes*) ;;
*": No such file or directory") exit 0 ;;
esac

if [ "$is_known" ]; then
  # `--here` reaches no other node.
  as_user "$patience" env HAYASE_RUNTIME_DIR="$registry" \
    "$hayase" down --here --drain "$drain" --job "$name" >"$said" 2>&1
  status=$?
  log "$(head -c 10000 "$said" | tr -c '[:print:]\n' ' ')"
  [ "$status" = 0 ] || keep "hayase down --here ended with $status" "$storage/$name"
fi
look_at_storage
case $found in
"directory 0" | "directory $SLURM_JOB_UID") ;;
*": No such file or directory") exit 0 ;;
*)
  log "$storage is not touched: the prolog made a directory of user $SLURM_JOB_UID, and this is: $found"
  exit 0
  ;;
esac
# Ledgers go when the tier has everything. `hayase down` in the job itself leaves them where it does not. A job may have
# another name, or lie deeper: what can not be searched is kept as well.
as_user "$look" find "$storage" -xdev -type d -name ledger -print -quit >"$said" 2>/dev/null
searched=$?
ledger=$(head -c 10000 "$said" | tr -c '[:print:]\n' ' ')
[ -z "$ledger" ] || keep "the tier may not have everything of $ledger" "${ledger%/node-*}"
[ "$searched" = 0 ] || keep "not all of it can be read" "$storage/$name"
# The directory itself can only be removed by root, and as long as something is in it by nobody.
as_user "$removal" find "$storage" -xdev -type d ! -perm -700 -exec chmod u+rwx {} ';' >/dev/null 2>&1
as_user "$removal" rm -rf --one-file-system "$storage" >/dev/null 2>&1
timeout -k 5 "$look" rmdir "$storage" 2>/dev/null
look_at_storage
case $found in
*": No such file or directory") exit 0 ;;
esac
log "$storage is kept: not all of it could be removed as user $SLURM_JOB_UID within $removal s; remove what is left of it"
exit 0
