// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that nothing compiles.
//!
//! A Rust file that no `mod` declares, and a header that nothing includes, break no build when
//! they go wrong, so they grow old unseen. Modules are followed from the files that cargo compiles
//! by itself; of headers only the names are compared.
//!
//! Limits: `mod` inside of a module that is written in the same file is not followed to its folder.
//! Headers that only include each other are not found.

use std::collections::{BTreeMap, BTreeSet};

use super::code::all_prose;
use super::tree::{File, Tree};

/// Each Rust file is the root of a target of its package, or a module of one.
pub(crate) fn every_rust_file_is_compiled(tree: &Tree) -> Vec<String> {
    let is_rust = |file: &&File| file.extension() == "rs" && !file.is_recorded();
    let files: BTreeMap<&str, &File> =
        tree.files.iter().filter(is_rust).map(|file| (file.path.as_str(), file)).collect();
    let roots = files.keys().filter(|path| is_root(tree, path));
    let mut next: Vec<(String, String)> =
        roots.map(|path| (path.to_string(), folder(path).to_owned())).collect();
    let mut reached = BTreeSet::new();
    while let Some((path, children)) = next.pop() {
        if let Some(file) = files.get(path.as_str())
            && reached.insert((path, children.clone()))
        {
            next.extend(modules(file, &children));
        }
    }
    let reached: BTreeSet<&str> = reached.iter().map(|(path, _)| path.as_str()).collect();
    let lost = files.values().filter(|file| !reached.contains(file.path.as_str()));
    lost.map(|file| file.at(1, "no `mod` declares this file: declare or delete it")).collect()
}

/// The files that the modules declared in a file can be, each with the folder of its own modules;
/// this file's are in `children`.
fn modules(file: &File, children: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut written = None;
    for line in file.text.lines().map(str::trim) {
        if let Some(path) = line.strip_prefix("#[path = \"") {
            written = path.split('"').next();
        } else if let Some(name) = module(line) {
            match written.take() {
                Some(path) => {
                    let path = joined(folder(&file.path), path);
                    found.push((path.clone(), folder(&path).to_owned()));
                }
                None => {
                    let below = format!("{children}/{name}");
                    found.push((format!("{below}.rs"), below.clone()));
                    found.push((format!("{below}/mod.rs"), below));
                }
            }
        }
    }
    found
}

/// The name of the module that a line declares to be another file.
fn module(line: &str) -> Option<&str> {
    let item = match line.strip_prefix("pub") {
        Some(rest) => rest.trim_start_matches(|c| c != ' ').trim_start(),
        None => line,
    };
    item.strip_prefix("mod ")?.strip_suffix(';')
}

/// Whether cargo compiles a file by its place, or because a manifest names it.
fn is_root(tree: &Tree, path: &str) -> bool {
    let manifests = tree.files.iter().filter(|file| file.path.ends_with("/Cargo.toml"));
    manifests.into_iter().any(|manifest| {
        let package = folder(&manifest.path);
        let named = |line: &str| {
            line.strip_prefix("path = \"")
                .and_then(|rest| rest.strip_suffix('"'))
                .map(str::to_owned)
        };
        let mut named = manifest.text.lines().filter_map(named);
        let place = path.strip_prefix(package).and_then(|rest| rest.strip_prefix('/'));
        let parts: Vec<&str> = place.unwrap_or_default().split('/').collect();
        let is_by_place = matches!(
            parts[..],
            ["build.rs"]
                | ["src", "lib.rs" | "main.rs"]
                | ["tests" | "examples" | "benches", _]
                | ["tests" | "examples" | "benches", _, "main.rs"]
                | ["src", "bin", _]
                | ["src", "bin", _, "main.rs"]
        );
        is_by_place || named.any(|written| joined(package, &written) == path)
    })
}

