# A Gfarm of one metadata server and several file servers on this machine, from Debian's packages (sourced after prepare.sh, not run).
#
#   cluster_up DIR [NODES]   one gfmd on node 0, a gfsd and a spool on each of the nodes 1..NODES (3)
#   on NODE CMD...           CMD on that node
#   cluster_down             ends every process that was started and removes what was made, but not DIR
#   spool_stop NODE / spool_start NODE, metadata_stop / metadata_start, spools_again (are all there, also after that?)
#   hosts_of PATH, lies_on PATH NODE..., carried NODE rx|tx
#
# A node is a network namespace and a host name. Gfarm tells "this host" in two ways: a new file is put on the
# server that has the name of the host, and bytes go past the server where it has an address of the host.
# Here the name is the address, so no file of names is needed. Metadata are kept in gfmd's memory only.

cluster_port=21601

# Free for this process: two clusters on one machine differ in their names and addresses.
cluster_names() {
  cluster_id=hgf$$
  cluster_net=10.$((64 + $$ % 64)).$((RANDOM % 256))
}

cluster_address() { if [ "$1" = 0 ]; then say "$cluster_net.1"; else say "$cluster_net.$((10 + $1))"; fi; }

on() {
  local node=$1
  shift
  env GFARM_CONFIG_FILE="${GFARM_CONFIG_FILE:-$cluster_dir/client.conf}" \
    nsenter --net="/run/netns/$cluster_id-$node" --uts="$cluster_dir/uts-$node" "$@"
}

cluster_settings() {
  local common user
  user=$(id -un)
  printf '_gfarmfs %s\n_gfarmmd %s\n' "$user" "$user" >"$cluster_dir/users"
  common="metadb_server_host $(cluster_address 0)
metadb_server_port $cluster_port
auth enable sharedsecret *
log_level warning
local_user_map $cluster_dir/users"
  cat >"$cluster_dir/gfmd.conf" <<CONF
$common
shared_key_file $cluster_dir/key
admin_user $user
metadb_db_access_type none
metadb_replication disable
metadb_server_max_descriptors 4096
metadb_server_long_term_lock_type mutex
metadb_server_nfs_root_squash_support disable
atime disable
replica_check disable
CONF
  printf '%s\nshared_key_file %s\n' "$common" "$cluster_dir/key" >"$cluster_dir/gfsd.conf"
  # A load above which Gfarm takes every host for busy: nothing here may depend on how busy this machine is.
  cluster_client_settings "$cluster_dir/key" 0.1 >"$cluster_dir/client.conf"
}

# cluster_client_settings KEY LOAD: settings of a client.
cluster_client_settings() {
  cat <<CONF
metadb_server_host $(cluster_address 0)
metadb_server_port $cluster_port
auth enable sharedsecret *
log_level warning
shared_key_file $1
schedule_idle_load_thresh $2
schedule_busy_load_thresh $2
no_file_system_node_timeout 3
gfmd_reconnection_timeout 3
network_receive_timeout 5
CONF
}

cluster_network() {
  local node name
  for node in $(seq 0 "$cluster_nodes"); do
    name=$cluster_id-$node
    ip netns add "$name" && ip -n "$name" link set lo up || return 1
    : >"$cluster_dir/uts-$node"
    unshare --uts="$cluster_dir/uts-$node" sh -c "echo $(cluster_address "$node") >/proc/sys/kernel/hostname" || return 1
    if [ "$node" = 0 ]; then
      ip -n "$name" link add name hub type bridge && ip -n "$name" addr add "$(cluster_address 0)/24" dev hub &&
        ip -n "$name" link set hub up || return 1
    else
      ip -n "$cluster_id-0" link add "v$node" type veth peer name eth0 netns "$name" &&
        ip -n "$cluster_id-0" link set "v$node" master hub up &&
        ip -n "$name" addr add "$(cluster_address "$node")/24" dev eth0 && ip -n "$name" link set eth0 up || return 1
    fi
  done
}

