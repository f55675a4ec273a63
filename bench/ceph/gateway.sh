#!/usr/bin/env bash
# The Ceph RADOS Gateway of `./bench.sh stage`: gateway.sh DIR
#
# Brings one up in DIR (see tests/s3/gateway.sh), says `endpoint URL`, waits until standard input ends, however that
# comes about, ends it and takes DIR away.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
. scripts/prepare.sh
. tests/s3/gateway.sh

directory=$1
trap 'gateway_down; rm -rf "$directory"' EXIT
trap 'exit 130' INT TERM HUP
if [ -n "$(missing_packages s3)" ]; then
  warn "a Ceph gateway needs these packages: $(missing_packages s3 | tr '\n' ' ')"
  exit 1
fi
gateway_up "$directory" || { gateway_logs >&2; exit 1; }
say "endpoint $gateway_endpoint"
while read -r _; do :; done
