# Shared by test.sh, demo.sh and bench.sh (sourced, not run): what they need is installed, once, when missing.
#
# Works on a fresh Debian 12 with bash, git and root (or sudo). Where something can not be had, the caller
# is told, not stopped, unless nothing can be built without it.

# The oldest compiler that the workspace takes (rust-toolchain.toml and Cargo.toml say the same).
RUST_MINOR_MIN=95

say() { printf '%s\n' "$*"; }
warn() { printf '%s\n' "$*" >&2; }
die() { warn "error: $*"; exit 1; }

# wait_until SECONDS CMD...: until CMD succeeds.
wait_until() {
  local tries=$(($1 * 20))
  shift
  until "$@" >/dev/null 2>&1; do
    [ $((tries -= 1)) -gt 0 ] || return 1
    sleep 0.05
  done
}

# Runs as root, or not at all.
as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    if [ -t 0 ]; then sudo "$@"; else sudo -n "$@"; fi
  else
    return 1
  fi
}

# sbin is not in the PATH of ordinary users on Debian; mkfs.xfs, losetup and ip live there.
export PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"

# What each group needs: "command-or-file package..." a line.
packages_build='gcc gcc
/usr/include/stdio.h libc6-dev
make make
curl curl
/etc/ssl/certs/ca-certificates.crt ca-certificates'
packages_run='mkfs.xfs xfsprogs
fusermount3 fuse3
ip iproute2
unshare util-linux
mount mount
losetup mount
ps procps
setfattr attr'
packages_test='fio fio
rsync rsync
setfacl acl
python3 python3
zstd zstd
mpiexec.mpich mpich
mpich/mpi.h libmpich-dev
mpiexec.openmpi openmpi-bin
mpicc.openmpi libopenmpi-dev
gfortran gfortran
python3-venv python3-venv
h5pcc.mpich libhdf5-mpich-dev
h5pcc.openmpi libhdf5-openmpi-dev
/usr/include/pnetcdf.h libpnetcdf-dev
/usr/lib/python3/dist-packages/h5py/_debian_h5py_mpi python3-h5py-mpi
libucp.so.0 libucx0'
packages_s3='ceph-mon ceph-mon
ceph-mgr ceph-mgr
ceph-osd ceph-osd
ceph ceph-common
radosgw radosgw
radosgw-admin ceph-common'
packages_launch='sshd openssh-server
ssh openssh-client
slurmctld slurmctld
slurmd slurmd
srun slurm-client
munged munge
bindfs bindfs'
packages_gfarm='gfmd gfmd
gfsd gfsd
gfkey gfarm-client
gfarm2fs gfarm2fs'
packages_gluster='glusterd glusterfs-server
glusterfs glusterfs-client'
packages_bench='rclone rclone'
packages_peers='s3cmd s3cmd
s3fs s3fs
aws awscli'
packages_demo='mpiexec.mpich mpich
mpich/mpi.h libmpich-dev
rclone rclone
mkfs.ext4 e2fsprogs
Time::HiRes perl'
packages_browser='chromium chromium'
packages_load='stress-ng stress-ng'
packages_fresh='debootstrap debootstrap'
packages_release='python3 python3
python3-venv python3-venv
objcopy binutils
xz xz-utils'
packages_rpm='rpm rpm'
packages_containers='bwrap bubblewrap'

