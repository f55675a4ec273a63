#!/usr/bin/env bash
# Whole trees staged to versitygw, which is built here from its Go module. Its back end is a directory, where a name is
# an object or a directory and not both, as the conformance suite asks. Prints `ok`, `FAILED` and `SKIP` lines.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
. scripts/prepare.sh
. tests/s3/gateway.sh
. tests/s3/checks.sh

version=v1.8.0
work=$(mktemp -d "${TMPDIR:-/tmp}/hayase-s3.XXXXXX")
server=
finish() {
  [ -z "$server" ] || { kill "$server" && wait "$server"; } 2>/dev/null
  rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM

if ! has go; then
  say "SKIP s3-versitygw: there is no Go to build it with"
  exit 0
fi
# Go of this machine as it is: no other one is fetched.
if ! (cd "$work" && GOTOOLCHAIN=local GOBIN=$work/bin go install "github.com/versity/versitygw/cmd/versitygw@$version") >"$work/out" 2>&1; then
  say "SKIP s3-versitygw: $(go version) can not build it: $(grep -v '^go: downloading' "$work/out" | tail -n 1)"
  exit 0
fi
checks_build || exit 1

port=$(free_port)
mkdir -p "$work/buckets/data" "$work/run"
"$work/bin/versitygw" --access test --secret testtest --port "127.0.0.1:$port" --quiet posix "$work/buckets" \
  >"$work/server.out" 2>&1 </dev/null &
server=$!
tries=100
until (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do
  tries=$((tries - 1))
  if [ "$tries" = 0 ] || ! kill -0 "$server" 2>/dev/null; then
    say "FAILED s3-versitygw: the server did not start"
    tail -n 5 "$work/server.out"
    exit 1
  fi
  sleep 0.1
done
checks_endpoint "http://127.0.0.1:$port"

for kind in loose packed sealed; do
  try "versitygw_stage_$kind" staged $kind "s3://data/$kind" env
done
try versitygw_small_objects "$check" small-objects s3://data/small
grep -h '^small objects' "$work/out" || true

[ "$failures" = 0 ]
