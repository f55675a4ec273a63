# Several machines on one kernel, for tests of launchers (sourced after prepare.sh): each has its own network,
# host name, processes, /tmp, /run, /root and disk, and its own boot id; they share a network, /opt and /mnt.
#
#   $work/shared    /mnt of every machine: the shared file system
#   $work/opt       /opt of every machine: the binary and what the test installs
#   $work/NAME      what belongs to one machine: tmp, root, disk (/srv)
#
# Needs root. Everything ends with the script: namespaces end with their first process.

work=
machine_names=()
declare -A machine_pid=()

# machines_up [--prepare FUNCTION] NAME...: makes them, with addresses 10.77.0.1 and up, known to each other by name.
# The function may put a script at $work/opt/first, which every machine runs before it hides anything of the host;
# $work and $own (the machine's own directory) are set there.
machines_up() {
  local prepare=true
  if [ "$1" = --prepare ]; then prepare=$2 && shift 2; fi
  work=$(mktemp -d "${HAYASE_WORK_DIR:-/var/tmp}/hayase-machines.XXXXXX")
  trap 'machines_end $?' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  mkdir "$work/shared" "$work/opt"
  chmod 755 "$work" "$work/opt"
  machine_names=("$@")
  printf '127.0.0.1 localhost\n' >"$work/opt/hosts"
  local name number=0
  for name in "$@"; do printf '10.77.0.%s %s\n' $((number += 1)) "$name" >>"$work/opt/hosts"; done
  $prepare
  # The network in the middle: a bridge in a namespace that lives as long as this process.
  unshare --net sleep infinity &
  hub=$!
  until [ "$(readlink "/proc/$hub/ns/net" 2>/dev/null)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.01; done
  nsenter -t "$hub" -n ip link add hub type bridge stp_state 0 forward_delay 0 mcast_snooping 0 || return 1
  nsenter -t "$hub" -n ip link set hub up
  number=0
  for name in "$@"; do machine_up "$name" $((number += 1)) || return 1; done
}

# For --prepare: an ordinary user `someone` (4711) that only the machines know, and /dev/fuse as udev makes it.
prepare_someone() {
  { cat /etc/passwd; printf 'someone:x:4711:4711::/srv/someone:/bin/bash\n'; } >"$work/opt/passwd"
  cat >"$work/opt/first" <<'HOOK'
mkdir -p /run/devices "$own/disk/someone"
chown 4711:4711 "$own/disk/someone"
mount -t tmpfs -o mode=755 tmpfs /run/devices
mknod -m 666 /run/devices/fuse c 10 229
mount --bind /run/devices/fuse /dev/fuse
mount --bind "$work/opt/passwd" /etc/passwd
HOOK
}

# machine_up NAME NUMBER
machine_up() {
  local name=$1 number=$2 outer inner
  mkdir -p "$work/$name/"{tmp,root,disk,var}
  chmod 1777 "$work/$name/tmp" "$work/$name/disk"
  cat /proc/sys/kernel/random/uuid >"$work/$name/boot_id"
  setsid unshare --net --mount --uts --ipc --pid --fork --kill-child --mount-proc --propagation private \
    bash -c "$machine_init" machine "$name" "$work" </dev/null >"$work/$name/console" 2>&1 &
  outer=$!
  local tries=500
  until [ -e "$work/$name/is_up" ]; do
    sleep 0.01
    if [ $((tries -= 1)) = 0 ]; then cat "$work/$name/console" >&2; return 1; fi
  done
  inner=$(ps -o pid= --ppid "$outer" | tr -d ' ')
  machine_pid[$name]=$inner
  nsenter -t "$hub" -n ip link add "m$number" type veth peer name eth0 netns "$inner" &&
    nsenter -t "$hub" -n ip link set "m$number" master hub up &&
    nsenter -t "$inner" -n ip link set lo up &&
    nsenter -t "$inner" -n ip addr add "10.77.0.$number/24" dev eth0 &&
    nsenter -t "$inner" -n ip link set eth0 up
}

# The first process of a machine: it also takes the ends of processes that nobody waits for.
# shellcheck disable=SC2016 # the machine's own variables
machine_init='
  set -e
  name=$1 work=$2 own=$2/$1
  hostname "$name"
  mount -t tmpfs -o mode=755 tmpfs /run
  mkdir /run/sshd /run/munge /run/lock
  [ ! -e "$work/opt/first" ] || . "$work/opt/first"
  mount --bind "$own/boot_id" /proc/sys/kernel/random/boot_id
  mount --bind "$work/opt/hosts" /etc/hosts
  mount --rbind "$work/opt" /opt
  mount --bind "$work/shared" /mnt
  mount --bind "$own/disk" /srv
  mount --bind "$own/root" /root
  touch "$own/is_up"
  # Last: the work directory itself may lie below them.
  mount --bind "$own/tmp" /tmp
  cd /
  trap : CHLD
  while :; do sleep 1000 & wait $!; done'

# at NAME CMD...: runs a command on a machine, as from its console.
at() {
  local name=$1
  shift
  nsenter -t "${machine_pid[$name]}" --mount --net --uts --ipc --pid --root --wd \
    env -i PATH=/opt:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root USER=root SHELL=/bin/bash LANG=C.UTF-8 "$@"
}

# machine_dies NAME: as if its power were cut.
machine_dies() {
  kill -9 "${machine_pid[$1]}"
  unset "machine_pid[$1]"
}

machines_end() {
  local status=$1 name job
  trap - EXIT INT TERM
  for name in "${!machine_pid[@]}"; do kill -9 "${machine_pid[$name]}" 2>/dev/null; done
  [ -z "${hub:-}" ] || kill "$hub" 2>/dev/null
  # Namespaces go with their last process, and with them the mounts below $work; a moment later.
  local tries=100
  while ! rm -rf --one-file-system "$work" 2>/dev/null && [ $((tries -= 1)) -gt 0 ]; do sleep 0.1; done
  exit "$status"
}

# remains NAME: what is left of jobs on a machine: processes, mounts, files.
remains() {
  at "$1" sh -c '
    for process in /proc/[0-9]*; do
      line=$({ tr "\0" " " <$process/cmdline; } 2>/dev/null)
      case $line in hayase\ * | */hayase\ *) echo "process ${process#/proc/} $line" ;; esac
    done
    cut -d" " -f5- /proc/self/mountinfo | grep -E "^/srv/|hayase-"
    find /srv /tmp/hayase-*/jobs /tmp/hayase-*/mnt /tmp/hayase-areas-* /mnt -mindepth 1 \
      \( \( -path /mnt/keep -o -path /srv/someone \) -prune -o -print \) 2>/dev/null'
}

# nothing_remains NAME...: waits for it, since processes of lost connections take a moment to notice.
nothing_remains() {
  local name tries=150 left
  for name in "$@"; do
    while left=$(remains "$name"); [ -n "$left" ]; do
      if [ $((tries -= 1)) -le 0 ]; then
        printf 'left on %s:\n%s\n' "$name" "$left"
        return 1
      fi
      sleep 0.1
    done
  done
}
