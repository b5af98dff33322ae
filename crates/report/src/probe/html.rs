// SPDX-License-Identifier: MIT OR Apache-2.0
//! The probe's report as a page: the verdict and the clocks as a heat map, then
//! the typical course of each cell, clock and rate, and its figures.

use super::ProbeReport;
use crate::page::Page;

impl ProbeReport {
    /// The report as a page.
    pub fn html(&self) -> String {
        let page = Page {
            command: "probe",
            heading: &self.machine,
            main: include_str!("page/main.html"),
            scripts: &[include_str!("page/course.js"), include_str!("page/clocks.js")],
        };
        page.html(self)
    }
}
