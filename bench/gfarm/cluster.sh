#!/usr/bin/env bash
# The Gfarm of `./bench.sh gfarm`: cluster.sh HAYASE [KIND...]
#
# One metadata server, file servers on three nodes of namespaces with spools in memory, and on each node the whole Gfarm
# mounted by Hayase and, for each KIND, by gfarm2fs with its options. Tells where all that is, waits until standard input
# ends, however that comes about, and takes everything away.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
. scripts/prepare.sh
. tests/gfarm/cluster.sh
hayase=$1
shift
nodes="1 2 3"

# Below /dev/shm: passthrough needs storage that is no overlay, and no disk shall be measured.
work=$(mktemp -d /dev/shm/hayase-bench-gfarm.XXXXXX) || exit 1
finish() {
  local mount
  for mount in "$work"/mnt/*-*; do
    # What a program has just let go of is busy a moment longer.
    ! mountpoint -q "$mount" || wait_until 5 umount "$mount" || umount -l "$mount"
  done
  wait_until 5 no_mount_runs
  cluster_down
  rm -rf --one-file-system "$work"
}
no_mount_runs() { ! pgrep -f " $work/mnt/[a-z]*-[123]\$"; }
trap finish EXIT
trap 'exit 130' INT TERM HUP

# `closed` and `direct`: a close is seen by the next open on every node, as with Hayase; with the others a second later.
options_of() {
  case $1 in
    big) say big_writes ;;
    bare) say big_writes,unbuffered ;;
    closed) say big_writes,gfs_stat_timeout=0,attr_timeout=0,entry_timeout=0 ;;
    direct) say direct_io,gfs_stat_timeout=0,attr_timeout=0,entry_timeout=0 ;;
    *) return 1 ;;
  esac
}
show() { # KIND NODE
  local mount=$work/mnt/$1-$2
  mkdir -p "$mount"
  case $1 in
    hayase) on "$2" "$hayase" mount --log "$work/log-$2" gfarm:/// "$mount" >/dev/null ;;
    *) GFARM_CONFIG_FILE=$work/mount.conf on "$2" gfarm2fs -o "$(options_of "$1")" "$mount" ;;
  esac && wait_until 10 mountpoint -q "$mount" || { warn "$1 on node $2 does not come up"; return 1; }
  # A mount is one process; those that it starts for itself are found by its number.
  say "mount $1 $2 $(pgrep -o -f " $mount\$")"
}

cluster_up "$work/gfarm" 3 >&2 || { cluster_logs >&2; exit 1; }
# gfarm2fs puts a new file on its own host only while that is not busier than this.
cluster_client_settings "$cluster_dir/key" 1000 >"$work/mount.conf"
mkdir "$work/native" "$work/at"
# CMD of a node, with that node's mount of a kind at the place that all nodes call the same.
cat >"$work/rank" <<SCRIPT
#!/bin/sh
# NODE KIND CMD...
export GFARM_CONFIG_FILE=$cluster_dir/client.conf
node=\$1 kind=\$2; shift 2
exec nsenter --net=/run/netns/$cluster_id-\$node --uts=$cluster_dir/uts-\$node unshare -m \\
  sh -c 'mount --bind $work/mnt/\$0 $work/at && exec env LD_PRELOAD="\$PRELOAD" "\$@"' \$kind-\$node "\$@"
SCRIPT
chmod +x "$work/rank"
say "work $work"
say "id $cluster_id"
for node in $nodes; do
  mkdir "$work/native/$node"
  say "address $node $(cluster_address "$node")"
  for kind in hayase "$@"; do show "$kind" "$node" || exit 1; done
done
say ready
cat >/dev/null
