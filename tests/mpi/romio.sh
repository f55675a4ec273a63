#!/usr/bin/env bash
# The I/O tests of ROMIO and of MPICH, from Debian's source package: what passes without us passes with us. Prints
# `ok`, `FAILED` and `SKIP` lines; the last of each suite tells how many pass, and how many of the others without us.
#
#   tests/mpi/romio.sh [--fetch] [mpich|openmpi]...
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
. scripts/prepare.sh
. tests/mpi/launch.sh

MPICH=4.0.2
MPICH_SHA256=b27039f964afeb6b8a3e009c56b441cbe368c26d6d6476ad3bb7190996875860
mpiio_session
SECONDS_MAX=60 # of one test
# Several of these tests write, wait at a barrier and read: more than MPI promises without a sync.
export HAYASE_MPIIO_CONSISTENCY=posix
# What differs with us, and why.
differs() {
  case $1 in
    romio/error) say "it asks for the words of ROMIO's own error message" ;;
    mpich/simple_collective) say "it calls unlink(2) for the file, which is a directory in a plain directory" ;;
    *) return 1 ;;
  esac
}
own=$PWD/tests/mpi
sources=$target/mpich-tests
romio=$sources/mpich-$MPICH/src/mpi/romio/test
mpich_io=$sources/mpich-$MPICH/test/mpi/io

# Ranks and arguments, as runtests and testlist of the package have them; F is the name of the file. Not here: what needs
# much memory or disk, hint files, performance, and sources that its configuration would have to write.
romio_tests='simple 4 -fname F
async 4 -fname F
async-multiple 4 -fname F
atomicity 4 -fname F
coll_test 4 -fname F
excl 4 -fname F
file_info 4 -fname F
i_noncontig 2 -fname F
noncontig 2 -fname F
noncontig_coll 2 -fname F
noncontig_coll2 4 -fname F
aggregation1 4 -h -f F
aggregation2 4 F
hindexed 4 F
shared_fp 4 -fname F
ordered_fp 4 -fname F
split_coll 4 -fname F
psimple 4 -fname F
error 1 -fname F
status 1 -fname F
types_with_zeros 2 F
darray_read 4 F
creat_excl 4 -fname F
external32 1 -fname F'
mpich_tests='rdwrord 4
rdwrzero 4
getextent 2
setinfo 4
setviewcur 4
i_noncontig 2
async 4
async_any 4
userioerr 1
resized 1
resized2 1
hindexed_io 1
tst_fileview 1
zero_count 4
simple_collective 1 F
external32_derived_dtype 1
i_hindexed_io 1
i_rdwrord 4
i_setviewcur 4
i_aggregation1 4 -f F
i_aggregation2 4 F
i_coll_test 4 -fname F
i_darray_read 4 F
i_hindexed 4 F
i_noncontig_coll 2 -fname F
i_noncontig_coll2 4 -fname F
i_types_with_zeros 2 F'

# By apt, with lists of its own: the machine's sources stay as they are.
prepare_sources() {
  [ ! -e "$romio/simple.c" ] || return 0
  has apt-get && [ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || { echo "no apt of Debian" >"$work/why"; return 1; }
  rm -rf "$sources"
  mkdir -p "$sources"/{parts,lists/partial,cache/archives/partial} || return
  printf '%s\n' 'Types: deb-src' 'URIs: http://deb.debian.org/debian' 'Suites: bookworm' 'Components: main' \
    'Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg' >"$sources/parts/src.sources"
  local apt=(timeout 250 apt-get -qq -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$sources/parts"
    -o "Dir::State::lists=$sources/lists" -o "Dir::Cache=$sources/cache")
  (cd "$sources" && "${apt[@]}" update && "${apt[@]}" source --download-only mpich &&
    echo "$MPICH_SHA256  mpich_$MPICH.orig.tar.xz" | sha256sum -c --quiet &&
    tar -xJf "mpich_$MPICH.orig.tar.xz" --wildcards '*/src/mpi/romio/test/*' '*/test/mpi/io/*' &&
    rm -rf lists cache) >"$work/why" 2>&1
}

# compile MPI SUITE NAME
compile() {
  local mpi=$1 suite=$2 name=$3 more=()
  [ "$suite" = romio ] || more=("$own/mtest.c" "-I$own")
  local directory=$romio
  [ "$suite" = romio ] || directory=$mpich_io
  : >"$work/bin/mpitestconf.h"
  "$(tool "$mpi" mpicc)" -w -O1 -DHAVE_UNISTD_H -DHAVE_STRING_H -o "$work/bin/$suite-$name" "$directory/$name.c" ${more[@]+"${more[@]}"} "-I$work/bin" -lm
}
# passes MPI SUITE stock|preloaded RANKS NAME ARGUMENTS..: in a directory of its own.
passes() {
  local mpi=$1 suite=$2 how=$3 ranks=$4 name=$5 place=$work/plain/$5
  shift 5
  [ "$how" = stock ] || place=$work/marked/$name
  rm -rf "$place"
  mkdir "$place" && cd "$place" || return
  run "$mpi" "$ranks" "$how" "$work/bin/$suite-$name" "${@/#F/$place/file}" </dev/null >"$work/said" 2>&1 && grep -qi 'no errors' "$work/said"
}
# suite MPI NAME: all of its tests; those that fail with us must fail without us too.
suite() {
  local mpi=$1 suite=$2 tests name ranks arguments count=0 with=0 without=0 missing= start
  tests=${suite}_tests
  while read -r name ranks arguments; do
    if ! compile "$mpi" "$suite" "$name" 2>"$work/compiler"; then
      missing+=" $name"
      continue
    fi
    count=$((count + 1))
    # shellcheck disable=SC2086 # words
    start=$SECONDS
    if (passes "$mpi" "$suite" preloaded "$ranks" "$name" $arguments); then
      with=$((with + 1))
      say "ok mpiio_${mpi}_${suite}_$name ($((SECONDS - start)) s)"
      continue
    fi
    cp "$work/said" "$work/ours"
    # shellcheck disable=SC2086 # words
    if ! (passes "$mpi" "$suite" stock "$ranks" "$name" $arguments); then
      say "fails without us too: $mpi $suite $name"
      continue
    fi
    without=$((without + 1))
    if differs "$suite/$name" >"$work/why"; then
      say "differs: $mpi $suite $name: $(cat "$work/why")"
    else
      say "FAILED mpiio_${mpi}_${suite}_$name: it passes without us"
      tail -n 20 "$work/ours"
      failures=$((failures + 1))
    fi
  done <<<"${!tests}"
  say "$mpi $suite: of $count tests $with pass with us; of the others $without pass without us${missing:+; not compiled:$missing}"
}

# --fetch: only what comes from a package registry.
if [ "${1:-}" = --fetch ]; then
  prepare_sources
  exit
fi
[ $# -gt 0 ] || set -- mpich openmpi
if ! prepare_sources; then
  say "SKIP mpiio_romio: the source package of MPICH $MPICH could not be had: $(tail -n 1 "$work/why")"
  exit 0
fi
for mpi; do
  if ! has "mpiexec.$mpi" || ! has "mpicc.$mpi"; then
    say "SKIP mpiio_romio_$mpi: not installed"
    continue
  fi
  suite "$mpi" romio
  suite "$mpi" mpich
done
[ "$failures" = 0 ]
