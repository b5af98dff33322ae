// SPDX-License-Identifier: MIT OR Apache-2.0
//! The probe's report as a page: the typical course of each cell, clock and rate, and its figures.
//!
//! Made like the simulator's page (`sim/html.rs`), with its style and units: the browser draws from
//! the JSON, and a policy in the page forbids every request.

use super::ProbeReport;
use crate::json_line;
use crate::page::{escaped, fill, in_script};
use crate::sim::html::{STYLE, UNITS};

const PAGE: &str = include_str!("page/page.html");
const SCRIPT: &str = include_str!("page/course.js");

impl ProbeReport {
    /// The report as a page.
    pub fn html(&self) -> String {
        let holes = [
            ("title", escaped(&format!("{} - turbolane probe", self.machine))),
            ("style", STYLE.to_string()),
            ("report", in_script(&json_line(self))),
            ("script", [UNITS, SCRIPT].concat()),
        ];
        fill(PAGE, &holes)
    }
}
