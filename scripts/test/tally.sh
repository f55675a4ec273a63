# What suites printed, counted (sourced, not run).

# count LOG: "passed failed skipped flaky": libtest's results, pjdfstest's summary, and lines that begin with `ok`,
# `FAILED`, `SKIP` and `FLAKY` (a test that passed at its second try, so it is also one that passed).
count() {
  awk '
    /^test result: / { for (i = 2; i <= NF; i++) { if ($i ~ /^passed/) p += $(i-1); if ($i ~ /^failed/) f += $(i-1) } }
    /^Summary: / { for (i = 2; i <= NF; i++) { if ($i ~ /^passed/) p += $(i-1); if ($i ~ /^failed/) f += $(i-1) } }
    /^ok / { p++ }
    /^FAILED/ { f++ }
    /^FLAKY / { p++; k++ }
    /^SKIP [0-9]+ tests / { s += $2; next }
    /^SKIP / { s++ }
    END { print p+0, f+0, s+0, k+0 }' "$1"
}

# failures_of LOG: what failed and why: `FAILED` lines and compiler errors, what libtest kept of each failed test, the
# last lines.
failures_of() {
  grep -E -A 12 '^(FAILED|error)|[ \t](FAILED|PASSED UNEXPECTEDLY)$' "$1" | head -n 80
  awk '
    /^test .* FAILED/ { failed[$2] = 1 }
    /^---- .* stdout ----$/ { shown = ($2 in failed) ? 25 : 0 }
    shown > 0 { print; shown-- }' "$1" | head -n 120
  say "last lines:"
  tail -n 12 "$1"
}

# failed_names LOG: of tests.
failed_names() { sed -n -e 's/^FAILED \([^ :]*\).*/\1/p' -e 's/^test \([^ ]*\) .*FAILED.*/\1/p' "$1" | sort -u; }

# times_of LOG...: "SECONDS SUITE TEST" of each test that says how long it took.
times_of() {
  awk '
    FNR == 1 { suite = FILENAME; sub(/.*\//, "", suite) }
    /^test .* <[0-9.]+s>$/ { t = $NF; gsub(/[<s>]/, "", t); print t, suite, $2; next }
    /^ok .* [0-9.]+ s$/ { print $(NF - 1), suite, $2; next }
    /^ok .*\([0-9]+ s\)$/ { t = $(NF - 1); sub(/\(/, "", t); print t, suite, $2 }' "$@"
}

# slowest N LOG...
slowest() {
  local n=$1
  shift
  times_of "$@" | sort -rn | head -n "$n" | awk '{ printf "  %8.1f s  %-14s %s\n", $1, $2, $3 }'
}
