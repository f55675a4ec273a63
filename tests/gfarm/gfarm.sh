#!/usr/bin/env bash
# The Gfarm tier on a real Gfarm of one metadata server and three file servers, which is started here from Debian's packages
# on nodes of namespaces: the conformance suite with local and with remote bytes, where files lie, copies,
# `hayase stage`, containers of MPI-IO on a mount of Gfarm, and what goes wrong. Prints `ok`, `FAILED` and `SKIP` lines.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
. scripts/prepare.sh
. tests/gfarm/cluster.sh

skip() { say "SKIP gfarm: $1"; exit 0; }
[ "$(id -u)" = 0 ] || skip "nodes of namespaces need root"
prepare_daemon_packages gfarm || skip "Gfarm's packages can not be installed"
unshare --net --uts --mount true 2>/dev/null || skip "namespaces may not be made here"

check=$(built examples/gfarm_check) && hayase=$(built hayase) && library=$(built libhayase_mpiio.so) || exit 1

work=$(mktemp -d "${TMPDIR:-/tmp}/hayase-gfarm.XXXXXX")
finish() {
  local node
  for node in 1 2 3; do ! mountpoint -q "$work/mnt-$node" || umount -l "$work/mnt-$node"; done
  cluster_down
  ! mountpoint -q "$work/gfarm/spool-3" || umount "$work/gfarm/spool-3"
  rm -rf --one-file-system "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM

failures=0
# try NAME: one test, a function.
try() {
  local start=$SECONDS
  if "$1" >"$work/out" 2>&1; then say "ok gfarm_$1 ($((SECONDS - start)) s)"; else
    say "FAILED gfarm_$1"
    tail -n 20 "$work/out"
    failures=$((failures + 1))
  fi
}
# tier NODE WORDS...: a step of the program on a node; a hang fails.
tier() {
  local node=$1
  shift
  on "$node" timeout 60 "$check" "$@"
}
# told WORDS CMD...: CMD fails, and says these words.
told() {
  local words=$1 status=0
  shift
  "$@" >"$work/told" 2>&1 || status=$?
  cat "$work/told"
  [ "$status" -gt 0 ] && [ "$status" -lt 100 ] && grep -q -F "$words" "$work/told"
}

# --- the contract ---

conformance_with_bytes_on_this_host() { tier 1 suite gfarm:///conformance | grep 'local_descriptor: true'; }
conformance_with_bytes_on_other_hosts() { tier 0 suite gfarm:///conformance | grep 'local_descriptor: false'; }
conformance_by_a_url_with_its_server() { tier 2 suite "gfarm://$(cluster_address 0):$cluster_port/conformance"; }
extended_attributes() { tier 1 write gfarm:///placed attributes 10 && tier 1 xattrs gfarm:///placed attributes; }

# --- where files lie ---

new_files_lie_where_they_are_written() {
  local node
  for node in 1 2 3; do
    tier "$node" write gfarm:///placed "by-$node" 300000 && lies_on "/placed/by-$node" "$node" || return 1
    tier "$node" read gfarm:///placed "by-$node" 300000 | grep 'local: true' || return 1
  done
}
a_chosen_host_is_taken() { tier 1 write gfarm:///placed chosen 100000 "$(cluster_address 3)" && lies_on /placed/chosen 3; }
copies_are_read_where_they_are() {
  local before after
  tier 1 write gfarm:///placed copied 8000000 && lies_on /placed/copied 1 || return 1
  before=$(carried 2 rx)
  tier 2 read gfarm:///placed copied 8000000 | grep 'local: false' || return 1
  after=$(carried 2 rx)
  [ $((after - before)) -gt 8000000 ] || { say "only $((after - before)) bytes came over the network"; return 1; }
  tier 3 replicate gfarm:///placed copied 3 && lies_on /placed/copied 1 2 3 || return 1
  before=$(carried 2 rx)
  tier 2 read gfarm:///placed copied 8000000 | grep 'local: true' || return 1
  after=$(carried 2 rx)
  [ $((after - before)) -lt 200000 ] || { say "$((after - before)) bytes came over the network"; return 1; }
  tier 1 locations gfarm:///placed copied
  told "only 3 hosts can hold it" tier 1 replicate gfarm:///placed copied 4
}

# --- whole trees ---

trees_are_staged_in_and_out() {
  mkdir -p "$work/tree/deep/er" && head -c 3000000 /dev/urandom >"$work/tree/large" &&
    printf 'small\n' >"$work/tree/deep/er/small" && ln -s er/small "$work/tree/deep/link" && mkdir "$work/tree/empty" || return 1
  on 2 timeout 60 "$hayase" stage out "$work/tree" gfarm:///staged &&
    on 3 timeout 60 "$hayase" stage verify --exact "$work/tree" gfarm:///staged &&
    on 1 timeout 60 "$hayase" stage in gfarm:///staged "$work/back" && diff -r "$work/tree" "$work/back" &&
    lies_on /staged/large 2 &&
    on 0 gfexport /staged/deep/er/small | cmp - "$work/tree/deep/er/small"
}

# --- MPI-IO on a mount of Gfarm ---

# Each rank runs on a node of its own, with that node's mount of Gfarm at the same path.
ranks() { # CMD...: on three nodes
  timeout 120 mpiexec.mpich -genv MPIR_CVAR_POLLS_BEFORE_YIELD 1 \
    -n 1 "$work/rank" 1 "$@" : -n 1 "$work/rank" 2 "$@" : -n 1 "$work/rank" 3 "$@"
}
mounted() {
  local node options=direct_io,gfs_stat_timeout=0,attr_timeout=0,entry_timeout=0
  mkdir -p "$work/mnt"
  # A mount puts a new file on its own host only while that is not busier than this.
  cluster_client_settings "$cluster_dir/key" 200 >"$work/mount.conf"
  for node in 1 2 3; do
    mkdir "$work/mnt-$node" && GFARM_CONFIG_FILE=$work/mount.conf on "$node" gfarm2fs -o $options "$work/mnt-$node" &&
      wait_until 10 mountpoint -q "$work/mnt-$node" || return 1
  done
  cat >"$work/rank" <<SCRIPT
#!/bin/sh
# NODE CMD...
export GFARM_CONFIG_FILE=$cluster_dir/client.conf
node=\$1; shift
exec nsenter --net=/run/netns/$cluster_id-\$node --uts=$cluster_dir/uts-\$node unshare -m \\
  sh -c 'mount --bind $work/mnt-\$0 $work/mnt && exec env LD_PRELOAD=\${PRELOAD:-} "\$@"' \$node "\$@"
SCRIPT
  chmod +x "$work/rank"
}
# The parts of a container and the nodes of their writers, "NAME RANK" a line.
parts_and_ranks() {
  "$hayase" container show --writers --json "$1" | python3 -c '
import json, sys
for container in json.load(sys.stdin)["containers"]:
    for w in container["each"]:
        print("n{node}-p{process}-o{opening}.part {rank}".format(**w))'
}
containers_lie_on_the_hosts_of_their_writers() {
  local part rank
  mpicc.mpich -O1 -o "$work/interleaved" tests/mpi/programs/interleaved.c && mounted || return 1
  on 0 gfmkdir /mpi && "$hayase" container enable "$work/mnt-1/mpi" || return 1
  mkdir "$work/plain" && timeout 120 mpiexec.mpich -n 3 -genv MPIR_CVAR_POLLS_BEFORE_YIELD 1 "$work/interleaved" "$work/plain/f" || return 1
  PRELOAD=$library ranks "$work/interleaved" "$work/mnt/mpi/f" || return 1
  "$hayase" container check "$work/mnt-2/mpi/f" && "$hayase" container export "$work/mnt-3/mpi/f" "$work/plain/exported" &&
    cmp "$work/plain/f" "$work/plain/exported" || return 1
  parts_and_ranks "$work/mnt-1/mpi/f" >"$work/parts" && cat "$work/parts"
  [ "$(cut -d' ' -f2 "$work/parts" | sort -u | tr -d '\n')" = 012 ] || return 1
  while read -r part rank; do lies_on "/mpi/f/$part" $((rank + 1)) || return 1; done <"$work/parts"
}
# Locks of gfarm2fs hold on one host only: what needs them is refused, not done wrongly.
shared_pointers_are_refused() {
  mpicc.mpich -O1 -o "$work/nested" tests/mpi/programs/nested.c || return 1
  PRELOAD=$library told "hold on one host only" ranks "$work/nested" "$work/mnt/mpi/nested"
}
containers_are_copied_to_more_hosts() {
  local part rank
  on 1 timeout 60 "$hayase" container replicate "$work/mnt-1/mpi/f" -n 3 || return 1
  [ "$(wc -l <"$work/parts")" -ge 3 ] || return 1
  while read -r part rank; do lies_on "/mpi/f/$part" 1 2 3 || return 1; done <"$work/parts"
  on 1 timeout 60 "$hayase" container replicate gfarm:///mpi/f -n 2 || return 1
  told "is not a container" on 1 "$hayase" container replicate gfarm:///placed -n 2 &&
    told "is not on a mount of gfarm2fs" on 1 "$hayase" container replicate "$work" -n 2
}

# --- what goes wrong ---

# with_line CMD...: starts a step that waits for a line, as $waiting; resume lets it go on and takes its status.
with_line() {
  rm -f "$work/line" && mkfifo "$work/line" && exec 7<>"$work/line" || return 1
  "$@" <&7 7>&- >"$work/waiting" 2>&1 &
  waiting=$!
  wait_until 30 grep -q ready "$work/waiting" || { cat "$work/waiting"; return 1; }
}
resume() {
  local status=0
  printf '\n' >&7
  wait "$waiting" || status=$?
  exec 7>&-
  cat "$work/waiting"
  return $status
}

reads_go_on_from_another_copy() {
  local sent node serving=''
  tier 1 write gfarm:///faults two 4000000 "$(cluster_address 1)" && tier 2 replicate gfarm:///faults two 3 || return 1
  on 0 gfrm -h "$(cluster_address 3)" /faults/two && lies_on /faults/two 1 2 || return 1
  sent=("" "$(carried 1 tx)" "$(carried 2 tx)")
  with_line tier 3 open-read gfarm:///faults two 4000000 && grep 'local: false' "$work/waiting" || return 1
  for node in 1 2; do [ $(($(carried $node tx) - sent[node])) -lt 1500000 ] || serving+=$node; done
  say "the first half came from node $serving"
  spool_stop "$serving"
  resume || return 1
  spool_start "$serving" && wait_until 20 spools_ready
}
bytes_out_of_reach_are_told() {
  tier 2 write gfarm:///faults one 4000000 && lies_on /faults/one 2 || return 1
  spool_stop 2
  told "the storage does not answer" tier 1 read gfarm:///faults one 4000000 || return 1
  # Names and sizes are gfmd's: they are still there.
  tier 1 list gfarm:///faults | grep -x one || return 1
  # New files of a host whose server is gone go to another one.
  tier 2 write gfarm:///faults elsewhere 100000 && ! lies_on /faults/elsewhere 2 >/dev/null || return 1
  tier 2 read gfarm:///faults elsewhere 100000 || return 1
  spool_start 2 && wait_until 20 spools_ready && tier 1 read gfarm:///faults one 4000000
}
a_write_whose_server_dies_fails() {
  tier 3 write gfarm:///faults kept 1000 || return 1
  with_line tier 3 write-slow gfarm:///faults kept 4000000 || return 1
  # Mostly this node; gfmd chooses another one when it thinks that this one is busy.
  local node=''
  for node in 3 2 1 none; do
    [ "$node" = none ] || [ -z "$(find "$cluster_dir/spool-$node" -type f -size +3M -newer "$work/line")" ] || break
  done
  [ "$node" != none ] || { resume; say "no spool has what is being written"; return 1; }
  spool_stop "$node"
  if resume; then say "it was told to be durable, without the server on node $node"; return 1; fi
  spool_start "$node" && wait_until 20 spools_ready || return 1
  # The former version, whole, and nothing else that shows.
  tier 3 read gfarm:///faults kept 1000 && ! tier 3 list gfarm:///faults | grep partial
}
a_full_spool_is_told_or_avoided() {
  spool_stop 3
  mkdir -p "$work/full" && rm -rf "$cluster_dir/spool-3" && mkdir "$cluster_dir/spool-3" &&
    mount -t tmpfs -o size=3m none "$cluster_dir/spool-3" && spool_start 3 && wait_until 20 spools_ready || return 1
  local status=0
  tier 3 write gfarm:///faults large 8000000 >"$work/told" 2>&1 || status=$?
  cat "$work/told"
  if [ "$status" = 0 ]; then ! lies_on /faults/large 3 >/dev/null; else grep -F "no space left there" "$work/told"; fi
}
wrong_key_is_told() {
  cluster_client_settings "$work/other-key" 0.1 >"$work/other.conf"
  GFARM_CONFIG_FILE=$work/other.conf on 1 gfkey -f -p 1000 >/dev/null || return 1
  GFARM_CONFIG_FILE=$work/other.conf tier 1 refused gfarm:/// "Gfarm rejects the user"
}
expired_key_is_told() {
  GFARM_CONFIG_FILE=$work/other.conf on 1 gfkey -f -p 1 >/dev/null && sleep 2 || return 1
  GFARM_CONFIG_FILE=$work/other.conf tier 1 refused gfarm:/// "how long a shared key lasts"
}
wrong_settings_are_told() {
  printf 'metadb_server_host x\nno_such_directive 1\n' >"$work/wrong.conf"
  GFARM_CONFIG_FILE=$work/wrong.conf tier 1 refused gfarm:/// "libgfarm does not start"
}
no_metadata_server_is_told() { tier 1 refused "gfarm://$(cluster_address 0):9/" "the storage does not answer"; }
no_library_is_told() {
  local library
  library=$(ldconfig -p | sed -n 's/.*libgfarm\.so\.1 .*=> //p' | head -n 1)
  on 1 unshare -m sh -c 'mount --bind /dev/null "$1" && exec "$2" refused gfarm:/// libgfarm1' sh "$library" "$check"
}
metadata_server_started_anew() {
  tier 1 write gfarm:///before f 4000000 || return 1
  with_line tier 2 open-read gfarm:///before f 4000000 || return 1
  metadata_stop
  metadata_start || return 1
  # Its names were in its memory: the bytes, or an error; not a hang, and no other bytes.
  if ! resume >"$work/told"; then grep -F -e "unreachable" -e "no such object" "$work/told" || return 1; fi
  cat "$work/told"
  wait_until 60 spools_again || return 1
  on 0 gfmkdir /after && tier 1 write gfarm:///after f 100000 && tier 2 read gfarm:///after f 100000
}

started=$SECONDS
cluster_up "$work/gfarm" || { say "FAILED gfarm: the cluster did not start"; cluster_logs; exit 1; }
say "three file servers answer after $((SECONDS - started)) s"
for directory in placed faults before conformance; do on 0 gfmkdir "/$directory"; done

try conformance_with_bytes_on_this_host
try conformance_with_bytes_on_other_hosts
try conformance_by_a_url_with_its_server
try new_files_lie_where_they_are_written
try a_chosen_host_is_taken
try copies_are_read_where_they_are
try extended_attributes
try trees_are_staged_in_and_out
try containers_lie_on_the_hosts_of_their_writers
try containers_are_copied_to_more_hosts
try shared_pointers_are_refused
# What guides show, on a node of this Gfarm.
on 1 tests/documents/run.sh needs-gfarm || failures=$((failures + 1))
try wrong_key_is_told
try expired_key_is_told
try wrong_settings_are_told
try no_metadata_server_is_told
try no_library_is_told
try reads_go_on_from_another_copy
try bytes_out_of_reach_are_told
try a_write_whose_server_dies_fails
try a_full_spool_is_told_or_avoided
try metadata_server_started_anew

[ "$failures" = 0 ] || cluster_logs
[ "$failures" = 0 ]
