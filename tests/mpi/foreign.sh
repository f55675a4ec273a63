#!/usr/bin/env bash
# Libraries above MPI-IO, as Debian has them: parallel HDF5 in C, h5py, PnetCDF. Their files must be the same, byte by
# byte, with and without us. Prints `ok`, `FAILED` and `SKIP` lines.
#
#   tests/mpi/foreign.sh [mpich|openmpi]...
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
. scripts/prepare.sh
. tests/mpi/launch.sh
mpiio_session
# HDF5 1.10 locks files by flock(2), also the stub of a container; other versions of it do not differ here.
export HDF5_USE_FILE_LOCKING=FALSE

# with_cc MPI SOURCE OPTIONS..: compiles, beside the tests' other programs.
with_cc() {
  local mpi=$1 source=$2
  shift 2
  "$(tool "$mpi" mpicc)" -O1 -Wall -o "$work/bin/$source" "tests/mpi/programs/$source.c" "$@"
}
hdf5() { with_cc "$1" cubes_hdf5 "-I/usr/include/hdf5/$1" -L"$(dirname "$(hdf5_library "$1")")" -lhdf5; }
hdf5_library() { compgen -G "/usr/lib/*/hdf5/$1/libhdf5.so"; }
# PnetCDF opens a file that exists with open(2) before MPI: it must be flat by then, as it is at its close where no
# directory is marked.
agrees_when_flat() {
  local mpi=$1 ranks=$2 program=$3 name=$3-$2
  run "$mpi" "$ranks" stock "$work/bin/$program" "$work/plain/$name" || { say "it fails without us"; return 1; }
  HAYASE_MPIIO=on HAYASE_MPIIO_PATHS="$work/plain/flat-*" HAYASE_MPIIO_TRACE=1 \
    run "$mpi" "$ranks" preloaded "$work/bin/$program" "$work/plain/flat-$name" || return 1
  grep -q 'trace MPI_File_write_at_all \([1-9][0-9]*\) \1$' "$work/out" || { say "the calls did not come to us"; return 1; }
  [ -f "$work/plain/flat-$name" ] && cmp "$work/plain/$name" "$work/plain/flat-$name"
}
pnetcdf() { with_cc "$1" grids_pnetcdf -lpnetcdf; }
h5py() { printf '#!/bin/sh\nexec /usr/bin/python3 %q "$@"\n' "$PWD/tests/mpi/programs/waves_h5py.py" >"$work/bin/waves_h5py" && chmod +x "$work/bin/waves_h5py"; }
# As Debian builds it, for its default MPI. Its two builds share a name: this asks for the parallel one.
export H5PY_ALWAYS_USE_MPI=1
has_h5py() { /usr/bin/python3 -c 'import h5py, mpi4py, sys; sys.exit(not h5py.get_config().mpi)' 2>"$work/why"; }

[ $# -gt 0 ] || set -- mpich openmpi
for mpi; do
  if ! has "mpiexec.$mpi" || ! has "mpicc.$mpi"; then
    say "SKIP mpiio_foreign_$mpi: not installed"
    continue
  fi
  rm -rf "${work:?}/marked"/* "${work:?}/plain/"*
  if [ -n "$(hdf5_library "$mpi")" ]; then
    try "${mpi}_hdf5_compiles" hdf5 "$mpi"
    for ranks in 1 3 4; do try "${mpi}_hdf5_by_${ranks}_agrees" agrees "$mpi" "$ranks" cubes_hdf5; done
  else
    say "SKIP mpiio_${mpi}_hdf5: libhdf5-$mpi-dev is not installed"
  fi
  # These two Debian builds for one MPI only.
  [ "$mpi" = openmpi ] || continue
  if [ -e /usr/include/pnetcdf.h ]; then
    try "${mpi}_pnetcdf_compiles" pnetcdf "$mpi"
    for ranks in 1 3 4; do try "${mpi}_pnetcdf_by_${ranks}_agrees" agrees_when_flat "$mpi" "$ranks" grids_pnetcdf; done
  else
    say "SKIP mpiio_${mpi}_pnetcdf: libpnetcdf-dev is not installed"
  fi
  if has_h5py; then
    h5py
    for ranks in 1 3; do try "${mpi}_h5py_by_${ranks}_agrees" agrees "$mpi" "$ranks" waves_h5py; done
  else
    say "SKIP mpiio_${mpi}_h5py: python3-h5py-mpi: $(tail -n 1 "$work/why")"
  fi
done
[ "$failures" = 0 ]
