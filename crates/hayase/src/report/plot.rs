//! Bytes over time as a picture (SVG): lines, axes with round numbers, a legend.

use std::fmt::Write;

use hayase_layout::ByteCount;

use super::escape::escaped;
use super::series::Points;
use crate::moment;

/// In units of the picture; it is scaled to the width of the page.
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 34.0;

/// Lines across.
const ROWS_MAX: u64 = 5;
const COLUMNS_MAX: u64 = 8;

/// Seconds between two marks of the time axis.
const TIME_STEPS: [u64; 20] = [
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400,
    172_800, 604_800,
];

/// One line.
pub(super) struct Line {
    /// In the legend.
    pub(super) name: String,
    /// What is drawn.
    pub(super) points: Points,
    /// The room below it is filled.
    pub(super) is_filled: bool,
}

/// Bytes upwards, time from `begin_ms` on to the right. `None` where no line has two points: there is
/// nothing to see.
pub(super) fn svg(what: &str, begin_ms: u64, lines: &[Line]) -> Option<String> {
    lines.iter().find(|line| line.points.len() > 1)?;
    let all = || lines.iter().flat_map(|line| &line.points);
    let end_ms = all().map(|(at, _)| *at).max()?.max(begin_ms + 1000);
    let most = all().map(|(_, value)| *value).fold(1.0, f64::max);
    let (row, rows) = byte_step(most);
    let scale = Scale { begin_ms, end_ms, top: (row * rows) as f64 };
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n",
        escaped(what)
    );
    for index in 0..=rows {
        let y = scale.y((row * index) as f64);
        let _ = writeln!(
            svg,
            "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{}\"/><text x=\"{}\" y=\"{:.1}\" \
             text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 8.0,
            y + 4.0,
            ByteCount(row * index)
        );
    }
    let seconds = (end_ms - begin_ms) / 1000;
    let step = time_step(seconds);
    for (index, mark) in (0..=seconds).step_by(step as usize).enumerate() {
        // The style leaves these out where there is little room.
        let odd = if index % 2 == 1 { " odd" } else { "" };
        let x = scale.x(begin_ms + mark * 1000);
        let _ = writeln!(
            svg,
            "<path class=\"tick{odd}\" d=\"M{x:.1} {}v5\"/><text x=\"{x:.1}\" y=\"{}\" \
             text-anchor=\"middle\">{}</text>",
            HEIGHT - BOTTOM,
            HEIGHT - BOTTOM + 19.0,
            moment::span(mark)
        );
    }
    for (index, line) in lines.iter().enumerate() {
        draw(&mut svg, index, line, &scale);
    }
    svg.push_str("</svg>\n");
    Some(svg + &legend(lines))
}

struct Scale {
    begin_ms: u64,
    end_ms: u64,
    top: f64,
}

impl Scale {
    fn x(&self, at_ms: u64) -> f64 {
        let share =
            at_ms.saturating_sub(self.begin_ms) as f64 / (self.end_ms - self.begin_ms) as f64;
        LEFT + share * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - value / self.top * (HEIGHT - TOP - BOTTOM)
    }
}

fn draw(svg: &mut String, index: usize, line: &Line, scale: &Scale) {
    let (Some((first, _)), Some((last, _))) = (line.points.first(), line.points.last()) else {
        return;
    };
    let mut path = String::new();
    for (index, (at, value)) in line.points.iter().enumerate() {
        let command = if index == 0 { 'M' } else { 'L' };
        let _ = write!(path, "{command}{:.1} {:.1}", scale.x(*at), scale.y(*value));
    }
    if line.is_filled {
        let (zero, from, to) = (scale.y(0.0), scale.x(*first), scale.x(*last));
        let _ = writeln!(
            svg,
            "<path class=\"fill c{index}\" d=\"{path}L{to:.1} {zero:.1}L{from:.1} {zero:.1}Z\"/>"
        );
    }
    let _ = writeln!(svg, "<path class=\"line c{index}\" d=\"{path}\"/>");
}

fn legend(lines: &[Line]) -> String {
    let mut text = "<p class=\"legend\">".to_owned();
    for (index, line) in lines.iter().enumerate() {
        let name = escaped(&line.name);
        let _ = write!(text, "<span><i class=\"c{index}\"></i>{name}</span> ");
    }
    text + "</p>\n"
}

/// The distance of rows, and how many: the smallest of 1, 2, 4, 8, .. bytes with which all fits.
fn byte_step(most: f64) -> (u64, u64) {
    let most = most.max(1.0) as u64;
    let row = most.div_ceil(ROWS_MAX).next_power_of_two();
    (row, most.div_ceil(row).max(1))
}

fn time_step(seconds: u64) -> u64 {
    let fits = |step: &&u64| seconds / **step <= COLUMNS_MAX;
    let weeks = (seconds / COLUMNS_MAX).next_multiple_of(604_800).max(604_800);
    TIME_STEPS.iter().find(fits).copied().unwrap_or(weeks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_round_numbers_and_few_of_them() {
        let check = |most, expected| assert_eq!(byte_step(most), expected, "{most}");
        check(0.0, (1, 1));
        check(5.0, (1, 5));
        check((3_u64 << 30) as f64, (1 << 30, 3));
        check((5_u64 << 30) as f64 + 1.0, (2 << 30, 3));
        for (seconds, step) in
            [(5, 1), (17, 2), (3600, 600), (90_000, 10_800), (90_000_000, 11_491_200)]
        {
            assert_eq!(time_step(seconds), step, "{seconds}");
            assert!(seconds / step <= COLUMNS_MAX);
        }
    }

    #[test]
    fn lines_reach_the_edges_of_their_values() {
        let line = |points: &[(u64, f64)]| Line {
            name: "a<b".to_owned(),
            points: points.to_vec(),
            is_filled: true,
        };
        let svg_of = |lines: &[Line]| svg("x", 0, lines);
        let svg = svg_of(&[line(&[(0, 0.0), (10_000, 4096.0)])]).unwrap();
        let (zero, top) = (HEIGHT - BOTTOM, TOP);
        assert!(
            svg.contains(&format!("M{LEFT:.1} {zero:.1}L{:.1} {top:.1}", WIDTH - RIGHT)),
            "{svg}"
        );
        assert!(svg.contains("4 KiB") && svg.contains("10 s") && svg.contains("a&lt;b"));
        assert!(svg_of(&[line(&[(0, 1.0)])]).is_none());
        assert!(svg_of(&[]).is_none());
    }
}
