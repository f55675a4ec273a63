#!/usr/bin/env bash
# What docs/guide/apptainer.md says, tried with bubblewrap by an ordinary user: areas of a job of the host in a container,
# what works there without FUSE, and a job inside. Prints `ok` and `FAILED` lines.
#
#   tests/packages/containers.sh TREE ROOT     TREE: an unpacked tarball; ROOT: a Debian with fuse3, the containers' image
#
# Needs root, for a user and a /dev/fuse that only this script sees; and bwrap and fusermount3.
set -uo pipefail

# --- as root: a world of its own ---

if [ "${1:-}" != --as-user ]; then
  tree=$(realpath "$1") root=$(realpath "$2") || exit 1
  self=$(realpath "$0")
  work=$(mktemp -d "${HAYASE_WORK_DIR:-/var/tmp}/hayase-containers.XXXXXX") || exit 1
  trap 'rm -rf --one-file-system "${work:?}"' EXIT
  chmod 755 "$work"
  mkdir "$work"/{devices,home,storage,areas,tier}
  chown 4711:4711 "$work"/{home,storage,areas,tier}
  { cat /etc/passwd; echo "someone:x:4711:4711::$work/home:/bin/bash"; } >"$work/passwd"
  # Where containers find what is bound into them; nothing can be made in a root that is not theirs.
  mkdir -p "$root$work" "$root/opt/tree"
  chown 4711:4711 "$root$work" "$root/opt/tree"
  env -i PATH="$PATH" unshare --mount --pid --fork --mount-proc --kill-child --propagation private bash -euc '
    mount -t tmpfs -o mode=755 tmpfs "$2/devices"
    mknod -m 666 "$2/devices/fuse" c 10 229
    mount --bind "$2/devices/fuse" /dev/fuse
    mount --bind "$2/passwd" /etc/passwd
    exec setpriv --reuid 4711 --regid 4711 --clear-groups bash "$1" --as-user "$2" "$3" "$4"
  ' bash "$self" "$work" "$tree" "$root"
  status=$?
  rm -rf --one-file-system "${root:?}${work:?}" "$root/opt/tree"
  exit $status
fi

# --- as the user ---

work=$2 tree=$3 root=$4
export HOME=$work/home HAYASE_RUNTIME_DIR=$work/home/run PATH=$tree/bin:$PATH
cd "$work" || exit 1

# contained OPTION... -- CODE: shell code in a container: the root, processes and a /tmp of its own, Hayase in /opt/tree.
contained() {
  local options=()
  while [ "$1" != -- ]; do options+=("$1"); shift; done
  bwrap --unshare-user --unshare-pid --die-with-parent --bind "$root" / --proc /proc --dev /dev --tmpfs /tmp \
    --ro-bind "$tree" /opt/tree --ro-bind "$work/passwd" /etc/passwd \
    --setenv PATH /opt/tree/bin:/usr/bin:/bin:/usr/sbin --setenv HAYASE_RUNTIME_DIR /tmp/run "${options[@]}" sh -euc "$2"
}

failures=0
# try NAME: one test, a function.
try() {
  local said
  if said=$("$1" 2>&1); then echo "ok containers_$1"; else
    echo "FAILED containers_$1"
    failures=$((failures + 1))
    sed 's/^/    /' <<<"$said"
  fi
}

areas_at_their_own_path_are_used() {
  contained --bind "$work/areas" "$work/areas" --bind "$work/storage" "$work/storage" -- \
    "cd $work/areas; for area in shared local cache; do echo written >\$area/file; grep written \$area/file; done" &&
    grep written areas/shared/file && hayase flush && grep written tier/file
}
at_another_path_only_shared_is_found() {
  contained --bind "$work/areas" /tmp/areas --bind "$work/storage" "$work/storage" -- \
    'cd /tmp/areas; grep written shared/file; test -L cache; test ! -e cache; rm shared/file'
}
uid_0_of_a_container_is_the_user() {
  contained --uid 0 --gid 0 --bind "$work/areas" "$work/areas" -- "echo root >$work/areas/shared/root" &&
    [ "$(stat -c %u areas/shared/root)" = 4711 ]
}
exec_on_the_host_starts_containers() {
  hayase exec -- bwrap --unshare-user --bind "$root" / --bind "$work/areas" "$work/areas" \
    sh -euc 'echo "$HAYASE_SHARED"; grep root "$HAYASE_SHARED/root"'
}
staging_and_containers_need_no_fuse() {
  contained -- 'test ! -e /dev/fuse; cd /tmp; mkdir from; cp /etc/passwd from; hayase stage in from to; cmp from/passwd to/passwd
    hayase container enable to; hayase container check to
    test -z "$(LD_PRELOAD=/opt/tree/lib/hayase/libhayase_mpiio.so true 2>&1)"'
}
job='mkdir /tmp/storage /tmp/areas; hayase up --storage /tmp/storage --mount /tmp/areas --no-image --shared 100MiB
  echo written >/tmp/areas/shared/file; grep written /tmp/areas/shared/file; hayase down'
a_job_inside_works_for_root_of_a_user_namespace() {
  contained --uid 0 --gid 0 --cap-add CAP_SYS_ADMIN --dev-bind /dev/fuse /dev/fuse -- "$job"
}
a_job_inside_is_refused_for_others() {
  local said
  said=$(contained --dev-bind /dev/fuse /dev/fuse -- "$job" 2>&1) && return 1
  grep "Operation not permitted" <<<"$said" || { echo "$said"; return 1; }
}

hayase up --storage "$work/storage" --mount "$work/areas" --tier "$work/tier" --shared 100MiB >"$work/home/up" 2>&1 ||
  { cat "$work/home/up"; echo "FAILED containers: no job came up"; exit 1; }
try areas_at_their_own_path_are_used
try at_another_path_only_shared_is_found
try uid_0_of_a_container_is_the_user
try exec_on_the_host_starts_containers
hayase down >/dev/null || { echo "FAILED containers: the job did not end"; failures=1; }
try staging_and_containers_need_no_fuse
try a_job_inside_works_for_root_of_a_user_namespace
try a_job_inside_is_refused_for_others
[ $failures = 0 ]
