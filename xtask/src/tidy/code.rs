// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rust source as words: what is left without comments, text and tests, for rules that ask what
//! code uses; and the comments and texts themselves, for rules about language. Comments and texts
//! of C are found as well.
//!
//! Not a parser: words are names, `::` and single signs. That is enough to find paths, in macros
//! too, and breaks on no syntax that is still to come.

use std::ops::Range;

/// The words of a file, its comments and texts, the modules that it declares for tests alone, and
/// where its items for tests are.
pub(crate) struct Code<'a> {
    pub(crate) words: Vec<&'a str>,
    pub(crate) prose: Vec<Piece<'a>>,
    pub(crate) test_modules: Vec<&'a str>,
    pub(crate) tests: Vec<Range<usize>>,
}

/// A part of a file and the byte at which it begins.
#[derive(Clone, Copy)]
pub(crate) struct Piece<'a> {
    pub(crate) at: usize,
    pub(crate) text: &'a str,
}

/// A file before its tests are taken out.
#[derive(Default)]
struct Split<'a> {
    words: Vec<&'a str>,
    places: Vec<usize>,
    prose: Vec<Piece<'a>>,
}

impl Piece<'_> {
    /// Whether this is a string, with its quotes, and not a comment or a character.
    pub(crate) fn is_string(&self) -> bool {
        self.text.trim_start_matches(['b', 'c', 'r', '#']).starts_with('"')
    }
}

/// The comments and texts of a file, those of its tests too.
pub(crate) fn all_prose(text: &str) -> Vec<Piece<'_>> {
    split(text).prose
}

impl<'a> Code<'a> {
    pub(crate) fn of(text: &'a str) -> Self {
        let Split { words: all, places, prose } = split(text);
        let mut code =
            Code { words: Vec::new(), prose, test_modules: Vec::new(), tests: Vec::new() };
        let mut at = 0;
        while at < all.len() {
            if all[at..].starts_with(&["#", "[", "cfg", "(", "test", ")", "]"]) {
                let begin = places[at];
                at = code.skip_item(&all, at);
                let end = places[at - 1];
                code.prose.retain(|piece| piece.at < begin || piece.at > end);
                code.tests.push(begin..end + all[at - 1].len());
            } else {
                code.words.push(all[at]);
                at += 1;
            }
        }
        code
    }

    /// Passes over an item with its attributes, which begin at `at`: to its `;`, or to the end of
    /// its braces.
    fn skip_item(&mut self, all: &[&'a str], mut at: usize) -> usize {
        while all.get(at) == Some(&"#") {
            at = after_group(all, at + 1);
        }
        let is_end = |word: &&str| matches!(*word, ";" | "{");
        let length = all[at..].iter().position(is_end).unwrap_or(all.len() - at);
        let head = &all[at..at + length];
        if let Some(mod_at) = head.iter().position(|word| *word == "mod")
            && all.get(at + length) == Some(&";")
        {
            self.test_modules.extend(head.get(mod_at + 1));
        }
        after_group(all, at + length)
    }
}

/// The place after the word at `at`, or after all that it opens.
fn after_group(all: &[&str], mut at: usize) -> usize {
    let mut depth = 0_usize;
    while let Some(word) = all.get(at) {
        match *word {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
        if depth == 0 {
            break;
        }
    }
    at
}

fn split(text: &str) -> Split<'_> {
    let mut split = Split::default();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        let prose = comment_or_text(rest);
        let length = match prose {
            Some(length) => length,
            None if is_name(first) => rest.find(|c| !is_name(c)).unwrap_or(rest.len()),
            None if rest.starts_with("::") => 2,
            None => first.len_utf8(),
        };
        if prose.is_some() {
            split.prose.push(Piece { at, text: &rest[..length] });
        } else if !first.is_whitespace() {
            split.words.push(&rest[..length]);
            split.places.push(at);
        }
        at += length;
    }
    split
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The length of the comment, string or character that the text begins with; `None` if it begins
/// with something else.
fn comment_or_text(text: &str) -> Option<usize> {
    let upto = |end: &str, from: usize| text[from..].find(end).map_or(text.len(), |at| from + at);
    if text.starts_with("//") {
        return Some(upto("\n", 0));
    }
    if text.starts_with("/*") {
        return Some((upto("*/", 2) + 2).min(text.len()));
    }
    let prefix = ["br", "cr", "r", "b", "c"].into_iter().find(|prefix| text.starts_with(prefix));
    let after = &text[prefix.map_or(0, str::len)..];
    let start = text.len() - after.len();
    let hashes = after.len() - after.trim_start_matches('#').len();
    if after[hashes..].starts_with('"') && prefix.is_some_and(|prefix| prefix.ends_with('r')) {
        let end = format!("\"{}", "#".repeat(hashes));
        return Some((upto(&end, start + hashes + 1) + end.len()).min(text.len()));
    }
    match after.chars().next()? {
        '"' => Some(start + quoted(after)),
        // 'a' and '\n', but not the lifetime 'a
        '\'' if prefix.is_none_or(|prefix| prefix == "b") => character(after).map(|at| start + at),
        _ => None,
    }
}

/// The length of a string with its quotes.
fn quoted(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of a character with its quotes; `None` for a lifetime.
fn character(text: &str) -> Option<usize> {
    let mut chars = text.char_indices().skip(1);
    match chars.next()? {
        (_, '\\') => text[3..].find('\'').map(|at| at + 4),
        _ => chars.next().filter(|(_, c)| *c == '\'').map(|(at, _)| at + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_text_and_tests_are_no_code() {
        let text = "use a::b; // crate::c\n/* crate::d */ fn f<'a>(x: &'a u8) { g(\"crate::e\\\"\", r#\"crate::\"h\"#, '\"', '\\'') }\n\
                    #[cfg(test)]\n#[path = \"t.rs\"]\nmod t;\n#[cfg(test)]\nmod tests { use crate::i; }\nend";
        let code = Code::of(text);
        let words = code.words.join(" ");
        assert_eq!(words, "use a :: b ; fn f < ' a > ( x : & ' a u8 ) { g ( , , , ) } end");
        assert_eq!(code.test_modules, ["t"]);
        let last = code.tests.last().map(|test| &text[test.clone()]);
        assert_eq!(last, Some("#[cfg(test)]\nmod tests { use crate::i; }"));
        let prose: Vec<&str> = code.prose.iter().map(|piece| piece.text).collect();
        assert_eq!(prose[..2], ["// crate::c", "/* crate::d */"]);
        assert_eq!(prose.len(), 6, "the text of an attribute for tests is none: {prose:?}");
        assert!(code.prose.iter().all(|piece| text[piece.at..].starts_with(piece.text)));
    }
}
