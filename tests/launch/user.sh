#!/usr/bin/env bash
# Jobs of an ordinary user, without a capability: plain FUSE by fusermount3, counted areas, simulated nodes with
# loopback addresses, hosts over ssh, and the demo; some of it also with the system calls of Linux 4.18 (RHEL 8) only. The
# user is one that only these machines (namespaces of this one) know. Prints `ok`, `FAILED` and `SKIP` lines.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
. scripts/prepare.sh
. tests/launch/machines.sh

obstacle=$(node_obstacles)
if [ -n "$obstacle" ]; then
  say "SKIP user: $(head -n 1 <<<"$obstacle")"
  exit 0
fi
if ! has fusermount3 || ! has sshd || ! has ssh; then
  say "SKIP user: fuse3, openssh-server and openssh-client are not installed"
  exit 0
fi
binary=${HAYASE_BIN:-$(built hayase)} || exit 1

only=$*
failures=0
# try NAME: one test, the function of that name.
try() {
  local start=$SECONDS name test=$1$suffix
  case " ${only:-$test} " in *" $test "*) ;; *) return ;; esac
  if "$1" >"$work/out" 2>&1; then say "ok user_$test ($((SECONDS - start)) s)"; else
    say "FAILED user_$test"
    tail -n 40 "$work/out"
    failures=$((failures + 1))
    for name in a b; do as_user $name hayase down >/dev/null 2>&1; done
  fi
}

