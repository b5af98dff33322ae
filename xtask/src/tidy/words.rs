// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plain English: words that made the texts of this project read as if they were translated are not
//! used in what users and contributors read.
//!
//! `prose.rs` says which texts are read. A word is rejected in every sense, because no program can
//! distinguish a path from a method.
//!
//! Limits: comments inside Rust sources are not checked, nor are other unclear sentences.

use super::prose::{Word, words};
use super::tree::{File, Tree};

/// Rejected words, and what to write instead.
const REJECTED: [(&[&str], &str); 8] = [
    (&["tell", "tells", "telling", "told"], "report, send, record or say"),
    (&["way", "ways"], "method, path or route"),
    (&["wish", "wishes", "wished"], "request"),
    (&["behind"], "after"),
    (&["mend", "mends", "mended"], "fix"),
    (&["whole", "wholly"], "all, entire or complete"),
    (&["nobody", "somebody", "anybody", "everybody"], "no one, or who it is"),
    (&["reckon", "reckons", "reckoned", "reckoning"], "count, or calculation"),
];

/// Rejected unless "by" follows: the scheduler stands by while there is nothing to gain.
const STAND: [&str; 4] = ["stand", "stands", "stood", "standing"];

/// What follows a "less" that means minus, other than a number: an amount, and not the "than" of
/// a comparison or something that is less.
const AMOUNT: [&str; 7] = ["the", "that", "what", "a", "an", "its", "their"];

/// Help texts, messages and documents use none of the rejected words.
pub(crate) fn texts_are_in_plain_english(tree: &Tree) -> Vec<String> {
    tree.files.iter().flat_map(|file| complaints(file, &words(file))).collect()
}

fn complaints(file: &File, words: &[Word]) -> Vec<String> {
    let mut complaints = Vec::new();
    for (index, word) in words.iter().enumerate() {
        let next = words.get(index + 1).map_or("", |next| &next.word);
        let instead = match word.word.as_str() {
            "at" if next == "rest" => Some("idle"),
            "less" if !word.ends_clause && is_amount(next) => Some("excluding, or minus"),
            text if STAND.contains(&text) && next != "by" => Some("is, or is shown"),
            text => REJECTED.iter().find(|(words, _)| words.contains(&text)).map(|row| row.1),
        };
        if let Some(instead) = instead {
            complaints.push(file.at(word.line, &format!("\"{}\": say {instead}", word.word)));
        }
    }
    complaints
}

fn is_amount(word: &str) -> bool {
    AMOUNT.contains(&word) || word.starts_with(|c: char| c.is_ascii_digit())
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
    fn less_in_the_sense_of_minus_is_found() {
        let minus = "The time less the hold, less\n10 %, 5 less what is lost, less a move.\n";
        let complaints = found("docs/a.md", minus);
        assert_eq!(complaints.len(), 4, "{complaints:?}");
        assert_eq!(complaints[0], "docs/a.md:1: \"less\": say excluding, or minus");
        let comparison =
            "Less than 10 %; it costs less. What is less, the\nbetter. No less often.\n";
        assert!(found("docs/a.md", comparison).is_empty());
    }

    #[test]
    fn comments_of_c_are_read() {
        let text = "/*\n * Behind `way` it.\n */\nint way; // tells\nchar *a = \"way\";\n";
        for path in ["kmod/a.c", "kmod/test/a.c", "policy/a.h", "bpf/a.bpf.h", "bpf/a.bpf.c"] {
            let lines = [format!("{path}:2: \"behind\""), format!("{path}:4: \"tells\"")];
            let complaints = found(path, text);
            assert_eq!(complaints.len(), 2, "{complaints:?}");
            assert!(complaints.iter().zip(&lines).all(|(c, line)| c.starts_with(line)), "{path}");
        }
        assert!(found("include/a.h", text).is_empty());
    }

    #[test]
    fn heads_of_rust_are_read() {
        let text =
            "//! A `way`, behind\n//!\n//! ```text\n//! told |\n//! ```\n\n// a way\nfn way() {}\n";
        for path in ["crates/sched/src/a.rs", "crates/a/tests/b.rs", "tests/vm/src/tests/c.rs"] {
            let lines = [format!("{path}:1: \"behind\""), format!("{path}:4: \"told\"")];
            let complaints = found(path, text);
            assert_eq!(complaints.len(), 2, "{complaints:?}");
            assert!(complaints.iter().zip(&lines).all(|(c, line)| c.starts_with(line)), "{path}");
        }
        assert_eq!(found("xtask/src/a.rs", text).len(), 2);
    }

    #[test]
    fn what_is_shipped_and_data_are_read() {
        assert_eq!(found("dist/a.service", "# In the same way.\nway_a=1\n").len(), 1);
        assert_eq!(found("dist/grafana/a.json", "\"description\": \"a way\"\n").len(), 1);
        for folder in ["data/papers", "crates/cpumodel/data/cpus"] {
            let file = format!("{folder}/a.toml");
            assert_eq!(found(&file, "# Nobody.\nsource = \"a way\"\n").len(), 2, "{file}");
        }
        assert!(found("tests/data/a.toml", "# Nobody.\n").is_empty());
    }

    #[test]
    fn the_python_package_is_read() {
        let text = "\"\"\"A way's `way`.\n\nBehind \"it\".\n\"\"\"\nway = ['way']  # it isn't told\nraise E(f'no \\'way {way}')\nwhole = 1\n";
        let complaints = found("crates/python/python/turbolane/a.py", text);
        let lines: Vec<&str> = complaints.iter().filter_map(|c| c.split(':').nth(1)).collect();
        assert_eq!(lines, ["1", "3", "5", "6"], "{complaints:?}");
        assert!(found("crates/python/tests/a.py", text).is_empty());
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
        assert_eq!(found("kmod/a.c", "/* a way */ pr_warn(\"no way\");\n").len(), 2);
        assert_eq!(found("include/a.h", "/**\n * A way.\n */\nint way(void); // a way\n").len(), 1);
    }
}
