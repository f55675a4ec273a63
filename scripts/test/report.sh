# What a run of tests came to (sourced by test.sh, not run).

# Skips that nothing on this machine could turn into runs: calls that only other systems have.
never_here='^SKIP [0-9]+ tests of pjdfstest: '

# time_links: puts a `cc` in front of the real one that notes how long it links; cargo sees no difference.
time_links() {
  local real
  real=$(command -v cc) || return 0
  mkdir -p "$run/shim"
  cat >"$run/shim/cc" <<SHIM
#!/bin/bash
case " \$* " in *" -c "*) exec $real "\$@" ;; esac
began=\${EPOCHREALTIME/./}
$real "\$@"
status=\$?
echo \$((\${EPOCHREALTIME/./} - began)) >>$run/links
exit \$status
SHIM
  chmod +x "$run/shim/cc"
  : >"$run/links"
  PATH=$run/shim:$PATH
}

# seconds_of SUITE...: that ran.
seconds_of() {
  local name sum=0
  for name; do
    [ ! -e "$run/results/$name" ] || sum=$((sum + $(cut -d' ' -f5 "$run/results/$name")))
  done
  say $sum
}
# compiled_of SUITE...: seconds of them in which a suite that runs tests compiled them (`compiled` in suites.sh).
compiled_of() {
  local name
  for name; do ! [ -e "$run/logs/$name" ] || sed -n 's/^compiled in \([0-9]*\) s$/\1/p' "$run/logs/$name"; done |
    awk '{ sum += $1 } END { print sum + 0 }'
}

checking_suites=(scripts format clippy tidy deny site)

# seconds_by_kind: "CHECKING COMPILING RUNNING": each second of a suite is in one of them.
seconds_by_kind() {
  local checking all compiling
  checking=$(seconds_of "${checking_suites[@]}")
  all=$(seconds_of "${first_suites[@]}" "${island_suites[@]}" "${long_suites[@]}")
  compiling=$(($(seconds_of build) + $(compiled_of "${island_suites[@]}" "${long_suites[@]}")))
  say "$checking $compiling $((all - checking - compiling))"
}

# report SUITE...: the last words of a run; fails when something failed.
report() {
  local name unfinished=0 passed failed skipped flaky skips wrong_skips checking compiling running
  for name; do [ -e "$run/results/$name" ] || unfinished=$((unfinished + 1)); done
  read -r passed failed skipped flaky < <(cat "$run/results"/* 2>/dev/null |
    awk '{ p += $1; f += $2; s += $3; k += $4 } END { print p + 0, f + 0, s + 0, k + 0 }')
  say ""
  say "slowest tests:"
  slowest 20 "$run/logs"/*
  say ""
  read -r checking compiling running < <(seconds_by_kind)
  say "seconds: $SECONDS in all; checking $checking, compiling $compiling (linking" \
    "$(awk '{ sum += $1 } END { printf "%.0f", sum / 1e6 }' "$run/links") of them, added up over processors)," \
    "running $running, added up over suites"
  skips=$(cat "$run/logs"/* | grep '^SKIP ' | sort -u)
  if [ "$unfinished" != 0 ]; then
    say "$unfinished suites did not come to their end."
    failed=$((failed + unfinished))
  fi
  [ -z "$skips" ] || printf '\n%s\n' "$skips"
  wrong_skips=$(grep -E -v "$never_here" <<<"$skips" | grep -c .)
  if [ -z "$obstacles" ] && [ "$wrong_skips" -gt 0 ]; then
    say "This machine has all that is needed: these skips are failures here."
    failed=$((failed + wrong_skips))
  fi
  if load_is_over; then
    say "The load ended before the tests did: this is a failure."
    failed=$((failed + 1))
  fi
  say ""
  sed -n 's/^FLAKY /flaky /p' "$run/logs"/* | sort
  say "flaky: $flaky"
  say "hayase: $passed passed, $failed failed, $skipped skipped"
  [ "$failed" = 0 ]
}

# seeds_of LOG: the first seed, and those that failed where something did, as `A, failed B C`; `-` where a suite has none.
# A test that fails prints `seed N`, or the variable with which it runs again (`HAYASE_SIM_SEED=N`).
seeds_of() {
  local first failed=''
  first=$(sed -n 's/^first seed \([0-9]*\)$/\1/p' "$1" | head -n 1)
  [ -z "$(failed_names "$1")" ] ||
    failed=$(grep -v '^first seed ' "$1" | grep -oE '(^|[^a-z])seed [0-9]+|_SEED=[0-9]+' | grep -oE '[0-9]+' | awk '!seen[$0]++' | head -n 3 | paste -sd' ')
  say "${first:--}${failed:+, failed $failed}"
}

# long_row SUITE ROW: puts the row of the suite into PAGE, in place of the one that is there.
long_row() {
  if grep -q "^| \`$1\` |" "$page"; then
    sed -i "s#^| \`$1\` |.*#${2//&/\\&}#" "$page"
  else
    say "$2" >>"$page"
  fi
}

# record_long SUITE [PAGE]: its row in docs/results/long.md, and one for each long suite that has no row yet.
record_long() {
  local page=${2:-docs/results/long.md} result=passed p f s k seconds name
  read -r p f s k seconds <"$run/results/$1"
  [ "$f" = 0 ] || result="FAILED ($f)"
  [ "$k" = 0 ] || result+=", $k flaky"
  [ $((p + f)) != 0 ] || result=skipped
  long_row "$1" "| \`$1\` | $result | $(seeds_of "$run/logs/$1") | $seconds | $(date -u +%Y-%m-%d) | $(commit_and_changes) |"
  for name in "${long_suites[@]}"; do
    grep -q "^| \`$name\` |" "$page" || long_row "$name" "| \`$name\` | not run | - | - | - | - |"
  done
}

commit_and_changes() {
  printf '`%s`%s' "$(git rev-parse --short=12 HEAD)" "$(git diff --quiet HEAD -- crates tests fuzz || say ' and changes')"
}

# write_docs SUITE... [-- PAGE]: the table of docs/results/tests.md: what each suite runs, and how it went in this run. A
# suite that has not run now keeps the row that it has.
write_docs() {
  local page=docs/results/tests.md names=() name p f s k seconds row table
  while [ $# -gt 0 ]; do
    if [ "$1" = -- ]; then page=$2; break; fi
    names+=("$1")
    shift
  done
  table=$(
    say '| suite | what it runs | passed | failed | skipped | minutes | commit |'
    say '|---|---|---:|---:|---:|---:|---|'
    for name in "${names[@]}"; do
      if [ -e "$run/results/$name" ]; then
        read -r p f s k seconds <"$run/results/$name"
        row="$p | $f | $s | $(awk -v s="$seconds" 'BEGIN { printf "%.1f", s / 60 }') | $(commit_and_changes)"
      else
        row=$(sed -n "s/^| \`$name\` | [^|]* | \(.*\) |$/\1/p" "$page")
        row=${row:-not run | - | - | - | -}
      fi
      say "| \`$name\` | $(about "$name") | $row |"
    done
  )
  table=$table awk '
    /^<!-- end of the table -->$/ { skip = 0 }
    !skip { print }
    /^<!-- table: / { print ""; print ENVIRON["table"]; print ""; skip = 1 }' "$page" >"$run/page" && cp "$run/page" "$page"
}
