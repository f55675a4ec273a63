# Shared by the tests of MPI-IO (sourced, not run): a directory to work in, MPI programs with and without us.
# Needs scripts/prepare.sh. Sets: target, library, hayase, work (with bin, plain and a marked directory), patience, failures.

. tests/mpi/patience.sh

SECONDS_MAX=180 # of one program

# mpiio_session: all of that; what it made is removed at the end.
mpiio_session() {
  target=$(realpath -m "$(target_dir)")
  library=${HAYASE_MPIIO_LIBRARY:-$(built libhayase_mpiio.so)} || exit 1
  hayase=${HAYASE_BIN:-$(built hayase)} || exit 1
  work=$(mktemp -d "${TMPDIR:-/tmp}/hayase-mpiio.XXXXXX")
  trap 'mpiio_end' EXIT
  mkdir "$work/bin" "$work/plain" "$work/marked"
  "$hayase" container enable "$work/marked" >/dev/null || die "no marked directory"
  patience=$(patience "$work/bin") || exit 1
  failures=0
}
mpiio_end() {
  if mountpoint -q "$work/small" 2>/dev/null; then umount "$work/small"; fi
  rm -rf "$work"
}

# try NAME CMD...: one test.
try() {
  local name=$1 start=$SECONDS
  shift
  if "$@" >"$work/out" 2>&1; then say "ok mpiio_$name ($((SECONDS - start)) s)"; else
    say "FAILED mpiio_$name"
    tail -n 60 "$work/out"
    failures=$((failures + 1))
  fi
}

# tool MPI NAME: what its mpiexec or compiler is called.
tool() {
  case $1/$2 in
    mpich/* | openmpi/*) say "$2.$1" ;;
    mpi5abi/mpicc) say "$target/mpi-wheels/mpich5/bin/mpicc_abi" ;;
    mpi5abi/*) say "$target/mpi-wheels/mpich5/bin/$2" ;;
    *) say "$target/mpi-wheels/$1/bin/$2" ;;
  esac
}

# run MPI RANKS stock|preloaded CMD...: the preload is for the ranks, not for the launcher. More ranks than cores: they
# are told to yield, and do it with patience, unless `impatient` is set: then they run as those of users.
run() {
  local mpi=$1 ranks=$2 how=$3 preload=$patience
  shift 3
  [ -z "${impatient:-}" ] || preload=
  [ "$how" = stock ] || preload=$library${preload:+:$preload}
  local launch=(timeout "$SECONDS_MAX" "$(tool "$mpi" mpiexec)")
  case $mpi in
    mpich* | mpi5abi)
      launch+=(-n "$ranks" -genv MPIR_CVAR_POLLS_BEFORE_YIELD 1)
      launch+=(-genv LD_PRELOAD "$preload")
      ;;
    openmpi*)
      launch+=(--oversubscribe -n "$ranks" --mca mpi_yield_when_idle 1)
      [ "$(id -u)" != 0 ] || launch+=(--allow-run-as-root)
      launch+=(-x "LD_PRELOAD=$preload")
      ;;
  esac
  "${launch[@]}" "$@"
}

# The program's file, flat and from a container, is the same.
agrees() {
  local mpi=$1 ranks=$2 program=$3 name=$3-$2
  # The yardstick is tried once more: on a machine full of work Open MPI 4.1 was seen to fail by itself.
  run "$mpi" "$ranks" stock "$work/bin/$program" "$work/plain/$name" ||
    { rm -f "$work/plain/$name"; run "$mpi" "$ranks" stock "$work/bin/$program" "$work/plain/$name"; } ||
    { say "it fails without us"; return 1; }
  run "$mpi" "$ranks" preloaded "$work/bin/$program" "$work/marked/$name" || return 1
  [ -e "$work/marked/$name/.hayase-container" ] || { say "it is no container"; return 1; }
  "$hayase" container check "$work/marked/$name" || return 1
  "$hayase" container export "$work/marked/$name" "$work/plain/$name.exported" || return 1
  cmp "$work/plain/$name" "$work/plain/$name.exported"
}
