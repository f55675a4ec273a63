# `./test.sh --times N`: the same suites again and again, to find what fails now and then (sourced, not run).
#
# Each run's result and log are kept below the target directory under the commit, so that a series that was cut goes
# on where it was; another commit, or a changed file, begins a new series.

# The commit, and what differs from it.
tested_version() {
  local changes
  changes=$(git diff HEAD; git ls-files --others --exclude-standard -z | xargs -0 -r sha256sum)
  printf '%s%s' "$(git rev-parse --short=12 HEAD)" "${changes:+-$(sha256sum <<<"$changes" | cut -c1-8)}"
}

# run_times N SUITE...
run_times() {
  local n=$1 series k suite failed=0
  shift
  series=$(target_dir)/test-times/$(tested_version)
  mkdir -p "$series"
  for ((k = 1; k <= n; k++)); do
    local left=()
    for suite; do [ -e "$series/$suite.$k" ] || left+=("$suite"); done
    [ ${#left[@]} -gt 0 ] || continue
    say "run $k of $n"
    run_suites "$streams" "${left[@]}"
    for suite in "${left[@]}"; do
      cp "$run/logs/$suite" "$series/$suite.$k.log"
      cp "$run/results/$suite" "$series/$suite.$k"
    done
  done
  say ""
  say "$n runs of $(basename "$series"); logs are in $series"
  for suite; do tell_times "$series" "$n" "$suite" || failed=1; done
  return $failed
}

# tell_times SERIES N SUITE: a line for the suite, and one for each test that failed in some run. A run also fails when
# no test is named (a build that ended, a suite that ran nothing), and when all tests were skipped.
tell_times() {
  local series=$1 n=$2 suite=$3 seconds names unnamed=0 unrun=0
  seconds=$(for ((k = 1; k <= n; k++)); do cut -d' ' -f5 "$series/$suite.$k"; done | sort -n)
  names=$(for ((k = 1; k <= n; k++)); do
    { failed_names "$series/$suite.$k.log"; sed -n 's/^FLAKY \([^ ]*\).*/\1/p' "$series/$suite.$k.log"; } | sort -u
  done | sort | uniq -c)
  printf '%-14s %d runs, %s to %s s, median %s s\n' "$suite" "$n" "$(head -n 1 <<<"$seconds")" "$(tail -n 1 <<<"$seconds")" \
    "$(sed -n "$(((n + 1) / 2))p" <<<"$seconds")"
  local count name
  while read -r count name; do
    [ -z "$name" ] || say "flaky $name ($suite): failed in $count of $n runs"
  done <<<"$names"
  for ((k = 1; k <= n; k++)); do
    local p=0 f=0 s=0
    read -r p f s _ <"$series/$suite.$k"
    if [ "$f" != 0 ]; then
      [ -n "$(failed_names "$series/$suite.$k.log")" ] || unnamed=$((unnamed + 1))
    elif [ "$p" = 0 ]; then
      unrun=$((unrun + 1))
    fi
  done
  [ $unnamed = 0 ] || say "flaky $suite (no test named): failed in $unnamed of $n runs"
  [ $unrun = 0 ] || say "flaky $suite (all skipped): in $unrun of $n runs"
  [ -z "$names" ] && [ $unnamed = 0 ] && [ $unrun = 0 ]
}
