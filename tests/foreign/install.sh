# Programs from crates.io, each installed once in a fixed version (sourced, not run; $root is the repository, else the
# working directory).

version_of() {
    case $1 in
        pjdfstest) echo 0.2.2 ;;
        fsx) echo 0.3.2 ;;
        cargo-deny) echo 0.20.2 ;;
        mdbook) echo 0.5.4 ;;
        *) echo "install.sh: no version of $1 is known" >&2; return 1 ;;
    esac
}

# installed CRATE [OPTION..]: prints the path of the program, installing it first when it is not there; options are
# those of `cargo install`.
installed() {
    local crate=$1 version cache=${HAYASE_FOREIGN_CACHE:-${CARGO_TARGET_DIR:-${root:-$PWD}/target}/foreign}
    shift
    version=$(version_of "$crate") || return 1
    local program=$cache/$crate-$version/bin/$crate
    if [ ! -x "$program" ]; then
        echo "installing $crate $version into $cache" >&2
        # Not the target directory of the workspace: these have their own lock files.
        CARGO_TARGET_DIR=$cache/build cargo install --quiet --locked --root "$cache/$crate-$version" "$@" \
            "$crate@$version" >&2 || return 1
    fi
    echo "$program"
}
