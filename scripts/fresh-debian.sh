#!/usr/bin/env bash
# Proves that no step of installing is missing: both commands of the README in a fresh Debian 12 root, from a
# clean clone of what is committed. Prints `ok`, `FAILED` and `SKIP` lines.
#
#   scripts/fresh-debian.sh [--keep] [COMMAND...]     COMMAND instead of ./test.sh and ./demo.sh
#
# The root is made by debootstrap (minbase, git). Lent to it: the Rust toolchain of this machine (read-only),
# and what the network needs here (resolv.conf, a proxy's settings and certificates when there are some).
# Needs root, about 24 GiB below ${HAYASE_WORK_DIR:-/var/tmp}, and a Debian mirror (HAYASE_DEBIAN_MIRROR).
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
. scripts/prepare.sh

keep=
[ "${1:-}" != --keep ] || { keep=1; shift; }
if [ $# -gt 0 ]; then commands=("$*"); else commands=(./test.sh ./demo.sh); fi

if [ "$(id -u)" != 0 ]; then say "SKIP fresh-debian: not root"; exit 0; fi
prepare_packages fresh || { say "SKIP fresh-debian: debootstrap could not be installed"; exit 0; }
prepare_cargo
toolchain=$(rustc --print sysroot) || die "no Rust toolchain to lend"
mirror=${HAYASE_DEBIAN_MIRROR:-http://deb.debian.org/debian}

work=$(mktemp -d "${HAYASE_WORK_DIR:-/var/tmp}/hayase-fresh.XXXXXX")
root=$work/root
# The processes of the root live in a PID namespace that ends with this script, its mounts in a mount
# namespace that ends with them; only files are left to be removed.
finish() {
  local status=$? loop
  trap - EXIT
  for loop in $(losetup --noheadings --output NAME,BACK-FILE 2>/dev/null | awk -v r="$root/" 'index($2, r) == 1 { print $1 }'); do
    losetup --detach "$loop"
  done
  if [ -n "$keep" ]; then say "kept: $work"; else rm -rf --one-file-system "$work"; fi
  exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

say "debootstrap: Debian 12 from $mirror"
# In two stages, so that dpkg learns in between that this root need not survive a power cut.
bootstrap() {
  debootstrap --variant=minbase --include=git --foreign bookworm "$root" "$mirror" &&
    mkdir -p "$root/etc/dpkg/dpkg.cfg.d" &&
    echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/unsafe-io" &&
    chroot "$root" /debootstrap/debootstrap --second-stage
}
bootstrap >"$work/debootstrap.log" 2>&1 || { tail -n 5 "$work/debootstrap.log"; die "debootstrap failed"; }
git clone -q --no-hardlinks . "$root/root/hayase" || die "the repository could not be cloned"
[ -z "$(git status --porcelain)" ] || say "note: what is not committed is not tested here"
mkdir "$root/opt/rust"
cp /etc/resolv.conf "$root/etc/resolv.conf"

# The environment inside: nothing of ours but the toolchain and the network.
environment=(HOME=/root LANG=C.UTF-8 "TERM=${TERM:-dumb}" SHELL=/bin/bash
  PATH=/opt/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)
for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
  [ -z "${!name:-}" ] || environment+=("$name=${!name}")
done
if [ -n "${SSL_CERT_FILE:-}" ]; then
  cp "$SSL_CERT_FILE" "$root/etc/lent-certificates.crt"
  for name in SSL_CERT_FILE CURL_CA_BUNDLE CARGO_HTTP_CAINFO GIT_SSL_CAINFO; do
    environment+=("$name=/etc/lent-certificates.crt")
  done
fi

# in_root COMMAND: runs a shell command in the clone, in the root.
in_root() {
  env -i ROOT="$root" TOOLCHAIN="$toolchain" PATH="$PATH" \
    unshare --mount --uts --ipc --pid --fork --kill-child --propagation private bash -euc '
      mount --bind "$ROOT" "$ROOT" # namespaces can be made only where / is a mount
      mount -t proc proc "$ROOT/proc"
      mount -t sysfs sysfs "$ROOT/sys"
      mount --rbind /dev "$ROOT/dev"
      mount -t tmpfs tmpfs "$ROOT/run"
      mount --bind "$TOOLCHAIN" "$ROOT/opt/rust"
      mount -o remount,bind,ro "$ROOT/opt/rust"
      exec chroot "$ROOT" env -i "${@:2}" bash -c "cd /root/hayase && $1"
    ' bash "$1" "${environment[@]}"
}

failed=0
in_root '! command -v gcc && ! command -v mkfs.xfs && ! command -v rustup && cargo --version' >"$work/log" 2>&1 ||
  { cat "$work/log"; die "the root is not fresh, or the lent toolchain does not run in it"; }
say "a fresh root: $(tail -n 1 "$work/log")"
for command in "${commands[@]}"; do
  start=$SECONDS
  say "--- $command"
  if in_root "$command" 2>&1 | tee "$work/log" | sed 's/^/    /'; then
    say "ok fresh-debian $command ($((SECONDS - start)) s)"
  else
    say "FAILED fresh-debian $command ($((SECONDS - start)) s)"
    failed=1
  fi
done
exit $failed
