// SPDX-License-Identifier: MIT OR Apache-2.0
//! A sampling as a page: a flame graph of its call chains by licence level, and the tables of the
//! text, with all rows.

use serde::Serialize;

use super::{CallChains, SampleReport};
use crate::page::Page;

/// What the page is drawn from.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    report: &'a SampleReport,
    #[serde(flatten)]
    chains: &'a CallChains,
}

impl SampleReport {
    /// The report and its call chains as a page.
    pub fn html(&self, chains: &CallChains) -> String {
        let page = Page {
            command: "sample",
            heading: "Who executes wide code",
            main: include_str!("page/main.html"),
            scripts: &[include_str!("page/flame.js"), include_str!("page/tables.js")],
        };
        page.html(&Shown { report: self, chains })
    }
}
