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
. scripts/roots.sh

keep=
[ "${1:-}" != --keep ] || { keep=1; shift; }
if [ $# -gt 0 ]; then commands=("$*"); else commands=(./test.sh ./demo.sh); fi

if [ "$(id -u)" != 0 ]; then say "SKIP fresh-debian: not root"; exit 0; fi
prepare_packages fresh || { say "SKIP fresh-debian: debootstrap could not be installed"; exit 0; }
prepare_cargo
toolchain=$(rustc --print sysroot) || die "no Rust toolchain to lend"

work=$(mktemp -d "${HAYASE_WORK_DIR:-/var/tmp}/hayase-fresh.XXXXXX") || exit 1
root=$work/root
finish() {
  local status=$?
  trap - EXIT
  if [ -n "$keep" ]; then say "kept: $work"; else remove_root "${root:?}"; rm -rf "${work:?}"; fi
  exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

say "debootstrap: Debian 12 from $mirror"
debian_root bookworm "$root" "$work/debootstrap.log" git || die "debootstrap failed"
git clone -q --no-hardlinks . "$root/root/hayase" || die "the repository could not be cloned"
[ -z "$(git status --porcelain)" ] || say "note: what is not committed is not tested here"
root_environment+=(PATH=/opt/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)

# in_clone COMMAND: runs a shell command in the clone, in the root.
in_clone() { in_root "$root" "cd /root/hayase && $1" "$toolchain" /opt/rust; }

failed=0
in_clone '! command -v gcc && ! command -v mkfs.xfs && ! command -v rustup && cargo --version' >"$work/log" 2>&1 ||
  { cat "$work/log"; die "the root is not fresh, or the lent toolchain does not run in it"; }
say "a fresh root: $(tail -n 1 "$work/log")"
for command in "${commands[@]}"; do
  start=$SECONDS
  say "--- $command"
  if in_clone "$command" 2>&1 | tee "$work/log" | sed 's/^/    /'; then
    say "ok fresh-debian $command ($((SECONDS - start)) s)"
  else
    say "FAILED fresh-debian $command ($((SECONDS - start)) s)"
    failed=1
  fi
done
exit $failed
