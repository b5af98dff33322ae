// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plain English: words that made the texts of this project read as if they were translated are not
//! used in what users and contributors read.
//!
//! The rule checks documents and manual pages (without code), help texts (documentation comments of
//! the commands and of the C header) and messages (strings with a blank in Rust and C; a string
//! without one is a name or a key). A word is rejected in every sense, because no program can
//! distinguish a path from a method. Names are not checked: text in backticks, in bold on a manual
//! page, or with an underscore or a hyphen.
//!
//! Limits: other comments are not checked, nor are other unclear sentences.

use super::code::{Code, Piece};
use super::tree::{File, Tree};

/// Rejected words, and what to write instead.
const REJECTED: [(&[&str], &str); 7] = [
    (&["tell", "tells", "telling", "told"], "report, send, record or say"),
    (&["way", "ways"], "method, path or route"),
    (&["wish", "wishes", "wished"], "request"),
    (&["behind"], "after"),
    (&["mend", "mends", "mended"], "fix"),
    (&["whole", "wholly"], "all, entire or complete"),
    (&["nobody", "somebody"], "no one, or who it is"),
];

/// Rejected unless "by" follows: the scheduler stands by while there is nothing to gain.
const STAND: [&str; 4] = ["stand", "stands", "stood", "standing"];

/// Help texts, messages and documents use none of the rejected words.
pub(crate) fn texts_are_in_plain_english(tree: &Tree) -> Vec<String> {
    tree.files.iter().flat_map(|file| complaints(file, &words(file))).collect()
}

/// A word of a text that is read by people, and its line.
#[derive(Debug, PartialEq)]
struct Word {
    line: usize,
    word: String,
}

fn complaints(file: &File, words: &[Word]) -> Vec<String> {
    let mut complaints = Vec::new();
    for (index, Word { line, word }) in words.iter().enumerate() {
        let next = words.get(index + 1).map_or("", |next| &next.word);
        let instead = match word.as_str() {
            "at" if next == "rest" => Some("idle"),
            _ if STAND.contains(&word.as_str()) && next != "by" => Some("is, or is shown"),
            _ => REJECTED.iter().find(|(words, _)| words.contains(&word.as_str())).map(|row| row.1),
        };
        if let Some(instead) = instead {
            complaints.push(file.at(*line, &format!("\"{word}\": say {instead}")));
        }
    }
    complaints
}

/// The words of a file that the rule is for; none of other files.
fn words(file: &File) -> Vec<Word> {
    let path = file.path.as_str();
    let top = path.split('/').next().unwrap_or_default();
    let is_code = !is_test(path);
    match file.extension() {
        _ if path == "x" => document(&file.text),
        "md" if path == "CHANGELOG.md" => document(unreleased(&file.text)),
        "md" if top != "tests" => document(&file.text),
        _ if path.starts_with("docs/man/") => manual(&file.text),
        "rs" if matches!(top, "crates" | "xtask" | "testbed") && is_code => {
            let is_help = top == "xtask" || path.starts_with("crates/cli/");
            source(&file.text, is_help)
        }
        "c" | "h" if matches!(top, "kmod" | "bpf") && is_code => source(&file.text, false),
        "h" if top == "include" => source(&file.text, true),
        _ => Vec::new(),
    }
}

/// Whether a source is a test: text in it is for those who read the source.
fn is_test(path: &str) -> bool {
    let (folders, name) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = name.split('.').next().unwrap_or_default();
    folders.split('/').any(|folder| matches!(folder, "test" | "tests"))
        || stem == "tests"
        || stem.ends_with("_tests")
}

/// The section of a change log about what is not released yet, and what is above it.
fn unreleased(text: &str) -> &str {
    let mut heads = text.match_indices("\n## ").map(|(at, _)| at);
    &text[..heads.nth(1).unwrap_or(text.len())]
}

/// The words of Markdown outside of code.
fn document(text: &str) -> Vec<Word> {
    let mut words = Vec::new();
    let (mut is_block, mut is_code) = (false, false);
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_block = !is_block;
        } else if line.trim().is_empty() {
            is_code = false;
        } else if !is_block {
            add(&mut words, index + 1, line, &mut is_code);
        }
    }
    words
}

/// The words of a manual page outside of examples and of names, which are in bold or in a macro
/// that sets a font.
fn manual(text: &str) -> Vec<Word> {
    let mut words = Vec::new();
    let mut is_example = false;
    for (index, line) in text.lines().enumerate() {
        match line.split(' ').next().unwrap_or_default() {
            ".nf" | ".EX" => is_example = true,
            ".fi" | ".EE" => is_example = false,
            ".TH" | ".so" | ".ie" | ".el" | ".\\\"" => {}
            ".B" | ".BI" | ".BR" | ".I" | ".IR" | ".RB" | ".RI" => {}
            _ if is_example => {}
            _ => {
                let line = line.replace("\\-", "-").replace("\\fB", "`");
                add(&mut words, index + 1, &without_fonts(&line), &mut false);
            }
        }
    }
    words
}