fn folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// A path that is relative to a folder.
fn joined(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').collect();
    for part in path.split('/') {
        match part {
            ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

/// Each header is included, or named by a build file or by a string of Rust.
pub(crate) fn every_header_is_included(tree: &Tree) -> Vec<String> {
    let named: Vec<String> = tree.files.iter().flat_map(headers).collect();
    let headers = tree.files.iter().filter(|file| file.extension() == "h");
    let is_named = |file: &&File| {
        let mut of_this = named.iter().filter_map(|name| file.path.strip_suffix(name.as_str()));
        of_this.any(|above| above.is_empty() || above.ends_with('/'))
    };
    let lost = headers.filter(|file| !is_named(file));
    lost.map(|file| file.at(1, "nothing includes this header: include or delete it")).collect()
}

/// The headers that a file names, without the folders above.
fn headers(file: &File) -> Vec<String> {
    let name = file.path.rsplit('/').next().unwrap_or_default();
    let text: String = match file.extension() {
        "c" | "cc" | "h" | "S" => {
            let is_include = |line: &&str| line.trim_start().starts_with("#include");
            file.text.lines().filter(is_include).map(|line| format!("{line}\n")).collect()
        }
        "rs" => {
            let strings = all_prose(&file.text).into_iter().filter(|piece| piece.is_string());
            strings.map(|string| format!("{}\n", string.text)).collect()
        }
        _ if matches!(name, "Makefile" | "Kbuild") => file.text.clone(),
        _ => String::new(),
    };
    let is_path = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    let paths = text.split(|c| !is_path(c)).filter(|path| path.ends_with(".h"));
    paths.map(|path| path.trim_start_matches("../").to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rust_files_without_a_declaration_are_found() {
        let tree = Tree::of(&[
            ("c/Cargo.toml", "[package]\nname = \"c\"\n[[test]]\npath = \"../t/main.rs\"\n"),
            ("c/build.rs", ""),
            ("c/src/lib.rs", "mod a;\npub(crate) mod b;\n#[path = \"../x/y.rs\"]\nmod z;\n"),
            ("c/src/a.rs", "#[cfg(test)]\n#[path = \"a_tests.rs\"]\nmod tests;\n"),
            ("c/src/a_tests.rs", ""),
            ("c/src/b/mod.rs", "pub mod inner;\n// mod lost;\n"),
            ("c/src/b/inner.rs", "mod deep;\n"),
            ("c/src/b/inner/deep.rs", ""),
            ("c/src/b/lost.rs", "mod under;\n"),
            ("c/src/b/lost/under.rs", ""),
            ("c/src/bin/d.rs", ""),
            ("c/src/inner.rs", ""),
            ("c/src/tests.rs", ""),
            ("c/x/y.rs", "mod beside;\n"),
            ("c/x/beside.rs", ""),
            ("c/tests/e.rs", "mod common;\n"),
            ("c/tests/common/mod.rs", ""),
            ("c/examples/f/main.rs", "mod g;\n"),
            ("c/examples/f/g.rs", ""),
            ("t/main.rs", "mod h;\n"),
            ("t/h.rs", ""),
            ("t/i.rs", ""),
        ]);
        let complaints = every_rust_file_is_compiled(&tree);
        let lost: Vec<&str> = complaints.iter().map(|c| c.split(':').next().unwrap()).collect();
        let expected = ["c/src/b/lost.rs", "c/src/b/lost/under.rs", "c/src/inner.rs"];
        assert_eq!(lost, [&expected[..], &["c/src/tests.rs", "t/i.rs"]].concat());
    }

    #[test]
    fn headers_that_nothing_includes_are_found() {
        let tree = Tree::of(&[
            ("bpf/main.bpf.c", "#include \"a.bpf.h\"\n/* b.bpf.h */\n#include <policy/c.h>\n"),
            ("bpf/a.bpf.h", ""),
            ("bpf/b.bpf.h", ""),
            ("policy/c.h", "#include \"../kmod/d.h\"\n"),
            ("kmod/d.h", ""),
            ("kmod/lane.h", ""),
            ("policy/plane.h", ""),
            ("kmod/e.h", ""),
            ("kmod/Makefile", "HEADERS := e.h plane.h\n"),
            ("a/build.rs", "// kmod/lane.h\ninclude_str!(\"../bpf/f.h\")\n"),
            ("bpf/f.h", ""),
        ]);
        let complaints = every_header_is_included(&tree);
        let lost: Vec<&str> = complaints.iter().map(|c| c.split(':').next().unwrap()).collect();
        assert_eq!(lost, ["bpf/b.bpf.h", "kmod/lane.h"]);
    }
}
