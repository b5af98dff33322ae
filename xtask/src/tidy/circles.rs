// SPDX-License-Identifier: MIT OR Apache-2.0
//! No circles inside of crates.
//!
//! Modules beside each other (files of one folder; a folder counts as one) do not use each other in
//! a circle: then each can be read, tested and changed after those that it uses, and there is an
//! order to read them in. A module and those inside of it are one thing to the outside, so what a
//! folder's `mod.rs` and its files use of each other is not looked at.

use std::collections::{BTreeMap, BTreeSet};

use super::modules::{Module, Package};
use super::tree::Tree;

/// Circles that are left, each a package's `src` folder with the modules. To be made fewer: a
/// module that is in no circle any more has to be taken out here.
const LEFT: [(&str, &[&str]); 1] = [
    // The model's `sync` stands in for that of crates/locks, which has the futex in it.
    ("tests/loom/src", &["futex_model", "sync"]),
];

/// Modules beside each other form no circles, but for those in [`LEFT`].
pub(crate) fn modules_form_no_circles(tree: &Tree) -> Vec<String> {
    compare(tree, &LEFT)
}

fn compare(tree: &Tree, left: &[(&str, &[&str])]) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut seen = 0;
    for source in sources(tree) {
        for circle in circles(&Package::of(tree, &source)) {
            let names: Vec<String> = circle.iter().map(|module| module.join("::")).collect();
            if left.iter().any(|(folder, known)| *folder == source && *known == names) {
                seen += 1;
            } else {
                let names = names.join(", ");
                complaints.push(format!("{source}:1: these modules use each other: {names}"));
            }
        }
    }
    if seen < left.len() && complaints.is_empty() {
        let file = file!().rsplit('/').next().unwrap_or_default();
        complaints.push(format!("xtask/src/tidy/{file}:1: a circle in LEFT is none: take it out"));
    }
    complaints
}

/// The `src` folders of all packages.
fn sources(tree: &Tree) -> BTreeSet<String> {
    let manifests = tree.files.iter().filter_map(|file| file.path.strip_suffix("/Cargo.toml"));
    manifests.map(|package| format!("{package}/src")).collect()
}

/// The largest groups of modules of one folder of which each uses each, directly or by others;
/// sorted.
fn circles(package: &Package) -> Vec<Vec<Module>> {
    let mut uses: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
    for (by, used) in package.uses() {
        let common = by.iter().zip(&used).take_while(|(a, b)| a == b).count();
        // otherwise one is inside of the other
        if common < by.len() && common < used.len() {
            uses.entry(by[..=common].to_vec()).or_default().insert(used[..=common].to_vec());
        }
    }
    let reach: BTreeMap<&Module, BTreeSet<&Module>> =
        uses.keys().map(|module| (module, reachable(&uses, module))).collect();
    let mut circles = BTreeSet::new();
    for (module, reached) in &reach {
        let is_with =
            |other: &&&Module| reach.get(*other).is_some_and(|back| back.contains(*module));
        let circle: Vec<Module> =
            reached.iter().filter(is_with).map(|other| (*other).clone()).collect();
        if !circle.is_empty() {
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}

/// What a module uses, directly or by others.
fn reachable<'a>(
    uses: &'a BTreeMap<Module, BTreeSet<Module>>,
    from: &Module,
) -> BTreeSet<&'a Module> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&Module> = uses.get(from).into_iter().flatten().collect();
    while let Some(module) = next.pop() {
        if reached.insert(module) {
            next.extend(uses.get(module).into_iter().flatten());
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> Tree {
        Tree::of(&[
            ("c/Cargo.toml", "[package]\nname = \"c\"\n"),
            ("c/src/lib.rs", "mod a;\nmod b;\nmod d;\nmod e;\npub use a::A;\n"),
            ("c/src/a.rs", "use crate::b::f;\n"),
            ("c/src/b/mod.rs", "mod inner;\nuse crate::e::g;\n"),
            ("c/src/b/inner.rs", "use super::f;\nfn h(d: crate::d::D) {}\n"),
            ("c/src/d.rs", "// a by the root's import\nfn i(a: crate::A) {}\n"),
            ("c/src/e.rs", "use crate::MAX;\n"),
        ])
    }

    #[test]
    fn circles_are_found() {
        let complaints = compare(&tree(), &[]);
        assert_eq!(complaints, ["c/src:1: these modules use each other: a, b, d"]);
    }

    #[test]
    fn circles_that_are_left_are_named_exactly() {
        assert!(compare(&tree(), &[("c/src", &["a", "b", "d"])]).is_empty());
        assert_eq!(compare(&tree(), &[("c/src", &["a", "b"])]).len(), 1);
        let gone: [(&str, &[&str]); 2] = [("c/src", &["a", "b", "d"]), ("c/src", &["e", "f"])];
        assert!(compare(&tree(), &gone)[0].contains("take it out"));
    }
}
