#!/usr/bin/env bash
# The blocks of README and docs/ that `cargo test` cannot run, as they stand: those of a mark (```sh,needs-mpi), page by page.
# The blocks of a page run in order in one shell, on a machine of its own (machine.sh) on which scenes.sh has put what the
# page expects. Prints `ok`, `FAILED` and `SKIP` lines.
#
#   tests/documents/run.sh MARK [PAGE]...     without PAGE, all pages that have such blocks
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
. scripts/prepare.sh

mark=$1
shift
skip() { say "SKIP documents_$mark: $1"; exit 0; }
obstacle=$(fuse_obstacle)
[ -z "$obstacle" ] || skip "$obstacle"
[ "$(id -u)" = 0 ] || skip "needs root"
unshare --net --mount --pid --fork true 2>/dev/null || skip "needs namespaces"
grep -qw overlay /proc/filesystems || modprobe overlay 2>/dev/null || skip "this kernel has no overlays"
case $mark in
  needs-mpi | needs-paths) programs="mpicc.mpich mpiexec.mpich h5pcc.mpich" ;;
  needs-gfarm) programs="mpicc.mpich mpiexec.mpich gfarm2fs gfmkdir" ;;
  needs-openmpi) programs="mpicc.openmpi mpiexec.openmpi" ;;
  *) programs="openssl python3" ;;
esac
for program in $programs; do has "$program" || skip "$program is not installed"; done
hayase=$(built hayase) && built libhayase_mpiio.so >/dev/null || exit 1

work=$(mktemp -d "${HAYASE_WORK_DIR:-/var/tmp}/hayase-documents.XXXXXX") || exit 1
trap 'rm -rf --one-file-system "${work:?}"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# script PAGE: its blocks of the mark; `before N` stands before the one with number N.
script() {
  awk -v fence="\`\`\`sh,$mark" '/^ *```/ { line = $0; sub(/^ */, "", line); inside = !open && line == fence; open = !open
      if (inside) print "before " ++number; next } inside' "$1"
}

pages=("$@")
[ $# != 0 ] || mapfile -t pages < <(grep -lx " *\`\`\`sh,$mark" README.md docs/*.md docs/*/*.md)
[ "${#pages[@]}" != 0 ] || { say "FAILED documents_$mark: no page has a block of it"; exit 1; }
failures=0
for page in "${pages[@]}"; do
  name=${page%.md}
  name=${name#docs/}
  name=${name//[\/-]/_}
  mkdir -p "$work/$name/machine" "$work/$name/disk"
  script "$page" >"$work/$name/blocks"
  [ -s "$work/$name/blocks" ] || { say "FAILED documents_$name: no block of $mark"; failures=$((failures + 1)); continue; }
  start=$SECONDS
  # As long as the longest page may take; the machine ends with its first process.
  # `unshare --fork` does not end by SIGTERM.
  if timeout -k 10 300 unshare --mount --pid --fork --kill-child tests/documents/machine.sh "$work/$name" "$(dirname "$hayase")" \
    "$PWD/tests/documents/scenes.sh" "$name" "$mark" >"$work/$name/out" 2>&1 </dev/null; then
    say "ok documents_${name}_$mark ($((SECONDS - start)) s)"
  else
    say "FAILED documents_${name}_$mark"
    tail -n 40 "$work/$name/out"
    failures=$((failures + 1))
  fi
done
[ "$failures" = 0 ]
