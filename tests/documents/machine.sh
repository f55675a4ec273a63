#!/usr/bin/env bash
# The first process of a machine of its own, for the blocks of one page: the files of this one below an overlay, so that
# they may make /project and /lustre, and everything of it ends with this process. Called by run.sh.
#
#   machine.sh DIR PROGRAMS SCENES PAGE MARK      DIR has `blocks`, and empty directories `machine` and `disk`
set -euo pipefail
dir=$1 programs=$2 scenes=$3 page=$4 mark=$5

mount --make-rprivate /
root=$dir/machine
mount -t tmpfs -o mode=755 layers "$root"
mkdir "$root/upper" "$root/work" "$root/root"
mount -t overlay -o "lowerdir=/,upperdir=$root/upper,workdir=$root/work" machine "$root/root"
cd "$root/root"
for place in dev sys; do mount --rbind "/$place" "$place"; done
mount -t proc proc proc
# Its own: pages make, mount and remove there what users of this machine may have under the same names.
for place in tmp var/tmp; do
  mkdir -p "$dir/own/$place"
  chmod 1777 "$dir/own/$place"
  mount --bind "$dir/own/$place" "$place"
done
unset TMPDIR
# Of a Gfarm its settings and keys may lie there, and the sockets of its servers do.
if [ -n "${GFARM_CONFIG_FILE:-}" ]; then
  for place in "$(dirname "$GFARM_CONFIG_FILE")" /tmp/.gfarm*; do
    [ -d "$place" ] || continue
    mkdir -p ".$place"
    mount --bind "$place" ".$place"
  done
fi
mkdir -p opt/documents/bin opt/documents/disk home/me
mount --bind "$programs" opt/documents/bin
mount --bind "$dir/disk" opt/documents/disk
cp "$scenes" "$(dirname "$scenes")/program.c" "$(dirname "$scenes")/tls.py" "$dir/blocks" opt/documents/
mkdir former
pivot_root . former
umount -l /former
cd /home/me
export HOME=/home/me HAYASE_RUNTIME_DIR=/home/me/.run PATH=/opt/documents:/opt/documents/bin:$PATH
unset HAYASE_JOB HAYASE_MPIIO_LIBRARY
. /opt/documents/scenes.sh
. /opt/documents/blocks
# Whatever the page has left up.
[ -z "$(ls -A "$HAYASE_RUNTIME_DIR/jobs" 2>/dev/null)" ] || hayase down
echo "$page is done"
