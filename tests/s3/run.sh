#!/usr/bin/env bash
# The S3 tier on a real Ceph RADOS Gateway, which is started here from Debian's packages: the conformance
# suite, whole trees staged loose, packed and sealed, SSE-C, SSE-KMS, wrong settings. Prints `ok`, `FAILED` and `SKIP` lines.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
. scripts/prepare.sh
. tests/s3/gateway.sh
. tests/s3/checks.sh

if ! prepare_packages s3; then
  say "SKIP s3: the packages of a Ceph gateway can not be installed"
  exit 0
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/hayase-s3.XXXXXX")
trap 'gateway_down; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

checks_build || exit 1
started=$SECONDS
gateway_up "$work/ceph" || { say "FAILED s3: the gateway did not start"; gateway_logs; exit 1; }
say "the gateway answers after $((SECONDS - started)) s"
[ "$(gateway_curl PUT /data -o "$work/out" -w '%{http_code}')" = 200 ] ||
  { say "FAILED s3: no bucket can be made"; cat "$work/out"; gateway_logs; exit 1; }

checks_endpoint "$gateway_endpoint"

encrypted() { # MODE NAME WORD: an object that was written so is stored so, as a foreign client sees it
  "$check" "$1" s3://data/seen --keep "$2" || return 1
  gateway_curl HEAD "/data/seen/$2" --head | grep -i "^x-amz-server-side-encryption: $3"
}
# Not readable without the key, by a foreign client either.
closed() { [ "$(gateway_curl GET /data/seen/mine -o /dev/null -w '%{http_code}')" = 400 ]; }

# Twice: the index is larger than what this gateway makes only where nothing is.
many_names() {
  local tree=$work/many-names long kind
  long=$(printf '%0220d' 0)
  mkdir -p "$tree" && (cd "$tree" && seq -f "a-file-without-a-byte-$long-%06g" 24000 | xargs touch) || return 1
  for kind in one two; do
    touch "$tree/$kind"
    HAYASE_S3_PART_MIB=5 "$hayase" stage out "$tree" "$1" --pack 16MiB || return 1
  done
  "$hayase" pack list "$1" >"$work/listed" &&
    [ "$(grep -c a-file-without "$work/listed")" = 24000 ] && grep -q 'two$' "$work/listed"
}

# The gateway is killed in the middle of a copy and comes back: the copy goes on, and everything arrives.
outlives() { # VERB FROM TO
  local copy
  "$hayase" stage "$@" --bandwidth 8MiB >"$work/copied" 2>&1 &
  copy=$!
  sleep 2
  gateway_stop
  sleep 2
  kill -0 $copy || { echo 'the copy ended before its end'; cat "$work/copied"; gateway_again; return 1; }
  gateway_again
  wait $copy || { cat "$work/copied"; return 1; }
}
gateway_that_goes() {
  local tree=$work/goes back=$work/goes-back
  staged_tree "$tree" || return 1
  outlives out "$tree" s3://data/goes --pack none && outlives in s3://data/goes "$back" &&
    diff -r --no-dereference "$tree" "$back" && "$hayase" stage verify "$tree" s3://data/goes
}

# The bucket as the tier of a job: what is written to its cache area is in the bucket when the job is gone.
behind_a_cache() {
  local cache=$work/mount/cache
  mkdir -p "$work/storage" "$work/mount" || return 1
  "$hayase" up --storage "$work/storage" --mount "$work/mount" --shared 64M --local 16M \
    --tier s3://data/cached || return 1
  cp -r "$work/tree/many" "$cache/" && cp "$work/tree/large" "$cache/large" && rm "$cache/many/file 7" &&
    mv "$cache/many/file 8" "$cache/many/moved" && diff "$work/tree/large" "$cache/large"
  local worked=$?
  "$hayase" down || return 1
  rm -rf "$work/cached"
  [ $worked = 0 ] && "$hayase" stage in s3://data/cached "$work/cached" &&
    cmp "$work/tree/large" "$work/cached/large" && cmp "$work/tree/many/file 8" "$work/cached/many/moved" &&
    [ "$(find "$work/cached/many" -type f | wc -l)" = 299 ] && [ ! -e "$work/cached/many/file 7" ]
}

try conformance "$check" plain s3://data/plain
sed -n 's/.*: Capabilities/this gateway: Capabilities/p' "$work/out"
try sse_c_conformance "$check" customer-key s3://data/customer-key
try sse_c_keeps_others_out "$check" customer-key s3://data/seen --keep mine
try sse_c_foreign_reader_is_refused closed
try sse_kms_conformance "$check" "key-service:$gateway_key" s3://data/key-service
try sse_kms_is_stored_so encrypted "key-service:$gateway_key" kms aws:kms
for kind in loose packed sealed; do
  try "stage_$kind" staged $kind "s3://data/$kind" env
done
try stage_many_names many_names s3://data/many
customer=(env HAYASE_S3_SSE=c HAYASE_S3_SSE_C_KEY_FILE="$work/customer" HAYASE_S3_SSE_C_WITHOUT_TLS=yes)
head -c 32 /dev/urandom >"$work/customer"
try stage_sse_c staged packed s3://data/customer "${customer[@]}"
try stage_sse_kms staged loose s3://data/kms env HAYASE_S3_SSE="kms:$gateway_key"
if [ -c /dev/fuse ] && [ "$(id -u)" = 0 ]; then try behind_a_cache behind_a_cache; else say "SKIP s3_behind_a_cache: no FUSE, or not root"; fi
try outlives_a_gateway_that_goes gateway_that_goes
try wrong_settings_are_told "$check" wrong-settings s3://data
try small_objects "$check" small-objects s3://data/small
grep -h '^small objects' "$work/out" || true

# What README and guides show, on this gateway; as they stand they read and write the bucket `bucket`.
[ "$(gateway_curl PUT /bucket -o "$work/out" -w '%{http_code}')" = 200 ] &&
  tests/documents/run.sh needs-s3 || failures=$((failures + 1))

[ "$failures" = 0 ]
