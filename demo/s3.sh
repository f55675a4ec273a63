# The scene of S3 (sourced by demo.sh): a tree to a bucket and back, as one object for each file and in packs, against rclone.
#
# The server runs on node 0 and keeps objects in memory; the other nodes reach it by the job's network.

# near CMD...: runs a command that finds the server.
near() {
  env -u AWS_CA_BUNDLE -u AWS_SESSION_TOKEN -u AWS_PROFILE -u http_proxy -u HTTP_PROXY NO_PROXY='*' no_proxy='*' AWS_ENDPOINT_URL="$endpoint" \
    AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=testtest "$@"
}

# s3 CMD...: the same on node 1.
s3() { near "$hayase" exec --node 1 -- "$@"; }

with_rclone() {
  s3 rclone copy "$1" "$2" --config /dev/null --transfers 32 --checkers 32 --s3-no-head --s3-no-check-bucket \
    --s3-provider Other --s3-endpoint "$endpoint" --s3-access-key-id test --s3-secret-access-key testtest
}

s3_pid=
s3_begin() {
  local address
  address=$(on 0 getent hosts n0 | cut -d' ' -f1)
  # Not through a function: what is ended is the program, not a shell around it.
  "$hayase" exec --node 0 -- "$s3_server" --listen "${address:-127.0.0.1}:9000" >"$job_work/s3.log" 2>&1 &
  s3_pid=$!
  wait_until 5 grep -q endpoint "$job_work/s3.log"
  endpoint=$(sed -n 's/^endpoint //p' "$job_work/s3.log")
  [ -n "$endpoint" ] || { cat "$job_work/s3.log"; die "the S3 server did not start"; }
}
s3_end() {
  [ -n "$s3_pid" ] || return 0
  kill "$s3_pid" 2>/dev/null
  wait "$s3_pid" 2>/dev/null
  s3_pid=
}

demo_s3() {
  local kind pack place rclone_up=- rclone_down=- all node
  local -A up down
  scene s3 "S3: $tree_files files ($tree_size) from node 1 to a bucket and back" \
    "rclone with 32 transfers; Hayase with one object for each file, and in packs of 16 MiB. The server is in node 0's memory."
  place=$(area 1 local)
  s3_begin
  if [ -n "$limited" ] && has rclone; then
    timed s3 rclone_up with_rclone "$tree" :s3:bucket/rclone
    timed s3 rclone_down with_rclone :s3:bucket/rclone "$place/rclone"
    [ "$(file_sums 1 "$place/rclone")" = "$(file_sums 1 "$tree")" ] || die "rclone's copy has other files than the tree"
    check s3 "rclone's copy has the bytes of the tree"
    on 1 rm -rf "$place/rclone"
  fi
  for kind in loose packed; do
    if [ $kind = loose ]; then pack=none; else pack=16MiB; fi
    timed s3 "up[$kind]" s3 "$hayase" stage out "$tree" "s3://bucket/$kind" --pack $pack
    timed s3 "down[$kind]" s3 "$hayase" stage in "s3://bucket/$kind" "$place/in"
    same_tree 1 "$place/in" "$kind"
    on 1 rm -rf "$place/in"
  done
  timed s3 all near "$hayase" stage in s3://bucket/packed local/all --spread copy
  for node in 0 1 2; do
    same_tree "$node" "$(area "$node" local)/all" "on each node"
    on "$node" rm -rf "$(area "$node" local)/all"
  done
  s3_end
  compare s3 "to the bucket, an object for each file" "$rclone_up" "${up[loose]}" s lower rclone
  compare s3 "back, an object for each file" "$rclone_down" "${down[loose]}" s lower rclone
  compare s3 "to the bucket, in packs" "$rclone_up" "${up[packed]}" s lower rclone
  compare s3 "back, from packs" "$rclone_down" "${down[packed]}" s lower rclone
  compare s3 "from packs to all three nodes, each object fetched once" - "$all" s lower "rclone, once for each node"
  check s3 "bytes, links, modes and times of each of Hayase's copies are those of the tree"
}
