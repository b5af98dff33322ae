// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files stay short enough to be read in one go.
//!
//! A long file is mostly one with several mechanisms, and its head can explain only one. So the
//! limit is for what is explained there: tests do not count, neither those in the file nor files
//! of tests, whose cases are independent of each other; nor do tables that a program wrote.

use super::code::Code;
use super::tree::{File, Tree};

/// Lines of a Rust source without its tests.
const RUST_LINES: usize = 500;
const C_LINES: usize = 900;

/// No source is longer than [`RUST_LINES`] and [`C_LINES`].
pub(crate) fn no_file_is_too_long(tree: &Tree) -> Vec<String> {
    let files = tree.files.iter().filter(|file| !file.is_recorded() && !is_test(&file.path));
    files
        .filter_map(|file| {
            let (length, limit) = match file.extension() {
                "rs" if file.text.lines().count() <= RUST_LINES => return None,
                "rs" => (without_tests(file), RUST_LINES),
                "c" | "cc" | "h" => (file.text.lines().count(), C_LINES),
                _ => return None,
            };
            let what = format!(
                "{length} lines, at most {limit}: give a mechanism of it a file of its own"
            );
            (length > limit).then(|| file.at(limit, &what))
        })
        .collect()
}

/// Whether a file has tests alone.
fn is_test(path: &str) -> bool {
    let (folders, name) = path.rsplit_once('/').unwrap_or(("", path));
    folders.split('/').any(|folder| folder == "tests")
        || name == "tests.rs"
        || name.ends_with("_tests.rs")
}

/// Lines of a source, excluding those of items for tests.
fn without_tests(file: &File) -> usize {
    let lines = |text: &str| text.lines().count();
    let tests = Code::of(&file.text).tests;
    lines(&file.text) - tests.iter().map(|test| lines(&file.text[test.clone()])).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_are_found() {
        let (rust, c) = ("fn f() {}\n".repeat(501), "\n".repeat(900));
        let tree = Tree::of(&[("a.rs", &rust), ("b.c", &c), ("long.md", &rust)]);
        let complaints = no_file_is_too_long(&tree);
        assert_eq!(complaints.len(), 1, "{complaints:?}");
        assert!(complaints[0].starts_with("a.rs:500: 501 lines, at most 500: "), "{complaints:?}");
    }

    #[test]
    fn tests_do_not_count() {
        let code = "fn f() {}\n".repeat(498);
        let test = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "    fn g() {}\n".repeat(90));
        let long = code.clone() + &test;
        let tree =
            Tree::of(&[("a.rs", &long), ("tests/a.rs", &code.repeat(2)), ("c/b_tests.rs", &long)]);
        assert!(no_file_is_too_long(&tree).is_empty());
        let longer = format!("{long}{}", "fn h() {}\n".repeat(3));
        assert_eq!(no_file_is_too_long(&Tree::of(&[("a.rs", &longer)])).len(), 1);
    }
}
