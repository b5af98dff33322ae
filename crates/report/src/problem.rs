// SPDX-License-Identifier: MIT OR Apache-2.0
//! An error as a user meets it: what happened, why, and what to do next.

use std::{fmt, io};

use cpumodel::DataError;
use serde::{Deserialize, Serialize};

use crate::text::wrap;

/// What happened, why, what next. Each part is one sentence without its full stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// What could not be done.
    pub what: String,
    /// Why not.
    pub why: String,
    /// What the user can do now.
    pub next: String,
}

impl Problem {
    /// A problem from its three parts.
    pub fn new(what: impl Into<String>, why: impl Into<String>, next: impl Into<String>) -> Self {
        Problem { what: what.into(), why: why.into(), next: next.into() }
    }

    /// A data file whose text is not right.
    pub fn bad_data(name: &str, error: &DataError) -> Self {
        let what = format!("cannot use {name}, line {}", error.line);
        Problem::new(what, error.what.clone(), error.next.clone())
    }

    /// A name that is neither that of a built-in thing nor that of a file.
    pub fn not_there(kind: &str, name: &str, error: &io::Error, next: impl Into<String>) -> Self {
        let what = format!("there is no {kind} \"{name}\"");
        Problem::new(what, format!("it is not built in, and as a file: {error}"), next)
    }

    /// The problem as text of at most `width` columns.
    pub fn text(&self, width: usize) -> String {
        let mut text = wrap("error: ", &self.what, width);
        text += &wrap("  why:  ", &self.why, width);
        text += &wrap("  next: ", &self.next, width);
        text
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.what, self.why, self.next)
    }
}

impl std::error::Error for Problem {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each part follows its label.
    #[test]
    fn has_three_labelled_parts() {
        let problem = Problem::new("cannot do it", "it is broken", "mend it");
        assert_eq!(
            problem.text(80),
            "error: cannot do it\n  why:  it is broken\n  next: mend it\n"
        );
        assert_eq!(problem.to_string(), "cannot do it: it is broken; mend it");
    }
}
