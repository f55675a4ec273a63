#!/usr/bin/env bash
# The Gfarm of `./bench.sh dataplane`: every byte comes from the file server of another node.
#
#   gfarm.sh serve ADDRESS STORAGE WORK   metadata server and one file server, whose spool is in STORAGE
#   gfarm.sh mount ADDRESS PLACE WORK     that Gfarm, by gfarm2fs with two sets of options, at PLACE/big and PLACE/direct
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
. scripts/prepare.sh
. tests/gfarm/cluster.sh
. bench/peers/lifetime.sh
home=$2 place=$3 work=$4

# The cluster is this node alone, in its own name spaces already: it is the metadata's node 0 and the spool's node 1.
cluster_dir=$work cluster_nodes=1 cluster_net=${home%.*}
cluster_address() { say "$home"; }
on() { shift; GFARM_CONFIG_FILE=${GFARM_CONFIG_FILE:-$cluster_dir/client.conf} "$@"; }

serve() {
  mkdir -p "$place" && ln -s "$place" "$cluster_dir/spool-1" && cluster_settings
  # One file server is never too busy.
  cluster_client_settings "$cluster_dir/key" 1000 >"$cluster_dir/client.conf"
  GFARM_CONFIG_FILE=$cluster_dir/client.conf gfkey -c -p 864000 >/dev/null && metadata_start && spool_start 1 &&
    wait_until 20 spools_ready || { cluster_logs >&2; return 1; }
}

stop() {
  spool_stop 1
  metadata_stop
  # Where gfsd listens for clients of its own host; the place is fixed.
  rm -rf "/tmp/.gfarm-gfsd$home-$((cluster_port + 1))"
}

# Metadata as fresh as ours. With `unbuffered` a run did not end within five minutes.
show() { # NAME OPTIONS
  mkdir -p "$place/$1"
  GFARM_CONFIG_FILE=$cluster_dir/client.conf \
    gfarm2fs -o "$2,gfs_stat_timeout=0,attr_timeout=0,entry_timeout=0" "$place/$1" &&
    wait_until 10 mountpoint -q "$place/$1"
}

case $1 in
  serve) trap stop EXIT && serve && peer_ready ;;
  mount) show big big_writes && show direct direct_io && peer_ready "$place/big" "$place/direct" ;;
esac
