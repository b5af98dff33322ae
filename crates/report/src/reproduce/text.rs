// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reproduction as aligned tables: published, simulated, error, what the row was for, what
//! Turbolane's policy yields, and what explains a miss.

use super::{OrderResult, PaperResult, Reproduction, RowResult, Score, WhatIf};
use crate::papers::{Place, Use};
use crate::text::{Align, Table, wrap};

const MISSED: &str = "MISSED";
const OPEN: &str = "open";

/// What a changed experiment yields, if that explains the miss.
fn explanation(what_if: &Option<WhatIf>, result: impl Fn(&WhatIf) -> String) -> String {
    match what_if {
        Some(what_if) if what_if.explains => {
            format!(" -- if {}: {}", what_if.change, result(what_if))
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
        text + &self.score.text(width)
    }
}

impl PaperResult {
    fn text(&self, width: usize) -> String {
        let mut text = wrap(&format!("{}: ", self.document), &self.title, width);
        let mut table = Table::new(&[
            ("  WHERE", Align::Left),
            ("PUBLISHED", Align::Right),
            ("MODEL", Align::Right),
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
        let mut what = row.title.clone();
        if self.published.purpose == Use::Repeats && !row.note.is_empty() {
            what += &format!(" ({})", row.note);
        }
        if self.verdict() == MISSED {
            what += &explanation(&self.what_if, |what_if| with_unit(what_if.simulated[0]));
        }
        if self.verdict() == OPEN && !row.note.is_empty() {
            what += &format!(" -- not simulated: {}", row.note);
        }
        let published = format!("{}{range}{unit}", figure(row.value));
        vec![
            format!("  {}", place(&row.place)),
            published,
            with_unit(self.simulated),
            error,
            self.verdict().into(),
            turbolane,
            what,
        ]
    }

    /// One word: what came out of the comparison.
    fn verdict(&self) -> &'static str {
        match (self.published.purpose, self.within) {
            (Use::Calibrates, _) => "calibrated",
            (_, None) => OPEN,
            (Use::Repeats, Some(true)) => "repeated",
            (_, Some(true)) => "predicted",
            (_, Some(false)) => MISSED,
        }
    }
}

impl OrderResult {
    fn cells(&self) -> Vec<String> {
        let verdict = match self.holds {
            None => "open",
            Some(true) => "holds",
            Some(false) => "VIOLATED",
        };
        let mut what = self.published.title.clone();
        if self.holds == Some(false) {
            what += &explanation(&self.what_if, |_| "it holds".into());
        }
        vec![format!("  {}", place(&self.published.place)), verdict.into(), what]
    }
}

impl Score {
    fn text(&self, width: usize) -> String {
        let share = self.within_tolerance_pct.map_or("-".into(), |share| format!("{share:.1} %"));
        let rows = format!(
            "{} of {} ({share}) within 2 points or 15 %; {} not simulated",
            self.within,
            self.predicted,
            self.predicted - self.compared
        );
        let orders = format!(
            "{} of {} hold, {} violated, {} not simulated",
            self.orders_compared - self.order_violations,
            self.orders,
            self.order_violations,
            self.orders - self.orders_compared
        );
        let mut text = wrap("predicted rows: ", &rows, width);
        text += &wrap("rankings:       ", &orders, width);
        if self.unexplained > 0 {
            let what = format!("{} misses are not explained", self.unexplained);
            text += &wrap("open:           ", &what, width);
        }
        text
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
