// SPDX-License-Identifier: MIT OR Apache-2.0
//! The picture of an experiment: clock and licence level of each core over time, one band of cores
//! for each row of the table, as one HTML file that needs nothing else.

use std::fmt::Write as _;

use silicon::{Clocks, Log};

/// How much of the time between the marks is shown, ns.
const WINDOW_NS: u64 = 20_000_000;
/// Width of the picture, of the labels, and of the time axis.
const WIDTH: f64 = 1120.0;
const LABEL: f64 = 60.0;
/// Height of a core's band, and of its highest clock in it.
const BAND: f64 = 36.0;
const HIGHEST: f64 = 30.0;

/// A row of the picture.
pub(crate) struct Band<'a> {
    pub(crate) heading: String,
    pub(crate) log: &'a Log,
}

/// A stretch of time in which a core's clock is the same.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Stretch {
    from_ns: u64,
    to_ns: u64,
    level: u8,
    khz: f64,
}

/// The page.
pub(crate) fn page(
    heading: &str,
    about: &str,
    bands: &[Band<'_>],
    clocks: &Clocks,
    cores: usize,
) -> String {
    let rows: String = bands.iter().map(|band| drawn(band, clocks, cores)).collect();
    include_str!("page.html")
        .replace("{{heading}}", heading)
        .replace("{{about}}", about)
        .replace("{{rows}}", &rows)
}

fn drawn(band: &Band<'_>, clocks: &Clocks, cores: usize) -> String {
    let Some(first) = band.log.mark(1) else { return String::new() };
    let end_ns = band.log.mark(2).map_or(first.t_ns, |mark| mark.t_ns);
    let (from_ns, to_ns) = (first.t_ns, end_ns.min(first.t_ns + WINDOW_NS));
    let height = BAND * cores as f64 + 20.0;
    let highest_khz = clocks.khz(0, 0);
    let x = |t_ns: u64| {
        LABEL + (t_ns - from_ns) as f64 / (to_ns - from_ns).max(1) as f64 * (WIDTH - LABEL)
    };
    let mut svg =
        format!("<h2>{}</h2>\n<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n", band.heading);
    for core in 0..cores {
        let floor = BAND * (core + 1) as f64;
        let _ = writeln!(svg, "<text x=\"0\" y=\"{}\">CPU {core}</text>", floor - 10.0);
        let _ = writeln!(
            svg,
            "<line class=\"base\" x1=\"{LABEL}\" x2=\"{WIDTH}\" y1=\"{floor}\" y2=\"{floor}\"/>"
        );
        for stretch in stretches(band.log, clocks, core, from_ns, to_ns) {
            let tall = stretch.khz / highest_khz * HIGHEST;
            let (left, right) = (x(stretch.from_ns), x(stretch.to_ns));
            let _ = writeln!(
                svg,
                "<rect class=\"l{}\" x=\"{left:.2}\" y=\"{:.2}\" width=\"{:.2}\" height=\"{tall:.2}\"/>",
                stretch.level,
                floor - tall,
                right - left,
            );
        }
    }
    let ms = (to_ns - from_ns) as f64 / 1e6;
    let _ = writeln!(svg, "<text x=\"{LABEL}\" y=\"{}\">0 ms</text>", height - 4.0);
    let _ = writeln!(
        svg,
        "<text x=\"{WIDTH}\" y=\"{}\" text-anchor=\"end\">{ms:.0} ms</text>\n</svg>",
        height - 4.0
    );
    svg
}

/// What a core did between two times; halts are left out.
fn stretches(log: &Log, clocks: &Clocks, core: usize, from_ns: u64, to_ns: u64) -> Vec<Stretch> {
    // The number of active cores matters for the clock alone: the one at the start is taken.
    let active = log.turbos.iter().take_while(|turbo| turbo.t_ns <= from_ns).last();
    let active = active.map_or(usize::MAX, |turbo| turbo.active);
    let mut found = Vec::new();
    let (mut at_ns, mut level, mut is_halted) = (from_ns, 0, false);
    let changes = log.licenses.iter().filter(|license| license.core == core);
    for change in changes.take_while(|change| change.t_ns < to_ns) {
        if change.t_ns > from_ns {
            push(&mut found, clocks, active, is_halted, level, (at_ns, change.t_ns));
            at_ns = change.t_ns;
        }
        (level, is_halted) = (change.level, change.phase == "halted");
    }
    push(&mut found, clocks, active, is_halted, level, (at_ns, to_ns));
    found
}

/// Adds a stretch, or makes the last one longer.
fn push(
    found: &mut Vec<Stretch>,
    clocks: &Clocks,
    active: usize,
    is_halted: bool,
    level: u8,
    (from_ns, to_ns): (u64, u64),
) {
    let khz = clocks.khz(level, active);
    match found.last_mut() {
        _ if is_halted || from_ns == to_ns => {}
        Some(last) if last.level == level && last.to_ns == from_ns => last.to_ns = to_ns,
        _ => found.push(Stretch { from_ns, to_ns, level, khz }),
    }
}

#[cfg(test)]
mod tests {
    use silicon::{Machine, Settings};

    use super::*;

    const LOG: &str = "turbo t_ns=1 active=16\n\
        mark t_ns=1000 value=1\n\
        license t_ns=2000 core=0 phase=throttled level=0 target=2\n\
        license t_ns=3000 core=0 phase=halted level=0 target=2\n\
        license t_ns=4000 core=0 phase=steady level=2 target=2\n\
        mark t_ns=9000 value=2\n";

    fn gold() -> Clocks {
        let settings = Settings::parse("xeon-gold-6130").unwrap();
        Machine::new(&settings, 2, 1).unwrap().clocks().clone()
    }

    #[test]
    fn a_core_is_drawn_by_its_changes() {
        let log = Log::parse(LOG).unwrap();
        let found = stretches(&log, &gold(), 0, 1000, 9000);
        let times: Vec<_> = found.iter().map(|s| (s.from_ns, s.to_ns, s.level)).collect();
        assert_eq!(times, [(1000, 3000, 0), (4000, 9000, 2)]);
        assert!((found[0].khz / 2.8e6 - 1.0).abs() < 1e-3);
        assert!((found[1].khz / 1.9e6 - 1.0).abs() < 1e-3);
        // The other core has no change.
        assert_eq!(stretches(&log, &gold(), 1, 1000, 9000).len(), 1);
    }

    #[test]
    fn a_page_has_a_picture_for_each_row() {
        let log = Log::parse(LOG).unwrap();
        let band = |heading: &str| Band { heading: heading.to_owned(), log: &log };
        let page = page("A", "B", &[band("one"), band("two")], &gold(), 2);
        assert_eq!(page.matches("<svg").count(), 2);
        assert!(!page.contains("{{"));
        assert!(page.contains("class=\"l2\""));
    }
}
