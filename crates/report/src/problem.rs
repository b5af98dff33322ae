// SPDX-License-Identifier: MIT OR Apache-2.0
//! An error as a user meets it: what happened, why, and what to do next.

use std::{fmt, io};

use cpumodel::{DataError, did_you_mean};
use serde::{Deserialize, Serialize};

use crate::text::wrap;

/// What happened, why, what next. Each part is one sentence without its full stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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

    /// A name that is neither one of those that are `built_in` nor that of a file. `next` says
    /// where they are listed.
    pub fn not_there<'a>(
        kind: &str,
        name: &str,
        built_in: impl Iterator<Item = &'a str>,
        error: &io::Error,
        next: &str,
    ) -> Self {
        let what = format!("there is no {kind} \"{name}\"");
        let why = format!("it is not built in, and as a file: {error}");
        Problem::new(what, why, did_you_mean(name, built_in) + next)
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

    /// A name that resembles a built-in one is suggested before the place where all are listed.
    #[test]
    fn a_similar_name_is_suggested() {
        let error = io::Error::from(io::ErrorKind::NotFound);
        let next = |name: &str| {
            let built_in = ["sfma-nginx", "thesis-nginx"].into_iter();
            Problem::not_there("scenario", name, built_in, &error, "see the list").next
        };
        assert_eq!(next("sfma-ngnix"), "did you mean \"sfma-nginx\"? If not, see the list");
        assert_eq!(next("redis"), "see the list");
    }

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
