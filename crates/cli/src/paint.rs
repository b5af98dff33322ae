// SPDX-License-Identifier: MIT OR Apache-2.0
//! Colours for the words that are the answer: green is fine, yellow is not known or has a limit,
//! red is not.
//!
//! The texts of `report` have no colours, so that they look the same in a file. A word is coloured
//! where it is printed, if its line begins as the command's rules say; all else stays as it is.

use anstream::{AutoStream, ColorChoice};
use anstyle::AnsiColor::{self, Green, Red, Yellow};
use clap::{Args, ValueEnum};

use crate::failure::{Failure, show};

/// When output has colours.
#[derive(Args)]
pub(crate) struct ColorArgs {
    /// Colour the verdict: always, never, or auto (on a terminal, unless NO_COLOR is set)
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = When::Auto)]
    #[arg(hide_possible_values = true)]
    color: When,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum When {
    Auto,
    Always,
    Never,
}

/// How a line begins, and the word after that with its colour.
pub(crate) type Rule = (&'static str, &'static str, AnsiColor);

/// What `doctor` says of each check.
pub(crate) const CHECKS: [Rule; 3] =
    [("  ", "ok ", Green), ("  ", "warn ", Yellow), ("  ", "no ", Red)];

/// What `advise` says in the end.
pub(crate) const WORTH: [Rule; 3] =
    [("Worth it: ", "YES", Green), ("Worth it: ", "NOT KNOWN", Yellow), ("Worth it: ", "NO", Red)];

/// What `verify` says in the end.
pub(crate) const VERDICTS: [Rule; 8] = [
    ("verdict: ", "better", Green),
    ("verdict: ", "worse", Red),
    ("verdict: ", "no difference found", Yellow),
    ("verdict: ", "not enough runs", Yellow),
    ("verdict, of simulated runs: ", "better", Green),
    ("verdict, of simulated runs: ", "worse", Red),
    ("verdict, of simulated runs: ", "no difference found", Yellow),
    ("verdict, of simulated runs: ", "not enough runs", Yellow),
];

/// What `status` says first.
pub(crate) const STATES: [Rule; 4] = [
    ("state    ", "running", Green),
    ("state    ", "standing by", Yellow),
    ("state    ", "stopped", Yellow),
    ("state    ", "failed", Red),
];

impl ColorArgs {
    fn is_on(&self) -> bool {
        match self.color {
            When::Always => true,
            When::Never => false,
            When::Auto => AutoStream::choice(&std::io::stdout()) != ColorChoice::Never,
        }
    }

    /// As [`show`], with the text coloured by such rules.
    pub(crate) fn show(
        &self,
        is_json: bool,
        json: impl FnOnce() -> String,
        text: impl FnOnce(usize) -> String,
        rules: &[Rule],
    ) -> Result<bool, Failure> {
        show(is_json, json, |width| {
            let text = text(width);
            if self.is_on() { paint(&text, rules) } else { text }
        })
    }
}

fn paint(text: &str, rules: &[Rule]) -> String {
    text.split_inclusive('\n').map(|line| paint_line(line, rules)).collect()
}

fn paint_line(line: &str, rules: &[Rule]) -> String {
    let found = rules.iter().find_map(|(begin, word, color)| {
        let rest = line.strip_prefix(begin)?.strip_prefix(word)?;
        Some((begin, word, color.on_default().bold(), rest))
    });
    let Some((begin, word, style, rest)) = found else { return line.to_owned() };
    format!("{begin}{style}{word}{style:#}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The word at the line's beginning, not the same one elsewhere.
    #[test]
    fn only_verdicts_are_coloured() {
        let text = "CPU\n  ok    Cores  no siblings\n  no    Trap\n        no ok \n";
        let painted = paint(text, &CHECKS);
        let expected = "CPU\n  \u{1b}[1m\u{1b}[32mok \u{1b}[0m   Cores  no siblings\n  \
                        \u{1b}[1m\u{1b}[31mno \u{1b}[0m   Trap\n        no ok \n";
        assert_eq!(painted, expected);
        let painted = paint("Worth it: NOT KNOWN: why\n", &WORTH);
        assert_eq!(painted, "Worth it: \u{1b}[1m\u{1b}[33mNOT KNOWN\u{1b}[0m: why\n");
    }
}
