# What earlier runs of the demo that were killed have left (sourced by demo.sh, after demo/limits.sh).

# dead_runs_end: ends and removes them. Only those of this user whose process number, of this PID namespace, is free.
dead_runs_end() {
  local dir pid namespace device mount
  for dir in "${HAYASE_WORK_DIR:-/var/tmp}"/hayase-demo.??????; do
    [ -O "$dir/owner" ] && read -r pid namespace <"$dir/owner" || continue
    [ "$namespace" = "$(readlink /proc/self/ns/pid)" ] && [ ! -e "/proc/$pid" ] || continue
    say "removing what a run that was killed has left: $dir"
    {
      [ ! -d "$dir/job" ] || HAYASE_RUNTIME_DIR=$dir/run HAYASE_JOB=$dir/job timeout --foreground 60 "$hayase" down --discard
      if [ -n "$control" ] && [ -e "$dir/limited" ]; then
        while read -r device; do limit_device "$device" 0; write_early "$device" 0; done <"$dir/limited"
      fi
      cut -d' ' -f5 /proc/self/mountinfo | grep "^$dir/" | sort -r | while read -r mount; do umount "$mount" || umount -l "$mount"; done
    } </dev/null >>"$out/logs/dead-runs.log" 2>&1
    rm -rf --one-file-system "${dir:?}"
  done
}
