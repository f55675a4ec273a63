# The file system under test: a job of three simulated nodes, or an ordinary directory.
# Sourced by run.sh, which sets: root scratch plain profile cache where.

# Starts it; sets `shared`, the directory that all nodes see.
job_up() {
    if [ -n "$plain" ]; then
        shared=$(mktemp -d "$plain/foreign-XXXXXX")
        chmod 755 "$shared"
        return
    fi
    hayase=${HAYASE_BIN:-${CARGO_TARGET_DIR:-$root/target}/debug/hayase}
    [ -x "$hayase" ] || { echo "$hayase is not there: ./test.sh --only build" >&2; exit 1; }
    shared=$scratch/mount/shared
    mkdir -p "$scratch/storage" "$scratch/mount"
    local tier=()
    if [ -n "$cache" ]; then
        shared=$scratch/mount/cache
        mkdir "$scratch/tier"
        # Seldom enough that failures in a row, which a program that reads would be told of, stay rare.
        local seed=${HAYASE_TIER_SEED:-$RANDOM}
        echo "the tier fails by seed $seed (HAYASE_TIER_SEED repeats it)"
        tier=(--tier "$scratch/tier" --flush-open 1
            --tier-faults "seed=$seed,one-in=40,latency-us=2000,rate=100MiB")
    fi
    "$hayase" up --nodes 3 --storage "$scratch/storage" --shared 1GiB --local 300MiB \
        --mount "$scratch/mount" --job-dir "$scratch/job" --json "${tier[@]}" \
        ${profile:+--kernel-profile "$profile"} > "$scratch/up.json"
}

# on_node I CMD..: runs CMD on a node.
on_node() {
    local node=$1
    shift
    if [ -n "$plain" ]; then "$@"; else
        "$hayase" exec --job "$scratch/job" --node "$node" -- "$@"
    fi
}

# stripe DIR: new files below DIR are striped over three servers.
stripe() {
    [ -n "$plain" ] || HAYASE_JOB=$scratch/job on_node 0 "$hayase" layout set \
        --stripe 64KiB --width 3 "$1"
}

# files: what the suites call their files by: where they lie. Striping is nothing of `cache`.
files() { if [ -n "$cache" ]; then echo passthrough remote; else echo passthrough remote striped; fi; }

# same_in_tier PATH: with --cache, the tier holds what the area shows, as it was sent.
same_in_tier() {
    [ -n "$cache" ] || return 0
    timeout 120 "$hayase" flush --job "$scratch/job" --verify > "$scratch/flush.txt" 2>&1 || {
        echo "FAILED flush --verify: $(cat "$scratch/flush.txt")"
        return 1
    }
    on_node 1 cmp "$1" "$scratch/tier/${1#"$shared"/}" || { echo "FAILED $1 differs in the tier"; return 1; }
}

job_logs() {
    [ -d "$scratch/job" ] || return 0
    local log
    for log in "$scratch"/job/node-*/*.log; do
        [ -f "$log" ] || continue
        echo "--- $log"
        tail -n 20 "$log"
    done
}

# For the trap: leaves no mount, no process and no file behind.
finish() {
    local status=$?
    trap - EXIT
    if [ -n "$plain" ]; then
        [ -z "${shared:-}" ] || rm -rf "$shared"
    elif [ -d "$scratch/job" ]; then
        timeout 60 "$hayase" down --job "$scratch/job" > "$scratch/down.txt" 2>&1 || {
            echo "hayase down failed: $(cat "$scratch/down.txt")" >&2
            status=1
        }
    fi
    if grep -q " $scratch/" /proc/self/mounts; then
        echo "mounts are left below $scratch" >&2
        status=1
    else
        rm -rf "$scratch"
    fi
    exit "$status"
}

# skip NAME REASON: a skip that everybody sees.
skip() { echo "SKIP $1: $2"; }

# differences SUITE: names of the documented differences of a suite that hold here, one per line.
differences() {
    awk -v suite="$1" -v where="$where" '
        /^#/ || NF == 0 { next }
        NF < 4 { print "differences.txt:" NR ": a line needs suite, where, test and reason" > "/dev/stderr"; exit 2 }
        $1 == suite { n = split($2, places, ","); for (i = 1; i <= n; i++)
            if (places[i] == where || places[i] == "all") print $3 }
    ' "$here/differences.txt"
}
