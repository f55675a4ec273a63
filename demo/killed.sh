# The scene of the killed job (sourced by demo.sh): everything is killed while files drain, and `hayase resume` brings the rest.

killed_files=8      # of each node
killed_mib=16       # each

# daemons VERB: process numbers of this job's daemons.
daemons() {
  local dir line
  for dir in /proc/[0-9]*; do
    line=$(tr '\0' ' ' 2>/dev/null <"$dir/cmdline") || continue
    case $line in *" $1 "*"$HAYASE_JOB"*) say "${dir#/proc/}" ;; esac
  done
}

# writer DIRECTORY NAME: writes files and their checksums; a file counts as written when it is on the disk.
writer='cd "$1" && i=0 && while [ $i -lt "$3" ]; do
  head -c "$4" /dev/urandom | tee "$2-$i" | sha256sum | sed "s/ .*/  $2-$i/" >>"$5/$2.sums" && sync "$2-$i" || exit 1
  i=$((i + 1)); done'

# write_all: on all nodes at once.
write_all() {
  local node pids=() pid failed=0
  for node in 0 1 2; do
    on "$node" sh -c "$writer" sh "$(cache_of "$node")" "node-$node" $killed_files $((killed_mib << 20)) "$job_work/sums" &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
  return $failed
}
cache_of() { say "$(area "$1" cache)/killed"; }

# whole DIRECTORY SUMS: how many files have the bytes that were written.
whole() { (cd "$1" && cat "$2"/*.sums | sha256sum -c 2>/dev/null | grep -c ': OK$'); }

demo_killed() {
  local total=$((3 * killed_files)) stock=- arrived found start resumed wrote try
  scene killed "A killed job: three nodes write $total files of $killed_mib MiB; kill -9 of all processes while they drain" \
    "\`hayase resume\` then brings what the nodes' disks have. Without Hayase: the same writers, killed after the same time."
  mkdir "$job_work/sums" "$job_work/sums-stock"
  on 0 mkdir "$(cache_of 0)"
  start=$(seconds)
  write_all >>"$out/logs/killed.log" 2>&1 || die "writing failed"
  wrote=$(since "$start")
  # shellcheck disable=SC2046 # Numbers; some end with the first.
  kill -9 $(daemons node) $(daemons serve) $(daemons serve-mount) 2>/dev/null
  arrived=$(find "$storage/killed" -type f -name 'node-*' | wc -l)
  [ "$arrived" -lt $total ] || say "  (everything had drained before the kill: this machine was busy)"
  start=$(seconds)
  # The kernel needs a moment to let go of the dead nodes' mounts.
  for try in $(seq 50); do
    "$hayase" resume "$HAYASE_JOB" >"$out/logs/resume.log" 2>&1 && break
    sleep 0.2
  done
  [ "$try" != 50 ] || { cat "$out/logs/resume.log"; die "resume did not end well"; }
  resumed=$(since "$start")
  found=$(whole "$storage/killed" "$job_work/sums")
  [ "$found" = $total ] || die "only $found of $total files have their checksum"
  [ "$(find "$storage/killed" -type f -name 'node-*' | wc -l)" = $total ] || die "there are other files than those"
  if [ -n "$limited" ]; then stock=$(killed_stock "$wrote"); fi
  compare killed "whole files on the shared storage, of $total" "$stock" "$found" files higher "straight to it"
  say "  written in $wrote s; $arrived files had arrived at the kill; hayase resume brought the others in $resumed s"
  check killed "sha256 of all $total files: what the programs wrote"
}

# killed_stock SECONDS: how many files are whole when the writers write straight to the shared storage for so long.
killed_stock() {
  local work=$job_work/sums-stock
  mkdir "$storage/killed-stock"
  stock_nodes "$work" "$1" >>"$out/logs/killed.log" 2>&1
  whole "$storage/killed-stock" "$work"
}

# stock_nodes WORK SECONDS: the same writers; the job is gone, so they run on this machine.
stock_nodes() {
  local node pids=()
  for node in 0 1 2; do
    timeout -s KILL "$2" sh -c "$writer" sh "$storage/killed-stock" "node-$node" $killed_files $((killed_mib << 20)) "$1" &
    pids+=($!)
  done
  wait "${pids[@]}"
}
