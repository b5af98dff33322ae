// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which module of a package uses which.
//!
//! A module is a file, named by its place: `src/a/b.rs` and `src/a/b/mod.rs` are `a::b`. What it
//! uses, its paths say that begin with `crate`, `super` or `self`, and those of `use` that begin
//! with a module. A name that a module has imported from another one (`pub use`) is that one's.
//!
//! Limits: imports by `*` carry no names; a module inside of a file is taken for the file, whose
//! parent its `super` names.

use std::collections::{BTreeMap, BTreeSet};

use super::code::Code;
use super::tree::{File, Tree};

/// A module's path from the package's root; the root is empty.
pub(crate) type Module = Vec<String>;

/// Imports that lead on to imports are followed so far.
const IMPORTS: usize = 8;

/// The modules of a package, without tests.
pub(crate) struct Package {
    modules: BTreeMap<Module, Uses>,
}

/// What a file says it uses: paths as they are written.
#[derive(Default)]
struct Uses {
    paths: Vec<Vec<String>>,
    imports: BTreeMap<String, Vec<String>>,
}

impl Package {
    /// The package with this `src` folder.
    pub(crate) fn of(tree: &Tree, source: &str) -> Self {
        let mut modules = BTreeMap::new();
        let mut tests = BTreeSet::new();
        for file in tree.below(source).filter(|file| file.extension() == "rs") {
            let module = name(file, source);
            let code = Code::of(&file.text);
            tests.extend(code.test_modules.iter().map(|test| child(&module, test)));
            modules.insert(module, Uses::of(&code.words));
        }
        let is_test = |module: &Module| {
            module.last().is_some_and(|name| name.ends_with("_tests"))
                || (1..=module.len()).any(|length| tests.contains(&module[..length]))
        };
        modules.retain(|module, _| !is_test(module));
        Package { modules }
    }

    /// Every use of one module by another.
    pub(crate) fn uses(&self) -> impl Iterator<Item = (&Module, Module)> {
        self.modules.iter().flat_map(move |(module, uses)| {
            let used = uses.paths.iter().filter_map(move |path| self.resolve(module, path, 0));
            used.map(move |used| (module, used))
        })
    }

    /// The module that has what `path`, written in `module`, names; `None` if it is not of this
    /// package.
    fn resolve(&self, module: &Module, path: &[String], depth: usize) -> Option<Module> {
        let (mut at, mut rest) = self.start(module, path)?;
        while let Some((first, others)) = rest.split_first() {
            let next = child(&at, first);
            if !self.modules.contains_key(&next) {
                break;
            }
            (at, rest) = (next, others);
        }
        let Some((first, others)) = rest.split_first() else { return Some(at) };
        let import = self.modules.get(&at)?.imports.get(first);
        if let Some(import) = import.filter(|_| depth < IMPORTS) {
            let path = [import, others].concat();
            if path != rest
                && let Some(found) = self.resolve(&at, &path, depth + 1)
            {
                return Some(found);
            }
        }
        Some(at)
    }

    /// Where a path begins, and what of it is left.
    fn start<'a>(&self, module: &Module, path: &'a [String]) -> Option<(Module, &'a [String])> {
        let (first, mut rest) = path.split_first()?;
        match first.as_str() {
            "crate" => Some((Module::new(), rest)),
            "self" => Some((module.clone(), rest)),
            "super" => {
                let mut at = module.clone();
                at.pop();
                while let Some((_, others)) =
                    rest.split_first().filter(|(name, _)| *name == "super")
                {
                    at.pop();
                    rest = others;
                }
                Some((at, rest))
            }
            _ => self.modules.contains_key(&child(module, first)).then(|| (module.clone(), path)),
        }
    }
}

impl Uses {
    fn of(words: &[&str]) -> Self {
        let mut uses = Uses::default();
        let mut at = 0;
        while let Some(word) = words.get(at) {
            let is_path =
                matches!(*word, "crate" | "super" | "self") && words.get(at + 1) == Some(&"::");
            at = match *word {
                "use" => uses.read(words, at + 1, &[], true),
                _ if is_path => uses.read(words, at, &[], false),
                _ => at + 1,
            };
        }
        uses
    }

    /// Reads a path, or a tree of them, that goes on at `at`, and returns where it ends.
    fn read(&mut self, words: &[&str], mut at: usize, before: &[String], is_use: bool) -> usize {
        let mut path = before.to_vec();
        while let Some(&word) = words.get(at) {
            match word {
                "{" => return self.read_group(words, at + 1, &path, is_use),
                "::" => {}
                "self" if !path.is_empty() => {}
                _ if word.starts_with(|c: char| c.is_alphabetic() || c == '_') => {
                    path.push(word.to_owned());
                }
                _ => break,
            }
            at += 1;
            // after a name only `::` goes on
            if word != "::" && words.get(at) != Some(&"::") {
                break;
            }
        }
        let mut name = path.last().cloned().unwrap_or_default();
        if is_use && words.get(at) == Some(&"as") {
            name = words.get(at + 1).copied().unwrap_or_default().to_owned();
            at += 2;
        }
        if is_use {
            self.imports.insert(name, path.clone());
        }
        self.paths.push(path);
        at
    }

    fn read_group(
        &mut self,
        words: &[&str],
        mut at: usize,
        path: &[String],
        is_use: bool,
    ) -> usize {
        while let Some(&word) = words.get(at) {
            at = match word {
                "}" => return at + 1,
                "," | "*" => at + 1,
                _ => self.read(words, at, path, is_use).max(at + 1),
            };
        }
        at
    }
}

fn child(module: &Module, name: &str) -> Module {
    let mut child = module.clone();
    child.push(name.to_owned());
    child
}

/// The module that a file is.
fn name(file: &File, source: &str) -> Module {
    let below = file.path[source.len()..].trim_start_matches('/').trim_end_matches(".rs");
    let mut parts: Module = below.split('/').map(str::to_owned).collect();
    let is_root = parts.len() == 1 && matches!(parts[0].as_str(), "lib" | "main");
    if is_root || parts.last().is_some_and(|last| last == "mod") {
        parts.pop();
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_are_followed_through_imports() {
        let tree = Tree::of(&[
            (
                "c/src/lib.rs",
                "mod a;\nmod b;\npub use b::{deep::Thing as Other, f};\n#[cfg(test)]\nmod t;\n",
            ),
            ("c/src/a.rs", "use super::{Other, b::{self, g}};\nfn h() { crate::f() }\n"),
            ("c/src/b/mod.rs", "mod deep;\npub fn f() {}\n"),
            (
                "c/src/b/deep.rs",
                "use std::fmt;\npub struct Thing;\n#[cfg(test)]\nmod tests { use crate::a::h; }\n",
            ),
            ("c/src/t.rs", "use crate::a;\n"),
        ]);
        let package = Package::of(&tree, "c/src");
        let uses: Vec<String> = package
            .uses()
            .map(|(by, used)| format!("{} -> {}", by.join("::"), used.join("::")))
            .collect();
        assert_eq!(uses, [" -> b::deep", " -> b", "a -> b::deep", "a -> b", "a -> b", "a -> b"]);
    }
}
