# What stands for the shared storage of a cluster (sourced by demo.sh, after demo/limits.sh): a directory on a file system of
# its own, for all nodes, of known speed and latency.

storage=            # the directory
storage_device=     # MAJOR:MINOR, when it is limited
distant=()          # words in front of a program that is to wait for the metadata server, as on a cluster it would
watcher=            # the process that watches it

# storage_begin: makes it, limited when there is a group for it.
storage_begin() {
  storage=$job_work/tier
  distant=(env "DEMO_SLOW_DIRECTORY=$storage" "DEMO_SLOW_US=$metadata_us" "LD_PRELOAD=$job_work/latency.so")
  [ -n "$control" ] && [ -z "$(limit_obstacle)" ] || return 0
  truncate -s 4G "$job_work/shared-storage.img"
  mkfs.ext4 -q -F "$job_work/shared-storage.img" && mount -o loop,noatime "$job_work/shared-storage.img" "$storage" ||
    { warn "no file system can be made for the shared storage"; return 0; }
  rmdir "$storage/lost+found"
  storage_device=$(mountpoint -d "$storage")
  limit_device "$storage_device" "$storage_mib" || { storage_device=; return 0; }
  write_early "$storage_device" "$storage_mib" 2>/dev/null
}

# storage_end: programs that were killed may still wait for it.
storage_end() { ! mountpoint -q "$storage" || wait_until 10 umount "$storage" || umount -l "$storage"; }

# written: bytes that have reached the storage so far.
written() { awk '{ print $7 * 512 }' "/sys/dev/block/$storage_device/stat"; }

# watch_begin FILE: from now on, five times a second: when, and how many bytes have reached the storage.
watch_begin() {
  [ -n "$storage_device" ] || return 0
  while sleep 0.2; do printf '%s %s\n' "$(seconds)" "$(written)"; done >"$1" &
  watcher=$!
}
watch_end() {
  [ -n "$watcher" ] || return 0
  kill "$watcher" 2>/dev/null
  wait "$watcher" 2>/dev/null
  watcher=
}
