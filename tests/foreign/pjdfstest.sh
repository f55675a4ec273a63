# pjdfstest (crate): system calls on names, one by one, against POSIX. Sourced by run.sh.

suite_pjdfstest() {
    local program config=$scratch/pjdfstest.toml output=$scratch/pjdfstest.txt
    if [ "$(id -u)" != 0 ]; then
        skip pjdfstest "needs root: it becomes other users"
        return 0
    fi
    program=$(installed pjdfstest) || return 1
    local user
    for user in nobody daemon; do
        id "$user" > /dev/null 2>&1 || { echo "user $user is missing" >&2; return 1; }
    done
    # It runs as other users' working directory too: the program must be reachable for all.
    install -m 755 "$program" "$scratch/pjdfstest"
    pjdfstest_config > "$config"
    local status=0
    mkdir -p /dev/shm/hayase-foreign-$$
    on_node 0 env -u RUST_BACKTRACE "$scratch/pjdfstest" -c "$config" -p "$shared" \
        -s /dev/shm/hayase-foreign-$$ > "$output" 2>&1 || status=$?
    rm -rf /dev/shm/hayase-foreign-$$
    sed -e 's/\x1b\[[0-9;]*m//g' -i "$output"
    grep -A1 -E 'FAILED|PASSED UNEXPECTEDLY' "$output" || true
    # Counted, with the reasons: a skip that nobody sees is a defect.
    awk '/ skipped$/ { getline reason; sub(/^[ \t]+/, "", reason); count[reason]++ }
         END { for (reason in count) print "SKIP " count[reason] " tests of pjdfstest: " reason }' "$output"
    grep '^Summary' "$output" || { tail -n 20 "$output"; return 1; }
    return "$status"
}

# A listed test that passes fails the run: the suite does that itself.
pjdfstest_config() {
    local names
    names=$(differences pjdfstest | sed 's/.*/    "&",/')
    cat <<TOML
[features]
posix_fallocate = {}
rename_ctime = {}
stat_st_birthtime = {}
utime_now = {}
utimensat = {}

[settings]
# Above the clock tick of file times.
naptime = 0.02
allow_remount = false
expected_failures = [
$names
]

[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
TOML
}
