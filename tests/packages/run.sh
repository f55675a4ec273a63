#!/usr/bin/env bash
# Installs, uses and removes what scripts/release.sh has made: each package where its users have it. Prints `ok`, `FAILED`
# and `SKIP` lines.
#
#   tests/packages/run.sh DIR     DIR: where the packages are
#
# Needs root, about 2 GiB below ${HAYASE_WORK_DIR:-/var/tmp}, and a Debian mirror (HAYASE_DEBIAN_MIRROR).
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
. scripts/prepare.sh
. scripts/roots.sh

packages=$(realpath "${1:?the directory of the packages}") || exit 1
# From `apt-get install` to a file that was verified, in seconds: what a user waits for.
seconds_to_file_max=30
# Needed by jobs of simulated nodes.
programs_of_jobs=ca-certificates,fuse3,iproute2,xfsprogs

for what in root debootstrap rpm; do
  case $what in
    root) [ "$(id -u)" = 0 ] || { say "SKIP packages: not root"; exit 0; } ;;
    debootstrap) prepare_packages fresh || { say "SKIP packages: debootstrap could not be installed"; exit 0; } ;;
    rpm) prepare_packages rpm release containers run || warn "something will be skipped" ;;
  esac
done

work=$(mktemp -d "${HAYASE_WORK_DIR:-/var/tmp}/hayase-packages.XXXXXX") || exit 1
chmod 755 "$work"
finish() {
  local status=$? root
  trap - EXIT
  for root in "$work"/debian-*; do [ ! -d "$root" ] || remove_root "$root"; done
  rm -rf --one-file-system "${work:?}"
  exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

failures=0
# try NAME: one test, a function; what it printed is shown where it failed.
try() {
  local start=$SECONDS status=0
  ("$1") >"$work/said" 2>&1 || status=$?
  if [ $status = 0 ]; then say "ok packages_$1 $((SECONDS - start)).00 s"; else
    say "FAILED packages_$1 (status $status)"
    failures=$((failures + 1))
  fi
  sed 's/^/    /' "$work/said"
}

# run_in ROOT CODE: shell code of which every command must succeed.
run_in() { in_root "$1" "set -eo pipefail; $2"; }
# Shell code: three simulated nodes; what node 0 writes into `shared` node 2 reads, byte for byte.
three_nodes='
  mkdir -p /srv/storage /mnt/job
  hayase up --nodes 3 --storage /srv/storage --mount /mnt/job --shared 300MiB --local 300MiB
  hayase exec --node 0 -- sh -c "head -c 20000000 /dev/urandom >/mnt/job/shared/file"
  written=$(hayase exec --node 0 -- sha256sum /mnt/job/shared/file)
  read_back=$(hayase exec --node 2 -- sha256sum /mnt/job/shared/file)
  [ "$written" = "$read_back" ]
  echo "verified on node 2: $read_back"'
# And its end: nothing is mounted, and no process is left.
job_ends='
  hayase down
  if grep /mnt/job /proc/self/mountinfo || grep -l -a hayase /proc/[0-9]*/comm; then exit 1; fi'
# The library is one that programs can load: ld.so complains otherwise, and starts the program all the same.
library_loads() { printf 'said=$(LD_PRELOAD=%s /bin/true 2>&1); [ -z "$said" ] || { echo "$said"; exit 1; }' "$1"; }

# A file of each kind that a package brings, below the directory where it lies.
files='bin/hayase lib/hayase/libhayase_mpiio.so share/man/man1/hayase.1.gz share/man/man1/hayase-up.1.gz
  share/bash-completion/completions/hayase share/zsh/site-functions/_hayase share/fish/vendor_completions.d/hayase.fish
  share/modulefiles/hayase share/doc/hayase/LICENSE-MIT share/doc/hayase/LICENSE-APACHE share/doc/hayase/LICENSES-crates
  share/doc/hayase/examples/slurm/prolog.sh share/doc/hayase/examples/pbs/job.sh'
# has_files DIR: all of these.
has_files() {
  local file
  for file in $files; do [ -s "$1/$file" ] || { say "$1/$file is missing"; return 1; }; done
}
# listing ROOT: each path that no package manager or program of the system changes by itself.
listing() { (cd "$1" && find . -xdev \( -path ./proc -o -path ./sys -o -path ./dev -o -path ./run -o -path ./tmp -o -path ./var \) -prune -o -print | sort); }

checksums_are_right() { (cd "$packages" && sha256sum -c SHA256SUMS); }

# --- Debian 12, with nothing but the package ---

debian_12=$work/debian-12
deb_is_installed_and_used_within_30_s() {
  cp "$packages"/*.deb "$debian_12/root/hayase.deb"
  run_in "$debian_12" 'apt-get -qq update' || return 1
  run_in "$debian_12" "export DEBIAN_FRONTEND=noninteractive
    apt-get -qq install -y /root/hayase.deb >/root/apt.log 2>&1 || { cat /root/apt.log; exit 1; }
    echo \"installed after \$SECONDS s\"
    $three_nodes
    echo \"a verified file after \$SECONDS s\"
    $job_ends
    $(library_loads /usr/lib/hayase/libhayase_mpiio.so)" | tee "$work/deb"
  [ "${PIPESTATUS[0]}" = 0 ] && has_files "$debian_12/usr" &&
    [ "$(sed -n 's/^a verified file after \(.*\) s$/\1/p' "$work/deb")" -le $seconds_to_file_max ]
}
# As users of these shells have them: bash-completion is not there, so bash alone must understand its script.
manual_completions_and_module_are_there() {
  run_in "$debian_12" 'apt-get -qq install -y --no-install-recommends environment-modules man-db >/dev/null 2>&1
    . /usr/share/bash-completion/completions/hayase && complete -p hayase
    man hayase-up | grep -q -e --storage
    . /etc/profile.d/modules.sh
    module use /usr/share/modulefiles
    module load hayase
    [ -e "$HAYASE_MPIIO_LIBRARY" ]
    command -v hayase'
}
deb_is_removed_and_leaves_nothing() {
  run_in "$debian_12" 'dpkg -L hayase | sort >/root/files && dpkg --purge hayase >/dev/null &&
    while read -r file; do [ -d "$file" ] || [ ! -e "$file" ] || { echo "left: $file"; exit 1; }; done </root/files' || return 1
  ! listing "$debian_12" | grep -i hayase | grep -v '^./root/'
}

# --- Debian 11: glibc 2.31 ---

debian_11=$work/debian-11
tarball_runs_on_debian_11() {
  tar -C "$debian_11/opt" -xf "$(ls "$packages"/*-linux.tar.xz)" && mv "$debian_11"/opt/hayase-* "$debian_11/opt/hayase" || return 1
  run_in "$debian_11" "PATH=/opt/hayase/bin:\$PATH; ldd --version | head -n 1; hayase --version
    $three_nodes
    $job_ends
    $(library_loads /opt/hayase/lib/hayase/libhayase_mpiio.so)" && has_files "$debian_11/opt/hayase"
}
# The package of RPM distributions, whose own roots cannot be had here: no mirror of theirs is reached.
rpm_is_installed_used_and_removed() {
  local package=$packages/*.rpm it="rpm --root $debian_11 --dbpath /var/lib/rpm"
  package=$(echo $package)
  [ -z "$(rpm -qp --scripts --triggers "$package")" ] || { say "it has scripts"; return 1; }
  # Directories of the system belong to the package `filesystem`.
  ! rpm -qlp "$package" | grep -x -E '/usr(/s?bin|/lib|/share|/share/(man|man/man1|doc))?' || return 1
  rpm -qRp "$package"
  mv "$debian_11/opt/hayase" "$debian_11/opt/away"
  mkdir -p "$debian_11/var/lib/rpm"
  $it --initdb && $it --force-debian --nodeps --noscripts -i "$package" || return 1
  # The database knows what it has written: sizes, sums, modes, owners.
  $it -V --nodeps hayase && has_files "$debian_11/usr" &&
    run_in "$debian_11" "$three_nodes
      $job_ends
      $(library_loads /usr/lib/hayase/libhayase_mpiio.so)" || return 1
  $it --force-debian --nodeps --noscripts -e hayase || return 1
  rm -rf "$debian_11/opt/away" "$debian_11/var/lib/rpm"
  ! listing "$debian_11" | grep -i hayase
}

# --- Python ---

wheel_is_installed_used_and_removed() {
  python3 -m venv "$work/venv" || return 1
  listing "$work/venv" >"$work/before"
  "$work/venv/bin/pip" -q install --no-index "$packages"/*.whl && "$work/venv/bin/hayase" --version &&
    has_files "$work/venv" && sh -c "$(library_loads "$work/venv/lib/hayase/libhayase_mpiio.so")" || return 1
  "$work/venv/bin/pip" -q uninstall -y hayase || return 1
  # pip leaves directories that became empty where they were not its own.
  listing "$work/venv" | diff "$work/before" - | grep '^>' | cut -c3- | while read -r path; do
    [ -d "$work/venv/$path" ] || say "left: $path"
  done >"$work/left"
  ! grep . "$work/left"
}

try checksums_are_right
try wheel_is_installed_used_and_removed
if [ -n "$(node_obstacles)" ]; then
  say "SKIP packages_deb and packages_rpm: $(node_obstacles | head -n 1)"
else
  say "debootstrap: Debian 12 and 11 from $mirror"
  debian_root bookworm "$debian_12" "$work/log" || die "debootstrap failed"
  try deb_is_installed_and_used_within_30_s
  try manual_completions_and_module_are_there
  try deb_is_removed_and_leaves_nothing
  debian_root bullseye "$debian_11" "$work/log" $programs_of_jobs || die "debootstrap failed"
  try tarball_runs_on_debian_11
  if has bwrap && has fusermount3; then
    tests/packages/containers.sh "$debian_11/opt/hayase" "$debian_11" || failures=$((failures + 1))
  else
    say "SKIP packages_containers: bubblewrap and fuse3 could not be installed"
  fi
  if has rpm; then try rpm_is_installed_used_and_removed; else say "SKIP packages_rpm: rpm could not be installed"; fi
fi
[ "$failures" = 0 ]
