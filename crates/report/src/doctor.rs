// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `turbolane doctor` found: a list of checks.

use serde::{Deserialize, Serialize};

use crate::SCHEMA;
use crate::text::{Align, pad, wrap};

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It is there and can be used.
    Ok,
    /// It works, with a limit that matters.
    Warn,
    /// It is not there or cannot be used.
    No,
    /// It cannot be seen from here.
    Unknown,
}

impl Status {
    /// The word that text output shows.
    pub fn word(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Warn => "warn",
            Status::No => "no",
            Status::Unknown => "?",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Check {
    /// Name for programs; stays the same between versions.
    pub id: String,
    /// Name for people.
    pub title: String,
    /// How it came out.
    pub status: Status,
    /// What was seen.
    pub seen: String,
    /// Why it matters.
    pub why: String,
    /// What to do about it; empty if there is nothing to do.
    pub next: String,
}

/// Checks that belong together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Section {
    /// Heading.
    pub title: String,
    /// The checks, in the order of reading.
    pub checks: Vec<Check>,
}

/// The whole document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Doctor {
    /// See [`SCHEMA`].
    pub schema: u32,
    /// One line that says which machine this is.
    pub machine: String,
    /// What was looked at.
    pub sections: Vec<Section>,
}

/// Columns of the status with the blanks after it.
const STATUS_COLUMNS: usize = 6;
/// Columns of the longest title.
const TITLE_COLUMNS: usize = 19;

impl Doctor {
    /// A document of these sections.
    pub fn new(machine: String, sections: Vec<Section>) -> Self {
        Doctor { schema: SCHEMA, machine, sections }
    }

    /// All checks.
    pub fn checks(&self) -> impl Iterator<Item = &Check> {
        self.sections.iter().flat_map(|section| &section.checks)
    }

    /// The check of that name.
    pub fn check(&self, id: &str) -> Option<&Check> {
        self.checks().find(|check| check.id == id)
    }

    /// The document as text of at most `width` columns. What is fine takes one line; what is not
    /// says why it matters and what to do.
    pub fn text(&self, width: usize) -> String {
        let mut text = wrap("", &self.machine, width);
        for section in &self.sections {
            text += &format!("\n{}\n", section.title);
            for check in &section.checks {
                text += &check_text(check, width);
            }
        }
        text + "\n" + &self.summary()
    }

    fn summary(&self) -> String {
        let count = |status| self.checks().filter(|check| check.status == status).count();
        format!(
            "{} ok, {} with a limit, {} missing, {} unknown\n",
            count(Status::Ok),
            count(Status::Warn),
            count(Status::No),
            count(Status::Unknown)
        )
    }
}

fn check_text(check: &Check, width: usize) -> String {
    let status = pad(check.status.word(), STATUS_COLUMNS - 2, Align::Left);
    let title = pad(&check.title, TITLE_COLUMNS, Align::Left);
    let mut text = wrap(&format!("  {status}  {title}  "), &check.seen, width);
    if check.status != Status::Ok {
        let indent = " ".repeat(STATUS_COLUMNS + 2);
        for (label, words) in [("why:  ", &check.why), ("next: ", &check.next)] {
            if !words.is_empty() {
                text += &wrap(&format!("{indent}{label}"), words, width);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Doctor {
        let check = |id: &str, status, next: &str| Check {
            id: id.into(),
            title: format!("the {id}"),
            status,
            seen: "seen".into(),
            why: "it matters".into(),
            next: next.into(),
        };
        let checks = vec![check("a", Status::Ok, "x"), check("b", Status::No, "mend it")];
        Doctor::new("a machine".into(), vec![Section { title: "Kernel".into(), checks }])
    }

    /// Reasons are shown for what is not fine, and only for that.
    #[test]
    fn text_explains_what_is_missing() {
        let text = sample().text(80);
        assert_eq!(text.matches("why:").count(), 1);
        assert!(text.contains("  no    the b"), "{text}");
        assert!(text.contains("next: mend it"), "{text}");
        assert!(text.ends_with("1 ok, 0 with a limit, 1 missing, 0 unknown\n"), "{text}");
    }

    /// The schema number comes first, and a document reads back as it was written.
    #[test]
    fn json_round_trip() {
        let line = crate::json_line(&sample());
        assert!(line.starts_with("{\"schema\":1,"), "{line}");
        assert_eq!(serde_json::from_str::<Doctor>(&line).unwrap(), sample());
    }
}
