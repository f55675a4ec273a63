//! The samples as a picture (SVG): time across, length of each piece of work upwards.

use std::fmt::Write;

use super::fwq::Measured;

const WIDTH: usize = 1000;
const PANEL: usize = 160;
const MARGIN: usize = 60;

/// One panel for each processor; of the samples in one column the longest and the shortest are seen.
pub(crate) fn svg(title: &str, panels: &[(String, &Measured)]) -> String {
    let height = MARGIN + panels.len() * (PANEL + MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {height}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"{MARGIN}\" y=\"26\" font-size=\"17\">{}</text>\n",
        WIDTH + 2 * MARGIN,
        escaped(title)
    );
    let longest = panels.iter().flat_map(|(_, measured)| &measured.samples).max();
    let longest = f64::from(*longest.unwrap_or(&1)).max(1.0);
    for (index, (name, measured)) in panels.iter().enumerate() {
        let top = MARGIN + index * (PANEL + MARGIN);
        panel(&mut svg, name, measured, top, longest);
    }
    svg.push_str("</svg>\n");
    svg
}

fn panel(svg: &mut String, name: &str, measured: &Measured, top: usize, longest: f64) {
    let bottom = top + PANEL;
    let y = |nanos: u32| bottom as f64 - f64::from(nanos) / longest * PANEL as f64;
    let _ = write!(
        svg,
        "<text x=\"{MARGIN}\" y=\"{}\">{}</text>\n\
         <text x=\"{MARGIN}\" y=\"{}\" text-anchor=\"end\" dx=\"-6\">{:.0} us</text>\n\
         <text x=\"{MARGIN}\" y=\"{bottom}\" text-anchor=\"end\" dx=\"-6\">0</text>\n\
         <text x=\"{}\" y=\"{}\" text-anchor=\"end\">{:.1} s</text>\n\
         <rect x=\"{MARGIN}\" y=\"{top}\" width=\"{WIDTH}\" height=\"{PANEL}\" fill=\"#f5f7fa\"/>\n\
         <path stroke=\"#2266aa\" fill=\"none\" d=\"",
        top - 8,
        escaped(name),
        top + 12,
        longest / 1e3,
        MARGIN + WIDTH,
        bottom + 18,
        measured.seconds,
    );
    let column = measured.samples.len().div_ceil(WIDTH).max(1);
    for (index, samples) in measured.samples.chunks(column).enumerate() {
        let x =
            MARGIN as f64 + (index * column) as f64 / measured.samples.len() as f64 * WIDTH as f64;
        let (low, high) = samples
            .iter()
            .fold((u32::MAX, 0), |(low, high), nanos| (low.min(*nanos), high.max(*nanos)));
        let _ = write!(svg, "M{x:.1} {:.1}V{:.1}", y(low) + 0.5, y(high) - 0.5);
    }
    svg.push_str("\"/>\n");
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_series_take_one_mark_a_column_and_keep_their_longest() {
        let mut samples = vec![1000; 50_000];
        samples[777] = 9000;
        let measured = Measured { processor: 0, samples, seconds: 2.5 };
        let svg = svg("a < b", &[("processor 0".to_owned(), &measured)]);
        assert!(svg.contains("a &lt; b") && svg.contains("9 us") && svg.contains("2.5 s"));
        let marks = svg.matches('M').count();
        assert!((900..=1001).contains(&marks), "{marks} marks");
        // The column of the longest sample reaches the top of its panel.
        assert!(svg.contains(&format!("V{:.1}", MARGIN as f64 - 0.5)));
    }
}
