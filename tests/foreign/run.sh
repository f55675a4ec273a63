#!/usr/bin/env bash
# Runs file system suites that others wrote, on a job's `shared` or on an ordinary directory.
#
#   tests/foreign/run.sh [--plain DIR] [--profile P] [--cache] [--fetch] [pjdfstest] [fsx] [fio]
#
# With --cache: on the job's `cache`, in front of a directory that is slow and fails at times; afterwards
# the directory must hold what the area shows.
# Without --plain: brings up three simulated nodes (needs root; the binary is $HAYASE_BIN or
# target/debug/hayase). Differences that we document are in differences.txt: a test that fails and is
# not listed there fails the run, and so does a listed one that passes. Suites from crates.io are
# installed once into $HAYASE_FOREIGN_CACHE (default: target/foreign); --fetch does only that. Exit: 0 all as documented, 1 not.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
# shellcheck source=tests/foreign/job.sh
source "$here/job.sh"
# shellcheck source=tests/foreign/install.sh
source "$here/install.sh"
for suite in pjdfstest fsx fio; do
    # shellcheck disable=SC1090
    source "$here/$suite.sh"
done

plain='' profile='' cache='' fetch='' suites=()
while [ $# -gt 0 ]; do
    case $1 in
        --plain) plain=$2; shift 2 ;;
        --profile) profile=$2; shift 2 ;;
        --cache) cache=1; shift ;;
        --fetch) fetch=1; shift ;;
        pjdfstest | fsx | fio) suites+=("$1"); shift ;;
        *) echo "run.sh: no such option or suite: $1" >&2; exit 2 ;;
    esac
done
[ ${#suites[@]} -gt 0 ] || suites=(pjdfstest fsx fio)
if [ -n "$fetch" ]; then
    for suite in "${suites[@]}"; do
        [ "$suite" = fio ] || installed "$suite" > /dev/null || exit 1
    done
    exit
fi
case $profile in native) profile='' ;; esac
# As the differences name it.
where=${plain:+plain}
where=${where:-${cache:+cache}}
where=${where:-${profile:-native}}

scratch=$(mktemp -d "${HAYASE_E2E_DIR:-/tmp}/hayase-foreign-XXXXXX")
chmod 755 "$scratch"
trap finish EXIT
job_up

failed=()
for suite in "${suites[@]}"; do
    echo "== $suite ($where)"
    start=$SECONDS
    if "suite_$suite"; then
        echo "== $suite ($where): as documented, $((SECONDS - start)) s"
    else
        echo "== $suite ($where): FAILED, $((SECONDS - start)) s"
        failed+=("$suite")
    fi
done
if [ ${#failed[@]} -gt 0 ]; then
    echo "failed: ${failed[*]} ($where)"
    job_logs
    exit 1
fi
