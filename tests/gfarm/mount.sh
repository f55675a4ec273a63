#!/usr/bin/env bash
# `hayase mount gfarm:///DIR` on the nodes of a real Gfarm, which is started here: names and errors, what one node sees of
# another, whose bytes the kernel reads by itself, fsx and fio, and servers that end or fall silent. Prints `ok`, `FAILED`
# and `SKIP` lines.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
. scripts/prepare.sh
. tests/gfarm/cluster.sh
root=$PWD
. tests/foreign/install.sh

skip() { say "SKIP gfarm_mount: $1"; exit 0; }
[ "$(id -u)" = 0 ] || skip "nodes of namespaces need root"
[ -e /dev/fuse ] || skip "there is no /dev/fuse"
prepare_daemon_packages gfarm || skip "Gfarm's packages can not be installed"
unshare --net --uts --mount true 2>/dev/null || skip "namespaces may not be made here"

hayase=$(built hayase) || exit 1

# Below /dev/shm: passthrough needs storage that is no overlay.
work=$(mktemp -d /dev/shm/hayase-gfarm-mount.XXXXXX)
finish() {
  local mount
  for mount in "$work"/mnt-*; do ! mountpoint -q "$mount" || umount -l "$mount"; done
  [ -z "${stopped:-}" ] || kill -CONT "$stopped" 2>/dev/null
  [ -z "${holder:-}" ] || kill "$holder" 2>/dev/null
  cluster_down
  rm -rf --one-file-system "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM

failures=0
# try NAME: one test, a function.
try() {
  local start=$SECONDS
  [ -z "${ONLY:-}" ] || [[ $1 =~ $ONLY ]] || return 0
  if "$1" >"$work/out" 2>&1; then say "ok mount_$1 ($((SECONDS - start)) s)"; else
    say "FAILED mount_$1"
    tail -n 20 "$work/out"
    failures=$((failures + 1))
  fi
}
# show NODE [NAME] [OPTIONS..]: mounts the whole Gfarm on a node, at mnt-NAME.
show() {
  local node=$1 name=${2:-$1}
  shift $(($# > 1 ? 2 : 1))
  mkdir -p "$work/mnt-$name"
  HAYASE_LOG=hayase=info,info on "$node" "$hayase" mount --wait 8 --log "$work/log-$name" "$@" gfarm:/// "$work/mnt-$name"
}
hide() {
  umount "$work/mnt-$1" || return 1
  # Long: each connection to a metadata server that ended meanwhile may have to be made anew.
  wait_until 60 sh -c "! pgrep -f 'mount.* $work/mnt-$1\$'" || { say "the process of mnt-$1 is still there"; return 1; }
}
# How the mount serves an open file, as it says itself.
served() { getfattr --only-values -n user.hayase.explain "$1" 2>/dev/null; }
# Ends with an errno, within seconds, whatever servers do: fails NAME SECONDS CMD...
fails() {
  local name=$1 seconds=$2 status=0
  shift 2
  timeout -k 1 "$seconds" "$@" >"$work/told" 2>&1 || status=$?
  cat "$work/told"
  [ "$status" -gt 0 ] && [ "$status" -lt 124 ] && grep -q -i -E "$name" "$work/told"
}
python() { timeout -k 1 200 python3 tests/gfarm/mounted.py "$@"; }

# --- what programs see ---

names_attributes_and_errors() { python names "$work/mnt-1"; }
names_are_the_same_without_passthrough() { python names "$work/mnt-old"; }
a_close_is_seen_by_the_next_open() { python coherence "$work/mnt-1" "$work/mnt-2"; }
descriptors_mappings_and_files_without_names() { python writers "$work/mnt-2" "$work/mnt-3"; }
processes_share_one_open_of_a_remote_file() {
  head -c 100000 /dev/zero >"$work/mnt-2/inherited" && lies_on /inherited 2 &&
    python inherited "$work/mnt-1/inherited" "$work/mnt-2/inherited"
}
a_reader_follows_what_is_written_elsewhere() {
  local name
  for name in 1 old3; do
    head -c 10000 <(yes line) >"$work/mnt-2/held-$name" && lies_on "/held-$name" 2 &&
      python held "$work/mnt-2/held-$name" "$work/mnt-$name/held-$name" || return 1
  done
}
a_crowd_of_readers_follows() {
  local name
  for name in 1 old; do
    echo >"$work/mnt-2/crowd-$name" && lies_on "/crowd-$name" 2 &&
      python crowd "$work/mnt-2/crowd-$name" "$work/mnt-$name/crowd-$name" || return 1
  done
}
a_reader_keeps_what_did_not_change() {
  local before after
  head -c 8000000 /dev/urandom >"$work/mnt-2/kept" && lies_on /kept 2 && exec 6<"$work/mnt-1/kept" || return 1
  cat <&6 >"$work/kept"
  before=$(carried 1 rx)
  for _ in 1 2 3 4 5; do stat --cached=never "$work/mnt-1/kept" && cmp "$work/mnt-1/kept" "$work/kept" || return 1; done
  after=$(carried 1 rx)
  exec 6<&-
  [ $((after - before)) -lt 200000 ] || { say "$((after - before)) bytes came again"; return 1; }
}
# Its copy on another host is of an older version then.
a_reader_of_a_copy_follows_too() {
  local name
  for name in 1 old; do
    head -c 10000 <(yes line) >"$work/mnt-2/copied-$name" && on 1 gfrep -q -N 1 -D "$(cluster_address 3)" "/copied-$name" &&
      wait_until 20 lies_on "/copied-$name" 2 3 || return 1
    python held "$work/mnt-2/copied-$name" "$work/mnt-$name/copied-$name" || return 1
  done
}
old_kernels_and_new_ones_see_the_same() {
  mkdir "$work/mnt-1/mixed" && mkdir "$work/mnt-1/mixed/a" "$work/mnt-1/mixed/b" &&
    python writers "$work/mnt-1/mixed/a" "$work/mnt-old/mixed/a" && python coherence "$work/mnt-old/mixed/b" "$work/mnt-2/mixed/b"
}

# --- whose bytes the kernel reads by itself ---

files_lie_where_they_are_written() {
  local node before after
  for node in 1 2 3; do
    before=$(carried "$node" tx)
    head -c 8000000 /dev/urandom >"$work/mnt-$node/by-$node" && lies_on "/by-$node" "$node" || return 1
    after=$(carried "$node" tx)
    [ $((after - before)) -lt 200000 ] || { say "$((after - before)) bytes went over the network"; return 1; }
  done
}
local_files_are_the_kernels() {
  exec 6<"$work/mnt-1/by-1" || return 1
  served "$work/mnt-1/by-1"
  local class
  class=$(served "$work/mnt-1/by-1" | python3 -c 'import json, sys; print(json.load(sys.stdin)["here"]["class"])')
  exec 6<&-
  [ "$class" = local ] && grep -q "passthrough=\"used\"" "$work/log-1"
}
remote_files_come_once_and_copies_not_at_all() {
  local before after
  before=$(carried 2 rx)
  cmp "$work/mnt-2/by-1" "$work/mnt-1/by-1" || return 1
  after=$(carried 2 rx)
  [ $((after - before)) -gt 8000000 ] && [ $((after - before)) -lt 10000000 ] || { say "$((after - before)) came"; return 1; }
  on 1 gfrep -q -N 3 /by-1 && wait_until 20 lies_on /by-1 1 2 3 || return 1
  before=$(carried 2 rx)
  cmp "$work/mnt-2/by-1" "$work/mnt-1/by-1" || return 1
  after=$(carried 2 rx)
  [ $((after - before)) -lt 200000 ] || { say "$((after - before)) bytes came though a copy is here"; return 1; }
}
copies_are_current_after_a_write() {
  printf 'changed' | dd of="$work/mnt-3/by-1" conv=notrunc status=none || return 1
  local node
  for node in 1 2 3; do
    cmp "$work/mnt-$node/by-1" "$work/mnt-3/by-1" && [ "$(head -c 7 "$work/mnt-$node/by-1")" = changed ] || return 1
  done
}
# Where file after file stays without bytes, those that get some all the same have them on every node, and lie here.
files_without_bytes_may_get_some() {
  local number
  mkdir "$work/mnt-1/empty" || return 1
  for number in {1..200}; do : >"$work/mnt-1/empty/$number" || return 1; done
  {
    served "$work/mnt-1/empty/late" && head -c 3000000 /dev/urandom >&5 && say after >&5
  } 5>"$work/mnt-1/empty/late" >"$work/explained" || return 1
  cat "$work/explained"
  grep -q 'their place with the first' "$work/explained" || return 1
  { head -c 3000000 /dev/urandom | tee "$work/late" >&5; } 5>"$work/mnt-1/empty/next" || return 1
  [ "$(stat -c %s "$work/mnt-2/empty/late")" = 3000006 ] && cmp "$work/mnt-1/empty/late" "$work/mnt-2/empty/late" &&
    cmp "$work/late" "$work/mnt-3/empty/next" && lies_on /empty/late 1 && lies_on /empty/next 1 || return 1
  # Of two opens the second writes past the first, which stays: its close is seen all the same.
  for number in {1..20}; do : >"$work/mnt-1/empty/$number" && rm "$work/mnt-1/empty/$number" && : >"$work/mnt-1/empty/$number" || return 1; done
  {
    say twice >>"$work/mnt-1/empty/shared" && [ "$(cat "$work/mnt-2/empty/shared")" = twice ] || return 1
  } 5>"$work/mnt-1/empty/shared"
  rm "$work/mnt-1/empty/shared"
  [ "$(ls "$work/mnt-2/empty" | wc -l)" = 202 ] && [ "$(find "$work/mnt-3/empty" -type f -size 0 | wc -l)" = 200 ]
}
trees_are_copied_and_removed() {
  mkdir "$work/mnt-1/tree" && cp -r --preserve=mode,timestamps crates/layout "$work/mnt-1/tree/" &&
    diff -r crates/layout "$work/mnt-2/tree/layout" && tar -C crates -cf "$work/layout.tar" layout &&
    tar -C "$work/mnt-3" --no-same-owner -xf "$work/layout.tar" && diff -r crates/layout "$work/mnt-1/layout" &&
    [ "$(stat -c '%a %Y' "$work/mnt-2/layout/Cargo.toml")" = "$(stat -c '%a %Y' crates/layout/Cargo.toml)" ] &&
    rm -r "$work/mnt-3/tree" "$work/mnt-2/layout" && wait_until 20 test ! -e "$work/mnt-1/tree/layout" &&
    wait_until 20 test ! -e "$work/mnt-1/layout/src"
}

# --- suites of others ---

fsx_on() { # NAME FILE SEED
  local program
  program=$(installed fsx) || return 1
  cat >"$work/fsx.toml" <<TOML
flen = 524288
[opsize]
max = 131072
[weights]
read = 10
write = 10
mapread = 10
mapwrite = 10
truncate = 3
copy_file_range = 3
sendfile = 3
close_open = 2
invalidate = 1
fsync = 1
fdatasync = 1
punch_hole = 0
posix_fallocate = 0
posix_fadvise = 1
TOML
  timeout -k 1 200 "$program" -f "$work/fsx.toml" -N 1500 -S "$2" -P "$work" "$1"
}
fsx_finds_nothing_on_a_local_file() { fsx_on "$work/mnt-1/fsx" $RANDOM; }
# It begins with bytes on another node. What is opened again while it is empty is placed anew, so where it ends is not said.
fsx_finds_nothing_on_a_remote_file() {
  head -c 100 /dev/zero >"$work/mnt-2/fsx-remote" && lies_on /fsx-remote 2 && fsx_on "$work/mnt-1/fsx-remote" $RANDOM
}
fsx_finds_nothing_without_passthrough() { fsx_on "$work/mnt-old/fsx-old" $RANDOM; }
fio_verifies_on_two_nodes() {
  local how options=(--name=verify --size=16m --rw=randwrite --bsrange=4k-128k --blockalign=4k --verify=crc32c
    --verify_fatal=1 --verify_state_save=0 --fallocate=none --randseed=2)
  for how in "--ioengine=psync --direct=0" "--ioengine=mmap" "--ioengine=psync --direct=1"; do
    rm -f "$work/mnt-1/fio"
    # shellcheck disable=SC2086 # a list of options
    timeout -k 1 100 fio "${options[@]}" --filename="$work/mnt-1/fio" $how --do_verify=1 --end_fsync=1 &&
      timeout -k 1 100 fio "${options[@]}" --filename="$work/mnt-2/fio" --ioengine=psync --verify_only=1 || return 1
  done
}

# --- what goes wrong ---

bytes_out_of_reach_are_told_as_that() {
  head -c 3000000 /dev/urandom >"$work/mnt-2/only" && cp "$work/mnt-2/only" "$work/only" && lies_on /only 2 || return 1
  spool_stop 2
  fails "route to host|timed out|input/output" 60 cat "$work/mnt-1/only" || return 1
  # Names are the metadata server's, files of other hosts are theirs, and new files go elsewhere.
  [ "$(stat -c %s "$work/mnt-1/only")" = 3000000 ] && cmp "$work/mnt-1/by-3" "$work/mnt-3/by-3" || return 1
  timeout 60 sh -c 'head -c 1000 /dev/zero >"$1"' sh "$work/mnt-2/elsewhere" && ! lies_on /elsewhere 2 >/dev/null || return 1
  spool_start 2 && wait_until 20 spools_ready && cmp "$work/mnt-1/only" "$work/only"
}
reads_go_on_from_another_copy() {
  head -c 6000000 /dev/urandom >"$work/mnt-1/two" && cp "$work/mnt-1/two" "$work/two" &&
    on 1 gfrep -q -N 1 -D "$(cluster_address 2)" /two && wait_until 20 lies_on /two 1 2 || return 1
  exec 6<"$work/mnt-old3/two"
  head -c 1000000 <&6 >"$work/head" || return 1
  spool_stop 1
  timeout 60 cat <&6 >"$work/rest"
  local status=$?
  exec 6<&-
  spool_start 1 && wait_until 20 spools_ready && [ $status = 0 ] && cat "$work/head" "$work/rest" | cmp - "$work/two"
}
# A server that is stopped holds its connections and answers nothing.
a_silent_server_holds_up_nobody_else() {
  head -c 3000000 /dev/urandom >"$work/mnt-2/held" && lies_on /held 2 || return 1
  exec 6<"$work/mnt-1/held"
  local pid status=0 reader
  pid=$(cat "$cluster_dir/gfsd-2.pid")
  stopped="$pid $(cat "/proc/$pid/task/$pid/children")"
  # shellcheck disable=SC2086 # a list of process ids
  kill -STOP $stopped
  cat <&6 >/dev/null 2>"$work/reader" &
  reader=$!
  # Meanwhile all else goes on.
  timeout 30 sh -c 'for i in 1 2 3 4 5 6 7 8; do echo $i >"$1/quick-$i" && cat "$1/quick-$i" && ls -l "$1" && rm "$1/quick-$i" || exit 1; done' \
    sh "$work/mnt-1" >/dev/null || status=1
  # shellcheck disable=SC2086 # a list of process ids
  kill -CONT $stopped
  stopped=
  timeout 60 tail --pid=$reader -f /dev/null || status=1
  exec 6<&-
  cat "$work/reader"
  return $status
}
placed_at_home() { rm -f "$work/mnt-1/home" && echo x >"$work/mnt-1/home" && lies_on /home 1; }
a_metadata_server_that_ends_is_found_again() {
  local before=$work/mnt-1/before after=$work/mnt-1/after status=0
  head -c 100000 /dev/zero >"$before" && exec 6<>"$before" && exec 5<"$work/mnt-1/by-2" || return 1
  metadata_stop
  # Nobody to ask: an error and no hang, also of several at once.
  fails "error|timed out|route|refused" 60 ls "$work/mnt-1/." || status=1
  fails "error|timed out|route|refused" 60 stat "$work/mnt-1/none" || status=1
  # What the kernel has open it reads and writes all the same.
  head -c 10 <&6 >/dev/null && printf x >&6 || status=1
  metadata_start || return 1
  wait_until 60 spools_again || return 1
  # Its names were in its memory. Open files of before: an error, or done, but an end.
  timeout 60 cat <&5 >/dev/null
  [ $? -lt 124 ] || status=1
  timeout 60 sh -c 'exec 6<&- 5<&-'
  exec 6<&- 5<&-
  wait_until 60 sh -c "echo new >$after" && wait_until 30 cmp "$after" "$work/mnt-2/after" || status=1
  [ "$(cat "$after")" = new ] && ls -l "$work/mnt-1" && wait_until 60 placed_at_home || status=1
  return $status
}
a_mount_ends_with_all_told() {
  # Its connections were to the metadata server that ended: what makes a name is not asked twice.
  wait_until 60 sh -c "echo new >$work/mnt-3/again" || { say "no file can be made"; return 1; }
  for i in $(seq 40); do echo "$i" >"$work/mnt-3/end-$i" || return 1; done
  hide 3 || return 1
  for i in $(seq 40); do [ "$(on 0 gfexport "/end-$i")" = "$i" ] || { say "end-$i"; return 1; }; done
}
# Without privilege: as a user of its own, by fusermount3, plain FUSE over the same descriptor.
an_ordinary_user_mounts() {
  command -v fusermount3 >/dev/null || { say "no fusermount3"; return 1; }
  local id home=$work/user
  id=$(id -u nobody)
  mkdir -p "$home" "$work/mnt-user" && install -m 600 "$cluster_dir/key" "$home/key" &&
    cluster_client_settings "$home/key" 0.1 >"$home/client.conf" && cp "$hayase" "$home/hayase" &&
    printf 'root nobody\n' >"$home/users" && printf 'local_user_map %s\n' "$home/users" >>"$home/client.conf" &&
    chmod 755 "$work" "$home" && chown -R $id:$id "$home" "$work/mnt-user" || return 1
  on 0 gfmkdir /user && on 0 gfchmod 777 /user || return 1
  # /dev/fuse as udev makes it, whatever it is on this machine: in a mount namespace that lives as long as a process.
  mkdir "$home/devices" && mkfifo "$home/up"
  unshare --mount --propagation private sh -c 'mount -t tmpfs -o mode=755 tmpfs "$1/devices" &&
    mknod -m 666 "$1/devices/fuse" c 10 229 && mount --bind "$1/devices/fuse" /dev/fuse && echo up >"$1/up"
    exec sleep infinity' sh "$home" &
  holder=$!
  timeout 20 grep -q up "$home/up" || return 1
  as_user() {
    env HOME="$home" GFARM_CONFIG_FILE="$home/client.conf" nsenter --mount="/proc/$holder/ns/mnt" \
      --net="/run/netns/$cluster_id-1" --uts="$cluster_dir/uts-1" setpriv --reuid=$id --regid=$id --clear-groups "$@"
  }
  as_user "$home/hayase" mount --wait 8 --log "$home/log" gfarm:///user "$work/mnt-user" || { cat "$home/log"; return 1; }
  as_user sh -c 'head -c 3000000 /dev/urandom >"$1/f" && cmp "$1/f" "$1/f" && ls -l "$1"' sh "$work/mnt-user" || return 1
  cmp <(as_user cat "$work/mnt-user/f") "$work/mnt-2/user/f" && lies_on /user/f 1 || return 1
  grep -F 'passthrough="off' "$home/log" && as_user fusermount3 -u "$work/mnt-user" || return 1
  # Its namespace has the other mounts too, and would keep them when they are unmounted.
  kill "$holder" && holder=
}

started=$SECONDS
cluster_up "$work/gfarm" || { say "FAILED mount: the cluster did not start"; cluster_logs; exit 1; }
say "three file servers answer after $((SECONDS - started)) s"
for node in 1 2 3; do show "$node" || { say "FAILED mount: node $node"; exit 1; }; done
show 1 old --kernel-profile 6.6 && show 3 old3 --kernel-profile 6.6 || { say "FAILED mount: as on an old kernel"; exit 1; }

try names_attributes_and_errors
try names_are_the_same_without_passthrough
try a_close_is_seen_by_the_next_open
try descriptors_mappings_and_files_without_names
try processes_share_one_open_of_a_remote_file
try a_reader_follows_what_is_written_elsewhere
try a_crowd_of_readers_follows
try a_reader_keeps_what_did_not_change
try a_reader_of_a_copy_follows_too
try old_kernels_and_new_ones_see_the_same
try files_lie_where_they_are_written
try local_files_are_the_kernels
try remote_files_come_once_and_copies_not_at_all
try copies_are_current_after_a_write
try files_without_bytes_may_get_some
try trees_are_copied_and_removed
try fio_verifies_on_two_nodes
try fsx_finds_nothing_on_a_local_file
try fsx_finds_nothing_on_a_remote_file
try fsx_finds_nothing_without_passthrough
try an_ordinary_user_mounts
try a_silent_server_holds_up_nobody_else
try bytes_out_of_reach_are_told_as_that
try reads_go_on_from_another_copy
try a_metadata_server_that_ends_is_found_again
try a_mount_ends_with_all_told

if [ "$failures" != 0 ]; then
  cluster_logs
  for log in "$work"/log-*; do say "--- $log"; tail -n 15 "$log"; done
fi
[ "$failures" = 0 ]
