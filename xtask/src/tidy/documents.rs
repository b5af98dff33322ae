// SPDX-License-Identifier: MIT OR Apache-2.0
//! A type of a document is defined once, in `crates/report`.
//!
//! What a command prints as JSON is a contract. So its types are in one crate, and code that
//! computes such a result fills in that type; a type of the same fields elsewhere would be copied
//! field by field, and a field that is added to one of them is forgotten in the other. Types of
//! results that a document is computed from (counts of which it has ratios) are no repetition.
//!
//! Limits: fields are compared by their names.

use std::collections::BTreeSet;

use super::code::Code;
use super::tree::{File, Tree};

/// Where the types of documents are.
const DOCUMENTS: &str = "crates/report";

/// No part of the product: it writes rows of its own.
const APART: &str = "crates/papers";

/// A type repeats another one if they have so many fields in common, and so large a part of the
/// fields of either.
const SAME_FIELDS: usize = 5;
const SAME_PART: (usize, usize) = (3, 4);

/// A structure with named fields.
struct Structure<'a> {
    name: &'a str,
    fields: BTreeSet<&'a str>,
}

/// No type of another crate can be serialised.
pub(crate) fn only_types_of_report_are_serialised(tree: &Tree) -> Vec<String> {
    let is_one = |file: &&File| {
        file.text.contains("Serialize") && Code::of(&file.text).words.contains(&"Serialize")
    };
    let complaint = |file: &File| {
        let line = file.lines().find(|(_, line)| has_word(line, "Serialize"));
        file.at(line.map_or(1, |(number, _)| number), "Serialize: such types are in crates/report")
    };
    others(tree).filter(is_one).map(complaint).collect()
}

/// No type of another crate repeats the fields of one of `report`.
pub(crate) fn no_type_repeats_one_of_report(tree: &Tree) -> Vec<String> {
    let of_report: Vec<&File> = tree.below(DOCUMENTS).filter(|file| is_source(file)).collect();
    let documents: Vec<(&File, Code<'_>)> =
        of_report.into_iter().map(|file| (file, Code::of(&file.text))).collect();
    let documents: Vec<(&File, Structure<'_>)> = documents
        .iter()
        .flat_map(|(file, code)| structures(&code.words).into_iter().map(|one| (*file, one)))
        .collect();
    let mut complaints = Vec::new();
    for file in others(tree).filter(|file| file.text.contains("struct ")) {
        for one in structures(&Code::of(&file.text).words) {
            let repeated = documents.iter().find(|(_, other)| one.repeats(other));
            if let Some((whose, other)) = repeated {
                let what =
                    format!("{} repeats {} of {}: use that", one.name, other.name, whose.path);
                let line =
                    file.lines().find(|(_, line)| line.contains(&format!("struct {}", one.name)));
                complaints.push(file.at(line.map_or(1, |(number, _)| number), &what));
            }
        }
    }
    complaints
}

impl Structure<'_> {
    fn repeats(&self, other: &Structure<'_>) -> bool {
        let same = self.fields.intersection(&other.fields).count();
        let most = self.fields.len().max(other.fields.len());
        same >= SAME_FIELDS && same * SAME_PART.1 >= most * SAME_PART.0
    }
}

/// The sources of the crates whose types are not documents.
fn others(tree: &Tree) -> impl Iterator<Item = &File> {
    let is_apart = |path: &str| {
        [DOCUMENTS, APART].iter().any(|folder| path.starts_with(&format!("{folder}/")))
    };
    tree.below("crates").filter(move |file| is_source(file) && !is_apart(&file.path))
}

fn is_source(file: &File) -> bool {
    file.extension() == "rs" && file.path.split('/').nth(2) == Some("src")
}

fn has_word(line: &str, word: &str) -> bool {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|one| one == word)
}

/// The structures that are defined in a file's words.
fn structures<'a>(words: &[&'a str]) -> Vec<Structure<'a>> {
    let mut found = Vec::new();
    for (at, _) in words.iter().enumerate().filter(|(_, word)| **word == "struct") {
        let Some(name) = words.get(at + 1) else { continue };
        let rest = &words[at..];
        let body = rest.iter().position(|word| matches!(*word, "{" | "(" | ";"));
        let Some(body) = body.filter(|body| rest[*body] == "{") else { continue };
        found.push(Structure { name, fields: fields(&rest[body..]) });
    }
    found
}

/// The names of the fields in braces that begin here.
fn fields<'a>(words: &[&'a str]) -> BTreeSet<&'a str> {
    let mut names = BTreeSet::new();
    let mut depth = 0_usize;
    for (at, word) in words.iter().enumerate() {
        match *word {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => depth -= 1,
            ":" if depth == 1 => {
                names.insert(words[at - 1]);
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: &str = "/// It.\n#[derive(Debug)]\npub struct Step {\n    /// a: b\n    pub a_ns: u64,\n    \
                        pub(crate) b: Vec<(u8, [u8; 2])>,\n    pub c: crate::C,\n    #[serde(rename = \"x\")]\n    \
                        pub d: u8,\n    pub e: u8,\n}\n";

    #[test]
    fn repeated_types_are_found() {
        let longer = STEP.replace("    pub e: u8,\n", "    pub e: u8,\n    pub f: u8,\n");
        let counts = STEP.replace("pub e:", "pub of_e:");
        let test = format!("#[cfg(test)]\nmod tests {{ {STEP} }}\n");
        let tree = Tree::of(&[
            ("crates/report/src/a.rs", STEP),
            ("crates/dvfs/src/a.rs", STEP),
            ("crates/sim/src/a.rs", &longer),
            ("crates/cli/src/a.rs", &counts),
            ("crates/cli/src/b.rs", &test),
            ("crates/cli/tests/a.rs", STEP),
            ("crates/papers/src/a.rs", STEP),
        ]);
        let complaints = no_type_repeats_one_of_report(&tree);
        assert_eq!(
            complaints,
            [
                "crates/dvfs/src/a.rs:3: Step repeats Step of crates/report/src/a.rs: use that",
                "crates/sim/src/a.rs:3: Step repeats Step of crates/report/src/a.rs: use that",
            ]
        );
    }

    #[test]
    fn serialised_types_elsewhere_are_found() {
        let code = "use serde::Deserialize;\n#[derive(Deserialize, Serialize)]\nstruct A;\n";
        let read = "use serde::Deserialize; // no Serialize\n";
        let tree = Tree::of(&[
            ("crates/report/src/a.rs", code),
            ("crates/sim/src/a.rs", code),
            ("crates/sim/src/b.rs", read),
            ("xtask/src/a.rs", code),
        ]);
        let complaints = only_types_of_report_are_serialised(&tree);
        assert_eq!(complaints.len(), 1, "{complaints:?}");
        assert!(complaints[0].starts_with("crates/sim/src/a.rs:2: "), "{complaints:?}");
    }
}
