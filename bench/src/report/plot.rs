//! Figures as SVG: lines over a few places on an axis, told apart by marks and dashes, not by colour alone.

use std::fmt::Write;

/// One figure.
#[derive(Clone, Debug)]
pub(crate) struct Plot {
    /// Of the file, without its ending.
    pub(crate) name: String,
    /// Above it.
    pub(crate) title: String,
    /// What the places are.
    pub(crate) across: &'static str,
    /// What is drawn, with its unit.
    pub(crate) upward: &'static str,
    /// The places, from left to right.
    pub(crate) places: Vec<String>,
    lines: Vec<(String, Vec<Option<f64>>)>,
}

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 400.0;
/// Room beside the area of the lines.
const LEFT: f64 = 70.0;
const RIGHT: f64 = 170.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 55.0;

/// From a palette that most people with weak colour vision can tell apart (Okabe and Ito, 2008).
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#000000"];
/// The same on a dark page.
const DARK_COLOURS: [&str; 6] = ["#4aa3d8", "#f08a4b", "#2fb792", "#e3a1c4", "#9ad3f5", "#e6ebf1"];
const DASHES: [&str; 6] = ["", "6 3", "2 3", "8 3 2 3", "12 4", "4 2"];

impl Plot {
    /// Without lines.
    pub(crate) fn new(
        name: impl Into<String>,
        title: impl Into<String>,
        (across, upward): (&'static str, &'static str),
        places: Vec<String>,
    ) -> Self {
        Self { name: name.into(), title: title.into(), across, upward, places, lines: Vec::new() }
    }

    /// Adds a line; `None`, and what is no number, where there is no figure.
    pub(crate) fn line(&mut self, name: impl Into<String>, values: Vec<Option<f64>>) {
        let finite = |value: Option<f64>| value.filter(|value| value.is_finite());
        self.lines.push((name.into(), values.into_iter().map(finite).collect()));
    }

