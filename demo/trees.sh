# Trees of small files, and what is the same about two of them (sourced by demo.sh).

# crates_tree DIR FILES: some thousand real files, the sources of crates that cargo unpacked.
crates_tree() {
  local crate count=0
  mkdir -p "$1"
  for crate in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/*/; do
    [ "$count" -lt "$2" ] || break
    cp -r "$crate" "$1/"
    count=$((count + $(find "$crate" -type f | wc -l)))
  done
  # What crates have seldom: links, empty directories, modes and times of their own.
  mkdir -p "$1/empty/below" "$1/closed"
  ln -s closed/file "$1/link"
  ln -s ../nowhere "$1/empty/dangling"
  echo "of its own mode and time" >"$1/closed/file"
  chmod 640 "$1/closed/file"
  touch -d '2001-02-03 04:05:06.123456789' "$1/closed/file" "$1/empty/below"
  chmod 750 "$1/closed"
}

# tree_sum NODE DIR: of all names, bytes, modes, times and what links say; links have no times that are kept.
tree_sum() {
  on "$1" sh -c 'export LC_ALL=C; cd "$1" || exit 1
    find . -mindepth 1 \( -type l -printf "%y %p %l\n" -o -printf "%y %p %m %T@\n" \) | sort
    find . -type f -print0 | sort -z | xargs -0 sha256sum' sh "$2" | sha256sum | cut -d' ' -f1
}

# file_sums NODE DIR: of names and bytes of its files alone.
file_sums() { on "$1" sh -c 'cd "$1" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum' sh "$2" | sha256sum; }

# same_tree NODE DIR WHAT: fails unless the tree has arrived there as it is.
same_tree() { [ "$(tree_sum "$1" "$2")" = "$tree_wanted" ] || die "node $1 has another tree ($3)"; }

# tree_begin: one tree for all scenes, as a directory and as a tar file.
tree_begin() {
  tree=$job_work/crates
  crates_tree "$tree" "$tree_files"
  tree_files=$(find "$tree" -type f | wc -l)
  tree_size="$(du -sm --apparent-size "$tree" | cut -f1) MiB"
  # Times in a tar of this format have no fractions that get lost.
  tar -C "$tree" --format=posix -cf "$job_work/crates.tar" .
  tree_wanted=$(tree_sum 0 "$tree")
}
