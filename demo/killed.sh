# The scene of the killed job (sourced by demo.sh): everything is killed while files drain, and `hayase resume` brings the rest.

killed_files=8      # of each node
killed_mib=8        # each
killed_storage_mib=16

# daemons VERB: process numbers of this job's daemons.
daemons() {
  local dir line
  for dir in /proc/[0-9]*; do
    line=$(tr '\0' ' ' 2>/dev/null <"$dir/cmdline") || continue
    case $line in *" $1 "*"$HAYASE_JOB"*) say "${dir#/proc/}" ;; esac
  done
}

# job_daemons: all of them.
job_daemons() { daemons node; daemons serve; daemons serve-mount; }

# all_gone PID...: those, and whatever has come instead.
all_gone() {
  local pid
  # A zombie has no words.
  for pid; do ! grep -qas . "/proc/$pid/cmdline" || return 1; done
  [ -z "$(job_daemons)" ]
}

# killed_begin: the files, made before, so that writing them takes no time but that of the disks; their checksums.
killed_begin() {
  local node i file
  mkdir "$job_work/files"
  for node in 0 1 2; do
    for ((i = 0; i < killed_files; i++)); do
      file=$job_work/files/node-$node-$i
      head -c $((killed_mib << 20)) /dev/urandom >"$file"
    done
  done
  (cd "$job_work/files" && sha256sum node-*) >"$job_work/sums"
}

# writer DIRECTORY NAME FILES: copies a node's files there, each until it is on the disk.
writer='for file in "$3/$2"-*; do dd if="$file" of="$1/${file##*/}" bs=4M conv=fsync 2>/dev/null || exit 1; done'

# write_all: on all nodes at once.
write_all() {
  local node pids=() pid failed=0
  for node in 0 1 2; do
    on "$node" sh -c "$writer" sh "$(cache_of "$node")" "node-$node" "$job_work/files" &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
  return $failed
}
cache_of() { say "$(area "$1" cache)/killed"; }

# whole DIRECTORY: how many files in it have the bytes that were to be written.
whole() { (cd "$1" && sha256sum -c "$job_work/sums" 2>/dev/null | grep -c ': OK$'); }

demo_killed() {
  local total=$((3 * killed_files)) busy stock=- arrived found start resumed wrote alive what
  [ -z "$limited" ] || busy=" Other jobs keep the shared storage busy: $killed_storage_mib MiB/s until the kill."
  scene killed "A killed job: three nodes write $total files of $killed_mib MiB; kill -9 of all processes while they drain" \
    "\`hayase resume\` then brings what the nodes' disks have. Without Hayase: the same writers, killed after the same time.${busy:-}"
  killed_begin
  what="whole files of $total"
  if [ -n "$limited" ]; then
    must limit_device "$storage_device" $killed_storage_mib
    what="$what, at $killed_storage_mib MiB/s until the kill"
  fi
  mapfile -t alive < <(job_daemons)
  [ ${#alive[@]} = 9 ] || die "the three nodes have ${#alive[@]} processes, not 9"
  on 0 mkdir "$(cache_of 0)"
  start=$(seconds)
  write_all >>"$out/logs/killed.log" 2>&1 || die "writing failed"
  wrote=$(since "$start")
  kill -9 "${alive[@]}" 2>/dev/null # Some end with the first.
  wait_until 20 all_gone "${alive[@]}" || die "kill -9 has left processes of the nodes"
  arrived=$(find "$storage/killed" -type f -name 'node-*' | wc -l)
  say "  written in $wrote s; $arrived of $total files had arrived on the shared storage at the kill"
  [ -z "$limited" ] || must limit_device "$storage_device" "$storage_mib"
  start=$(seconds)
  resume_job || { tail "$out/logs/resume.log"; die "resume did not end well"; }
  resumed=$(since "$start")
  found=$(whole "$storage/killed")
  [ "$found" = $total ] || die "only $found of $total files have their checksum"
  [ "$(find "$storage/killed" -type f -name 'node-*' | wc -l)" = $total ] || die "there are other files than those"
  if [ -n "$limited" ]; then
    must limit_device "$storage_device" $killed_storage_mib
    stock=$(killed_stock "$wrote")
  fi
  compare killed "$what" "$stock" "$found" files none "straight to it"
  if [ "$arrived" -lt $total ]; then
    local files=files
    [ "$arrived" != 1 ] || files=file
    check killed "$arrived $files had arrived at the kill, \`hayase resume\` brought the others in $resumed s"
  else
    say "  this machine was too busy: everything had drained before the kill, and \`hayase resume\` had nothing to bring"
  fi
  check killed "sha256 of all $total files: what the programs wrote"
}

# resume_job: the kernel needs a moment to let go of the dead nodes' mounts.
resume_job() {
  for _ in $(seq 50); do
    "$hayase" resume "$HAYASE_JOB" >"$out/logs/resume.log" 2>&1 && return
    sleep 0.2
  done
  return 1
}

# killed_stock SECONDS: how many files are whole when the writers write straight to the shared storage for so long. The job is
# gone, so they run outside of its nodes.
killed_stock() {
  local node pids=()
  mkdir "$storage/killed-stock"
  for node in 0 1 2; do
    timeout -s KILL "$1" sh -c "$writer" sh "$storage/killed-stock" "node-$node" "$job_work/files" >/dev/null 2>&1 &
    pids+=($!)
  done
  wait "${pids[@]}" 2>/dev/null
  whole "$storage/killed-stock"
}
