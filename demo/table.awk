# The last table of the demo, from the records of demo/figures.sh.
BEGIN {
  FS = "\t"
  printf "%-60s %10s %10s %8s\n", "", "without", "Hayase", "ratio"
}
function ratio(without, with, better) {
  if (without == "-" || with == "-" || without + 0 == 0 || with + 0 == 0 || better == "none") return "-"
  return sprintf("%.1f x", without / with)
}
$1 == "scene" { title[$2] = $3 }
$1 == "compare" {
  if ($2 != last) print title[$2]
  last = $2
  printf "  %-58s %10s %10s %8s\n", $3 ", " $6, $4, $5, ratio($4, $5, $7)
}
$1 == "slower" { slower[++count] = $2 }
END {
  print ""
  print "A ratio over 1 is in favour of Hayase. What the figures do not say, and where Hayase is slower:"
  for (i = 1; i <= count; i++) print "- " slower[i]
}
