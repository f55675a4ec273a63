# Disks, links and shared storage of known speed (sourced by demo.sh, after scripts/job.sh).
#
# A control group limits the bytes per second of the loop devices that the nodes and the shared storage lie on: of version 1 the
# root group, which the kernel's own writers are in too, of version 2 a group for all processes of the demo. What each node
# sends is limited by tc. Every limit is measured before it is used: where one does not hold, $limited is empty, and nothing is
# compared.

disk_mib=200        # each node's disk, each of its areas: what is written, as for the shared storage
link_mib=119        # what each node sends: 1 Gbit/s
storage_mib=64      # the shared storage, for all nodes together
metadata_us=1000    # each call of a program that names a file on the shared storage
limited=
control=            # the group
control_before=     # where this shell was
control_version=
control_added=()    # what was switched on for it in version 2
control_parent=     # and where
control_mount=      # when the hierarchy had to be mounted
limited_devices=()

# limit_obstacle: why no limits can be set; nothing when they can.
limit_obstacle() {
  [ "$(id -u)" = 0 ] || { say "not root: no control group, no limited links"; return; }
  [ -z "$(node_obstacles)" ] || { say "no simulated nodes with a network of their own"; return; }
  has mkfs.ext4 || { say "mkfs.ext4 is missing"; return; }
  has tc || { say "tc is missing (package iproute2)"; return; }
  [ -n "$control" ] || say "no control group that limits disks (blkio of version 1, io of version 2)"
}

# control_place: "VERSION DIRECTORY" of a hierarchy with limits for disks that is mounted.
control_place() {
  awk '{ for (i = 7; i <= NF && $i != "-"; i++); type = $(i + 1); options = "," $(i + 3) ","
      if (type == "cgroup" && options ~ /,blkio,/) { print 1, $5; exit }
      if (type == "cgroup2") unified = $5 }
    END { if (unified != "") print 2, unified }' /proc/self/mountinfo | while read -r version place; do
    if [ "$version" = 1 ] || grep -qw io "$place/cgroup.controllers" 2>/dev/null; then say "$version $place"; fi
  done | head -n 1
}

# control_begin: moves this shell into the group, with all that it starts.
control_begin() {
  local place
  [ "$(id -u)" = 0 ] || return 0
  place=$(control_place)
  [ -n "$place" ] || control_mounted || return 0
  read -r control_version place <<<"${place:-$(control_place)}"
  control_before=$place$(control_path)
  [ -w "$control_before/cgroup.procs" ] || control_before=$place
  if [ "$control_version" = 1 ]; then
    control=$place
  else
    control_parent=$place
    control_add io || return 0
    control_add memory # Or writes of the page cache are not counted.
    control=$(mktemp -d "$place/hayase-demo.XXXXXX") || { control_end; return 0; }
  fi 2>/dev/null
  echo $$ >"$control/cgroup.procs" || { control_end; control=; }
}

# control_add CONTROLLER: for groups below $control_parent.
control_add() {
  ! grep -qw "$1" "$control_parent/cgroup.subtree_control" || return 0
  echo "+$1" >"$control_parent/cgroup.subtree_control" && control_added+=("$1")
}

# control_mounted: mounts a hierarchy where none is, for example in a chroot.
control_mounted() {
  control_mount=$job_work/control
  mkdir "$control_mount"
  { mount -t cgroup -o blkio none "$control_mount" || mount -t cgroup2 none "$control_mount"; } 2>/dev/null &&
    [ -n "$(control_place)" ] && return
  umount "$control_mount" 2>/dev/null
  control_mount=
  return 1
}

# control_path: this shell's group in that hierarchy.
control_path() {
  if [ "$control_version" = 1 ]; then sed -n 's/^[0-9]*:\([^:]*,\)\{0,1\}blkio\(,[^:]*\)\{0,1\}://p' /proc/self/cgroup
  else sed -n 's/^0:://p' /proc/self/cgroup; fi
}

# control_end: no limits; this shell goes back, and what is still in a group of ours too.
control_end() {
  local process name
  if [ -n "$control" ]; then
    unlimit_devices
    echo $$ >"$control_before/cgroup.procs"
    if [ "$control_version" = 2 ]; then
      while read -r process; do echo "$process" >"$control_before/cgroup.procs"; done <"$control/cgroup.procs" 2>/dev/null
      wait_until 3 rmdir "$control" || warn "left behind: $control"
    fi
    control=
  fi
  for name in "${control_added[@]}"; do echo "-$name" >"$control_parent/cgroup.subtree_control"; done 2>/dev/null
  control_added=()
  [ -z "$control_mount" ] || umount "$control_mount" || warn "left behind: $control_mount"
  control_mount=
}

