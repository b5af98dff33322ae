// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines of Rust are at most as wide as rustfmt.toml says.
//!
//! `cargo fmt` keeps most code within that width. It leaves comments as they are, and code that it
//! cannot read or break: bodies of `proptest!` and of other macros, attributes, and statements with
//! a long string. This rule is for those.
//!
//! Limits: the columns of long strings do not count, because a message that is broken over lines
//! cannot be searched for. So a line with a long string can be wider.

use super::code::{Piece, all_prose};
use super::tree::Tree;

/// `max_width` of rustfmt.toml.
const COLUMNS: usize = 100;

/// Characters of a string, up to which a line can well be broken before it.
const LONG: usize = 40;

/// No line of a Rust file is too wide without its long strings, except comments that are drawings
/// (in fences), tables or single words.
pub(crate) fn no_line_is_too_wide(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    let files = tree.files.iter().filter(|file| file.extension() == "rs" && !file.is_recorded());
    for file in files {
        let mut is_drawing = false;
        let text = without_long_strings(&file.text);
        for ((number, line), counted) in file.lines().zip(text.lines()) {
            let comment = comment(counted);
            is_drawing = match comment {
                Some(text) => is_drawing != text.starts_with("```"),
                None => false,
            };
            let is_free = is_drawing || !comment.is_none_or(could_break);
            if counted.chars().count() > COLUMNS && !is_free {
                let width = line.chars().count();
                complaints.push(file.at(number, &format!("{width} columns, at most {COLUMNS}")));
            }
        }
    }
    complaints
}

/// The same lines, with nothing where long strings are.
fn without_long_strings(text: &str) -> String {
    let (mut left, mut at) = (String::new(), 0);
    let is_long = |piece: &Piece| piece.is_string() && piece.text.chars().count() > LONG;
    for string in all_prose(text).into_iter().filter(is_long) {
        left += &text[at..string.at];
        left.extend(string.text.chars().filter(|c| *c == '\n'));
        at = string.at + string.text.len();
    }
    left + &text[at..]
}

/// The text of a line that is a comment.
fn comment(line: &str) -> Option<&str> {
    Some(line.trim_start().strip_prefix("//")?.trim_start_matches(['/', '!']).trim())
}

fn could_break(text: &str) -> bool {
    !text.starts_with('|') && text.contains(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(text: &str) -> Vec<String> {
        no_line_is_too_wide(&Tree::of(&[("a.rs", text)]))
    }

    #[test]
    fn wide_comments_are_found_but_not_tables_drawings_and_addresses() {
        let words = "word ".repeat(20);
        let word = "w".repeat(101);
        let text = format!(
            "//! {words}\n/// | {words} |\n// {word}\n    // {words}\n//! ```text\n//! {words}\n\
             //! ```\n"
        );
        let found = ["a.rs:1: 104 columns, at most 100", "a.rs:4: 107 columns, at most 100"];
        assert_eq!(complaints(&text), found);
    }

    #[test]
    fn wide_code_is_found_in_macros_tests_and_attributes() {
        let sum = "1 + ".repeat(25);
        for code in [
            format!("proptest! {{\n    let x = {sum}1;\n}}\n"),
            format!("#[cfg(test)]\nmod tests {{ {sum} }}\n"),
            format!("\n#[arg(default = {sum}1)]\n"),
            format!("\nprop_assert!({sum}1, \"{{:?}}\");\n"),
            format!("\nf({sum}); // why\n"),
            format!("let s = \"{}\n\"; {sum};\n", "a".repeat(LONG)),
        ] {
            let complaints = complaints(&code);
            assert_eq!(complaints.len(), 1, "{code}");
            assert!(complaints[0].starts_with("a.rs:2: 1"), "{complaints:?}");
        }
    }

    #[test]
    fn long_strings_do_not_count() {
        let words = "// word ".repeat(20);
        for code in [
            format!("let x = \"{words}\";\n"),
            format!("let x = \"short \\\n    {words}\\\n    {words}\";\n"),
            format!("let x = r#\"\n{words}\n\"{words}\"\n\"#;\n"),
        ] {
            assert!(complaints(&code).is_empty(), "{code}");
        }
    }
}
