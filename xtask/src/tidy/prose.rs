// SPDX-License-Identifier: MIT OR Apache-2.0
//! The words of a file that people read, with their lines, for the rule about plain English.
//!
//! | file | what is read |
//! |---|---|
//! | documents, manual pages | everything but code, examples and names |
//! | Rust | the head (`//!`), messages; of the commands also help (documentation comments) |
//! | C of `kmod/`, `policy/`, `bpf/` | comments and messages |
//! | the C header | messages and documentation comments |
//! | the Python package | comments, documentation and messages |
//! | `dist/`, TOML of `data/` | everything |
//!
//! A message is a string with a blank; a string without one is a name or a key. Names are left out:
//! text in backticks, in bold on a manual page, or with an underscore or a hyphen.

use super::code::{Code, Piece};
use super::tree::File;

/// A word of a text that people read, and its line.
pub(super) struct Word {
    pub(super) line: usize,
    /// In lower case.
    pub(super) word: String,
    /// A punctuation mark follows, so that the next word is of another clause.
    pub(super) ends_clause: bool,
}

/// The words of a file that the rule is for; none of other files.
pub(super) fn words(file: &File) -> Vec<Word> {
    let (path, text) = (file.path.as_str(), file.text.as_str());
    let top = path.split('/').next().unwrap_or_default();
    match file.extension() {
        _ if path == "x" => document(text),
        "md" if path == "CHANGELOG.md" => document(unreleased(text)),
        "md" if top != "tests" => document(text),
        _ if path.starts_with("docs/man/") => manual(text),
        _ if top == "dist" => document(text),
        "toml" if top == "data" || path.starts_with("crates/cpumodel/data/") => document(text),
        "rs" => rust(path, top, text),
        "c" | "h" if matches!(top, "kmod" | "policy" | "bpf") => {
            pieces(text, Code::of(text).prose, |_| true)
        }
        "h" if top == "include" => pieces(text, Code::of(text).prose, is_documentation),
        "py" | "pyi" if path.starts_with("crates/python/") && !is_test(path) => {
            pieces(text, python(text), |_| true)
        }
        _ => Vec::new(),
    }
}

/// The words of a Rust source: of its head and, unless it is a test, of its messages and help.
fn rust(path: &str, top: &str, text: &str) -> Vec<Word> {
    // Fences are left out, so that the words of drawings are read too.
    let is_fence = |line: &&str| line.trim_start().starts_with("```");
    let head = |line: &str| {
        line.strip_prefix("//!").filter(|l| !is_fence(l)).unwrap_or("").to_owned() + "\n"
    };
    let mut words = document(&text.lines().map(head).collect::<String>());
    if matches!(top, "crates" | "xtask" | "testbed") && !is_test(path) {
        let has_help = top == "xtask" || path.starts_with("crates/cli/");
        let is_read = |comment: &str| has_help && is_documentation(comment);
        words.extend(pieces(text, Code::of(text).prose, is_read));
    }
    words
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

fn is_documentation(comment: &str) -> bool {
    comment.starts_with("///") || comment.starts_with("/**")
}

/// The words of a source's messages, and of those comments that are read.
fn pieces(text: &str, pieces: Vec<Piece>, is_read: impl Fn(&str) -> bool) -> Vec<Word> {
    let mut words = Vec::new();
    for Piece { at, text: piece } in pieces {
        let is_comment = ["//", "/*", "#"].iter().any(|start| piece.starts_with(start));
        let is_checked = if is_comment { is_read(piece) } else { piece.contains(' ') };
        let first = text[..at].matches('\n').count() + 1;
        let mut is_code = false;
        for (index, line) in piece.lines().enumerate().filter(|_| is_checked) {
            add(&mut words, first + index, &without_fields(line), &mut is_code);
        }
    }
    words
}

/// The comments and strings of a Python source.
fn python(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut at = 0;
    while let Some(from) = text[at..].find(['#', '"', '\'']) {
        at += from;
        let rest = &text[at..];
        let quotes = ["\"\"\"", "'''", "\"", "'"].iter().find(|quote| rest.starts_with(**quote));
        let length = quotes.map_or_else(|| line_length(rest), |quote| quoted_length(rest, quote));
        pieces.push(Piece { at, text: &rest[..length] });
        at += length;
    }
    pieces
}

fn line_length(text: &str) -> usize {
    text.find('\n').unwrap_or(text.len())
}

/// The length of a string that begins with `quote`, with its quotes.
fn quoted_length(text: &str, quote: &str) -> usize {
    let mut at = quote.len();
    while let Some(c) = text[at..].chars().next() {
        if text[at..].starts_with(quote) {
            return at + quote.len();
        }
        at += c.len_utf8();
        if c == '\\' {
            at += text[at..].chars().next().map_or(0, char::len_utf8);
        }
    }
    text.len()
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
    let is_of_word = |c: char| c.is_alphanumeric() || "_-".contains(c);
    for (index, part) in text.split('`').enumerate() {
        if index > 0 {
            *is_code = !*is_code;
        }
        let mut rest = if *is_code { "" } else { part };
        while let Some(from) = rest.find(is_of_word) {
            let length = rest[from..].find(|c| !is_of_word(c)).unwrap_or(rest.len() - from);
            let (word, after) = rest[from..].split_at(length);
            let ends_clause = after.trim_start().starts_with(|c| !is_of_word(c));
            words.push(Word { line, word: word.to_lowercase(), ends_clause });
            rest = after;
        }
    }
}
