// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is wrong with a data file: where, what, and what to write instead.
//!
//! The crates that parse data files read no file themselves, so the error knows the line but not
//! the path; whoever read the file puts its name in front.

use std::ops::Range;

/// Why the text of a data file was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}; {next}")]
pub struct DataError {
    /// Line of the text, from 1.
    pub line: usize,
    /// What is wrong, as half a sentence.
    pub what: String,
    /// What to do about it, as half a sentence.
    pub next: String,
}

impl DataError {
    /// An error about the bytes `at` of `text`.
    pub fn new(
        text: &str,
        at: Range<usize>,
        what: impl Into<String>,
        next: impl Into<String>,
    ) -> Self {
        DataError { line: line_of(text, at.start), what: what.into(), next: next.into() }
    }

    /// What the TOML reader says about `text`: syntax, unknown and missing keys, wrong types.
    pub fn from_toml(text: &str, error: &toml::de::Error, next: impl Into<String>) -> Self {
        let what = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
        DataError::new(text, error.span().unwrap_or(0..0), what, next)
    }
}

/// The line that holds the byte at `offset`, from 1; after the text it is the last one, as an
/// editor counts them: a newline at the end begins none.
fn line_of(text: &str, offset: usize) -> usize {
    let last = text.len().saturating_sub(1);
    let before = &text.as_bytes()[..offset.min(last)];
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The line is that of the first byte meant, and an offset after the text is its last line.
    #[test]
    fn the_line_is_counted_from_one() {
        let text = "a = 1\nb = 2\n";
        for (offset, line) in [(0, 1), (5, 1), (6, 2), (12, 2), (99, 2)] {
            assert_eq!(DataError::new(text, offset..offset + 1, "w", "n").line, line, "{offset}");
        }
        assert_eq!(
            DataError::new(text, 6..7, "it is", "mend it").to_string(),
            "line 2: it is; mend it"
        );
    }
}
