#!/usr/bin/env bash
# Makes what is installed, of what is committed: a tarball, its debug information, a .deb, an .rpm and a wheel, with
# checksums. The binaries run on glibc 2.28 (RHEL 8) and newer. Two builds of a commit are meant to give the same bytes:
# `./test.sh --only packages-same` compares them.
#
#   scripts/release.sh [--arch ARCH] [--out DIR]     ARCH: x86_64, aarch64; DIR: target/packages/ARCH
#
# Needs an x86_64 host with Python 3 and binutils; the other tools come from PyPI (packaging/requirements.txt).
# aarch64 needs its standard library (rustup target add aarch64-unknown-linux-gnu): this way has not been tried yet.
set -euo pipefail
cd "$(dirname "$0")/.." || exit 1
. scripts/prepare.sh

glibc=2.28
# Largest that a stripped program and a wheel may be, in MiB.
program_mib_max=25 wheel_mib_max=15
packages=(hayase hayase-mpi)
libraries=(libhayase_mpiio.so)

usage() { sed -n '2,9s/^# \{0,1\}//p' "$0"; }
arch=x86_64 out=
while [ $# -gt 0 ]; do
  case $1 in
    --arch) shift; arch=${1:?--arch needs x86_64 or aarch64} ;;
    --out) shift; out=${1:?--out needs a directory} ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
  shift
done
case $arch in x86_64) package_arch=amd64 ;; aarch64) package_arch=arm64 ;; *) die "--arch $arch: expected x86_64 or aarch64" ;; esac
target=$arch-unknown-linux-gnu
out=$(realpath -m "${out:-$(target_dir)/packages/$arch}")
work=$out/parts source=$out/parts/source build=$out/parts/build tree=$out/parts/tree debug=$out/parts/debug

# --- what it needs ---

prepare() {
  prepare_packages build release || die "nothing can be packed without these packages"
  prepare_cargo
  [ -d "$(rustc --print target-libdir --target "$target")" ] ||
    die "there is no standard library for $target here: rustup target add $target"
  objcopy=$(command -v "$arch-linux-gnu-objcopy" || command -v objcopy)
  objdump=${objcopy%objcopy}objdump readelf=${objcopy%objcopy}readelf
  "$objdump" -i | grep -q "^elf64-.*${arch/_/-}" || die "$objdump does not know $arch: install binutils-${arch/_/-}-linux-gnu"
  # The pages and completions are written by the program itself.
  runner=
  [ "$(uname -m)" = "$arch" ] || runner=$(command -v "qemu-$arch-static") || die "qemu-$arch-static is missing (package qemu-user-static)"
}

# The tools, each of the version and the bytes that are named.
tools() {
  local venv=$work/tools
  cmp -s packaging/requirements.txt "$venv/requirements.txt" || {
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install -q --require-hashes --no-deps -r packaging/requirements.txt
    cp packaging/requirements.txt "$venv"
  }
  export PATH=$venv/bin:$PATH ZIG_GLOBAL_CACHE_DIR=$work/zig XDG_CACHE_HOME=$work/cache
}

# What is committed, as others get it.
clone() {
  rm -rf "$source"
  git clone -q --no-hardlinks . "$source"
  [ -z "$(git status --porcelain)" ] || warn "note: what is not committed is not packed"
  SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) && export SOURCE_DATE_EPOCH
  version=$(sed -n 's/^version = "\(.*\)"/\1/p;T;q' "$source/Cargo.toml")
}

# --- programs ---

# Names of directories would differ between hosts: source, what is built, and crates get names of their own.
compile() {
  local from maps=() flags=()
  (cd "$source" && cargo fetch --locked --quiet)
  for from in "$source=/hayase" "$build=/build" "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*; do
    case $from in *=*) ;; *) from=$from=/crates ;; esac
    maps+=("--remap-path-prefix=$from") flags+=("-ffile-prefix-map=$from")
  done
  # Debuggers find the debug information by it.
  maps+=(-Clink-arg=-Wl,--build-id=sha1)
  (cd "$source" && RUSTFLAGS="${maps[*]}" CFLAGS="${flags[*]}" CARGO_INCREMENTAL=0 \
    cargo zigbuild --locked --release --target "$target.$glibc" --target-dir "$build" $(printf -- '-p %s ' "${packages[@]}"))
}

# take FILE PLACE: a program or library without its debug information, which lies apart under its own name.
take() {
  local name
  name=$(basename "$1")
  mkdir -p "$(dirname "$tree/$2")" "$debug"
  "$objcopy" --only-keep-debug --compress-debug-sections=zlib "$1" "$debug/$name.debug"
  "$objcopy" --strip-all --add-gnu-debuglink="$debug/$name.debug" "$1" "$tree/$2"
}