has() {
  case $1 in
    python3-venv) python3 -c 'import ensurepip, venv' 2>/dev/null ;;
    libucp.so.0) compgen -G '/usr/lib/*/libucp.so.0' >/dev/null ;;
    Time::HiRes) perl -MTime::HiRes -e 1 2>/dev/null ;;
    mpich/mpi.h) compgen -G '/usr/include/*/mpich/mpi.h' >/dev/null ;;
    /*) [ -e "$1" ] ;;
    *) command -v "$1" >/dev/null ;;
  esac
}

# missing_packages GROUP...: names of the packages that are not there.
missing_packages() {
  local group table thing packages
  for group in "$@"; do
    table=packages_$group
    while read -r thing packages; do
      has "$thing" || printf '%s\n' $packages
    done <<<"${!table}"
  done | sort -u
}

# prepare_packages GROUP...: installs what is missing; 1 when some of it could not be had.
prepare_packages() {
  local missing
  missing=$(missing_packages "$@" | tr '\n' ' ')
  [ -n "$missing" ] || return 0
  if ! command -v apt-get >/dev/null; then
    warn "not installed, and no apt-get here: $missing"
    return 1
  fi
  say "installing: $missing"
  # shellcheck disable=SC2086 # a list of names
  if ! { as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq update &&
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $missing; } \
    >"${TMPDIR:-/tmp}/hayase-apt.$$" 2>&1; then
    tail -n 5 "${TMPDIR:-/tmp}/hayase-apt.$$" >&2
    rm -f "${TMPDIR:-/tmp}/hayase-apt.$$"
    warn "could not install (root or sudo is needed): $missing"
    return 1
  fi
  rm -f "${TMPDIR:-/tmp}/hayase-apt.$$"
}

# prepare_daemon_packages GROUP...: the same for packages that bring daemons. None of them is started, now or at
# the next boot: tests start their own, with their own configuration.
prepare_daemon_packages() {
  local new package unit policy=/usr/sbin/policy-rc.d made='' status=0
  new=$(missing_packages "$@")
  [ -n "$new" ] || return 0
  if [ ! -e $policy ] && printf '#!/bin/sh\nexit 101\n' | as_root tee $policy >/dev/null; then
    as_root chmod 755 $policy
    made=1
  fi
  prepare_packages "$@" || status=1
  [ -z "$made" ] || as_root rm -f $policy
  if has systemctl; then
    for package in $new; do
      unit=${package/openssh-server/ssh}
      as_root systemctl disable "${unit/glusterfs-server/glusterd}" >/dev/null 2>&1 || true
    done
  fi
  return $status
}

# Is this cargo new enough? Asked inside the repository, so that rust-toolchain.toml has its say.
cargo_is_new() {
  local version
  version=$(cargo --version 2>/dev/null) || return 1
  version=${version#cargo 1.}
  [ "${version%%.*}" -ge "$RUST_MINOR_MIN" ] 2>/dev/null
}

# A cargo in PATH: the one that is there, else rustup's, else one that rustup brings.
prepare_cargo() {
  local home=${CARGO_HOME:-$HOME/.cargo}
  if ! command -v cargo >/dev/null && [ -x "$home/bin/cargo" ]; then PATH="$home/bin:$PATH"; fi
  cargo_is_new && return 0
  if ! command -v rustup >/dev/null; then
    say "installing: rustup (https://rustup.rs), for cargo 1.$RUST_MINOR_MIN"
    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs |
      sh -s -- -y -q --no-modify-path --profile minimal --default-toolchain none ||
      die "no cargo 1.$RUST_MINOR_MIN, and rustup could not be installed"
    PATH="$home/bin:$PATH"
  fi
  # Reads rust-toolchain.toml.
  rustup toolchain install >/dev/null 2>&1 || rustup show active-toolchain >/dev/null || true
  cargo_is_new || die "cargo 1.$RUST_MINOR_MIN or newer is needed; see rust-toolchain.toml"
}

# Why simulated nodes can not be shown here, one reason a line; nothing when they can.
node_obstacles() {
  [ "$(id -u)" = 0 ] || say "not root: no namespaces, no XFS images, no passthrough"
  [ -e /dev/fuse ] || as_root modprobe fuse 2>/dev/null || true
  fuse_obstacle
  if [ "$(id -u)" = 0 ]; then
    unshare --net --mount --uts true 2>/dev/null || say "namespaces may not be made here (a plain container?)"
    has mkfs.xfs || say "mkfs.xfs is missing"
    has ip || say "ip is missing"
  fi
}

# Why nothing can be mounted here; nothing when it can.
fuse_obstacle() {
  if [ ! -c /dev/fuse ]; then say "/dev/fuse is missing"; return; fi
  { : <>/dev/fuse; } 2>/dev/null || { say "/dev/fuse may not be opened here"; return; }
  [ "$(id -u)" = 0 ] || has fusermount3 || say "fusermount3 is missing (package fuse3)"
}

# Where cargo puts what it builds.
target_dir() { say "${CARGO_TARGET_DIR:-$PWD/target}"; }

# built NAME: the whole path of what `./test.sh --only build` has built.
built() {
  local file
  file=$(realpath -m "$(target_dir)")/debug/$1
  [ -e "$file" ] || { warn "$file is not there: ./test.sh --only build"; return 1; }
  say "$file"
}
