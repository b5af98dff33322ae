// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report on a fleet as a page: the tables of the text, with all rows, and a choice of the
//! machines by their verdict.

use super::Fleet;
use crate::page::Page;

impl Fleet {
    /// The report as a page.
    pub fn html(&self) -> String {
        let page = Page {
            command: "fleet",
            heading: "Wide code in the fleet",
            main: include_str!("page/main.html"),
            scripts: &[include_str!("page/tables.js")],
        };
        page.html(self)
    }
}