/// The line with its names in bold between backticks, and without other changes of the font.
fn without_fonts(line: &str) -> String {
    let mut plain = String::new();
    let mut is_bold = false;
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        if c == '`' {
            is_bold = true;
        }
        if rest.starts_with("\\f") {
            if std::mem::take(&mut is_bold) {
                plain.push('`');
            }
            rest = rest.get(3..).unwrap_or_default();
            continue;
        }
        plain.push(c);
        rest = &rest[c.len_utf8()..];
    }
    plain
}

/// The words of a source's messages, and of its documentation comments if they are `help`.
fn source(text: &str, is_help: bool) -> Vec<Word> {
    let mut words = Vec::new();
    for Piece { at, text: piece } in Code::of(text).prose {
        let is_comment = piece.starts_with("//") || piece.starts_with("/*");
        let is_documentation = piece.starts_with("///") || piece.starts_with("/**");
        let is_checked = if is_comment { is_help && is_documentation } else { piece.contains(' ') };
        let first = text[..at].matches('\n').count() + 1;
        let mut is_code = false;
        for (index, line) in piece.lines().enumerate().filter(|_| is_checked) {
            add(&mut words, first + index, &without_fields(line), &mut is_code);
        }
    }
    words
}

/// A line of a message without escapes and the names of what is put in.
fn without_fields(line: &str) -> String {
    let line = line.replace("\\n", " ").replace("\\t", " ");
    let mut plain = String::new();
    let mut rest = line.as_str();
    while let Some(open) = rest.find('{') {
        let end = rest[open..].find(['}', ' ']).map_or(rest.len(), |length| open + length);
        plain.push_str(&rest[..open]);
        plain.push(' ');
        rest = &rest[end..];
    }
    plain + rest
}

/// Adds a line's words that are not in backticks.
fn add(words: &mut Vec<Word>, line: usize, text: &str, is_code: &mut bool) {
    for (index, part) in text.split('`').enumerate() {
        if index > 0 {
            *is_code = !*is_code;
        }
        if !*is_code {
            let parts = part.split(|c: char| !c.is_alphanumeric() && !"_-".contains(c));
            let parts = parts.filter(|word| !word.is_empty());
            words.extend(parts.map(|word| Word { line, word: word.to_lowercase() }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        texts_are_in_plain_english(&Tree::of(&[(path, text)]))
    }

    #[test]
    fn rejected_words_are_found_in_documents() {
        let text = "It tells a wish.\nA second `way`, `tl_way`, two-way.\n\n```\nbehind\n```\nIt stands by; it\nstands here, at\nrest.\n";
        let complaints = [
            "README.md:1: \"tells\": say report, send, record or say",
            "README.md:1: \"wish\": say request",
            "README.md:8: \"stands\": say is, or is shown",
            "README.md:8: \"at\": say idle",
        ];
        assert_eq!(found("README.md", text), complaints);
        assert_eq!(found("docs/experiments/a.md", text).len(), 4);
        assert_eq!(found("x", text).len(), 4);
        assert_eq!(found("data/README.md", text).len(), 4);
        assert!(found("tests/data/machines/notes.md", text).is_empty());
    }

    #[test]
    fn every_word_of_the_list_is_found() {
        for word in REJECTED.iter().flat_map(|(words, _)| words.iter()).chain(&STAND) {
            assert_eq!(found("docs/a.md", &format!("A {word}.\n")).len(), 1, "{word}");
        }
    }

    #[test]
    fn code_in_backticks_may_go_over_a_line_but_ends_with_its_paragraph() {
        assert!(found("README.md", "`a\nway` b\n").is_empty());
        assert_eq!(found("README.md", "An odd ` here\n\na way\n").len(), 1);
    }

    #[test]
    fn what_is_released_stays_as_it_is() {
        let text = "# Log\n\n## [Unreleased]\n\n- It tells.\n\n## [0.2.0]\n\n- It told.\n";
        assert_eq!(found("CHANGELOG.md", text).len(), 1);
    }

    #[test]
    fn manual_pages_are_read_without_names_and_examples() {
        let text = ".TH way 3\n.SH NAME\ntl_open \\- a \\fBway\\fR, \\fIWAY\\fR, \\-\\-way\n.nf\nway\n.fi\n.so man3/way\n";
        let complaints = ["docs/man/a.3:3: \"way\": say method, path or route"];
        assert_eq!(found("docs/man/a.3", text), complaints);
    }

    #[test]
    fn help_and_messages_are_checked_and_code_is_not() {
        let text = "/// Tells all.\nfn way() { // a way\n    bail!(\"{way} is a\\nway: {}\", \"way\") }\n#[cfg(test)]\nmod t { const A: &str = \"a way\"; }\n";
        assert_eq!(found("crates/cli/src/a.rs", text).len(), 2);
        assert_eq!(found("crates/sched/src/a.rs", text).len(), 1);
        assert_eq!(found("xtask/src/test.rs", text).len(), 2);
        assert!(found("crates/sched/tests/a.rs", text).is_empty());
        assert!(found("crates/sched/src/a_tests.rs", text).is_empty());
        assert_eq!(found("kmod/a.c", "/* a way */ pr_warn(\"no way\");\n").len(), 1);
        assert_eq!(found("include/a.h", "/**\n * A way.\n */\nint way(void); // a way\n").len(), 1);
    }
}
