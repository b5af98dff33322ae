// SPDX-License-Identifier: MIT OR Apache-2.0
//! `./x book`: docs/ as HTML pages, made by mdBook.
//!
//! Pages link to files that are not below docs/, such as the systemd unit. mdBook does not copy
//! these, so its folder is `docs` here too, and the files that are linked get their places next to
//! it: `target/book` can be served as it is.
//!
//! `./x test` does not build the book, because Debian has no mdBook and compiling it takes minutes;
//! `./x tidy` checks its table of contents, links and anchors.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::{fs, io};

use anyhow::{Context, Result, bail, ensure};

use crate::repo;
use crate::tidy::{Tree, linked_paths};

const PAGES: &str = "docs/";

/// Builds the book and prints where it begins.
pub(crate) fn main() -> Result<ExitCode> {
    let book = repo::target().join("book");
    match fs::remove_dir_all(&book) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot remove {}", book.display()));
        }
        _ => {}
    }
    let mut mdbook = Command::new("mdbook");
    let mdbook = mdbook.arg("build").arg("-d").arg(book.join(PAGES)).arg(repo::root());
    match mdbook.status() {
        Ok(status) => ensure!(status.success(), "mdbook failed"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            bail!("there is no mdbook: cargo install mdbook --no-default-features")
        }
        Err(error) => return Err(error).context("cannot run mdbook"),
    }
    for path in outside(&Tree::load()?) {
        copy(&repo::root().join(&path), &book.join(&path))?;
    }
    println!("{}", book.join(PAGES).join("index.html").display());
    Ok(ExitCode::SUCCESS)
}

/// Files of the tree that pages link to and the book does not contain.
fn outside(tree: &Tree) -> BTreeSet<String> {
    let pages = tree.below(PAGES).filter(|file| file.extension() == "md");
    let linked: BTreeSet<String> = pages.flat_map(linked_paths).collect();
    let linked = linked.iter().filter(|path| !path.starts_with(PAGES));
    linked.flat_map(|path| tree.below(path)).map(|file| file.path.clone()).collect()
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let parent = to.parent().expect("it is below the book");
    fs::create_dir_all(parent)
        .and_then(|()| fs::copy(from, to))
        .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files, and those of folders; not pages, nor what only other files link to.
    #[test]
    fn linked_files_are_copied() {
        let files = [
            ("docs/a.md", "[b](b.md) [unit](../dist/x.service) [rules](../dist/rules/)\n"),
            ("docs/b.md", "[a](a.md#a) [there](https://example.org)\n"),
            ("README.md", "[licence](LICENSE)\n"),
            ("LICENSE", "free\n"),
            ("dist/x.service", "[Unit]\n"),
            ("dist/rules/a.yml", "a: 1\n"),
            ("dist/other", "x\n"),
        ];
        let found: Vec<String> = outside(&Tree::of(&files)).into_iter().collect();
        assert_eq!(found, ["dist/rules/a.yml", "dist/x.service"]);
    }
}
