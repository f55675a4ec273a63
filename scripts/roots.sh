# Fresh roots of Debian for scripts (sourced after prepare.sh): made by debootstrap, entered in namespaces of their own.
#
# The network of this machine is lent to them (resolv.conf, a proxy's settings and certificates when there are some).
# What runs in a root ends with the script, and so do its mounts: only files are left to be removed.

mirror=${HAYASE_DEBIAN_MIRROR:-http://deb.debian.org/debian}

# The environment in a root, filled by debian_root; a script may add to it.
root_environment=()

# debian_root SUITE ROOT LOG [PACKAGES]: a minimal root, and those packages (with commas).
debian_root() {
  local suite=$1 root=$2 log=$3 packages=${4:-ca-certificates} check=()
  [ ! -e /usr/share/keyrings/debian-archive-keyring.gpg ] || check=(--force-check-gpg)
  # In two stages, so that dpkg learns in between that this root need not survive a power cut.
  {
    debootstrap "${check[@]}" --variant=minbase --include="$packages" --foreign "$suite" "$root" "$mirror" &&
      mkdir -p "$root/etc/dpkg/dpkg.cfg.d" &&
      echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/unsafe-io" &&
      chroot "$root" /debootstrap/debootstrap --second-stage
  } >"$log" 2>&1 || { tail -n 5 "$log"; return 1; }
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  lend_network "$root"
}

# lend_network ROOT: and root_environment, which has nothing of ours but that.
lend_network() {
  local root=$1 name
  root_environment=(HOME=/root LANG=C.UTF-8 "TERM=${TERM:-dumb}" SHELL=/bin/bash
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)
  for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
    [ -z "${!name:-}" ] || root_environment+=("$name=${!name}")
  done
  if [ -n "${SSL_CERT_FILE:-}" ]; then
    cp "$SSL_CERT_FILE" "$root/etc/lent-certificates.crt"
    for name in SSL_CERT_FILE CURL_CA_BUNDLE CARGO_HTTP_CAINFO GIT_SSL_CAINFO; do
      root_environment+=("$name=/etc/lent-certificates.crt")
    done
  fi
}

# in_root ROOT COMMAND [DIR PLACE]: runs a shell command there; DIR of this machine is lent read-only as PLACE.
in_root() {
  env -i ROOT="$1" COMMAND="$2" LENT="${3:-}" PLACE="${4:-}" PATH="$PATH" \
    unshare --mount --uts --ipc --pid --fork --kill-child --propagation private bash -euc '
      mount --bind "$ROOT" "$ROOT" # namespaces can be made only where / is a mount
      mount -t proc proc "$ROOT/proc"
      mount -t sysfs sysfs "$ROOT/sys"
      mount --rbind /dev "$ROOT/dev"
      mount -t tmpfs tmpfs "$ROOT/run"
      if [ -n "$LENT" ]; then
        mkdir -p "$ROOT$PLACE"
        mount --bind "$LENT" "$ROOT$PLACE"
        mount -o remount,bind,ro "$ROOT$PLACE"
      fi
      exec chroot "$ROOT" env -i "$@" bash -c "$COMMAND"
    ' bash "${root_environment[@]}"
}

# remove_root ROOT: also the loop devices of jobs that died in it.
remove_root() {
  local loop
  for loop in $(losetup --noheadings --output NAME,BACK-FILE 2>/dev/null | awk -v r="$1/" 'index($2, r) == 1 { print $1 }'); do
    losetup --detach "$loop"
  done
  rm -rf --one-file-system "${1:?}"
}
