# The scene of small files (sourced by demo.sh): a tree is unpacked, a program is built; on the shared storage, and in `shared`.

# unpack DIRECTORY: until it is on the disk.
unpack='mkdir -p "$1" && cd "$1" && tar --delay-directory-restore -xpf "$2" && sync -f .'
# build DIRECTORY: bzip2 by its own Makefile.
build='mkdir -p "$1" && cd "$1" && tar --strip-components=1 -xzf "$2" && make -j 2 -C bzip2-1.0.8 bzip2 && sync -f .'

# unpack_without: on the shared storage, from node 1.
unpack_without() { on 1 "${distant[@]}" sh -c "$unpack" sh "$storage/tree" "$job_work/crates.tar"; }
# unpack_with: in `shared` on node 1, and the whole tree to the shared storage in packs.
unpack_with() {
  on 1 sh -c "$unpack" sh "$(area 1 shared)/tree" "$job_work/crates.tar" &&
    on 1 "${distant[@]}" "$hayase" stage out "$(area 1 shared)/tree" "$storage/tree.packs" --pack 16MiB
}
build_without() { on 1 "${distant[@]}" sh -c "$build" sh "$storage/build" "$sources"; }
build_with() {
  on 1 sh -c "$build" sh "$(area 1 shared)/build" "$sources" &&
    on 1 "${distant[@]}" cp "$(area 1 shared)/build/bzip2-1.0.8/bzip2" "$storage/bzip2"
}

unpack_wins=        # said only when the figures show it
demo_small_files() {
  local unpacked_without=- built_without=- unpacked built
  scene small "Small files: $tree_files files ($tree_size) are unpacked, then bzip2 is built by its Makefile" \
    "With Hayase in \`shared\` on node 1; the tree then goes to the shared storage in packs, which counts."
  if [ -n "$limited" ]; then
    timed small unpacked_without unpack_without
    timed small built_without build_without
    same_tree 1 "$storage/tree" "unpacked on the shared storage"
    check small "what was unpacked on the shared storage is the same tree"
  fi
  timed small unpacked unpack_with
  timed small built build_with
  compare small "unpack $tree_files files" "$unpacked_without" "$unpacked" s lower "the shared storage"
  if [ -n "$limited" ] && [ "$(calc "$unpacked_without > $unpacked" %d)" = 1 ]; then
    unpack_wins=" It wins above because shared storage answers after a millisecond."
  fi
  compare small "unpack and build bzip2, and keep the program" "$built_without" "$built" s lower "the shared storage"
  same_tree 2 "$(area 2 shared)/tree" "shared, another node"
  check small "node 2 sees the tree that node 1 unpacked: bytes, links, modes and times"
  if [ -z "$one_network" ]; then
    on 2 mkdir "$job_work/packs-mount"
    logged small on 2 "$hayase" mount "$storage/tree.packs" "$job_work/packs-mount"
    same_tree 2 "$job_work/packs-mount" "packs on the shared storage"
    must on 2 umount "$job_work/packs-mount"
    check small "so does a mount of the packs on the shared storage"
  fi
  built_runs || die "what node 1 built does not run on node 2"
  check small "the bzip2 that node 1 built packs a file on node 2, and another bzip2 unpacks it"
  on 1 rm -r "$(area 1 shared)/tree" "$(area 1 shared)/build"
}

# built_runs: on another node than the one that built it. The other one is that of the shared storage, where it was built.
built_runs() {
  local other=$storage/build/bzip2-1.0.8/bzip2
  [ -x "$other" ] || other=$storage/bzip2
  on 2 sh -c '"$1" -c "$3" | "$2" -dc | cmp - "$3"' sh "$(area 2 shared)/build/bzip2-1.0.8/bzip2" "$other" "$sources"
}