# check_program FILE: needs nothing that a node with the oldest glibc lacks.
check_program() {
  local newest needed
  newest=$("$objdump" -T "$1" | grep -o 'GLIBC_[0-9.]*' | sort -V | tail -n 1)
  [ "$(printf 'GLIBC_%s\n%s\n' "$glibc" "$newest" | sort -V | tail -n 1)" = "GLIBC_$glibc" ] || die "$1 needs $newest"
  needed=$("$readelf" -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | tr '\n' ' ')
  ! grep -v -x -E 'lib(c|m|dl|rt|util|pthread)\.so\.[0-9]|ld-linux-.*' <<<"${needed// /$'\n'}" | grep . || die "$1 needs more than glibc: $needed"
  is_at_most "$1" $program_mib_max
  say "$(basename "$1"): $(stat -c %s "$1") bytes, $newest, needs $needed"
}
is_at_most() { [ "$(stat -c %s "$1")" -le $(($2 << 20)) ] || die "$1 has $(stat -c %s "$1") bytes, more than $2 MiB"; }

# --- the tree: what lies below /usr, /opt/hayase or an environment of Python ---

fill_tree() {
  local library document=$tree/share/doc/hayase
  rm -rf "$tree" "$debug"
  take "$build/$target/release/hayase" bin/hayase
  for library in "${libraries[@]}"; do take "$build/$target/release/$library" "lib/hayase/$library"; done
  for library in "$tree"/bin/* "$tree"/lib/hayase/*; do check_program "$library"; done
  manual
  mkdir -p "$document/examples" "$tree/share/modulefiles"
  cp "$source"/{README.md,CHANGELOG.md,LICENSE-APACHE,LICENSE-MIT} "$document"
  cp -r "$source"/examples/. "$document/examples"
  cp "$source/packaging/modulefiles/hayase" "$tree/share/modulefiles"
  (cd "$source" && python3 packaging/licences.py "$target" "${packages[@]}") >"$document/LICENSES-crates"
  git -C "$source" rev-parse HEAD >"$document/COMMIT"
  cp "$document/LICENSE-MIT" "$document/copyright"
  find "$tree" -type d -exec chmod 755 {} + -o -type f -perm /111 -exec chmod 755 {} + -o -type f -exec chmod 644 {} +
  find "$tree" "$debug" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
}

# Written by the program, so that they say what it does.
manual() {
  local share=$tree/share hayase=$tree/bin/hayase
  $runner "$hayase" man "$share/man/man1"
  gzip -9n "$share"/man/man1/*.1
  mkdir -p "$share"/{bash-completion/completions,zsh/site-functions,fish/vendor_completions.d}
  $runner "$hayase" completions bash >"$share/bash-completion/completions/hayase"
  $runner "$hayase" completions zsh >"$share/zsh/site-functions/_hayase"
  $runner "$hayase" completions fish >"$share/fish/vendor_completions.d/hayase.fish"
}

# --- packages ---

# tarball NAME DIR: DIR as NAME.tar.xz, whose only directory is NAME.
tarball() {
  tar -C "$2" --sort=name --owner=0 --group=0 --numeric-owner --format=gnu --transform "s,^\.,$1," \
    --mtime="@$SOURCE_DATE_EPOCH" -c . | xz -T1 -6 >"$out/$1.tar.xz"
}

pack() {
  local name=hayase-$version-$arch-linux wheel
  rm -f "$out"/hayase[-_]*.{tar.xz,deb,rpm,whl} "$out/SHA256SUMS"
  tarball "$name" "$tree"
  tarball "$name-debug" "$debug"
  export VERSION=$version PACKAGE_ARCH=$package_arch GLIBC=$glibc TREE=$tree
  nfpm package -f packaging/nfpm.yaml -p deb -t "$out" >/dev/null
  nfpm package -f packaging/nfpm.yaml -p rpm -t "$out" >/dev/null
  wheel=$(python3 packaging/wheel.py "$tree" "$version" "manylinux_${glibc/./_}_$arch" "$out")
  is_at_most "$out/$wheel" $wheel_mib_max
  (cd "$out" && sha256sum -- hayase[-_]*.{tar.xz,deb,rpm,whl} >SHA256SUMS)
}

mkdir -p "$work"
prepare
tools
clone
compile
fill_tree
pack
say "in $out:"
(cd "$out" && du -b --apparent-size -- hayase[-_]*.{tar.xz,deb,rpm,whl})
