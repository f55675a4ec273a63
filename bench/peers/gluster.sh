#!/usr/bin/env bash
# The GlusterFS of `./bench.sh dataplane`, by its own daemon and tool, all options as they come.
#
#   gluster.sh serve ADDRESS STORAGE WORK   a volume of one brick in STORAGE; mount namespaces of its own are needed
#   gluster.sh mount ADDRESS PLACE WORK     that volume, by FUSE, at PLACE/default
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
. scripts/prepare.sh
. bench/peers/lifetime.sh
home=$2 place=$3 work=$4

serve() {
  # Fixed places, which a GlusterFS of this machine may use as well.
  mkdir -p /var/lib/glusterd /var/log/glusterfs
  for fixed in /run /var/lib/glusterd /var/log/glusterfs; do mount -t tmpfs tmpfs "$fixed" || return 1; done
  mkdir -p "$place" /run/gluster /var/log/glusterfs/bricks
  glusterd --no-daemon --log-file="$work/glusterd.log" </dev/null >/dev/null &
  wait_until 20 gluster --mode=script volume list &&
    gluster --mode=script volume create bench "$home:$place" force >&2 &&
    gluster --mode=script volume start bench >&2 || { tail -n 5 "$work/glusterd.log" >&2; return 1; }
}

show() {
  local point=$place/default
  mkdir -p "$point"
  glusterfs --volfile-server="$home" --volfile-id=bench --log-file="$work/glusterfs.log" "$point" &&
    wait_until 20 mountpoint -q "$point" && wait_until 20 touch "$point/ready" ||
    { tail -n 5 "$work/glusterfs.log" >&2; return 1; }
}

case $1 in
  serve) serve && peer_ready ;;
  mount) show && peer_ready "$place/default" ;;
esac
