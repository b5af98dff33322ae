// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of marks: one mark per line, in the syntax of `--mark`. Empty lines are skipped, and a `#`
//! at the start of a line or after a blank begins a comment. `turbolane scan --marks` writes them.

use crate::config::Mark;
use crate::parse::ParseError;

/// The marks of a file's text. The error names the line.
pub fn parse_list(text: &str) -> Result<Vec<Mark>, ParseError> {
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, without_comment(line)));
    lines
        .filter(|(_, line)| !line.is_empty())
        .map(|(number, line)| {
            line.parse().map_err(|ParseError { why, next }| ParseError {
                why: format!("line {number}: {why}"),
                next,
            })
        })
        .collect()
}

fn without_comment(line: &str) -> &str {
    let end = if line.starts_with('#') { Some(0) } else { line.find(" #") };
    line[..end.unwrap_or(line.len())].trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Comments are no marks; a wrong line is named by its number.
    #[test]
    fn lists_are_parsed() {
        let text = "# marks\n\n/lib/a.so:+0x10@2  # f\n/lib/b#c.so:g\n";
        let marks: Vec<String> =
            parse_list(text).unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(marks, ["/lib/a.so:+0x10@2", "/lib/b#c.so:g"]);
        assert_eq!(parse_list("").unwrap(), []);
        let error = parse_list("/lib/a.so:f\nrubbish\n").unwrap_err();
        assert!(error.why.starts_with("line 2: "), "{}", error.why);
    }
}
