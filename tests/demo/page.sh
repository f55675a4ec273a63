#!/usr/bin/env bash
# The page of the demo in a real browser: wide and narrow, light and dark. Prints `ok`, `FAILED` and `SKIP` lines.
#
#   tests/demo/page.sh [DIRECTORY]     of a run of ./demo.sh, as demo/out; without it a page is made from recorded figures
#
# Screenshots are kept in DIRECTORY/shots, else in demo/out/sample.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
. scripts/prepare.sh
. demo/page.sh

work=$(mktemp -d "${TMPDIR:-/tmp}/hayase-page.XXXXXX") || exit 1
trap 'rm -rf "${work:?}"' EXIT
if [ $# -gt 0 ]; then
  run=$1 shots=$1/shots
else
  run=$work shots=demo/out/sample
  cp tests/demo/figures.tsv "$work"
  page "$work/figures.tsv" "$work/index.html" || { say "FAILED page_is_made"; exit 1; }
fi
html=$(realpath "$run/index.html") figures=$run/figures.tsv
mkdir -p "$shots"

failures=0
# result NAME PROBLEMS: one test.
result() {
  if [ -z "$2" ]; then say "ok $1"; else say "FAILED $1: $2"; failures=$((failures + 1)); fi
}

# browser OPTION... URL: what it prints on standard error is kept in $work/said.
browser() {
  HOME=$work timeout 60 chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars --no-first-run \
    --user-data-dir="$work/profile" --allow-file-access-from-files --enable-logging=stderr "$@" 2>"$work/said"
}

# look WIDTH: what is wrong with the page, a line each; its height is kept in $work/height.
look() {
  local dom scenes
  dom=$(browser --virtual-time-budget=3000 --window-size="$1,2000" --dump-dom "file://$PWD/tests/demo/look.html#file://$html,$1") ||
    { say "the browser ended with $?"; tail -n 3 "$work/said"; return; }
  grep -E 'CONSOLE.*(rror|efused|ailed)' "$work/said"
  sed -n 's/^found //p' <<<"$dom"
  sed -n 's/^height //p' <<<"$dom" >"$work/height"
  scenes=$(sed -n 's/^scenes //p' <<<"$dom")
  [ "$scenes" = "$(awk -F'\t' '$1 == "scene" { printf "%s%s", dot, $2; dot = " " }' "$figures")" ] || say "other scenes than those that ran: $scenes"
}

# shot WIDTH light|dark: keeps a picture.
shot() {
  local file=$shots/page-$1-$2.png scheme=1
  [ "$2" = light ] || scheme=0
  rm -f "$file"
  browser --blink-settings=preferredColorScheme=$scheme --window-size="$1,$(cat "$work/height")" --screenshot="$(realpath "$shots")/page-$1-$2.png" \
    "file://$html" >/dev/null
  [ -s "$file" ] || say "no picture"
}

result page_needs_nothing_else "$(grep -nE '<script|https?://|@import|url\(' "$html" | head -n 3)"
for scene in $(awk -F'\t' '$1 == "scene" { print $2 }' "$figures"); do
  result "page_shows_$scene" "$(grep -q "id=\"$scene\"" "$html" || say "it is missing")"
done
if ! has chromium; then
  say "SKIP page in a browser: chromium is not installed"
else
  for width in 1280 390; do
    result "page_in_a_browser_$width" "$(look $width)"
    for scheme in light dark; do result "page_picture_${width}_$scheme" "$(shot $width $scheme)"; done
  done
  result page_is_dark_where_wanted "$(! cmp -s "$shots/page-390-light.png" "$shots/page-390-dark.png" || say "both pictures are the same")"
fi
[ "$failures" = 0 ]
