// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules about plain text.

use super::tree::{File, Tree};

/// Names of machines that serve packages. Which mirror is used is each
/// machine's own business; a file that names one breaks where it is blocked.
const HOSTS: [&str; 7] = [
    concat!("deb.", "debian.org"),
    concat!("snapshot.", "debian.org"),
    concat!("static.", "crates.io"),
    concat!("index.", "crates.io"),
    concat!("files.", "pythonhosted.org"),
    concat!("registry.", "npmjs.org"),
    concat!("proxy.", "golang.org"),
];

/// Places that exist on one machine only.
const PATHS: [&str; 3] = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];

/// Marks of unfinished work, as separate words.
const UNFINISHED: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// No file names a package registry's host or a path of one machine.
pub(crate) fn no_host_names_or_machine_paths(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in written(tree) {
        for (number, line) in file.lines() {
            let host = HOSTS.iter().find(|host| line.contains(**host));
            let path = PATHS.iter().find(|path| begins_path(line, path));
            if let Some(found) = host.or(path) {
                let what = format!("\"{found}\" does not belong in the tree");
                complaints.push(file.at(number, &what));
            }
        }
    }
    complaints
}

/// Whether `start` begins a path in the line, and is not inside one.
fn begins_path(line: &str, start: &str) -> bool {
    line.match_indices(start).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        before.is_none_or(|c| !c.is_ascii_alphanumeric() && !"_-.}*~".contains(c))
    })
}

/// No blanks at the end of a line, and a newline at the end of the file.
pub(crate) fn no_trailing_whitespace(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in written(tree) {
        for (number, line) in file.lines() {
            if line.ends_with([' ', '\t']) {
                complaints.push(file.at(number, "blanks at the end of the line"));
            }
        }
        if !file.text.is_empty() && !file.text.ends_with('\n') {
            complaints.push(file.at(file.text.lines().count(), "no newline at the end"));
        }
    }
    complaints
}

/// What is in the tree is finished; what is not has an issue.
pub(crate) fn no_unfinished_work(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in written(tree) {
        for (number, line) in file.lines() {
            let mut words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            if let Some(word) = words.find(|word| UNFINISHED.contains(word)) {
                complaints.push(file.at(number, &format!("{word}: finish it, or open an issue")));
            }
        }
    }
    complaints
}

/// What a line cites can be read by whoever has the tree: no notes or issues of the people who
/// wrote it.
pub(crate) fn no_citations_of_what_is_elsewhere(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in written(tree) {
        for (number, line) in file.lines() {
            let words = line.split(|c: char| !c.is_ascii_alphanumeric());
            let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
            if let Some(pair) = words.windows(2).find(|pair| is_elsewhere(pair[0], pair[1])) {
                let what = format!("\"{} {}\": cite docs/references.md", pair[0], pair[1]);
                complaints.push(file.at(number, &what));
            }
        }
    }
    complaints
}

/// Whether a word and the next one name a section of notes, or an issue by its short name.
fn is_elsewhere(word: &str, next: &str) -> bool {
    let is_section = next.len() <= 2 && next.ends_with(|c: char| c.is_ascii_digit());
    let is_name = next.len() >= 4 && next.bytes().all(|byte| byte.is_ascii_uppercase());
    match word {
        "facts" | "anchors" | "DESIGN" => is_section,
        "issue" | "issues" => is_name,
        _ => false,
    }
}

/// Files that people wrote.
fn written(tree: &Tree) -> impl Iterator<Item = &File> {
    tree.files.iter().filter(|file| !file.is_recorded())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_machine_paths_are_found() {
        let text = format!("from {}\ncd {}main\nfine\n", HOSTS[0], PATHS[0]);
        let tree = Tree::of(&[("docs/a.md", &text), ("Cargo.lock", &text)]);
        assert_eq!(no_host_names_or_machine_paths(&tree).len(), 2);
        let inside = format!("cgroup{}leaf\n", PATHS[1]);
        assert!(no_host_names_or_machine_paths(&Tree::of(&[("a.rs", &inside)])).is_empty());
    }

    #[test]
    fn trailing_blanks_and_missing_newlines_are_found() {
        let tree = Tree::of(&[("a.rs", "a \nb\n"), ("b.rs", "b"), ("fixtures/c.log", "c ")]);
        let complaints = no_trailing_whitespace(&tree);
        assert_eq!(complaints.len(), 2, "{complaints:?}");
    }

    #[test]
    fn unfinished_work_is_found_but_not_in_other_words() {
        let text = format!(
            "// {}: later\nmktemp -t a.{}{}\n",
            UNFINISHED[0], UNFINISHED[2], UNFINISHED[2]
        );
        let tree = Tree::of(&[("a.sh", &text)]);
        assert_eq!(no_unfinished_work(&tree).len(), 1);
    }

    #[test]
    fn citations_of_notes_and_issues_are_found() {
        let (issue, facts) = (concat!("iss", "ue"), concat!("fac", "ts"));
        let (trap, four) = ("TRAP", 4);
        let text = format!(
            "// as {issue} {trap} says\n// 2 us ({facts} {four})\n// an {issue} of GCC, {facts} of 2 files\n// DIM 4.1\n"
        );
        let tree = Tree::of(&[("a.rs", &text)]);
        assert_eq!(no_citations_of_what_is_elsewhere(&tree).len(), 2);
    }
}