# limit_device MAJOR:MINOR MIB: what is written to it; 0 is no limit.
limit_device() {
  local bytes=$(($2 << 20))
  if [ "$control_version" = 1 ]; then
    echo "$1 $bytes" >"$control/blkio.throttle.write_bps_device"
  else
    [ "$bytes" != 0 ] || bytes=max
    echo "$1 wbps=$bytes" >"$control/io.max"
  fi || return 1
  limited_devices+=("$1")
  echo "$1" >>"$job_work/limited"
}

# write_early MAJOR:MINOR MIB: the kernel begins to write when 32 MiB are dirty, as clients of shared storage do, not when a
# tenth of the memory is; 0: as before. Kernels before 6.2 cannot.
write_early() {
  local bdi=/sys/class/bdi/$1
  if [ "$2" = 0 ]; then
    echo 0 >"$bdi/strict_limit"
    echo 100 >"$bdi/max_ratio"
  else
    echo $((32 << 20)) >"$bdi/max_bytes" && echo 1 >"$bdi/strict_limit"
  fi
}

# devices NODE: the devices of a node's areas.
devices() { on "$1" awk -v node="/node-$1/" 'index($5, node) && / - xfs / { print $3 }' /proc/self/mountinfo; }

# limit_nodes: disks and links of the three nodes.
limit_nodes() {
  local node device found
  for node in 0 1 2; do
    found=$(devices "$node")
    [ -n "$found" ] || return 1
    for device in $found; do limit_device "$device" "$disk_mib" || return 1; done
    on "$node" tc qdisc add dev eth0 root tbf rate $((link_mib << 20))bps burst 1m latency 500ms || return 1
  done
}

# unlimit_devices: takes back the limits of disks.
unlimit_devices() {
  local device
  for device in "${limited_devices[@]}"; do limit_device "$device" 0; write_early "$device" 0; done 2>/dev/null
  limited_devices=()
}

# limits_end: takes back all that was set, when one of them does not hold.
limits_end() {
  local node
  unlimit_devices
  for node in 0 1 2; do on "$node" tc qdisc del dev eth0 root; done >/dev/null 2>&1
  distant=()
}

# write_rate NODE DIRECTORY MIB: MiB/s of a write as programs do it, through the page cache and until it is on the disk.
write_rate() {
  local start
  start=$(seconds)
  on "$1" dd if=/dev/zero of="$2/probe" bs=4M count=$(($3 / 4)) conv=fsync 2>/dev/null || return 1
  calc "$3 / $(since "$start")" %.0f
  on "$1" rm "$2/probe"
}

# holds LIMIT LEAST CMD...: tries whether what is measured is near a limit, and keeps that in $measured.
holds() {
  local limit=$1 least=$2
  shift 2
  for _ in 1 2 3; do
    measured=$("$@") || return 1
    [ -z "$measured" ] || [ "$(calc "$measured >= $least && $measured <= $limit * 1.25" %d)" = 0 ] || return 0
  done
  return 1
}

# limits_hold: measures all of them; says why when one does not hold.
limits_hold() {
  local node kind rates=() shared link
  holds $storage_mib $((storage_mib * 3 / 4)) write_rate 0 "$storage" 64 ||
    { say "the shared storage makes ${measured:-no} MiB/s, not $storage_mib"; return 1; }
  shared=$measured
  for node in 0 1 2; do
    for kind in shared local; do
      holds $disk_mib $((disk_mib * 3 / 4)) write_rate "$node" "$(area "$node" $kind)" 200 ||
        { say "the disk of $kind on node $node makes ${measured:-no} MiB/s, not $disk_mib"; return 1; }
      rates+=("$measured")
    done
  done
  holds $link_mib $((link_mib * 3 / 4)) link_rate || { say "a link makes ${measured:-no} MiB/s, not $link_mib"; return 1; }
  link=$measured
  condition "shared storage: writes at $storage_mib MiB/s for all nodes together (measured $shared); reads are not limited"
  condition "\`tar\`, \`make\`, \`cp\` and \`hayase stage out\` wait $((metadata_us / 1000)) ms for each call that names a file on the shared storage; MPI programs, Hayase's servers and the writers of the killed job do not"
  condition "each node: writes at $disk_mib MiB/s to each area (measured ${rates[*]}), and it sends at most $link_mib MiB/s, 1 Gbit/s (measured $link)"
}

# link_rate: MiB/s of a TCP connection from node 0 to node 1.
link_rate() {
  local sender
  on 0 perl demo/link.pl send n1 9001 64 2>/dev/null &
  sender=$!
  on 1 perl demo/link.pl listen 9001 2>/dev/null
  wait "$sender"
}
