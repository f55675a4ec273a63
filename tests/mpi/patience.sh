# Ranks that leave the processors to others while they wait (sourced, not run; needs scripts/prepare.sh).

# patience DIRECTORY: what is preloaded into them, compiled there once.
patience() {
  local library=$1/patience.so
  [ -e "$library" ] || gcc -O1 -Wall -Werror -shared -fPIC -o "$library" tests/mpi/programs/patience.c || return
  say "$library"
}
