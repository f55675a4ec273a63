# The figures of a run (sourced by demo.sh): kept in one file, from which the last table and the page are made.
#
# One record in a line, its fields separated by tabs:
#
#   condition TEXT                          what the figures were measured on
#   scene ID TITLE TEXT
#   compare ID WHAT WITHOUT WITH UNIT lower|none NAME      a row; lower is better, or no ratio; NAME of what was used without
#                                           Hayase; `-`: not measured
#   check ID TEXT                           what was verified
#   lane ID NAME SECONDS                    a line of time, and how long the longest of the scene is
#   span ID NAME KIND BEGIN END             a piece of that line, in seconds
#   slower TEXT                             where something else is faster
#   command TEXT                            repeats the run
#   link FILE TEXT                          a file that belongs to the page

figures=

# figures_begin DIR: an empty file there.
figures_begin() {
  figures=$1/figures.tsv
  : >"$figures" || die "$1 cannot be written"
}

# figure FIELD...: one record.
figure() {
  local IFS=$'\t'
  printf '%s\n' "$*" >>"$figures"
}

# scene ID TITLE TEXT: begins a scene, on the terminal too.
scene() {
  figure scene "$@"
  title "$2"
  say "$3"
}

# compare ID WHAT WITHOUT WITH UNIT lower|none NAME: a figure without Hayase and with it, on the terminal too.
compare() {
  figure compare "$@"
  printf '  %-46s %s: %s, Hayase: %s %s\n' "$2" "$7" "$3" "$4" "$5"
}

# check ID TEXT: something was verified.
check() {
  figure check "$@"
  say "  ok: $2"
}

# condition TEXT: on what was measured.
condition() {
  figure condition "$1"
  say "  $1"
}

# figures_table: all comparisons.
figures_table() { awk -f demo/table.awk "$figures"; }
