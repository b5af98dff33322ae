// SPDX-License-Identifier: MIT OR Apache-2.0
//! A profile as a page: what could be had, a bar for each level, and the table of the text.

use super::ProfileReport;
use crate::page::Page;

impl ProfileReport {
    /// The report as a page.
    pub fn html(&self) -> String {
        let page = Page {
            command: "profile",
            heading: &self.load,
            main: include_str!("page/main.html"),
            scripts: &[include_str!("page/levels.js")],
        };
        page.html(self)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;
    use crate::page::{HOSTILE, tags};

    /// Names of a load, a machine and a policy cannot break out of the page.
    #[test]
    fn names_do_not_break_out() {
        let name = || HOSTILE.to_string();
        let hostile = ProfileReport {
            load: name(),
            variant: Some(name()),
            machine: name(),
            policy: name(),
            ..report()
        };
        assert_eq!(tags(&hostile.html()), tags(&report().html()));
        assert!(!hostile.html().contains("<img"));
    }
}
