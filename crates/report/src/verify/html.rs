// SPDX-License-Identifier: MIT OR Apache-2.0
//! A comparison as a page: the verdict, then for each figure all runs with their medians and the
//! interval of the change, then the runs as a table.

use super::VerifyReport;
use crate::page::Page;

impl VerifyReport {
    /// The report as a page.
    pub fn html(&self) -> String {
        let heading = match &self.simulated {
            Some(simulated) => &simulated.scenario,
            None => "Two commands compared",
        };
        let page = Page {
            command: "verify",
            heading,
            main: include_str!("page/main.html"),
            scripts: &[include_str!("page/runs.js")],
        };
        page.html(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::{HOSTILE, tags};
    use crate::verify::{Effect, Side, Verdict};

    fn report(name: &str) -> VerifyReport {
        let effect = Effect {
            a: 1.0,
            b: 1.0,
            change_pct: 0.0,
            low_pct: 0.0,
            high_pct: 0.0,
            verdict: Verdict::NoDifference,
            runs_needed: None,
        };
        VerifyReport {
            schema: crate::SCHEMA,
            seed: 1,
            runs: 4,
            partial: Some(name.into()),
            simulated: None,
            margin_pct: 1.0,
            a: Side { failure: Some(name.into()), ..Side::of(name) },
            b: Side::of(name),
            metric: name.into(),
            smaller_is_better: true,
            effect,
            cpu_time: effect,
            clock: None,
            no_clock: Some(name.into()),
            verdict: name.into(),
        }
    }

    /// Commands, and what they print, cannot break out of the page.
    #[test]
    fn commands_do_not_break_out() {
        assert_eq!(tags(&report(HOSTILE).html()), tags(&report("x").html()));
        assert!(!report(HOSTILE).html().contains("<img"));
    }
}
