# The staging part of demo.sh (sourced there): a real tree to an S3 server and into three nodes, verified.
#
# The server runs on node 0 and keeps objects in memory; all nodes reach it by the job's network.

# staged_tree DIR FILES: some thousand real files, the sources of crates that cargo unpacked.
staged_tree() {
  local crate count=0
  mkdir -p "$1"
  for crate in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/*/; do
    [ "$count" -lt "$2" ] || break
    cp -r "$crate" "$1/"
    count=$((count + $(find "$crate" -type f | wc -l)))
  done
  # What crates have seldom: links, empty directories, modes and times of their own.
  mkdir -p "$1/empty/below" "$1/closed"
  ln -s closed/file "$1/link"
  ln -s ../nowhere "$1/empty/dangling"
  echo "of its own mode and time" >"$1/closed/file"
  chmod 640 "$1/closed/file"
  touch -d '2001-02-03 04:05:06.123456789' "$1/closed/file" "$1/empty/below"
  chmod 750 "$1/closed"
}

# s3 NODE CMD...: runs a command that finds the server.
s3() {
  local node=$1
  shift
  near "$hayase" exec --node "$node" -- "$@"
}

# near CMD...: the same for a command of the job's launcher, which lets nodes do the work.
near() { env -u AWS_CA_BUNDLE AWS_ENDPOINT_URL="$endpoint" AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=testtest "$@"; }

# timed NAME CMD...: runs it, and keeps its seconds under the name, and what it said in $out.
declare -A took
timed() {
  local name=$1 start
  shift
  start=$(seconds)
  out=$("$@" 2>&1) || { say "$out"; die "this failed: $*"; }
  took[$name]=$(since "$start")
}

# from_source JSON: bytes that all nodes together brought from the source, as `stage in` tells.
from_source() { grep -o '"bytes": *[0-9]*' <<<"$1" | awk -F: '{ sum += $2 } END { print sum + 0 }'; }

with_rclone() {
  s3 0 rclone copy "$1" "$2" --config /dev/null --transfers 32 --checkers 32 --s3-no-head --s3-no-check-bucket \
    --s3-provider Other --s3-endpoint "$endpoint" --s3-access-key-id test --s3-secret-access-key testtest
}

# tree_sum NODE DIR: of all names, bytes, modes, times and what links say; links have no times that are kept.
tree_sum() {
  on "$1" sh -c 'export LC_ALL=C; cd "$1" || exit 1
    find . -mindepth 1 \( -type l -printf "%y %p %l\n" -o -printf "%y %p %m %T@\n" \) | sort
    find . -type f -print0 | sort -z | xargs -0 sha256sum' sh "$2" | sha256sum | cut -d' ' -f1
}

# same_on NODE DIR WHAT: fails unless the tree has arrived there as it is.
same_on() { [ "$(tree_sum "$1" "$2")" = "$want" ] || die "node $1 has another tree ($3)"; }

demo_staging() {
  local tree=$job_work/crates files address want node kind key=() server pack out total=0
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
  want=$(tree_sum 0 "$tree")

  for kind in loose packed sealed; do
    pack=16MiB key=()
    [ $kind != loose ] || pack=none
    [ $kind != sealed ] || key=(--key-file "$job_work/key")
    timed "$kind up" s3 0 "$hayase" stage out "$tree" "s3://bucket/$kind" --pack $pack "${key[@]}"
    timed "$kind down" s3 0 "$hayase" stage in "s3://bucket/$kind" "$(area 0 local)/in" "${key[@]}"
    same_on 0 "$(area 0 local)/in" "$kind, one node"
    on 0 rm -rf "$(area 0 local)/in"
    timed "$kind nodes" near "$hayase" --json stage in "s3://bucket/$kind" local/all --spread copy "${key[@]}"
    [ $kind != packed ] || total=$(from_source "$out")
    for node in 0 1 2; do
      same_on "$node" "$(area "$node" local)/all" "$kind"
      on "$node" rm -rf "$(area "$node" local)/all"
    done
    say "$kind: up, down to one node and to all three; bytes, links, modes and times are the same"
  done
  if has rclone; then
    timed "rclone up" with_rclone "$tree" :s3:bucket/rclone
    timed "rclone down" with_rclone :s3:bucket/rclone "$(area 0 local)/rclone"
    on 0 rm -rf "$(area 0 local)/rclone"
  fi

  say "-- packs that are mounted, not unpacked"
  on 0 mkdir -p "$job_work/packs-mount"
  must s3 0 "$hayase" mount --key-file "$job_work/key" s3://bucket/sealed "$job_work/packs-mount"
  same_on 0 "$job_work/packs-mount" "sealed packs, mounted"
  must on 0 umount "$job_work/packs-mount"
  say "bytes, links, modes and times read through the mount of sealed packs are the same"

  staging_killed
  kill $server 2>/dev/null
  wait $server 2>/dev/null

  say ""
  printf '%-34s %9s %9s %18s\n' "$files files, seconds" up down "to each of 3 nodes"
  for kind in loose packed sealed rclone; do
    [ -n "${took[$kind up]:-}" ] || continue
    printf '%-34s %9s %9s %18s\n' "$kind" "${took[$kind up]}" "${took[$kind down]}" "${took[$kind nodes]:--}"
  done
  has rclone || say "rclone is not installed: nothing to compare with"
  say "loose is one object for each file, as rclone makes them; rclone copies to one node only"
}

# A copy to each node that is killed in the middle, and started again.
staging_killed() {
  local copy arrived=0 again
  say "-- killed in the middle (kill -9), and started again"
  # Not through `near`: it is the program that is killed.
  AWS_ENDPOINT_URL=$endpoint AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=testtest \
    "$hayase" stage in s3://bucket/packed local/again --spread copy --bandwidth 24MiB >/dev/null 2>&1 &
  copy=$!
  for _ in $(seq 200); do
    arrived=$(on 0 sh -c 'ls "$1"/.hayase-staging-*/.hayase-packs 2>/dev/null | wc -l' sh "$(area 0 shared)")
    [ "$arrived" -lt 6 ] || break
    sleep 0.1
  done
  [ "$arrived" -gt 0 ] || die "no pack arrived in 20 s"
  kill -9 $copy 2>/dev/null || die "the copy ended before it could be killed"
  wait $copy 2>/dev/null
  say "killed when $arrived packs had come from the bucket; the same command again:"
  out=$(near "$hayase" --json stage in s3://bucket/packed local/again --spread copy) || die "the second copy failed: $out"
  again=$(from_source "$out")
  [ "$again" -lt "$total" ] || die "all of it came from the bucket again: $again of $total bytes"
  say "$(mib_of "$again") of $(mib_of "$total") MiB came from the bucket"
  for node in 0 1 2; do same_on "$node" "$(area "$node" local)/again" "continued"; done
  on 0 test -z "$(on 0 sh -c 'ls -A "$1" | grep hayase-staging' sh "$(area 0 shared)")" || die "something is left in shared"
  say "the tree is the same on each node; what had come from the bucket did not come again"
  for node in 0 1 2; do on "$node" rm -rf "$(area "$node" local)/again"; done
}
