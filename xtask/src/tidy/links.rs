// SPDX-License-Identifier: MIT OR Apache-2.0
//! The documents are one book: each page can be found, and each link has a target.
//!
//! docs/SUMMARY.md is the table of contents, in the form that mdBook reads. A page that it does not
//! list would not be in the book. A relative link in any Markdown file has to name a file or folder
//! of the tree, and its `#fragment` a heading of that file. Anchors of headings are made as GitHub
//! and mdBook make them: lower case, without punctuation, hyphens for blanks, and `-1` is added to
//! the second of one name.
//!
//! Limits: links to other sites are not followed. The tree holds text files only, so a link to a
//! picture has to name an SVG file. Fragments of files that are not Markdown (lines of a source,
//! say) are not checked.

use std::collections::BTreeMap;

use super::tree::{File, Tree};

const SUMMARY: &str = "docs/SUMMARY.md";

/// The table of contents lists each page of docs/ once.
pub(crate) fn every_page_is_in_the_summary(tree: &Tree) -> Vec<String> {
    let summary = tree.files.iter().find(|file| file.path == SUMMARY);
    let listed: Vec<String> =
        summary.iter().flat_map(|file| links(file)).filter_map(|link| link.path).collect();
    let pages = tree.below("docs").filter(|file| is_markdown(&file.path) && file.path != SUMMARY);
    pages
        .filter_map(|page| match listed.iter().filter(|path| **path == page.path).count() {
            0 => Some(page.at(1, &format!("{SUMMARY} does not list this page"))),
            1 => None,
            _ => Some(page.at(1, &format!("{SUMMARY} lists this page twice"))),
        })
        .collect()
}

/// Relative links name files that exist, and headings that are in them.
pub(crate) fn links_have_targets(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in tree.files.iter().filter(|file| is_markdown(&file.path)) {
        for link in links(file) {
            if let Err(what) = target(tree, &link) {
                complaints.push(file.at(link.line, &format!("link to \"{}\": {what}", link.text)));
            }
        }
    }
    complaints
}

/// What a document links to in the tree, from the root.
pub(crate) fn linked_paths(file: &File) -> Vec<String> {
    links(file).into_iter().filter_map(|link| link.path).collect()
}

fn is_markdown(path: &str) -> bool {
    path.ends_with(".md")
}

/// A link that stays in the tree.
struct Link<'a> {
    line: usize,
    /// As it is written.
    text: &'a str,
    /// From the root; `None` if it is above the root.
    path: Option<String>,
    fragment: Option<&'a str>,
}

fn target(tree: &Tree, link: &Link<'_>) -> Result<(), &'static str> {
    let path = link.path.as_deref().ok_or("it is outside of the tree")?;
    let file = tree.files.iter().find(|file| file.path == path);
    match (file, link.fragment) {
        (None, None) if tree.below(path).next().is_some() => Ok(()),
        (None, _) => Err("there is no such file"),
        (Some(file), Some(fragment)) if is_markdown(path) => {
            let has = anchors(file).iter().any(|anchor| anchor == fragment);
            has.then_some(()).ok_or("the file has no such heading")
        }
        (Some(_), _) => Ok(()),
    }
}

/// The relative links of a document: `[text](target)`, with or without a title, and `[name]:
/// target`.
fn links(file: &File) -> Vec<Link<'_>> {
    let mut links = Vec::new();
    for (line, text) in prose(file) {
        let mut targets: Vec<&str> = text.split("](").skip(1).map(|rest| upto(rest, ')')).collect();
        if text.starts_with('[')
            && let Some((_, definition)) = text.split_once("]: ")
        {
            targets.push(definition);
        }
        let names = targets.into_iter().filter_map(|target| target.split_whitespace().next());
        let relative = names.filter(|name| !name.contains("://") && !name.starts_with("mailto:"));
        links.extend(
            relative.filter(|name| !is_code(text, name)).map(|name| link(file, line, name)),
        );
    }
    links
}

fn link<'a>(file: &File, line: usize, text: &'a str) -> Link<'a> {
    let (path, fragment) = match text.split_once('#') {
        Some((path, fragment)) => (path, Some(fragment)),
        None => (text, None),
    };
    let path = if path.is_empty() { Some(file.path.clone()) } else { join(&file.path, path) };
    Link { line, text, path, fragment }
}

