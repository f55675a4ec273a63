#!/usr/bin/env bash
# Jobs on several hosts over real ssh: sshd of Debian with keys and configuration of this test's own, one on each
# of six machines that are namespaces of this one. Prints `ok`, `FAILED` and `SKIP` lines.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
. scripts/prepare.sh
. tests/launch/machines.sh

obstacle=$(node_obstacles)
if [ -n "$obstacle" ]; then
  say "SKIP ssh: $(head -n 1 <<<"$obstacle")"
  exit 0
fi
if ! has sshd || ! has ssh; then
  say "SKIP ssh: openssh-server and openssh-client are not installed"
  exit 0
fi
binary=${HAYASE_BIN:-$(built hayase)} || exit 1

failures=0
# try NAME: one test, the function of that name.
try() {
  local start=$SECONDS
  [ $# = 1 ] || die "try NAME"
  case " ${only:-$1} " in *" $1 "*) ;; *) return ;; esac
  if "$1" >"$work/out" 2>&1; then say "ok ssh_$1 ($((SECONDS - start)) s)"; else
    say "FAILED ssh_$1"
    tail -n 40 "$work/out"
    failures=$((failures + 1))
    # The next test begins with clean machines.
    for name in "${!machine_pid[@]}"; do
      at "$name" sh -c 'pkill -9 -x -f "sleep 777"; umount -l /srv/tier /srv/other; rmdir /srv/tier /srv/other' 2>/dev/null
      remains "$name" | sed -n 's/^process \([0-9]*\) .*/\1/p' | while read -r pid; do at "$name" kill -9 "$pid"; done
    done
    sleep 0.5
  fi
}
only=$*

# a to d are good; `silent` takes connections and never answers; `chatty` prints on standard output before and
# after everything; nobody is at `dead`.
machines_up a b c d silent chatty || die "no machines"
printf '10.77.0.99 dead\n' >>"$work/opt/hosts"
cp "$binary" "$work/opt/hayase"
strip --strip-debug "$work/opt/hayase" 2>/dev/null
mkdir "$work/opt/ssh"
ssh-keygen -q -t ed25519 -N '' -f "$work/opt/ssh/user_key"
ssh-keygen -q -t ed25519 -N '' -f "$work/opt/ssh/host_key"
cp "$work/opt/ssh/user_key.pub" "$work/opt/ssh/authorized_keys"
printf '* %s\n' "$(cut -d' ' -f1-2 "$work/opt/ssh/host_key.pub")" >"$work/opt/ssh/known_hosts"
cat >"$work/opt/ssh/sshd_config" <<'CONFIG'
Port 2222
HostKey /opt/ssh/host_key
AuthorizedKeysFile /opt/ssh/authorized_keys
PermitRootLogin yes
PasswordAuthentication no
StrictModes no
UsePAM no
PidFile none
CONFIG
cat >"$work/opt/ssh/config" <<'CONFIG'
Host *
  Port 2222
  IdentityFile /opt/ssh/user_key
  IdentitiesOnly yes
  UserKnownHostsFile /opt/ssh/known_hosts
  StrictHostKeyChecking yes
CONFIG
{
  cat "$work/opt/ssh/sshd_config"
  printf 'Banner /opt/ssh/banner\nForceCommand /opt/ssh/login\n'
} >"$work/opt/ssh/chatty_config"
printf 'All your accesses are logged.\n' >"$work/opt/ssh/banner"
cat >"$work/opt/ssh/login" <<'LOGIN'
#!/bin/sh
echo "Welcome to the chatty machine!"
echo '@hayase 0 . {"what":"is this"}'
sh -c "$SSH_ORIGINAL_COMMAND"
status=$?
echo "Good bye!"
exit $status
LOGIN
chmod 755 "$work/opt/ssh/login"
chmod 600 "$work/opt/ssh/"*key
for name in a b c d silent; do at "$name" /usr/sbin/sshd -f /opt/ssh/sshd_config -E "/root/sshd.log" || die "no sshd"; done
at chatty /usr/sbin/sshd -f /opt/ssh/chatty_config -E "/root/sshd.log" || die "no sshd"
at silent sh -c 'kill -STOP $(pidof sshd)'
all="a b c d chatty"

