# The page of a run of the demo, from the records of demo/figures.sh. `style` names the file of its style.
BEGIN { FS = "\t" }

function text(s) { gsub(/&/, "\\&amp;", s); gsub(/</, "\\&lt;", s); gsub(/>/, "\\&gt;", s); gsub(/"/, "\\&quot;", s); return s }
# rich TEXT: what is between backquotes is code.
function rich(s) { s = text(s); while (sub(/`/, "<code>", s)) sub(/`/, "</code>", s); return s }
function known(value) { return value != "-" && value != "" }
function ratio(without, with, better) {
  if (!known(without) || !known(with) || without + 0 == 0 || with + 0 == 0 || better == "none") return ""
  return sprintf("%.1f", without / with)
}
function share(value, longest) { return sprintf("%.2f%%", longest > 0 ? 100 * value / longest : 0) }
function value_of(value, unit) { return known(value) ? text(value " " unit) : "not measured" }

function bar(name, value, unit, longest, class) {
  if (known(value)) value_shape = "<rect class=\"" class "\" width=\"" share(value, longest) "\" height=\"100%\" rx=\"3\"/>"
  else value_shape = "<rect class=\"none\" width=\"100%\" height=\"100%\" rx=\"3\"/>"
  return "<div class=\"row\"><span class=\"name\">" text(name) "</span><svg class=\"bar\" role=\"img\" aria-label=\"" text(name) ": " \
    value_of(value, unit) "\">" value_shape "</svg><span class=\"value\">" value_of(value, unit) "</span></div>\n"
}
function figure_of(what, without, with, unit, better, name,   longest, r, html) {
  longest = with + 0
  if (known(without) && without + 0 > longest) longest = without + 0
  r = ratio(without, with, better)
  html = "<h3><span>" rich(what) "</span>" (r == "" ? "" : "<b" (r + 0 < 1 ? " class=\"less\"" : "") ">" r " &times;</b>") "</h3>\n"
  if (known(without)) html = html bar(name, without, unit, longest, "other")
  return html bar("Hayase", with, unit, longest, "ours")
}
function lanes_of(id,   i, html) {
  if (!lanes[id]) return ""
  html = "<h3><span>What happened when</span></h3>\n"
  for (i = 1; i <= lanes[id]; i++)
    html = html "<div class=\"time\"><span class=\"name\">" text(lane[id, i]) "</span><svg class=\"lane\" role=\"img\" aria-label=\"" \
      text(lane[id, i]) "\"><rect class=\"back\" width=\"100%\" height=\"100%\" rx=\"3\"/>" spans[id, lane[id, i]] "</svg></div>\n"
  html = html "<div class=\"time\"><span class=\"name\"></span><div class=\"axis\"><span>0</span><span>" \
    sprintf("%.0f", lane_seconds[id] / 2) "</span><span>" sprintf("%.0f s", lane_seconds[id]) "</span></div></div>\n"
  return html "<p class=\"legend\">" key("compute", "computes") key("checkpoint", "writes a checkpoint, and waits") \
    key("writes", "bytes arrive") "</p>\n"
}
function key(class, what) { return "<span><svg><rect class=\"" class "\" width=\"100%\" height=\"100%\" rx=\"2\"/></svg>" what "</span>" }

$1 == "condition" { conditions = conditions "<li>" rich($2) "</li>\n" }
$1 == "scene" { id[++scenes] = $2; title[$2] = $3; about[$2] = $4 }
$1 == "compare" {
  if (known($4)) compared = 1
  bars[$2] = bars[$2] figure_of($3, $4, $5, $6, $7, $8)
  if ($2 != last) rows = rows "<tr><th colspan=\"4\">" rich(title[$2]) "</th></tr>\n"
  rows = rows "<tr><td>" rich($3) "</td><td class=\"n\">" (known($4) ? value_of($4, $6) : "-") \
    "</td><td class=\"n\">" value_of($5, $6) "</td><td class=\"n\">" (ratio($4, $5, $7) == "" ? "-" : ratio($4, $5, $7)) "</td></tr>\n"
  last = $2
}
$1 == "check" { checks[$2] = checks[$2] "<li>" rich($3) "</li>\n" }
$1 == "lane" { lane[$2, ++lanes[$2]] = $3; lane_seconds[$2] = $4 }
$1 == "span" {
  spans[$2, $3] = spans[$2, $3] "<rect class=\"" $4 "\" x=\"" share($5, lane_seconds[$2]) "\" width=\"" \
    share($6 - $5, lane_seconds[$2]) "\" height=\"100%\"/>"
}
$1 == "slower" { slower = slower "<li>" rich($2) "</li>\n" }
$1 == "command" { commands = commands text($2) "\n" }
$1 == "link" { links = links "<p><a href=\"" text($2) "\">" text($3) "</a></p>\n" }

END {
  print "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
  print "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>Hayase: a run of the demo</title>\n<style>"
  while ((getline line < style) > 0) print line
  print "</style></head>\n<body>\n<h1>Hayase: a run of the demo</h1>"
  if (compared) print "<p class=\"soft\">Three simulated nodes of one machine, with disks, links and shared storage of known speed. " \
    "What is compared ran once without Hayase and once with it, on the same limits; each scene says what was verified.</p>"
  else print "<p class=\"soft\">Three simulated nodes of one machine. Their disks, links and shared storage could not be limited " \
    "to known speeds, so nothing is compared with what users have without Hayase. Each scene says what was verified.</p>"
  print "<section id=\"conditions\"><h2>Measured on</h2>\n<ul>\n" conditions "</ul></section>"
  for (i = 1; i <= scenes; i++)
    print "<section class=\"scene\" id=\"" text(id[i]) "\"><h2>" rich(title[id[i]]) "</h2>\n<p class=\"soft\">" rich(about[id[i]]) "</p>\n" \
      bars[id[i]] lanes_of(id[i]) "<ul class=\"checks\">\n" checks[id[i]] "</ul></section>"
  print "<section id=\"table\"><h2>All figures</h2>\n<div class=\"scroll\"><table><tr><th></th><th class=\"n\">without</th>" \
    "<th class=\"n\">Hayase</th><th class=\"n\">ratio</th></tr>\n" rows "</table></div>\n<p class=\"soft\">A ratio over 1 is in favour of Hayase.</p></section>"
  print "<section id=\"slower\"><h2>What these figures do not say, and where Hayase is slower</h2>\n<ul>\n" slower "</ul></section>"
  print "<section id=\"repeat\"><h2>Repeat it</h2>\n<p>The first line runs all of this again; the others are the same on a cluster.</p>\n<pre>" commands "</pre>\n" links "</section>"
  print "</body></html>"
}