toolchain=$(rustc --print sysroot)
registry=${CARGO_HOME:-$HOME/.cargo}/registry
# What the demo unpacks: the machines reach no network.
cargo fetch --locked --quiet --manifest-path demo/source-tree/Cargo.toml || die "the demo's source tree can not be fetched"
# Beside the user: cargo for the demo.
prepare_machines() {
  prepare_someone
  cat >>"$work/opt/first" <<HOOK
mount --bind "$toolchain" "$work/opt/rust"
mount --bind "$registry" "$work/opt/cargo/registry"
HOOK
  mkdir -p "$work/opt/rust" "$work/opt/cargo/registry"
  chown 4711:4711 "$work/opt/cargo"
}
machines_up --prepare prepare_machines a b || die "no machines"
cp "$binary" "$work/opt/hayase"
cp "$(dirname "$binary")/libhayase_mpiio.so" "$work/opt/"
strip --strip-debug "$work/opt/hayase" 2>/dev/null
# The kernel: this one, or as old_kernels says.
kernel=() profile=() suffix=
# old_kernels: from here on with no system call that Linux 4.18 does not have, and the FUSE of that kernel.
old_kernels() {
  cc -O1 -Wall -o "$work/opt/old_kernel" tests/launch/old_kernel.c || die "tests/launch/old_kernel.c can not be compiled"
  "$work/opt/old_kernel" true || die "the filter of system calls can not be installed"
  kernel=("$work/opt/old_kernel") profile=(--kernel-profile 4.18) suffix=_on_4_18
}
# as_user MACHINE CMD...: without a capability.
as_user() {
  local name=$1
  shift
  "${kernel[@]}" nsenter -t "${machine_pid[$name]}" --mount --net --uts --ipc --pid --root --wd \
    setpriv --reuid=4711 --regid=4711 --clear-groups --inh-caps=-all \
    env -i -C /srv/someone PATH=/opt:/opt/rust/bin:/usr/bin:/bin HOME=/srv/someone USER=someone SHELL=/bin/bash LANG=C.UTF-8 \
    TMPDIR=/srv/someone CARGO_HOME=/opt/cargo RUSTUP_TOOLCHAIN= HAYASE_BIN=/opt/hayase HAYASE_WORK_DIR=/srv/someone "$@"
}
has_word() { grep -qF -- "$1" "$work/said" || { say "not said: $1"; cat "$work/said"; return 1; }; }
user_remains() {
  local name tries=100 left
  for name in "$@"; do
    while
      left=$(as_user "$name" sh -c 'ps -o args= -u 4711 | grep "^hayase "; grep -F hayase /proc/self/mountinfo | grep -F someone
        find /tmp/hayase-4711/jobs /tmp/hayase-4711/mnt /srv/someone/storage /srv/someone/mnt -mindepth 1 2>/dev/null')
      [ -n "$left" ]
    do
      if [ $((tries -= 1)) -le 0 ]; then
        printf 'left on %s:\n%s\n' "$name" "$left"
        return 1
      fi
      sleep 0.1
    done
  done
}

is_without_privileges() {
  [ "$(as_user a sh -c 'grep -E "Cap(Eff|Prm|Amb)" /proc/self/status' | awk '{ print $2 }' | sort -u)" = 0000000000000000 ] || return 1
  ! as_user a mount -t tmpfs tmpfs /srv/someone && ! as_user a unshare --net true
}
doctor_is_content() {
  as_user a hayase doctor >"$work/said" && has_word 'user 4711 without CAP_SYS_ADMIN' && has_word 'jobs can start here' &&
    has_word 'launcher: this machine'
}
# Three simulated nodes: what one writes the others read; names, locks, sizes; a full area says so at write(2).
simulated_nodes() {
  as_user a mkdir -p storage mnt
  as_user a hayase up --nodes 3 --job t --storage storage --mount mnt --shared 32M --local 32M "${profile[@]}" >"$work/said" || return 1
  as_user a hayase status >"$work/said" && has_word 'job t: up' && has_word '32 MiB on each node, counted' && has_word fuse || return 1
  on() { as_user a hayase exec --node "$1" -- sh -euc "$2"; }
  on 0 'dd if=/dev/urandom of=$HAYASE_SHARED/data bs=1M count=20 status=none; sha256sum <$HAYASE_SHARED/data >$HAYASE_SHARED/sum' || return 1
  for node in 0 1 2; do on $node '[ "$(sha256sum <$HAYASE_SHARED/data)" = "$(cat $HAYASE_SHARED/sum)" ]' || return 1; done
  on 1 'mkdir $HAYASE_SHARED/d; mv $HAYASE_SHARED/sum $HAYASE_SHARED/d/renamed; ln $HAYASE_SHARED/d/renamed $HAYASE_SHARED/d/hard; ln -s hard $HAYASE_SHARED/d/soft
    chmod 640 $HAYASE_SHARED/d/hard' || return 1
  on 2 '[ "$(stat -L -c "%a %h %u" $HAYASE_SHARED/d/soft)" = "640 2 4711" ]; ! chown 0 $HAYASE_SHARED/data 2>/dev/null' || return 1
  on 0 'exec 9>$HAYASE_SHARED/lock; flock 9; echo locked; sleep 3' >"$work/locked" &
  local pid=$! tries=100
  until grep -q locked "$work/locked" || [ $((tries -= 1)) = 0 ]; do sleep 0.1; done
  ! on 2 'flock -n $HAYASE_SHARED/lock true' || { say "the lock was not seen"; return 1; }
  wait $pid
  on 2 'flock -n $HAYASE_SHARED/lock true' || return 1
  on 1 'dd if=/dev/zero of=$HAYASE_SHARED/full bs=1M count=200 2>&1 || true; stat -c %s $HAYASE_SHARED/full; rm $HAYASE_SHARED/full' >"$work/said" || return 1
  has_word 'No space left on device' || return 1
  on 0 'touch $HAYASE_LOCAL/own' && on 1 '[ ! -e $HAYASE_LOCAL/own ]' || return 1
  as_user a hayase down && user_remains a
}
cache_in_front_of_a_directory() {
  as_user a mkdir -p storage mnt tier
  as_user a hayase up --nodes 2 --job t --storage storage --mount mnt --shared 32M --local 32M --tier /srv/someone/tier "${profile[@]}" >"$work/said" || return 1
  as_user a hayase exec --node 1 -- sh -euc 'mkdir -p $HAYASE_CACHE/d; seq 100000 >$HAYASE_CACHE/d/file' || return 1
  as_user a hayase flush --verify && as_user a sh -c 'seq 100000 | cmp - tier/d/file' && as_user a hayase down && user_remains a
}
run_on_this_machine() {
  as_user a hayase run --storage storage --mount mnt --shared 32M --local 32M "${profile[@]}" -- sh -c 'echo x >$HAYASE_SHARED/x; cat $HAYASE_SHARED/x; exit 6' >"$work/said"
  [ $? = 6 ] && has_word x && user_remains a
}
# A daemon killed by force, a launcher killed by force.
force_leaves_nothing() {
  as_user a hayase up --nodes 2 --job t --storage storage --mount mnt --shared 32M --local 32M "${profile[@]}" >/dev/null || return 1
  as_user a pkill -KILL -f '^hayase serve-mount .*--node 1'
  as_user a hayase down || [ $? = 3 ] || return 1
  user_remains a || return 1
  as_user a hayase run --nodes 2 --job t --storage storage --mount mnt --shared 32M --local 32M "${profile[@]}" -- sleep 100 &
  local pid=$!
  sleep 4
  as_user a pkill -KILL -f '^hayase run '
  wait $pid
  as_user a hayase down --job t >/dev/null 2>&1
  user_remains a
}
# Both machines are nodes; the user's key opens both.
hosts_over_ssh() {
  as_user a sh -c 'mkdir -m 700 .ssh && ssh-keygen -q -t ed25519 -N "" -f .ssh/id && ssh-keygen -q -t ed25519 -N "" -f host_key'
  as_user b mkdir -m 700 .ssh
  cp -p "$work/a/disk/someone/.ssh/id"* "$work/b/disk/someone/.ssh/"
  cp "$work/a/disk/someone/host_key" "$work/opt/host_key" && chown 0 "$work/opt/host_key" && chmod 600 "$work/opt/host_key"
  cp "$work/a/disk/someone/.ssh/id.pub" "$work/opt/authorized_keys"
  printf 'HostKey /opt/host_key\nAuthorizedKeysFile /opt/authorized_keys\nStrictModes no\nUsePAM no\nPidFile none\nSubsystem sftp none\n' >"$work/opt/sshd_config"
  for name in a b; do at $name /usr/sbin/sshd -f /opt/sshd_config -E /root/sshd.log || return 1; done
  as_user a hayase up --job t --hosts a,b --storage /srv/someone/storage --shared 32M --local 32M \
    --ssh 'ssh -i /srv/someone/.ssh/id -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null'
}
hosts_work() {
  as_user b mkdir -p storage
  hosts_over_ssh || return 1
  as_user a hayase exec --node 1 -- sh -c 'id -u; hostname; echo from b >$HAYASE_SHARED/x' >"$work/said" && has_word 4711 && has_word b || return 1
  [ "$(as_user a hayase exec --node 0 -- sh -c 'cat $HAYASE_SHARED/x')" = "from b" ] || return 1
  as_user a hayase status | grep 'job t: up' && as_user a hayase down && user_remains a b
}
demo_runs() {
  mkdir "$work/a/disk/someone/repository"
  git ls-files -z | tar -c --null -T - | tar -x -C "$work/a/disk/someone/repository" && chown -R 4711:4711 "$work/a/disk/someone/repository"
  as_user a bash repository/demo.sh --ranks 1 --mib 4 >"$work/said" 2>&1 || { tail -n 30 "$work/said"; return 1; }
  has_word 'demo: done' && user_remains a
}

try is_without_privileges
try doctor_is_content
try simulated_nodes
try run_on_this_machine
try force_leaves_nothing
try hosts_work
if has mpiexec.mpich && has mpich/mpi.h; then try demo_runs; else say "SKIP user_demo_runs: MPICH is not installed"; fi
try cache_in_front_of_a_directory
old_kernels
try simulated_nodes
try cache_in_front_of_a_directory
try run_on_this_machine
try force_leaves_nothing

[ "$failures" = 0 ]
