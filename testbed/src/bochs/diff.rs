// SPDX-License-Identifier: MIT OR Apache-2.0
//! Patches in the form of `diff -u`, read strictly.
//!
//! What a hunk removes and its context are one text, which must be there; what it adds and the same
//! context take its place. Line numbers are not looked at, because other patches move lines: a hunk
//! is applied at the first place after the one before it. An empty line is an empty line of
//! context, so that no editor's clean-up spoils a patch.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};

/// What stands in a file, and what takes its place.
struct Hunk {
    file: String,
    old: String,
    new: String,
}

/// Applies a patch to files by name; `read` gives a file that no patch has changed yet.
pub(super) fn apply(
    patch: &str,
    files: &mut BTreeMap<String, String>,
    read: impl Fn(&str) -> Result<String>,
) -> Result<()> {
    let mut at = (String::new(), 0);
    for hunk in parse(patch)? {
        if !files.contains_key(&hunk.file) {
            files.insert(hunk.file.clone(), read(&hunk.file)?);
        }
        let text = files.get_mut(&hunk.file).expect("it was just read");
        let from = if at.0 == hunk.file { at.1 } else { 0 };
        let found = text[from..].find(&hunk.old).with_context(|| {
            let (file, old) = (&hunk.file, &hunk.old);
            format!("Bochs' {file} has no\n{old}look whether the patch is still needed")
        })?;
        let start = from + found;
        text.replace_range(start..start + hunk.old.len(), &hunk.new);
        at = (hunk.file, start + hunk.new.len());
    }
    Ok(())
}

/// The hunks. What comes before the first file is the patch's reason, which it must have.
fn parse(patch: &str) -> Result<Vec<Hunk>> {
    let mut hunks: Vec<Hunk> = Vec::new();
    let mut file = None;
    let mut is_in_hunk = false;
    ensure!(!patch.starts_with("--- "), "a patch begins with its reason");
    for line in patch.lines() {
        if line.starts_with("--- ") {
            is_in_hunk = false;
        } else if let Some(name) = line.strip_prefix("+++ ") {
            file = Some(name.to_owned());
        } else if line.starts_with("@@ ") {
            let file = file.clone().context("a hunk without a file")?;
            hunks.push(Hunk { file, old: String::new(), new: String::new() });
            is_in_hunk = true;
        } else if let (true, Some(hunk)) = (is_in_hunk, hunks.last_mut()) {
            take(hunk, line)?;
        }
    }
    ensure!(!hunks.is_empty(), "a patch without a hunk");
    Ok(hunks)
}

fn take(hunk: &mut Hunk, line: &str) -> Result<()> {
    let mut add = |is_old: bool, is_new: bool, text: &str| {
        for (wanted, side) in [(is_old, &mut hunk.old), (is_new, &mut hunk.new)] {
            if wanted {
                side.push_str(text);
                side.push('\n');
            }
        }
    };
    match line.split_at_checked(1) {
        None => add(true, true, ""),
        Some((" ", text)) => add(true, true, text),
        Some(("-", text)) => add(true, false, text),
        Some(("+", text)) => add(false, true, text),
        Some(_) => bail!("no line of a patch: {line}"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = "Why.\n\n--- a.c\n+++ a.c\n@@ -1,3 +1,3 @@\n one\n\n-two\n+2\n\
        @@ -9,2 +9,3 @@\n one\n\n-two\n+zwei\n+deux\n--- b.c\n+++ b.c\n@@ -1 +1 @@\n-x\n+y\n";

    fn patched(patch: &str, a: &str, b: &str) -> Result<[String; 2]> {
        let mut files = BTreeMap::new();
        let read = |name: &str| Ok(if name == "a.c" { a } else { b }.to_owned());
        apply(patch, &mut files, read)?;
        Ok(["a.c", "b.c"].map(|name| files[name].clone()))
    }

    /// Equal hunks are applied one after the other, wherever their lines have moved to.
    #[test]
    fn hunks_are_applied_in_order() {
        let same = "one\n\ntwo\n";
        let [a, b] = patched(PATCH, &format!("zero\n{same}{same}{same}"), "x\n").unwrap();
        assert_eq!(a, "zero\none\n\n2\none\n\nzwei\ndeux\none\n\ntwo\n");
        assert_eq!(b, "y\n");
    }

    #[test]
    fn a_patch_that_does_not_fit_fails() {
        for (patch, part) in [
            (PATCH, "a.c has no\none\n\ntwo\n"),
            ("Why.\n", "without a hunk"),
            ("--- a.c\n+++ a.c\n@@ -1 +1 @@\n-x\n+y\n", "its reason"),
            ("Why.\n@@ -1 +1 @@\n", "without a file"),
            ("Why.\n--- a.c\n+++ a.c\n@@ -1 +1 @@\n?x\n", "no line of a patch"),
        ] {
            let error = patched(patch, "one\n", "x\n").unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
