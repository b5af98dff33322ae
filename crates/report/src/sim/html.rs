// SPDX-License-Identifier: MIT OR Apache-2.0
//! A simulation's report as a page.
//!
//! The parts are in `page/`. They are written by hand: what is drawn (two lanes per CPU around a
//! clock whose columns add up) is no chart that a library has, and a library would be most of the
//! file's size.
//!
//! Limits: a timeline is stored in the file as numbers, about 30 bytes a span; this suits tens of
//! milliseconds of a large machine, but not seconds. Print and old browsers get the tables.

use super::SimReport;
use crate::page::Page;

impl SimReport {
    /// The report as a page.
    pub fn html(&self) -> String {
        let page = Page {
            command: "sim",
            heading: &self.scenario,
            main: include_str!("page/main.html"),
            scripts: &[include_str!("page/summary.js"), include_str!("page/timeline.js")],
        };
        page.html(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::{HOSTILE, tags};

    /// Names cannot break out of the page: neither of its title nor of its data.
    #[test]
    fn names_do_not_break_out() {
        let page = SimReport::new(HOSTILE, HOSTILE, 1, Vec::new()).html();
        let plain = SimReport::new("x", "x", 1, Vec::new()).html();
        assert_eq!(tags(&page), tags(&plain));
        assert!(page.contains("<title>&lt;/script&gt;"), "the title is text");
    }

    /// The page asks no one for anything: it names no address, and its policy forbids requests.
    #[test]
    fn nothing_is_fetched() {
        let page = SimReport::new("x", "x", 1, Vec::new()).html();
        assert!(page.contains("content=\"default-src 'none';"));
        let namespace = "http://www.w3.org/2000/svg";
        let rest = page.replace(namespace, "");
        for address in ["http://", "https://", "src=", "@import", "url("] {
            assert!(!rest.contains(address), "{address}");
        }
        assert!(!page.contains("{{"), "every hole is filled");
    }
}
