// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports as one HTML file each: charts, tooltips, zoom, and nothing fetched from anywhere.
//!
//! Idea: a frame with holes, for what the page is about, its charts' places, their scripts, and the
//! report itself as JSON. The browser draws from the JSON, so the page shows what `--json` says and
//! nothing else; a policy in the page forbids every request. All pages share the frame, the style,
//! and the scripts that make elements, numbers and units.

use serde::Serialize;

use crate::json_line;

const FRAME: &str = include_str!("frame.html");
const STYLE: &str = include_str!("style.css");
const UNITS: &str = include_str!("units.js");

/// What distinguishes one page from another.
pub(crate) struct Page<'a> {
    /// The subcommand that prints it.
    pub(crate) command: &'static str,
    /// What it is about.
    pub(crate) heading: &'a str,
    /// Sections, as HTML.
    pub(crate) main: &'static str,
    /// What draws in them, in the order in which they need each other.
    pub(crate) scripts: &'static [&'static str],
}

impl Page<'_> {
    /// The page of a report.
    pub(crate) fn html(&self, report: &impl Serialize) -> String {
        let holes = [
            ("command", self.command.to_string()),
            ("heading", escaped(self.heading)),
            ("main", self.main.to_string()),
            ("style", STYLE.to_string()),
            ("report", in_script(&json_line(report))),
            ("script", UNITS.to_string() + &self.scripts.concat()),
        ];
        fill(FRAME, &holes)
    }
}

/// The template with its holes filled, in one pass: what a hole is filled with is not looked at
/// again, whatever it contains.
fn fill(template: &str, holes: &[(&str, String)]) -> String {
    let mut page = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after.split_once("}}").expect("a hole ends");
        let (_, text) = holes.iter().find(|(hole, _)| *hole == name).expect("a known hole");
        page += before;
        page += text;
        rest = after;
    }
    page + rest
}

/// How many tags that begin or end a script a page has, or that begin a comment: a name that breaks
/// out changes it.
#[cfg(test)]
pub(crate) fn tags(page: &str) -> [usize; 3] {
    ["<script", "</script", "<!--"].map(|tag| page.matches(tag).count())
}

/// A name that breaks out if it can.
#[cfg(test)]
pub(crate) const HOSTILE: &str = "</script><script>alert(1)</script> {{script}} <!-- <img src=x>";

/// JSON that is safe in a script element: `</script>` and `<!--` in a string would end or change
/// it. `<` occurs in JSON inside of strings only, where its escape means the same.
fn in_script(json: &str) -> String {
    json.replace('<', "\\u003c")
}

/// Text that is safe between tags.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
