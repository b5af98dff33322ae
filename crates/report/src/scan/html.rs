// SPDX-License-Identifier: MIT OR Apache-2.0
//! A scan as a page: files with findings, those that matter first, and the functions of each,
//! folded.
//!
//! Idea: a folder has thousands of functions, so the page has the cells of the text's tables rather
//! than the JSON document, which is ten times as large.
//!
//! Limit: the functions of a file are as many as the caller allows; the counts are of all.

use serde::Serialize;

use super::{File, Marks, Scan, User, text};
use crate::page::Page;

/// What the page is drawn from.
#[derive(Serialize)]
struct Shown {
    counted: String,
    refused: Option<String>,
    least_level: u8,
    /// Functions from here on decide the order of files.
    level: u8,
    files: Vec<ShownFile>,
}

#[derive(Serialize)]
struct ShownFile {
    path: String,
    license_level: u8,
    sustained_level: u8,
    of_level: usize,
    found: u64,
    heavy_zmm: u64,
    heavy_ymm: u64,
    /// Functions that a mark reaches, and all that were tried.
    marks: Option<(u64, u64)>,
    /// `null` if it was not looked for.
    users: Option<Vec<String>>,
    facts: Vec<String>,
    /// Cells of the text's table, line by line.
    functions: Vec<Vec<String>>,
    /// Functions that are not among them.
    left_out: usize,
}

impl Scan {
    /// The page, with `top` functions of each file. All functions have to be listed.
    pub fn html(&self, top: Option<usize>) -> String {
        let (with, level) = self.in_order();
        // a file that was asked for alone is shown even if nothing was found in it
        let files = if let [only] = &self.files[..] { vec![only] } else { with };
        let heading = match &self.files[..] {
            [only] => only.path.clone(),
            _ => "Code that can raise the licence level".into(),
        };
        let file = |file: &&File| self.shown(file, level, top.unwrap_or(usize::MAX));
        let shown = Shown {
            counted: self.count_text(),
            refused: self.refused_text(),
            least_level: self.least_level,
            level,
            files: files.iter().map(file).collect(),
        };
        let page = Page {
            command: "scan",
            heading: &heading,
            main: include_str!("page/main.html"),
            scripts: &[include_str!("page/files.js")],
        };
        page.html(&shown)
    }

    fn shown(&self, file: &File, level: u8, top: usize) -> ShownFile {
        let reached = |marks: &Marks| (marks.reached(), marks.functions);
        let names = |users: &Vec<User>| users.iter().map(User::shown).collect();
        ShownFile {
            path: file.path.clone(),
            license_level: file.license_level,
            sustained_level: file.sustained_level,
            of_level: file.listed_of(level),
            found: file.found,
            heavy_zmm: file.counts.heavy.zmm,
            heavy_ymm: file.counts.heavy.ymm,
            marks: file.marks.as_ref().map(reached),
            users: file.mapped_by.as_ref().map(names),
            facts: text::facts(file, self.least_level),
            functions: file.listed.iter().take(top).map(text::cells).collect(),
            left_out: file.listed.len().saturating_sub(top),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::summary::tests::{file, function, scan};
    use super::*;
    use crate::page::{HOSTILE, tags};
    use crate::scan::{Check, Confidence, Function, Question};

    fn of_name(name: &str) -> Scan {
        let text = || Some(name.to_string());
        let mut file = file(name, &[2]);
        file.kind = name.into();
        file.build_id = text();
        file.partial = vec![name.into()];
        file.mapped_by = Some(vec![User { name: name.into(), processes: 2 }]);
        file.checks =
            vec![Check { kind: Question::Cpuid, address: 1, file_offset: None, function: text() }];
        let function = function(2, Confidence::High);
        file.listed = vec![Function { name: text(), line: text(), near: text(), ..function }];
        scan(vec![file])
    }

    /// Paths, symbols and services cannot break out of the page.
    #[test]
    fn names_do_not_break_out() {
        assert_eq!(tags(&of_name(HOSTILE).html(None)), tags(&of_name("x").html(None)));
        assert!(!of_name(HOSTILE).html(None).contains("<img"));
    }

    /// Files are in the summary's order, counts are of all functions, and what was left out is
    /// counted.
    #[test]
    fn few_functions_leave_counts_as_they_are() {
        let scan = scan(vec![file("one", &[1]), file("none", &[]), file("three", &[2, 2, 2])]);
        let page = scan.html(Some(2));
        let (one, three) = (page.find("\"path\":\"one\""), page.find("\"path\":\"three\""));
        assert!(three < one && three.is_some(), "most functions of level 2 first");
        assert!(!page.contains("\"path\":\"none\""));
        assert!(page.contains("\"of_level\":3,\"found\":3,"), "{page}");
        assert!(page.contains("\"left_out\":1}"), "{page}");
    }
}
