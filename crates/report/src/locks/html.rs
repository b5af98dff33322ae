// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locks by section size as a page: the charts of TURBO 7 and 9, effective clock and energy, for
//! each machine.

use super::LockBench;
use crate::page::Page;

impl LockBench {
    /// The document as a page.
    pub fn html(&self) -> String {
        let page = Page {
            command: "bench locks",
            heading: "Locks by the size of their section",
            main: include_str!("page/main.html"),
            scripts: &[include_str!("page/curves.js")],
        };
        page.html(self)
    }
}
