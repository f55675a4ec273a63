# The page of a run (sourced by demo.sh and tests/demo/page.sh).

# page FIGURES FILE: one HTML file that needs nothing else, made from the records of demo/figures.sh.
page() { awk -v style=demo/page.css -f demo/page.awk "$1" >"$2"; }