metadata_start() {
  on 0 gfmd -f "$cluster_dir/gfmd.conf" -P "$cluster_dir/gfmd.pid" -F "$cluster_dir/gfmd.log" &&
    wait_until 10 on 0 gfls / || return 1
  local node
  for node in $(seq 1 "$cluster_nodes"); do
    on 0 gfhost -c -a "$(uname -m)-linux" -p $((cluster_port + 1)) -n 2 "$(cluster_address "$node")" || return 1
  done
}
metadata_stop() { cluster_end gfmd "$cluster_dir/gfmd.pid"; }

spool_start() {
  local address
  address=$(cluster_address "$1")
  mkdir -p "$cluster_dir/spool-$1"
  on "$1" gfsd -f "$cluster_dir/gfsd.conf" -h "$address" -l "$address" -r "$cluster_dir/spool-$1" \
    -P "$cluster_dir/gfsd-$1.pid" -F "$cluster_dir/gfsd-$1.log"
}
spool_stop() { cluster_end gfsd "$cluster_dir/gfsd-$1.pid"; }
# A gfsd that asks a gfmd that was just started, and does not know its host yet, ends; who runs a Gfarm starts it again.
spools_again() {
  local node
  for node in $(seq 1 "$cluster_nodes"); do
    [ "$(cat "/proc/$(cat "$cluster_dir/gfsd-$node.pid" 2>/dev/null)/comm" 2>/dev/null)" = gfsd ] || spool_start "$node"
  done
  spools_ready
}
spools_ready() { [ "$(on 0 gfdf 2>/dev/null | grep -c "$cluster_net\.")" -ge "$cluster_nodes" ]; }

# cluster_end NAME PIDFILE: ends the daemon, and the processes that it made for its clients; at once, as a crash does.
cluster_end() {
  local pid child
  pid=$(cat "$2" 2>/dev/null) && [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = "$1" ] || return 0
  child=$(cat "/proc/$pid/task/$pid/children" 2>/dev/null)
  # shellcheck disable=SC2086 # a list of process ids
  kill -KILL "$pid" $child 2>/dev/null
  wait_until 10 test ! -d "/proc/$pid"
  rm -f "$2"
}

cluster_up() {
  cluster_dir=$1 cluster_nodes=${2:-3}
  mkdir -p "$cluster_dir"
  cluster_names
  cluster_settings
  cluster_network || return 1
  env GFARM_CONFIG_FILE="$cluster_dir/client.conf" gfkey -c -p 864000 >/dev/null || return 1
  metadata_start || return 1
  local node
  for node in $(seq 1 "$cluster_nodes"); do spool_start "$node" || return 1; done
  wait_until 20 spools_ready
}

cluster_down() {
  local node
  [ -n "${cluster_id:-}" ] || return 0
  for node in $(seq 1 "$cluster_nodes"); do spool_stop "$node"; done
  metadata_stop
  for node in $(seq 0 "$cluster_nodes"); do
    # Where gfsd listens for clients of its own host; the place is fixed.
    rm -rf "/tmp/.gfarm-gfsd$(cluster_address "$node")-$((cluster_port + 1))"
    umount "$cluster_dir/uts-$node" 2>/dev/null
    ip netns del "$cluster_id-$node" 2>/dev/null
  done
  cluster_id=
}

# hosts_of PATH: the hosts of a file, as Gfarm's own tool tells them.
hosts_of() { on 0 gfwhere "$1" | tr -s ' \n' '\n' | grep -F "$cluster_net." | sort | tr '\n' ' '; }
# lies_on PATH NODE...: on these and no others.
lies_on() {
  local path=$1 node expected=''
  shift
  for node in "$@"; do expected+="$(cluster_address "$node")"$'\n'; done
  expected=$(sort <<<"${expected%$'\n'}" | tr '\n' ' ')
  [ "$(hosts_of "$path")" = "$expected" ] || { say "$path lies on $(hosts_of "$path"), not on $expected"; return 1; }
}
# carried NODE rx|tx: bytes that a node has taken from the network, or sent.
carried() { on "$1" cat /proc/net/dev | awk -v way="$2" '$1 == "eth0:" { print way == "rx" ? $2 : $10 }'; }

# cluster_logs: the end of what each daemon said.
cluster_logs() {
  local file
  for file in "$cluster_dir"/*.log; do
    [ -e "$file" ] || continue
    say "--- $file"
    tail -n 5 "$file"
  done
}