ssh='ssh -F /opt/ssh/config'
# up HOSTS OPTION...: typed on machine a.
up() {
  local hosts=$1
  shift
  at a hayase up --job j --hosts "$hosts" --ssh "$ssh" --storage /srv --shared 16M --local 16M "$@"
}
# on NODE CMD...: through the launcher, typed on machine a.
on() {
  local node=$1
  shift
  at a hayase exec --job j --node "$node" -- "$@"
}
# within SECONDS CMD...: took no longer; its status is that of CMD.
within() {
  local limit=$1 start=$SECONDS status=0
  shift
  "$@" || status=$?
  [ $((SECONDS - start)) -le "$limit" ] || { say "took $((SECONDS - start)) s"; return 99; }
  return $status
}
# fails_with CMD... (its output in $out): any status but 0.
fails() { if out=$("$@" 2>&1); then say "it worked: $out"; return 1; fi; say "$out"; }
has_word() { grep -qF -- "$1" <<<"$out" || { say "not said: $1 in: $out"; return 1; }; }

# What a job must be able to do, whatever its directory is.
job_works() {
  local node
  [ "$(for node in 0 1 2 3; do on $node hostname; done | tr '\n' ' ')" = "a b c d " ] || return 1
  on 3 sh -c 'echo from d >$HAYASE_SHARED/greeting; echo $HAYASE_NODE >$HAYASE_LOCAL/own' || return 1
  for node in 0 1 2 3; do
    [ "$(on $node sh -c 'cat $HAYASE_SHARED/greeting; ls $HAYASE_LOCAL')" = "from d$([ $node != 3 ] || echo; [ $node != 3 ] || echo own)" ] || return 1
  done
  # Another machine than the one where `up` was typed, without an argument.
  [ "$(at d hayase exec --node 2 -- hostname)" = c ] || return 1
  [ "$(printf x | on 1 cat)" = x ] || return 1
  on 2 sh -c 'exit 7'
  [ $? = 7 ] || return 1
  on 2 printf '%s|' "it's" 'a  b' '$HOME' >"$work/words" && [ "$(cat "$work/words")" = "it's|a  b|\$HOME|" ] || return 1
  at a hayase status --json >"$work/status" || return 1
  grep -q '"state": "up"' "$work/status" && [ "$(grep -c '"resident_bytes"' "$work/status")" = 4 ]
}
shared_job_directory() {
  up a,b,c,d --job-dir /mnt/job --fanout 2 --mount /srv/areas && job_works || return 1
  [ -d /proc/1 ] && at a test -d /mnt/job/node-3 || return 1
  at b hayase down --job /mnt/job || return 1
  # The entry of a job that was ended elsewhere goes with the next command.
  [ "$(at a hayase status)" = "no jobs; start one with \`hayase up\`" ] && nothing_remains $all
}
no_shared_directory() {
  up a,b,c,d --fanout 2 && job_works || return 1
  at a test ! -e /tmp/hayase-0/jobs/j/node-1/serve.log && at b test -e /tmp/hayase-0/jobs/j/node-1/serve.log || return 1
  at a hayase down && nothing_remains $all
}
# `up` on a machine that is no node, hosts from a file, all started from here; and with a chatty one among them.
host_file_from_outside() {
  at a sh -c 'printf "# ours\nb slots=4\nc:2\nchatty # loud\n" >/root/hosts'
  at a hayase up --job j --host-file /root/hosts --ssh "$ssh" --storage /srv --shared 16M --local 16M || return 1
  [ "$(on 2 hostname | tr '\n' ' ')" = 'Welcome to the chatty machine! @hayase 0 . {"what":"is this"} chatty Good bye! ' ] || return 1
  on 0 sh -c 'echo x >$HAYASE_SHARED/x' && [ "$(on 1 sh -c 'cat $HAYASE_SHARED/x')" = x ] || return 1
  # A second command that cleans up after dead jobs must not take this one for dead.
  at a hayase up --storage /srv --shared 16M --local 16M --mount /srv/m2 --job k --launcher local && at a hayase down --job k || return 1
  at a hayase status --job j | grep 'job j: up' && at a hayase down && nothing_remains $all
}
dead_host_is_named() {
  fails within 20 up a,b,dead,c --fanout 2 --timeout 20 && has_word "node 2 did not come up: dead:" &&
    has_word "No route to host" && nothing_remains $all
}
silent_host_is_named() {
  fails within 12 up a,silent,b,c --fanout 1 --timeout 12 && has_word "node 1 did not come up: silent:" && nothing_remains $all
}
missing_program_is_named() {
  fails up a,b --remote-hayase /opt/no-such && has_word "node 1 did not come up: b:" && has_word "/opt/no-such" &&
    has_word "--remote-hayase" && nothing_remains $all
}
node_that_can_not_come_up_is_named() {
  at c mkdir /srv/j && at c touch /srv/j/other
  fails up a,b,c --fanout 1
  local status=$?
  at c rm -r /srv/j
  [ $status = 0 ] && has_word "node 2 did not come up: on c:" && has_word "already has a job named j" && nothing_remains $all || return 1
  # What somebody else has mounted there is left alone.
  at c sh -c 'mkdir -p /srv/areas/shared && mount -t tmpfs other /srv/areas/shared && touch /srv/areas/shared/kept'
  fails up a,b,c --fanout 1 --mount /srv/areas && has_word "on c: mount point /srv/areas/shared: something is mounted there already" &&
    at c test -e /srv/areas/shared/kept && at c umount /srv/areas/shared && at c rm -r /srv/areas && nothing_remains $all
}
bad_lists_are_refused() {
  fails up 'a,n[1' && has_word '`[` without `]`' && fails up -oProxyCommand=x && fails up 'a;reboot' && nothing_remains $all
}
# signal_launcher SIGNAL: to what was typed on machine a; fails when that has ended.
signal_launcher() { at a pkill "-$1" -f '^hayase (up|run) '; }
# A signal at many moments of the start; whichever side wins, nothing stays.
interrupted_start_leaves_nothing() {
  local moment pid ended=0
  for moment in INT:0.1 INT:1 TERM:0.4 TERM:1.2 KILL:0.2 KILL:0.5 KILL:0.8 KILL:1.1; do
    up a,b,c,d --fanout 2 >"$work/up" 2>&1 &
    pid=$!
    sleep "${moment#*:}"
    if signal_launcher "${moment%:*}"; then ended=$((ended + 1)); fi
    wait $pid && ! at a hayase down --job j && return 1
    # Killed, it leaves what only it knew to the next command.
    case $moment in KILL:*) at a hayase down --job j >/dev/null 2>&1 ;; esac
    nothing_remains $all || { say "after SIG$moment s:"; cat "$work/up"; return 1; }
  done
  [ $ended -ge 4 ] || { say "only $ended of 8 starts were interrupted"; return 1; }
}
# The secret of a job goes through pipes only: in no command line, no environment and no log of any machine.
secret_is_never_shown() {
  up a,b,c,d --fanout 2 >/dev/null &
  local pid=$! secret hex
  while kill -0 $pid 2>/dev/null; do
    for name in a b c d; do at $name sh -c 'cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null'; done
  done >"$work/seen"
  wait $pid || return 1
  hex=$(at a od -An -v -tx1 /tmp/hayase-0/jobs/j/secret | tr -d ' \n')
  [ ${#hex} -ge 64 ] && [ -s "$work/seen" ] || return 1
  for name in b c d; do [ "$(at $name od -An -v -tx1 /tmp/hayase-0/jobs/j/secret | tr -d ' \n')" = "$hex" ] || return 1; done
  ! grep -qaF "$hex" "$work/seen" || return 1
  for name in a b c d; do
    [ "$(at $name stat -c %a /tmp/hayase-0/jobs/j /tmp/hayase-0/jobs/j/secret | tr '\n' ' ')" = "700 600 " ] || return 1
    ! at $name grep -rqaF "$hex" /tmp/hayase-0/jobs/j --include='*.log' || return 1
  done
  grep -qaF 'relay' "$work/seen" && at a hayase down && nothing_remains $all
}
run_gives_the_status_and_leaves_nothing() {
  at a hayase run --hosts b,c --ssh "$ssh" --storage /srv --shared 16M --local 16M -- sh -c 'hostname; exit 5' >"$work/ran"
  [ $? = 5 ] && [ "$(cat "$work/ran")" = b ] && nothing_remains $all || return 1
  at a hayase run --job r --hosts a,c --ssh "$ssh" --storage /srv --shared 16M --local 16M -- sh -c 'echo up; sleep 100' >"$work/ran" &
  local pid=$! tries=200
  until grep -q up "$work/ran" || [ $((tries -= 1)) = 0 ]; do sleep 0.1; done
  signal_launcher KILL
  wait $pid
  nothing_remains $all
}
half_dead_job_is_taken_down() {
  up a,b,c,d --fanout 2 || return 1
  at c sh -c 'kill -9 $(pidof hayase)'
  at a hayase status --json >"$work/status"
  grep -q '"state": "damaged"' "$work/status" && grep -q 'its supervisor has ended' "$work/status" || return 1
  out=$(at a hayase down 2>&1)
  has_word "node 2 (c): its supervisor had ended before" && nothing_remains $all
}
# As inside of a job of PBS or PJM: the environment names a file, and nothing is typed.
batch_systems_name_their_hosts() {
  at a sh -c 'printf "b\nb\nc\nc\n" >/root/nodes; printf "10.77.0.4\n10.77.0.1\n" >/root/nodeinf'
  at a env PBS_NODEFILE=/root/nodes hayase up --job j --ssh "$ssh" --storage /srv --shared 16M --local 16M || return 1
  [ "$(for node in 0 1; do on $node hostname; done | tr '\n' ' ')" = "b c " ] && at a hayase down || return 1
  out=$(at a env PJM_O_NODEINF=/root/nodeinf hayase run --ssh "$ssh" --storage /srv --shared 16M --local 16M -- hostname) || return 1
  [ "$out" = d ] || return 1
  out=$(at a env PBS_NODEFILE=/root/nodes hayase doctor)
  has_word 'launcher: ssh (PBS_NODEFILE lists the hosts: 2 hosts, by ssh)' || return 1
  fails at a env PBS_NODEFILE=/root/no-such hayase up && has_word 'read PBS_NODEFILE /root/no-such' && nothing_remains $all
}
# A tier as a network file system shows it: on each machine, and after each mount, with another number of the device.
mount_tier() { at "$1" sh -c 'mkdir -p /srv/tier && exec bindfs /mnt/keep /srv/tier'; }
unmount_tier() { at "$1" umount /srv/tier; }
seen() { for name in a b c d; do at $name stat -c "$1" /srv/tier/old || return 1; done | sort -u | wc -l; } # FORMAT
tier_holds() { # FILE TEXT
  [ "$(cat "$work/shared/keep/$1")" = "$2" ] || { say "$1 in the tier: $(cat "$work/shared/keep/$1")"; return 1; }
}
up_with_tier() { up a,b,c,d --tier /srv/tier; }
tiers_begin() {
  rm -rf "$work/shared/keep" && mkdir "$work/shared/keep" && echo old >"$work/shared/keep/old" || return 1
  for name in a b c d; do mount_tier $name || return 1; done
  [ "$(seen %d)" = 4 ] && [ "$(seen %i)" = 1 ] || { say "$(seen %d) devices, $(seen %i) inode numbers"; return 1; }
}
tiers_end() {
  for name in a b c d; do unmount_tier $name && at $name rmdir /srv/tier || return 1; done
  nothing_remains $all && rm -rf "$work/shared/keep"
}
# A program on a node writes a line to a file and keeps it open, so that nobody sends it to the tier.
holds() { # NODE FILE TEXT
  local tries=200
  on "$1" sh -c 'exec 3>>"$HAYASE_CACHE/$0"; echo "$1" >&3; sync "$HAYASE_CACHE/$0"; : >"$HAYASE_LOCAL/held"; exec sleep 777' "$2" "$3" &
  until on "$1" sh -c 'test -e "$HAYASE_LOCAL/held"'; do
    [ $((tries -= 1)) -gt 0 ] || { say "node $1 did not write $2"; return 1; }
    sleep 0.1
  done
}
# All at once, as when an allocation ends; and what is said to be resumed is.
kill_the_job() {
  for name in a b c d; do at $name sh -c 'kill -9 $(pidof hayase); pkill -9 -x -f "sleep 777"'; done
  out=$(at a hayase down 2>&1)
  [ $? = 3 ] && has_word 'hayase resume /srv/j' || { say "$out"; return 1; }
}
# It has done all that it can: whether other hosts need what is here, it does not know.
resumes() { # HOST OPTION...
  out=$(at "$1" hayase resume "${@:2}" /srv/j 2>&1)
  [ $? = 3 ] && has_word 'resume --discard' && at "$1" test -d /srv/j || { say "$1: $out"; return 1; }
  discards "$@"
}
discards() { # HOST OPTION...
  at "$1" hayase resume --discard "${@:2}" /srv/j && at "$1" test ! -e /srv/j
}
tier_with_other_device_numbers() {
  tiers_begin && up_with_tier || return 1
  local node
  # Each file is read, changed and sent by other nodes than those that did it before.
  for node in 0 1 2 3; do
    on $node sh -c 'cd $HAYASE_CACHE && echo $HAYASE_NODE >>old && echo by $HAYASE_NODE >new-$HAYASE_NODE' &&
      on $node sh -c '/opt/hayase flush $HAYASE_CACHE/new-$HAYASE_NODE' && tier_holds "new-$node" "by $node" &&
      at d hayase flush --job j || return 1
    on $(((node + 1) % 4)) sh -c '/opt/hayase evict $HAYASE_CACHE/old' || return 1
  done
  tier_holds old "$(printf 'old\n0\n1\n2\n3')" || return 1
  # What was not sent comes after a reboot: numbers of devices are others then, and no version was somebody else's.
  at a hayase down || return 1
  up_with_tier && on 1 sh -c 'cd $HAYASE_CACHE && cat old new-3 >/dev/null' || return 1
  for node in 2 3; do holds $node new-$node later || return 1; done
  kill_the_job || return 1
  for name in a b c d; do
    unmount_tier $name && at $name mkdir /srv/other && at $name bindfs /mnt /srv/other && mount_tier $name &&
      at $name umount /srv/other && at $name rmdir /srv/other && resumes $name || return 1
  done
  tier_holds new-2 "$(printf 'by 2\nlater')" && tier_holds new-3 "$(printf 'by 3\nlater')" &&
    [ "$(ls "$work/shared/keep" | tr '\n' ' ')" = "new-0 new-1 new-2 new-3 old " ] && tiers_end
}
# What an MPI program on node 1 leaves there for a file whose home is node 0: a part in its container, which no ledger names.
parts_for_other_hosts_are_kept() {
  tiers_begin && up_with_tier || return 1
  local container
  container=$(printf %016x "$(on 0 sh -c 'echo old >$HAYASE_CACHE/of-mpi && stat -c %i $HAYASE_CACHE/of-mpi')") || return 1
  on 1 sh -c 'dir=$HAYASE_SHARED/.hayase-recorded/$0 && mkdir -p "$dir" && echo part >"$dir/n1-p1-o0.part"' "$container" || return 1
  out=$(at b hayase down --here)
  [ $? = 3 ] && has_word 'parts of files of other hosts that the tier may not have' && has_word 'hayase resume /srv/j' &&
    at b test -d /srv/j || { say "$out"; return 1; }
  at a hayase down --drain 1
  for name in a b c d; do discards $name || return 1; done
  tiers_end
}
# Whether the file system of a directory exchanges two names (renameat2(2) with RENAME_EXCHANGE).
exchanges_names() {
  at a perl -e '$dir = shift; for ("x", "y") { open my $file, ">", "$dir/$_" or die } require POSIX;
    $number = (POSIX::uname())[4] eq "x86_64" ? 316 : 276; ($x, $y) = ("$dir/x", "$dir/y");
    $answer = syscall($number, -100, $x, -100, $y, 2); unlink $x, $y; exit($answer != 0)' "$1"
}
# bindfs of Debian 12 does not; what lies below it mostly does.
tier_that_can_not_compare_is_told_once() {
  tiers_begin || return 1
  local tier expected
  for tier in /srv/tier /mnt/keep; do
    if exchanges_names $tier; then expected=0; else expected=1; fi
    out=$(up a,b,c,d --tier $tier 2>&1) || { say "$out"; return 1; }
    [ "$(grep -c 'can not compare and swap' <<<"$out")" = $expected ] || { say "$tier: not $expected times: $out"; return 1; }
    say "$tier: $expected times"
    at a hayase down || return 1
  done
  tiers_end
}
# Where the tier is not mounted its path is a directory of the host's own disk, on which nobody looks for files.
tier_that_is_not_mounted_is_noticed() {
  tiers_begin && unmount_tier c || return 1
  fails up_with_tier && has_word 'node 2 did not come up: on c: ' && has_word '/srv/tier is not the directory that the job started with' || return 1
  at c rmdir /srv/tier
  fails up_with_tier && has_word 'node 2 did not come up: on c: ' && has_word 'there is no directory /srv/tier' || return 1
  mount_tier c && up_with_tier && holds 2 file kept || return 1
  kill_the_job && unmount_tier c || return 1
  fails at c hayase resume /srv/j && has_word '/srv/tier is not the directory that the job started with' && has_word --replaced-tier &&
    [ -z "$(at c ls /srv/tier)" ] || return 1
  # Restored: another directory, and meant.
  mkdir "$work/shared/other" && cp "$work/shared/keep/"* "$work/shared/other" && rm -r "$work/shared/keep" &&
    mv "$work/shared/other" "$work/shared/keep" && mount_tier c && resumes c --replaced-tier && tier_holds file kept || return 1
  for name in a b d; do unmount_tier $name && mount_tier $name && discards $name --replaced-tier || return 1; done
  tiers_end
}
# Last: it loses a machine. The lost one stood in the middle of the tree.
lost_machine_is_told_and_the_others_are_ended() {
  up a,b,c,d --fanout 1 || return 1
  machine_dies b
  within 20 at a hayase status --json >"$work/status" || return 1
  grep -q '"state": "damaged"' "$work/status" && [ "$(grep -c '"resident_bytes"' "$work/status")" = 3 ] || return 1
  out=$(within 60 at a hayase down 2>&1)
  local status=$?
  [ $status = 3 ] && has_word "node 1: b:" && nothing_remains a c d
}

try shared_job_directory
try no_shared_directory
try host_file_from_outside
try batch_systems_name_their_hosts
try dead_host_is_named
try silent_host_is_named
try missing_program_is_named
try node_that_can_not_come_up_is_named
try bad_lists_are_refused
try secret_is_never_shown
try run_gives_the_status_and_leaves_nothing
try interrupted_start_leaves_nothing
try half_dead_job_is_taken_down
try tier_with_other_device_numbers
try parts_for_other_hosts_are_kept
try tier_that_can_not_compare_is_told_once
try tier_that_is_not_mounted_is_noticed
try lost_machine_is_told_and_the_others_are_ended
[ "$failures" = 0 ]
