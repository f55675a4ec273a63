# What a suite has left behind (sourced by scripts/test/island.sh, not run): needs suite, scratch, disk, isolated,
# mounts_before, own_loop (of the island itself).

# Seconds that a process may take to exit after it was asked to.
leftover_seconds=${HAYASE_TEST_LEFTOVER_SECONDS:-10}

mounts() { cut -d' ' -f5 /proc/self/mountinfo | sort; }

# processes_left: of the island; elsewhere those that have SCRATCH in their environment.
processes_left() {
  local directory pid words
  for directory in /proc/[0-9]*; do
    pid=${directory#/proc/}
    case $pid in "$$" | "$BASHPID" | "$PPID") continue ;; esac
    mapfile -d '' -t words 2>/dev/null <"$directory/cmdline" || continue
    # A zombie has no words; who will take its end is still there. Nor has a process that is about to become another
    # program.
    if [ ${#words[@]} = 0 ]; then
      grep -q '^State:[[:space:]]*[^ZX]' "$directory/status" 2>/dev/null || continue
      words=("$(cat "$directory/comm" 2>/dev/null)")
    fi
    if [ -z "$isolated" ]; then
      grep -qzxF "HAYASE_TEST_SCRATCH=$HAYASE_TEST_SCRATCH" "$directory/environ" 2>/dev/null || continue
      # Not this script and what it has just started.
      [ "$(ps -o pgid= -p "$pid" | tr -d ' ')" != "$(ps -o pgid= -p $$ | tr -d ' ')" ] || continue
    fi
    say "process $pid: ${words[*]}"
  done
}

mounts_left() {
  local mount
  comm -13 <(printf '%s\n' "$mounts_before") <(mounts) | while read -r mount; do
    # Without a mount namespace others mount as well.
    if [ -n "$isolated" ] || [[ $mount/ == "$scratch"/* || $mount/ == "$disk"/* ]]; then say "mount $mount"; fi
  done
}

# loops_below DIRECTORY...: loop devices whose image lies there, known by inode and device: paths differ between namespaces,
# and file systems of several islands use the same inodes.
loops_below() {
  local name inode device numbers
  losetup --noheadings --list --output NAME,BACK-INO,BACK-MAJ:MIN 2>/dev/null | while read -r name inode device; do
    numbers=$(find "$@" -xdev -inum "$inode" -type f -printf '%D\n' 2>/dev/null | while read -r number; do device_of "$number"; done)
    ! grep -qxF "$device" <<<"$numbers" || say "$name"
  done
}
# device_of NUMBER: as MAJOR:MINOR (makedev(3)).
device_of() { say "$((($1 >> 8 & 0xfff) | ($1 >> 32 & ~0xfff))):$((($1 & 0xff) | ($1 >> 12 & ~0xff)))"; }
loops_left() {
  local name
  loops_below "$scratch" "$disk" | while read -r name; do [ "$name" = "${own_loop:-}" ] || say "loop device $name"; done
}

# files_left: what bears our name; other programs may leave what they like in a directory that is removed.
files_left() {
  find "$scratch" "$disk" "$TMPDIR" "$HAYASE_WORK_DIR" -mindepth 1 -maxdepth 1 -name 'hayase*' ! -name 'hayase-[0-9]*' -printf 'file %p\n'
}

leftovers() { processes_left; mounts_left; loops_left; files_left; }

# name_leftovers: fails, and says what is left, when it does not go away. Two looks have to find nothing: one of them
# can miss a process whose parent ended in that moment.
name_leftovers() {
  local tries=$((leftover_seconds * 5)) left clean=0
  while [ $clean -lt 2 ]; do
    left=$(leftovers)
    if [ -z "$left" ]; then clean=$((clean + 1)); else clean=0; fi
    if [ $((tries -= 1)) -le 0 ] && [ -n "$left" ]; then
      say "FAILED ${suite}_leaves_nothing_behind"
      sed 's/^/    /' <<<"$left"
      return 1
    fi
    sleep 0.2
  done
}
