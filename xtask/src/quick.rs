// SPDX-License-Identifier: MIT OR Apache-2.0
//! `./x test --quick`: which packages' unit tests a change concerns.
//!
//! A change is what differs from the commit where this branch left main, committed or not. Its
//! packages are those whose files it touches; packages that use them are left to `./x test`, as are
//! integration tests and guests. So this finds the mistakes of the last minutes, in a few more of
//! them, and proves nothing.

use std::collections::BTreeSet;

use anyhow::Result;

use crate::repo;
use crate::tidy::Tree;

/// Folders outside of packages, each with the package whose unit tests look at it.
const OUTSIDE: [(&str, &str); 8] = [
    ("bpf/", "sched"),
    ("data/isa/", "isa"),
    ("data/papers/", "papers"),
    ("data/scenarios/", "sim"),
    ("data/timelines/", "dvfs"),
    ("dist/", "sched"),
    ("include/", "turbolane"),
    ("policy/", "policy"),
];

/// The packages that differ from a commit, or from where this branch left main, and arguments of
/// `cargo test` that run their unit tests.
pub(crate) fn changed(base: Option<&str>) -> Result<(Vec<String>, Vec<&'static str>)> {
    let base = base.map_or_else(fork_point, |base| Ok(base.to_owned()))?;
    let differ = repo::output("git", &["diff", "--name-only", &base, "--"])?;
    let new = repo::output("git", &["ls-files", "-o", "--exclude-standard"])?;
    let tree = Tree::load()?;
    let packages = packages(&tree);
    let mut changed: BTreeSet<&Package> =
        differ.lines().chain(new.lines()).filter_map(|file| of(file, &packages)).collect();
    // Nothing but documents and the like.
    changed.retain(|package| package.has("src/lib.rs", &tree) || package.has("src/main.rs", &tree));
    let mut targets = Vec::new();
    for (file, target) in [("src/lib.rs", "--lib"), ("src/main.rs", "--bins")] {
        if changed.iter().any(|package| package.has(file, &tree)) {
            targets.push(target);
        }
    }
    Ok((changed.into_iter().map(|package| package.name.clone()).collect(), targets))
}

/// Where this branch left main; the last commit where there is no main.
fn fork_point() -> Result<String> {
    let from = |main| repo::output("git", &["merge-base", "HEAD", main]);
    from("main").or_else(|_| from("origin/main")).or_else(|_| from("HEAD"))
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Package {
    name: String,
    /// With a slash at its end.
    folder: String,
}

impl Package {
    fn has(&self, file: &str, tree: &Tree) -> bool {
        let path = format!("{}{file}", self.folder);
        tree.files.iter().any(|file| file.path == path)
    }
}

fn packages(tree: &Tree) -> Vec<Package> {
    let package = |file: &crate::tidy::File| {
        let folder = file.path.strip_suffix("Cargo.toml").filter(|folder| !folder.is_empty())?;
        let manifest = file.text.parse::<toml::Table>().ok()?;
        let name = manifest.get("package")?.get("name")?.as_str()?;
        Some(Package { name: name.to_owned(), folder: folder.to_owned() })
    };
    tree.files.iter().filter_map(package).collect()
}

/// The package that a file belongs to.
fn of<'a>(file: &str, packages: &'a [Package]) -> Option<&'a Package> {
    let inside = packages.iter().filter(|package| file.starts_with(&package.folder));
    inside.max_by_key(|package| package.folder.len()).or_else(|| {
        let (_, name) = OUTSIDE.iter().find(|(folder, _)| file.starts_with(folder))?;
        packages.iter().find(|package| package.name == *name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_belong_to_the_nearest_package() {
        let manifest = |name: &str| format!("[package]\nname = \"{name}\"\n");
        let tree = Tree::of(&[
            ("Cargo.toml", "[workspace]\n"),
            ("crates/hint/Cargo.toml", &manifest("hint")),
            ("crates/policy/Cargo.toml", &manifest("policy")),
            ("tests/vm/Cargo.toml", &manifest("vmtests")),
        ]);
        let packages = packages(&tree);
        let of = |file| of(file, &packages).map(|package| package.name.as_str());
        assert_eq!(of("crates/hint/src/page.rs"), Some("hint"));
        assert_eq!(of("tests/vm/src/main.rs"), Some("vmtests"));
        assert_eq!(of("policy/task.h"), Some("policy"));
        assert_eq!(of("README.md"), None);
        assert_eq!(of("crates/hints/a.rs"), None);
    }

    /// The table names folders and packages that there are.
    #[test]
    fn outside_is_up_to_date() {
        let tree = Tree::load().unwrap();
        let packages = packages(&tree);
        for (folder, name) in OUTSIDE {
            assert!(tree.below(folder.trim_end_matches('/')).next().is_some(), "{folder}");
            assert!(packages.iter().any(|package| package.name == name), "{name}");
        }
    }
}
