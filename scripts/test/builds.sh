# Directories below the target directory that a suite fills and removes (sourced, not run; needs scripts/prepare.sh).
#
# Each is locked as long as the process that made it, or anything that it started, lives: after a kill the next run
# removes it, and not before.

# What they are called, below the target directory.
own_directories=(guided asan tsan tests-of-tests packages/second)

# own_directory NAME: makes one, and says which in `own`.
own_directory() {
  local lock guard
  mkdir -p "$(dirname "$(target_dir)/$1")"
  # Until it is locked no other run may look at it.
  exec {guard}>"$(target_dir)/.own-directories" && flock "$guard"
  own=$(mktemp -d "$(realpath "$(target_dir)")/$1.XXXXXX") && exec {lock}>"$own/lock" && flock "$lock" || return 1
  exec {guard}>&-
}

# remove_dead_directories: of runs that were killed.
remove_dead_directories() {
  local name directory guard
  mkdir -p "$(target_dir)"
  exec {guard}>"$(target_dir)/.own-directories" && flock "$guard"
  for name in "${own_directories[@]}"; do
    for directory in "$(realpath "$(target_dir)")/$name".??????; do
      [ -d "$directory" ] || continue
      [ ! -e "$directory/lock" ] || flock --nonblock "$directory/lock" true || continue
      say "removing what a run that was killed has left: $directory"
      remove_run "$directory"
    done
  done
  exec {guard}>&-
}
