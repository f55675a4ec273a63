# What the demo says on the terminal (sourced by demo.sh, after scripts/prepare.sh): few words; the rest goes to log files.

# title TEXT: what begins now.
title() { printf '\n== %s\n' "$*"; }

# must CMD...: the demo is over when this fails.
must() { "$@" || die "this failed: $*"; }

seconds() { date +%s.%N; }
since() { calc "$(seconds) - $1" %.2f; }

# calc EXPRESSION [FORMAT]: a number.
calc() { awk "BEGIN { printf \"${2:-%.1f}\", ($1) }"; }

# logged NAME CMD...: runs it, and appends what it says to a log file, of which the end is shown when it fails.
logged() {
  local log=$out/logs/$1.log
  shift
  printf '+ %s\n' "$*" >>"$log"
  "$@" >>"$log" 2>&1 && return
  tail -n 20 "$log" >&2
  die "this failed: $* (all of it: $log)"
}

# timed NAME VARIABLE CMD...: the same, and keeps its seconds in a variable.
timed() {
  local name=$1 start
  local -n took_seconds=$2
  shift 2
  start=$(seconds)
  logged "$name" "$@"
  took_seconds=$(since "$start")
}
