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

# report SUITE...: the last words of a run; fails when something failed.
report() {
  local name unfinished=0 passed failed skipped flaky skips wrong_skips
  for name; do [ -e "$run/results/$name" ] || unfinished=$((unfinished + 1)); done
  read -r passed failed skipped flaky < <(cat "$run/results"/* 2>/dev/null |
    awk '{ p += $1; f += $2; s += $3; k += $4 } END { print p + 0, f + 0, s + 0, k + 0 }')
  say ""
  say "slowest tests:"
  slowest 20 "$run/logs"/*
  say ""
  say "seconds: $SECONDS in all; checking $(seconds_of scripts format clippy tidy deny site), compiling $(seconds_of build) (linking" \
    "$(awk '{ sum += $1 } END { printf "%.0f", sum / 1e6 }' "$run/links") of them, added up over processors)," \
    "running $(seconds_of unit "${island_suites[@]}" "${long_suites[@]}"), added up over suites"
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
  say ""
  sed -n 's/^FLAKY /flaky /p' "$run/logs"/* | sort
  say "flaky: $flaky"
  say "hayase: $passed passed, $failed failed, $skipped skipped"
  [ "$failed" = 0 ]
}

# record_long SUITE: its line in docs/results/long.md.
record_long() {
  local page=docs/results/long.md result=passed p f s k seconds line
  read -r p f s k seconds <"$run/results/$1"
  [ "$f" = 0 ] || result="FAILED ($f)"
  [ "$k" = 0 ] || result+=", $k flaky"
  [ $((p + f)) != 0 ] || result=skipped
  line="| \`$1\` | $result | $seconds | $(date -u +%Y-%m-%d) | \`$(git rev-parse --short=12 HEAD)\`$(git diff --quiet HEAD -- crates tests fuzz || say ' and changes') |"
  if grep -q "^| \`$1\` |" "$page"; then
    sed -i "s#^| \`$1\` |.*#${line//&/\\&}#" "$page"
  else
    say "$line" >>"$page"
  fi
}
