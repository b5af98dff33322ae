// SPDX-License-Identifier: MIT OR Apache-2.0
//! A simulation's report as one HTML file: charts, tooltips, zoom, and nothing fetched from anywhere.
//!
//! Idea: the page is a template with four holes: the title, the style, the script, and the report
//! itself as JSON. The browser draws from the JSON, so the page shows what `--json` says and
//! nothing else; a policy in the page forbids every request.
//!
//! The parts are in `page/`. They are written by hand: what is drawn (two lanes per CPU around a
//! clock whose columns add up) is no chart that a library has, and a library would be most of the
//! file's size.
//!
//! Limits: a timeline stands in the file as numbers, about 30 bytes a span; tens of milliseconds
//! of a large machine are right, seconds are not. Print and old browsers get the tables.

use super::SimReport;
use crate::json_line;
use crate::page::{escaped, fill, in_script};

const PAGE: &str = include_str!("page/page.html");
pub(crate) const STYLE: &str = include_str!("page/style.css");
/// Elements, numbers and units, for every page.
pub(crate) const UNITS: &str = include_str!("page/units.js");
/// In the order in which they need each other.
const SCRIPTS: [&str; 3] =
    [UNITS, include_str!("page/summary.js"), include_str!("page/timeline.js")];

impl SimReport {
    /// The report as a page.
    pub fn html(&self) -> String {
        let title = escaped(&format!("{} - turbolane sim", self.scenario));
        let holes = [
            ("title", title),
            ("style", STYLE.to_string()),
            ("report", in_script(&json_line(self))),
            ("script", SCRIPTS.concat()),
        ];
        fill(PAGE, &holes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names cannot break out of the page: neither of its title nor of its data.
    #[test]
    fn names_do_not_break_out() {
        let name = "</script><script>alert(1)</script> {{script}} <!--";
        let page = SimReport::new(name, name, 1, Vec::new()).html();
        let plain = SimReport::new("x", "x", 1, Vec::new()).html();
        for tag in ["<script", "</script", "<!--"] {
            assert_eq!(page.matches(tag).count(), plain.matches(tag).count(), "{tag}");
        }
        assert!(page.contains("<title>&lt;/script&gt;"), "the title is text");
    }

    /// The page asks nobody for anything: it names no address, and its policy forbids requests.
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
