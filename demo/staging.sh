# The staging part of demo.sh (sourced there): a real tree to an S3 server and into three nodes, verified.
#
# The server runs on node 0, in memory, where all nodes reach it.

# staged_tree DIR FILES: some thousand real files, the sources of crates that cargo unpacked.
staged_tree() {
  local crate
  mkdir -p "$1"
  for crate in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/*/; do
    [ "$(find "$1" -type f | wc -l)" -lt "$2" ] || break
    cp -r "$crate" "$1/"
  done
  # A bucket holds neither links nor empty directories; packs would.
  find "$1" -type l -delete
  find "$1" -type d -empty -delete
}

# s3 NODE CMD...: runs a command that finds the server.
s3() {
  local node=$1
  shift
  AWS_ENDPOINT_URL=$endpoint AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=testtest on "$node" "$@"
}

# near CMD...: the same for a command of the job's launcher, which lets nodes do the work.
near() { AWS_ENDPOINT_URL=$endpoint AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=testtest "$@"; }

# timed NAME CMD...: runs it, and keeps its seconds under the name.
declare -A took
timed() {
  local name=$1 start out
  shift
  start=$(seconds)
  out=$("$@" 2>&1) || { say "$out"; die "this failed: $*"; }
  took[$name]=$(since "$start")
}

with_rclone() {
  s3 0 rclone copy "$1" "$2" --config /dev/null --transfers 32 --checkers 32 --s3-no-head --s3-no-check-bucket \
    --s3-provider Other --s3-endpoint "$endpoint" --s3-access-key-id test --s3-secret-access-key testtest
}

demo_staging() {
  local tree=$job_work/crates files address want node kind key=() server start arrived out
  staged_tree "$tree" 10000
  files=$(find "$tree" -type f | wc -l)
  say "$files files, $(du -sh --apparent-size "$tree" | cut -f1): the sources of crates that this build used"
  address=$(on 0 getent hosts n0 | cut -d' ' -f1)
  # Not through a function: what is ended is the program, not a shell around it.
  "$hayase" exec --node 0 -- "$s3_server" --listen "${address:-127.0.0.1}:9000" >"$job_work/s3.log" 2>&1 &
  server=$!
  for _ in $(seq 100); do grep -q endpoint "$job_work/s3.log" && break; sleep 0.05; done
  endpoint=$(sed -n 's/^endpoint //p' "$job_work/s3.log")
  [ -n "$endpoint" ] || { cat "$job_work/s3.log"; die "the S3 server did not start"; }
  head -c 32 /dev/urandom >"$job_work/key"
  want=$(sums 0 "$tree")

  for kind in loose packed sealed; do
    local pack=16MiB
    [ $kind != loose ] || pack=none
    key=()
    [ $kind != sealed ] || key=(--key-file "$job_work/key")
    timed "$kind up" s3 0 "$hayase" stage out "$tree" "s3://bucket/$kind" --pack $pack "${key[@]}"
    timed "$kind down" s3 0 "$hayase" stage in "s3://bucket/$kind" "$(area 0 local)/in" "${key[@]}"
    [ "$(sums 0 "$(area 0 local)/in")" = "$want" ] || die "what came from $kind objects differs"
    on 0 rm -rf "$(area 0 local)/in"
    timed "$kind nodes" near "$hayase" stage in "s3://bucket/$kind" local/all --spread copy "${key[@]}"
    for node in 0 1 2; do
      [ "$(sums "$node" "$(area "$node" local)/all")" = "$want" ] || die "node $node has other bytes ($kind)"
      on "$node" rm -rf "$(area "$node" local)/all"
    done
  done
  if has rclone; then
    timed "rclone up" with_rclone "$tree" :s3:bucket/rclone
    timed "rclone down" with_rclone :s3:bucket/rclone "$(area 0 local)/rclone"
    on 0 rm -rf "$(area 0 local)/rclone"
  fi

  say "-- packs that are mounted, not unpacked"
  on 0 mkdir -p "$job_work/packs-mount"
  must s3 0 "$hayase" mount --key-file "$job_work/key" s3://bucket/sealed "$job_work/packs-mount"
  [ "$(sums 0 "$job_work/packs-mount")" = "$want" ] || die "the mount shows other bytes"
  must on 0 umount "$job_work/packs-mount"
  say "every byte read through the mount of sealed packs is the same"

  say "-- killed in the middle (kill -9), and started again"
  AWS_ENDPOINT_URL=$endpoint AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=testtest \
    "$hayase" stage in s3://bucket/packed shared/again --spread shard --bandwidth 8MiB >/dev/null 2>&1 &
  local copy=$!
  for _ in $(seq 200); do
    arrived=$(on 0 find "$(area 0 shared)/again" -type f 2>/dev/null | grep -cv '/\.hayase-partial-')
    [ "$arrived" -lt 100 ] || break
    sleep 0.1
  done
  kill -9 $copy 2>/dev/null
  wait $copy 2>/dev/null
  arrived=$(on 0 find "$(area 0 shared)/again" -type f | grep -cv '/\.hayase-partial-')
  say "killed when $arrived of $files files were there"
  out=$(near "$hayase" stage in s3://bucket/packed shared/again --spread shard) || die "the second copy failed: $out"
  say "$out"
  # What the killed one left half written is hidden, and goes with the job.
  on 0 find "$(area 0 shared)/again" -name '.hayase-partial-*' -delete
  [ "$(sums 1 "$(area 1 shared)/again")" = "$want" ] || die "what was continued differs"
  must on 0 rm -rf "$(area 0 shared)/again"
  kill $server 2>/dev/null
  wait $server 2>/dev/null

  say ""
  printf '%-34s %9s %9s %18s\n' "$files files, seconds" up down "to each of 3 nodes"
  for kind in loose packed sealed rclone; do
    [ -n "${took[$kind up]:-}" ] || continue
    printf '%-34s %9s %9s %18s\n' "$kind" "${took[$kind up]}" "${took[$kind down]}" "${took[$kind nodes]:--}"
  done
  say "every byte of each was verified; rclone copies to one node"
}