/// Whether a part of a line is in backticks.
fn is_code(line: &str, part: &str) -> bool {
    let before = part.as_ptr() as usize - line.as_ptr() as usize;
    line[..before].matches('`').count() % 2 == 1
}

fn upto(text: &str, end: char) -> &str {
    text.split(end).next().unwrap_or_default()
}

/// The path that a link of a file names; `None` if it is above the root.
fn join(file: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    for part in link.split('/').filter(|part| !matches!(*part, "" | ".")) {
        if part == ".." {
            parts.pop()?;
        } else {
            parts.push(part);
        }
    }
    Some(parts.join("/"))
}

/// The anchors of a document's headings.
fn anchors(file: &File) -> Vec<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let headings = prose(file).filter_map(|(_, line)| {
        let title = line.trim_start_matches('#');
        (title.len() < line.len()).then(|| title.strip_prefix(' ')).flatten()
    });
    let mut anchors = Vec::new();
    for anchor in headings.map(anchor) {
        let times = seen.entry(anchor.clone()).or_default();
        anchors.push(if *times == 0 { anchor } else { format!("{anchor}-{times}") });
        *times += 1;
    }
    anchors
}

fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// The lines of a document that are in no block of code, with their numbers.
fn prose(file: &File) -> impl Iterator<Item = (usize, &str)> {
    let mut is_block = false;
    file.lines().filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_block ^= is_fence;
        !is_fence && !is_block
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_outside_of_the_summary_are_found() {
        let summary = "# Summary\n\n- [A](a.md)\n  - [B](sub/b.md)\n- [B again](sub/b.md)\n";
        let pages = [("docs/a.md", "A\n"), ("docs/sub/b.md", "B\n"), ("docs/sub/c.md", "C\n")];
        let others = [("docs/man/a.1", ".TH A\n"), ("README.md", "[A](docs/a.md)\n")];
        let files: Vec<_> =
            [("docs/SUMMARY.md", summary)].into_iter().chain(pages).chain(others).collect();
        let complaints = [
            "docs/sub/b.md:1: docs/SUMMARY.md lists this page twice",
            "docs/sub/c.md:1: docs/SUMMARY.md does not list this page",
        ];
        assert_eq!(every_page_is_in_the_summary(&Tree::of(&files)), complaints);
        assert_eq!(every_page_is_in_the_summary(&Tree::of(&pages)).len(), 3);
    }

    fn complaints(text: &str) -> Vec<String> {
        let other = "# Other page\n\n```\n# not one\n```\n\n## Why `x_y`, and (not) z?\n\n## Twice\n\n## Twice\n";
        let files = [("docs/a.md", text), ("docs/sub/b.md", other), ("kmod/x.c", "int x;\n")];
        links_have_targets(&Tree::of(&files))
    }

    #[test]
    fn links_to_files_folders_and_headings_are_followed() {
        let text = "# A\n[b](sub/b.md), ![c](../kmod/x.c#L1) and [folder](../kmod/) [here](#a)\n\
                    [d](sub/b.md#why-x_y-and-not-z \"title\") [e](sub/b.md#twice-1)\n\
                    [f]: ./sub/b.md#other-page\n[g](https://example.org/none.md) `[h](none.md)`\n\
                    ```\n[i](none.md)\n```\n";
        assert_eq!(complaints(text), [""; 0]);
    }

    #[test]
    fn links_without_a_target_are_found() {
        let text = "[b](b.md) [c](sub/b.md#not-one)\n\n[d](../../x) [e](sub/b.md#twice-2)\n[f]: no.md\n[g](#b)\n";
        let expected = [
            "docs/a.md:1: link to \"b.md\": there is no such file",
            "docs/a.md:1: link to \"sub/b.md#not-one\": the file has no such heading",
            "docs/a.md:3: link to \"../../x\": it is outside of the tree",
            "docs/a.md:3: link to \"sub/b.md#twice-2\": the file has no such heading",
            "docs/a.md:4: link to \"no.md\": there is no such file",
            "docs/a.md:5: link to \"#b\": the file has no such heading",
        ];
        assert_eq!(complaints(text), expected);
    }
}