    /// The whole file.
    pub(crate) fn to_svg(&self) -> String {
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             width=\"{WIDTH}\" height=\"{HEIGHT}\" font-family=\"sans-serif\" font-size=\"14\">\n\
             {}<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n",
            style()
        );
        text(&mut svg, (WIDTH / 2.0, 22.0), "middle", &self.title);
        let values = self.lines.iter().flat_map(|(_, values)| values.iter().flatten());
        let step = step(values.copied().fold(0.0, f64::max));
        let top = (values_max(&self.lines) / step).ceil().max(1.0) * step;
        self.draw_axes(&mut svg, step, top);
        for (number, (name, values)) in self.lines.iter().enumerate() {
            self.draw_line(&mut svg, number, (name, values), top);
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn x(&self, place: usize) -> f64 {
        let width = (WIDTH - LEFT - RIGHT) / self.places.len().max(1) as f64;
        LEFT + width * (place as f64 + 0.5)
    }

    fn draw_axes(&self, svg: &mut String, step: f64, top: f64) {
        let mut value = 0.0;
        while value <= top * 1.0001 {
            let y = y(value, top);
            let _ =
                writeln!(svg, "<path d=\"M{LEFT} {y:.1}H{:.1}\" class=\"grid\"/>", WIDTH - RIGHT);
            text(svg, (LEFT - 6.0, y + 4.0), "end", &shown(value));
            value += step;
        }
        let below = HEIGHT - BOTTOM;
        for (place, name) in self.places.iter().enumerate() {
            text(svg, (self.x(place), below + 18.0), "middle", name);
        }
        text(svg, ((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 12.0), "middle", self.across);
        let middle = f64::midpoint(TOP, below);
        let _ = writeln!(
            svg,
            "<text x=\"16\" y=\"{middle:.1}\" text-anchor=\"middle\" \
             transform=\"rotate(-90 16 {middle:.1})\">{}</text>",
            escaped(self.upward)
        );
    }

    fn draw_line(
        &self,
        svg: &mut String,
        number: usize,
        (name, values): (&str, &[Option<f64>]),
        top: f64,
    ) {
        let (colour, dash) = (number % COLOURS.len(), DASHES[number % DASHES.len()]);
        let mut path = String::new();
        for (place, value) in values.iter().enumerate() {
            let Some(value) = value else { continue };
            let (x, y) = (self.x(place), y(*value, top));
            let _ = write!(path, "{}{x:.1} {y:.1}", if path.is_empty() { "M" } else { "L" });
            mark(svg, number, (x, y));
        }
        let _ = writeln!(
            svg,
            "<path d=\"{path}\" class=\"line{colour}\" fill=\"none\" stroke-width=\"2\" \
             stroke-dasharray=\"{dash}\"/>"
        );
        let (x, y) = (WIDTH - RIGHT + 14.0, TOP + 12.0 + 20.0 * number as f64);
        mark(svg, number, (x, y - 4.0));
        text(svg, (x + 10.0, y), "start", name);
    }
}

/// Colours of the page, light and dark: readers see the one that their system asks for.
fn style() -> String {
    let light = rules("#ffffff", "#1c2733", "#cccccc", &COLOURS);
    let dark = rules("#161923", "#e6ebf1", "#3a4450", &DARK_COLOURS);
    format!("<style>\n{light}@media (prefers-color-scheme: dark) {{\n{dark}}}\n</style>\n")
}

fn rules(page: &str, ink: &str, grid: &str, colours: &[&str]) -> String {
    let mut rules =
        format!(".page {{ fill: {page}; }} text {{ fill: {ink}; }} .grid {{ stroke: {grid}; }}\n");
    for (number, colour) in colours.iter().enumerate() {
        let _ = writeln!(
            rules,
            ".mark{number} {{ fill: {colour}; }} .line{number} {{ stroke: {colour}; }}"
        );
    }
    rules
}

fn values_max(lines: &[(String, Vec<Option<f64>>)]) -> f64 {
    lines.iter().flat_map(|(_, values)| values.iter().flatten().copied()).fold(0.0, f64::max)
}

/// Between two lines of the grid: 1, 2 or 5 times a power of ten, so that there are four to ten.
fn step(largest: f64) -> f64 {
    if largest <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf((largest / 5.0).log10().floor());
    let times = [1.0, 2.0, 5.0].into_iter().find(|times| largest / (times * power) <= 8.0);
    times.unwrap_or(10.0) * power
}

fn y(value: f64, top: f64) -> f64 {
    HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / top
}

/// Square, circle or triangle, by turns.
fn mark(svg: &mut String, number: usize, (x, y): (f64, f64)) {
    let colour = number % COLOURS.len();
    let _ = match number % 3 {
        0 => writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" class=\"mark{colour}\"/>"),
        1 => writeln!(
            svg,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"8\" height=\"8\" class=\"mark{colour}\"/>",
            x - 4.0,
            y - 4.0
        ),
        _ => writeln!(svg, "<path d=\"M{x:.1} {:.1}l5 9h-10z\" class=\"mark{colour}\"/>", y - 5.0),
    };
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, words: &str) {
    let words = escaped(words);
    let _ =
        writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>");
}

fn escaped(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;")
}

fn shown(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_has_four_to_ten_lines() {
        for largest in [0.01, 0.7, 1.0, 3.0, 9.9, 10.0, 47.0, 640.0, 99_999.0] {
            let count = (largest / step(largest)).ceil();
            assert!((3.0..=8.0).contains(&count), "{count} lines up to {largest}");
        }
    }

    #[test]
    fn what_was_not_measured_is_not_drawn() {
        let places = ["1", "2", "4"].map(str::to_owned).to_vec();
        let mut plot = Plot::new("f", "a < b", ("streams", "MiB/s"), places);
        plot.line("ours", vec![Some(10.0), None, Some(40.0)]);
        plot.line("theirs", vec![Some(f64::NAN), Some(0.0), None]);
        let svg = plot.to_svg();
        assert_eq!(svg.matches("<circle").count(), 3, "two figures and the legend: {svg}");
        assert!(svg.contains("a &lt; b") && !svg.contains("NaN"), "{svg}");
        // 0 lies on the axis, the largest below the top.
        assert_eq!((y(0.0, 40.0), y(40.0, 40.0)), (HEIGHT - BOTTOM, TOP));
    }
}
