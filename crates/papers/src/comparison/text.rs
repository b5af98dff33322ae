// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reproduction as aligned tables: published, simulated with spread and range, error, what came
//! out, what Turbolane's policy and the emulated machine yield, and what explains a miss.

use super::{Constant, OrderResult, PaperResult, Reproduction, RowResult, Score, Verdict, WhatIf};
use crate::published::{Place, Use};
use report::text::{Align, Table, wrap};

/// What a changed experiment yields, if that explains the miss; or why it does not.
fn explanation(what_if: &Option<WhatIf>, result: impl Fn(&WhatIf) -> String) -> String {
    match what_if {
        Some(what_if) if what_if.explains => {
            format!(" -- if {}: {}", what_if.change, result(what_if))
        }
        Some(what_if) if !what_if.breaks.is_empty() => {
            let breaks = what_if.breaks.join(", ");
            format!(" -- not explained: \"if {}\" breaks {breaks}", what_if.change)
        }
        _ => " -- not explained".into(),
    }
}

/// Narrowest table that keeps its columns.
const MIN_WIDTH: usize = 100;

impl Reproduction {
    /// The reproduction as text of at most `width` columns.
    pub fn text(&self, width: usize) -> String {
        let mut text = String::new();
        for paper in &self.papers {
            text += &paper.text(width.max(MIN_WIDTH));
            text.push('\n');
        }
        text += &constants(&self.constants, width);
        text += &self.score.text(self.seeds, width);
        if !self.unexplained.is_empty() {
            text += &wrap("not explained:  ", &self.unexplained.join(", "), width);
        }
        text
    }
}

impl PaperResult {
    fn text(&self, width: usize) -> String {
        let mut text = wrap(&format!("{}: ", self.document), &self.title, width);
        let mut table = Table::new(&[
            ("  WHERE", Align::Left),
            ("PUBLISHED", Align::Right),
            ("MODEL", Align::Right),
            ("RANGE", Align::Right),
            ("ERROR", Align::Right),
            ("", Align::Left),
            ("TURBOLANE", Align::Right),
            ("WHAT", Align::Left),
        ]);
        for row in self.rows.iter().filter(|row| row.published.purpose != Use::Context) {
            table.row(row.cells());
        }
        text += &table.text(width);
        let mut rankings =
            Table::new(&[("  WHERE", Align::Left), ("", Align::Left), ("RANKING", Align::Left)]);
        for order in self.orders.iter().filter(|order| order.published.purpose != Use::Context) {
            rankings.row(order.cells());
        }
        text += &rankings.text(width);
        let context = self.rows.iter().filter(|row| row.published.purpose == Use::Context).count();
        if context > 0 {
            text +=
                &format!("  {context} more figures are not compared; --json has them and why\n");
        }
        text
    }
}

impl RowResult {
    fn cells(&self) -> Vec<String> {
        let row = &self.published;
        let range = row.value_to.map_or(String::new(), |to| format!("-{}", figure(to)));
        let unit = if row.unit == "1" { String::new() } else { format!(" {}", row.unit) };
        let with_unit = |value: Option<f64>| {
            value.map_or("-".into(), |value| format!("{}{unit}", figure(value)))
        };
        let turbolane = if row.mitigated { with_unit(self.turbolane) } else { String::new() };
        let error = self.error.map_or("-".into(), |error| {
            let space = if self.error_unit == "%" { "" } else { " " };
            format!("{error:+.1}{space}{}", self.error_unit)
        });
        let published = format!("{}{range}{unit}", figure(row.value));
        vec![
            format!("  {}", place(&row.place)),
            published,
            self.model(&unit),
            self.range(),
            error,
            self.word().into(),
            turbolane,
            self.what(&unit),
        ]
    }

    /// The mean, and the deviation if it is seen.
    fn model(&self, unit: &str) -> String {
        let Some(value) = self.simulated else { return "-".into() };
        let stddev = self.stddev.map(figure).filter(|stddev| stddev.parse() != Ok(0.0));
        let stddev = stddev.map_or(String::new(), |stddev| format!(" +-{stddev}"));
        format!("{}{stddev}{unit}", figure(value))
    }

    /// From the least to the most, if they look different.
    fn range(&self) -> String {
        let ends = self.range.as_ref().map(|range| [range.least, range.most].map(figure));
        match ends {
            Some([least, most]) if least != most => format!("{least}..{most}"),
            _ => String::new(),
        }
    }

