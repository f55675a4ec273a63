# How long the peers of `./bench.sh dataplane` live (sourced after prepare.sh).
#
# A script of a peer is the first process of process namespaces of its own: when it ends, whatever it started ends too.
# It says `ready`, waits until its standard input ends, however that comes about, and takes its mounts away.

# peer_ready [POINT...]: at the end of a script; these it has mounted.
peer_ready() {
  local point
  say ready
  cat >/dev/null
  for point in "$@"; do
    # What a program has just let go of is busy a moment longer.
    wait_until 5 umount "$point" || umount -l "$point"
  done
}
