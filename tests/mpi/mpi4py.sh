# mpi4py's own tests of files, from its source of a fixed version (sourced after prepare.sh; needs $target, $work).

MPI4PY=4.1.2
MPI4PY_SDIST_SHA256=56860286dc45f20e8821e93cb06669e30462348bf866f685553fa4b712d58d02

# One environment for all: the wheel of mpi4py serves both MPIs. Without a package index there is none.
mpi4py_prepare() {
  mpi4py_python=$target/mpi4py/venv/bin/python
  mpi4py_tests=$target/mpi4py/mpi4py-$MPI4PY/test
  [ -e "$mpi4py_tests/main.py" ] && "$mpi4py_python" -c 'import mpi4py' 2>/dev/null && return
  rm -rf "$target/mpi4py"
  mkdir -p "$target/mpi4py" || return
  {
    python3 -m venv "$target/mpi4py/venv" &&
      timeout 200 "$mpi4py_python" -m pip install -q --only-binary :all: "mpi4py==$MPI4PY" &&
      printf 'mpi4py==%s --hash=sha256:%s\n' "$MPI4PY" "$MPI4PY_SDIST_SHA256" >"$target/mpi4py/sdist.txt" &&
      timeout 200 "$mpi4py_python" -m pip download -q --no-binary mpi4py --no-deps --require-hashes \
        -d "$target/mpi4py" -r "$target/mpi4py/sdist.txt" &&
      tar -xzf "$target/mpi4py/mpi4py-$MPI4PY.tar.gz" -C "$target/mpi4py"
  } >"$work/pip" 2>&1
}

# mpi4py_environment MPI: which library it loads, and where from; in a subshell, it is nothing for other programs.
mpi4py_environment() {
  local soname=$work/soname
  mkdir -p "$soname"
  # The wheel wants MPICH's own soname, which Debian does not give it.
  ln -sf "$(ldconfig -p | sed -n 's/.*libmpich\.so\.12 .* => //p' | head -n 1)" "$soname/libmpi.so.12"
  [ "$1" = mpich ] || soname=
  export MPI4PY_MPIABI=$1 LD_LIBRARY_PATH=${soname:-${LD_LIBRARY_PATH:-}}
}

mpi4py_failed() { sed -n 's/^\(FAIL\|ERROR\): //p' "$1" | sort -u; }

# mpi4py_agrees RUN MPI RANKS HOW: what fails with us fails without us too; and the calls did come to us.
# RUN MPI RANKS HOW|stock runs them.
mpi4py_agrees() {
  local run=$1 mpi=$2 ranks=$3 how=$4 status=0 new
  "$run" "$mpi" "$ranks" "$how" >"$work/preloaded" 2>&1 || status=$?
  tail -n 30 "$work/preloaded"
  grep -q 'trace MPI_File_open \([1-9][0-9]*\) \1$' "$work/preloaded" || { say "the calls did not come to us"; return 1; }
  [ "$status" != 0 ] || return 0
  "$run" "$mpi" "$ranks" stock >"$work/stock" 2>&1
  [ -n "$(mpi4py_failed "$work/preloaded")" ] || { say "it ended with $status"; return 1; }
  new=$(comm -13 <(mpi4py_failed "$work/stock") <(mpi4py_failed "$work/preloaded"))
  [ -z "$new" ] || { say "these pass without us:"; say "$new"; return 1; }
}