    /// What was measured, and what is to be said about the result.
    fn what(&self, unit: &str) -> String {
        let row = &self.published;
        let mut what = row.title.clone();
        if row.purpose == Use::Repeats && !row.note.is_empty() {
            what += &format!(" ({})", row.note);
        }
        if row.purpose == Use::Follows {
            what += &format!(" -- follows from {}", row.follows);
        }
        let with_unit = |value: f64| format!("{}{unit}", figure(value));
        match (self.verdict, &self.range) {
            _ if row.purpose == Use::Calibrates => {}
            (Some(Verdict::Missed), _) => {
                what += &explanation(&self.what_if, |what_if| {
                    what_if.simulated[0].map_or("-".into(), with_unit)
                });
            }
            (Some(Verdict::Undecided), Some(range)) => {
                for (value, if_) in [(range.least, &range.least_if), (range.most, &range.most_if)] {
                    if !if_.is_empty() {
                        what += &format!(" -- {} with {if_}", with_unit(value));
                    }
                }
            }
            (None, _) if !row.note.is_empty() => {
                what += &format!(" -- not simulated: {}", row.note);
            }
            _ => {}
        }
        if let Some(silicon) = &row.silicon {
            let value = with_unit(silicon.value);
            what += &format!(" -- emulated machine: {value} ({})", silicon.how);
        }
        what
    }

    /// One word: what came out of the comparison.
    fn word(&self) -> &'static str {
        match (self.published.purpose, self.verdict) {
            (Use::Calibrates, _) => "calibrated",
            (_, None) => "open",
            (_, Some(Verdict::Undecided)) => "UNDECIDED",
            (_, Some(Verdict::Missed)) => "MISSED",
            (Use::Repeats, Some(Verdict::Met)) => "repeated",
            (Use::Follows, Some(Verdict::Met)) => "follows",
            (_, Some(Verdict::Met)) => "predicted",
        }
    }
}

impl OrderResult {
    fn cells(&self) -> Vec<String> {
        let word = match (self.published.purpose, self.verdict) {
            (_, None) => "open",
            (Use::Follows, Some(Verdict::Met)) => "follows",
            (_, Some(Verdict::Met)) => "holds",
            (_, Some(Verdict::Undecided)) => "UNDECIDED",
            (_, Some(Verdict::Missed)) => "VIOLATED",
        };
        let mut what = self.published.title.clone();
        if self.published.purpose == Use::Follows {
            what += &format!(" -- follows from {}", self.published.follows);
        }
        match self.verdict {
            Some(Verdict::Missed) => what += &explanation(&self.what_if, |_| "it holds".into()),
            Some(Verdict::Undecided) => {
                what += &format!(" -- holds in {} of {} simulations", self.held, self.runs);
            }
            _ => {}
        }
        vec![format!("  {}", place(&self.published.place)), word.into(), what]
    }
}

/// The near-free constants, and what is plausible for them.
fn constants(constants: &[Constant], width: usize) -> String {
    if constants.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&[
        ("  VARIED", Align::Left),
        ("MODEL", Align::Left),
        ("ELSEWHERE", Align::Left),
    ]);
    for constant in constants {
        let value = |value: &super::Value| match value.breaks.as_slice() {
            [] => value.value.clone(),
            breaks => format!("{} (not plausible, breaks {})", value.value, breaks.join(", ")),
        };
        let values: Vec<String> = constant.elsewhere.iter().map(value).collect();
        let elsewhere = format!("{} -- {}", values.join(", or "), constant.source);
        table.row(vec![format!("  {}", constant.name), constant.model.clone(), elsewhere]);
    }
    "Near-free constants, each set elsewhere by itself:\n".to_string() + &table.text(width) + "\n"
}

impl Score {
    fn text(&self, seeds: u64, width: usize) -> String {
        let share = self.within_tolerance_pct.map_or("-".into(), |share| format!("{share:.1} %"));
        let open = |all: u32, known: [u32; 3]| all - known.iter().sum::<u32>();
        let rows = format!(
            "{} of {} ({share}) within 2 points or 15 %, {} undecided, {} missed, {} not simulated; \
             {} more follow from what was put in; means over seeds 1 to {seeds}",
            self.within,
            self.predicted,
            self.undecided,
            self.missed,
            open(self.predicted, [self.within, self.undecided, self.missed]),
            self.follow,
        );
        let orders = format!(
            "{} of {} hold, {} undecided, {} violated, {} not simulated; {} more follow",
            self.orders_held,
            self.orders,
            self.orders_undecided,
            self.order_violations,
            open(self.orders, [self.orders_held, self.orders_undecided, self.order_violations]),
            self.orders_follow,
        );
        wrap("predicted rows: ", &rows, width) + &wrap("rankings:       ", &orders, width)
    }
}

/// Where a figure is, short: the section, and the table or figure if it is in one.
fn place(place: &Place) -> String {
    let part = place.part.split([';', ',']).map(str::trim).find(|part| *part != "text");
    match part {
        Some(part) => format!(
            "{}, {}",
            place.section,
            part.replace("Figures", "Fig.").replace("Figure", "Fig.")
        ),
        None => place.section.clone(),
    }
}

/// A figure with as many digits as the papers print.
fn figure(value: f64) -> String {
    let size = value.abs();
    if size >= 1e6 {
        format!("{value:.3e}")
    } else if size >= 1000.0 || value == value.trunc() {
        format!("{value:.0}")
    } else if size >= 100.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}
