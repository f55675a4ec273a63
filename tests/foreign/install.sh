# Suites from crates.io, installed once. Sourced by run.sh, which sets: root.

# installed CRATE VERSION: prints the path of the program, installing it first when it is not there.
installed() {
    local cache=${HAYASE_FOREIGN_CACHE:-${CARGO_TARGET_DIR:-$root/target}/foreign}
    local program=$cache/$1-$2/bin/$1
    if [ ! -x "$program" ]; then
        echo "installing $1 $2 into $cache" >&2
        # Not the target directory of the workspace: these have their own lock files.
        CARGO_TARGET_DIR=$cache/build cargo install --quiet --locked --root "$cache/$1-$2" \
            "$1@$2" >&2 || return 1
    fi
    echo "$program"
}
