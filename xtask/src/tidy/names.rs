// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names that were replaced do not come back.
//!
//! Each was a second meaning of a word, or a second word for one thing; docs/glossary.md has the
//! words that are used. `words.rs` rejects words in texts; this is about names, in code too.

use super::tree::{File, Tree};

/// Names that may not come back, and what replaced them.
const REPLACED: [(&str, &str); 12] = [
    ("Wish", "Request"),
    ("wish", "request"),
    ("wishes", "requests"),
    ("wish_khz", "a request"),
    ("wish_cpu", "a request"),
    ("wishes_khz", "requests"),
    ("crates/machine", "crates/cpumodel"),
    ("machine::CoreLicense", "cpumodel::CoreLicense"),
    ("detect.c", "kmod/newcode.c"),
    ("tlt_detect_init", "tlt_newcode_init"),
    ("sched::detection", "sched::questions"),
    ("sim::trace", "sim::events"),
];

/// What is about the past, or lists such names.
const FREE: [&str; 4] =
    ["CHANGELOG.md", "CONTRIBUTING.md", "xtask/src/tidy/names.rs", "xtask/src/tidy/words.rs"];

/// No file of code or documents has a name that was replaced.
pub(crate) fn replaced_names_do_not_come_back(tree: &Tree) -> Vec<String> {
    let is_read = |file: &&File| {
        matches!(file.extension(), "rs" | "h" | "c" | "md") && !FREE.contains(&file.path.as_str())
    };
    let mut complaints = Vec::new();
    for file in tree.files.iter().filter(is_read) {
        for (number, line) in file.lines() {
            for (name, instead) in REPLACED.iter().filter(|(name, _)| has(line, name)) {
                complaints.push(file.at(number, &format!("\"{name}\" is now {instead}")));
            }
        }
    }
    complaints
}

/// Whether a line has a name that is not a part of a longer one.
fn has(line: &str, name: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(name).any(|(at, _)| {
        !line[..at].ends_with(is_name) && !line[at + name.len()..].starts_with(is_name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaced_names_are_found_but_not_parts_of_others() {
        let text = "struct Wish;\n// crates/machine/src\nfn a_wish_khz() {}\n// crates/machines\n\
                    let newdetect.c = 1;\n\"detect.c\"\n";
        let complaints = replaced_names_do_not_come_back(&Tree::of(&[("a.rs", text)]));
        let lines: Vec<&str> = complaints.iter().filter_map(|c| c.split(':').nth(1)).collect();
        assert_eq!(lines, ["1", "2", "6"], "{complaints:?}");
        for path in ["CHANGELOG.md", "CONTRIBUTING.md", "a.json"] {
            assert!(replaced_names_do_not_come_back(&Tree::of(&[(path, text)])).is_empty());
        }
        for (name, _) in REPLACED {
            let tree = Tree::of(&[("docs/a.md", name), ("b.h", name), ("c.c", name)]);
            assert_eq!(replaced_names_do_not_come_back(&tree).len(), 3, "{name}");
        }
    }
}
