# Programs of others, each installed once in a fixed version: compiled from crates.io, or from PyPI where it has them
# ready to run (sourced, not run; $root is the repository, else the working directory).

version_of() {
    case $1 in
        pjdfstest) echo 0.2.2 ;;
        fsx) echo 0.3.2 ;;
        cargo-deny) echo 0.20.2 ;;
        mdbook) echo 0.5.4 ;;
        *) echo "install.sh: no version of $1 is known" >&2; return 1 ;;
    esac
}

# Where they are.
foreign_cache() { echo "${HAYASE_FOREIGN_CACHE:-${CARGO_TARGET_DIR:-${root:-$PWD}/target}/foreign}"; }

# tools_from_pypi: the environment with the programs of requirements.txt, which is made first when it is not there. Fails
# where PyPI has none for this processor.
tools_from_pypi() {
    local wanted=${root:-$PWD}/tests/foreign/requirements.txt tools
    tools=$(foreign_cache)/tools
    if ! cmp -s "$wanted" "$tools/requirements.txt"; then
        echo "installing the programs of $wanted into $tools" >&2
        rm -rf "$tools"
        python3 -m venv "$tools" && "$tools/bin/pip" install --quiet --require-hashes --no-deps --only-binary :all: \
            --disable-pip-version-check -r "$wanted" >&2 && cp "$wanted" "$tools" || return 1
    fi
    echo "$tools/bin"
}

# installed CRATE [OPTION..]: prints the path of the program, installing it first when it is not there; options are
# those of `cargo install`.
installed() {
    local crate=$1 version cache
    shift
    version=$(version_of "$crate") || return 1
    cache=$(foreign_cache)
    local program=$cache/$crate-$version/bin/$crate
    if [ ! -x "$program" ]; then
        echo "installing $crate $version into $cache" >&2
        # Not the target directory of the workspace: these have their own lock files. What they depend on is not optimized:
        # they wait for a file system, and half of the minute that each takes to compile was spent on that.
        CARGO_TARGET_DIR=$cache/build cargo install --quiet --locked --root "$cache/$crate-$version" \
            --config 'profile.release.package."*".opt-level=0' "$@" "$crate@$version" >&2 || return 1
    fi
    echo "$program"
}
