# A Ceph RADOS Gateway on loopback, from Debian's packages (sourced, not run).
#
#   gateway_up DIR    starts one monitor, one manager, one OSD on a sparse file, and the gateway; sets
#                     gateway_endpoint; user test/testtest, key `hayase-key` for SSE-KMS
#   gateway_stop      kills the gateway alone; gateway_again starts it anew in the same place
#   gateway_down      ends them by their own process ids
#
# Each daemon is started in the foreground form and kept as our own child, so that nothing is found by name.

gateway_pids=()
gateway_key=hayase-key

# free_port: a port on loopback that nobody listens on now.
free_port() {
  local port
  while :; do
    port=$((20000 + RANDOM % 20000))
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port"; return; }
  done
}

gateway_config() {
  local dir=$1 fsid=$2 mon=$3 port=$4 low=$5 modes='' mode
  # With `auth none` the gateway hangs for 300 s unless every connection is told to be plain.
  for mode in mon_client mon_cluster mon_service cluster service client; do
    modes+="ms_${mode}_mode = crc"$'\n'
  done
  cat >"$dir/ceph.conf" <<CONF
[global]
fsid = $fsid
mon_host = [v2:127.0.0.1:$mon,v1:127.0.0.1:$((mon + 1))]
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
${modes}public_network = 127.0.0.0/8
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 8
osd_pool_default_pgp_num = 8
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
mon_allow_pool_size_one = true
mon_max_pg_per_osd = 2000
mon_data_avail_crit = 1
run_dir = $dir
admin_socket = $dir/\$name.asok
pid_file = $dir/\$name.pid
log_file = $dir/\$name.log
keyring = $dir/keyring
ms_bind_port_min = $low
ms_bind_port_max = $((low + 200))
[mon.a]
mon_data = $dir/mon
mon_addr = 127.0.0.1:$mon
[mgr.x]
mgr_data = $dir/mgr
mgr_initial_modules =
[osd.0]
osd_data = $dir/osd
osd_objectstore = bluestore
bluestore_block_size = 6442450944
bluestore_block_create = true
bluestore_cache_autotune = false
bluestore_cache_size = 268435456
[client.rgw]
rgw_frontends = beast endpoint=127.0.0.1:$port${GATEWAY_FRONTEND:+ $GATEWAY_FRONTEND}
rgw_data = $dir/rgw
rgw_thread_pool_size = 64
rgw_crypt_require_ssl = false
rgw_crypt_s3_kms_backend = testing
rgw_crypt_s3_kms_encryption_keys = $gateway_key=$(head -c 32 /dev/urandom | base64)
CONF
}

# gateway_start DAEMON ARGS...: in the foreground, as our child.
gateway_start() {
  local name=$1
  shift
  "$name" "$@" -f >"$gateway_dir/$name.out" 2>&1 </dev/null &
  gateway_pids+=($!)
}

gateway_up() {
  local dir=$1 fsid mon port low uuid tries
  gateway_dir=$dir
  mkdir -p "$dir"/mon "$dir"/mgr "$dir"/osd "$dir"/rgw
  fsid=$(cat /proc/sys/kernel/random/uuid)
  uuid=$(cat /proc/sys/kernel/random/uuid)
  mon=$(free_port) port=$(free_port) low=$((40000 + RANDOM % 10000))
  gateway_config "$dir" "$fsid" "$mon" "$port" "$low"
  local conf=$dir/ceph.conf
  {
    ceph-authtool --create-keyring "$dir/keyring" --gen-key -n mon. --cap mon 'allow *' &&
      ceph-authtool "$dir/keyring" --gen-key -n client.admin --cap mon 'allow *' --cap osd 'allow *' --cap mgr 'allow *' &&
      monmaptool --create --clobber --fsid "$fsid" --addv a "[v2:127.0.0.1:$mon,v1:127.0.0.1:$((mon + 1))]" "$dir/monmap" &&
      ceph-mon -c "$conf" --mkfs -i a --monmap "$dir/monmap" --keyring "$dir/keyring"
  } >"$dir/setup.out" 2>&1 || return 1
  gateway_start ceph-mon -c "$conf" -i a
  gateway_start ceph-mgr -c "$conf" -i x
  timeout 60 ceph -c "$conf" osd new "$uuid" >>"$dir/setup.out" 2>&1 &&
    timeout 60 ceph-osd -c "$conf" -i 0 --mkfs --osd-uuid "$uuid" >>"$dir/setup.out" 2>&1 || return 1
  gateway_start ceph-osd -c "$conf" -i 0
  gateway_start radosgw -c "$conf" -n client.rgw --no-mon-config
  tries=240
  until (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] || return 1
    sleep 0.5
  done
  timeout 120 radosgw-admin -c "$conf" user create --uid=test --display-name=test --access-key=test --secret-key=testtest \
    >>"$dir/setup.out" 2>&1 || return 1
  gateway_endpoint=http://127.0.0.1:$port
}

gateway_stop() {
  kill -KILL "${gateway_pids[-1]}" && wait "${gateway_pids[-1]}" 2>/dev/null
  unset 'gateway_pids[-1]'
}

gateway_again() { gateway_start radosgw -c "$gateway_dir/ceph.conf" -n client.rgw --no-mon-config; }

# gateway_curl METHOD PATH ARGS...: a signed request by a foreign client.
gateway_curl() {
  local method=$1 path=$2
  shift 2
  curl -sS --max-time 60 -X "$method" --aws-sigv4 aws:amz:us-east-1:s3 --user test:testtest \
    -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' "$@" "$gateway_endpoint$path"
}

gateway_down() {
  local i
  # The gateway first, the monitor last.
  for ((i = ${#gateway_pids[@]} - 1; i >= 0; i--)); do kill -KILL "${gateway_pids[i]}" 2>/dev/null; done
  for ((i = ${#gateway_pids[@]} - 1; i >= 0; i--)); do wait "${gateway_pids[i]}" 2>/dev/null; done
  gateway_pids=()
}

# gateway_logs: the end of what each daemon said.
gateway_logs() {
  local file
  for file in "$gateway_dir"/*.out; do
    say "--- $file"
    tail -n 5 "$file"
  done
}
