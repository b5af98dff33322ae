// SPDX-License-Identifier: MIT OR Apache-2.0
//! Comments of Rust are as narrow as its code.
//!
//! `cargo fmt` keeps code within the width of rustfmt.toml and leaves comments as they are. Strings
//! that it cannot break are left to their authors.

use super::tree::Tree;

/// `max_width` of rustfmt.toml.
const COLUMNS: usize = 100;

/// No comment of a Rust file is wider than its code may be, except drawings (in fences), tables and
/// single words.
pub(crate) fn comments_are_as_narrow_as_code(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    let files = tree.files.iter().filter(|file| file.extension() == "rs" && !file.is_recorded());
    for file in files {
        let mut is_drawing = false;
        for (number, line) in file.lines() {
            let comment = comment(line);
            is_drawing = match comment {
                Some(text) => is_drawing != text.starts_with("```"),
                None => false,
            };
            let width = line.chars().count();
            if width > COLUMNS && !is_drawing && comment.is_some_and(could_break) {
                complaints.push(file.at(number, &format!("{width} columns, at most {COLUMNS}")));
            }
        }
    }
    complaints
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

    #[test]
    fn wide_comments_are_found_but_not_tables_drawings_addresses_and_strings() {
        let words = "word ".repeat(20);
        let word = "w".repeat(101);
        let text = format!(
            "//! {words}\n/// | {words} |\n// {word}\nlet x = \"{words} {words}\";\n    // {words}\n\
             //! ```text\n//! {words}\n//! ```\n"
        );
        let complaints = comments_are_as_narrow_as_code(&Tree::of(&[("a.rs", &text)]));
        assert_eq!(
            complaints,
            ["a.rs:1: 104 columns, at most 100", "a.rs:5: 107 columns, at most 100"]
        );
    }
}
