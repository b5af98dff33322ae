// SPDX-License-Identifier: MIT OR Apache-2.0
//! The crates that programs use, as they would be published: the library, the hint, and what these
//! two are built from.
//!
//! Problem: in the tree a crate finds files outside of its folder and other crates by their paths.
//! A published crate has neither, and that shows only after it was published, which cannot be
//! undone.
//!
//! Idea: cargo packs all of them and builds each from its package, with the other packages as its
//! registry. `cargo publish --dry-run` does the same, and also asks crates.io for the names;
//! `cargo package` asks nothing, so the test needs no network.
//!
//! Limit: cargo older than 1.90 cannot pack crates that use each other; the test is skipped there.

use anyhow::{Context, Result, ensure};

use crate::repo;

/// What is published. All other packages have `publish = false`.
const PUBLISHED: [&str; 7] = [
    "turbolane",
    "turbolane-hint",
    "turbolane-environment",
    "turbolane-cpumodel",
    "turbolane-hw",
    "turbolane-locks",
    "turbolane-pstate",
];

/// The first cargo, 1.N, that packs crates that use each other.
pub(crate) const NEEDED: u32 = 90;

/// Files that each package must have, besides what its build needs.
const FILES: [&str; 4] = ["Cargo.toml", "README.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// Packs and builds them. What is wrong, one line each, and a note about what was packed.
pub(crate) fn check() -> Result<(Vec<String>, String)> {
    let folder = repo::logs()?.join("crates");
    let mut pack = repo::cargo();
    pack.args(["package", "--offline", "--allow-dirty", "--quiet", "--target-dir"]).arg(&folder);
    pack.args(PUBLISHED.iter().flat_map(|package| ["-p", package]));
    // A third of the disk: 135 MB.
    pack.env("CARGO_PROFILE_DEV_DEBUG", "0").env("CARGO_INCREMENTAL", "0");
    let done = repo::logged(&mut pack, "crates")?;
    ensure!(done.success, "a packed crate does not build:\n{}", done.text);
    let mut found = Vec::new();
    for package in PUBLISHED {
        let name = format!("{package}-{}", env!("CARGO_PKG_VERSION"));
        let packed = folder.join("package").join(format!("{name}.crate"));
        let list = repo::output("tar", &["--list", "--gzip", "--file", &packed.to_string_lossy()])
            .with_context(|| format!("cannot read the package of {package}"))?;
        found.extend(missing(&list, &name).map(|file| format!("{package}: {file} is missing")));
    }
    Ok((found, format!("{} crates", PUBLISHED.len())))
}

/// The files that a package's list lacks.
fn missing(list: &str, name: &str) -> impl Iterator<Item = &'static str> {
    FILES.into_iter().filter(move |file| {
        let path = format!("{name}/{file}");
        !list.lines().any(|line| line == path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::Tree;

    /// A package that is neither in the table nor kept from being published would be published by
    /// accident.
    #[test]
    fn the_table_has_what_may_be_published() {
        let tree = Tree::load().unwrap();
        let manifests = tree.files.iter().filter_map(|file| {
            let manifest = file.path.ends_with("/Cargo.toml").then_some(&file.text)?;
            manifest.parse::<toml::Table>().ok()?.get("package").cloned()
        });
        let is_open = |package: &toml::Value| {
            package.get("publish").and_then(toml::Value::as_bool).unwrap_or(true)
        };
        let mut open: Vec<String> = manifests
            .filter(is_open)
            .map(|package| package["name"].as_str().unwrap().to_owned())
            .collect();
        let mut published = PUBLISHED.to_vec();
        open.sort();
        published.sort_unstable();
        assert_eq!(open, published);
    }

    /// A package has its licences as files of its own: a link does not survive every copy of a
    /// tree, and the crate would be packed without.
    #[test]
    fn a_package_has_the_licences_of_the_tree() {
        let root = repo::root();
        for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
            let licence = std::fs::read(root.join(name)).unwrap();
            for package in PUBLISHED {
                let folder = package.strip_prefix("turbolane-").unwrap_or(package);
                let copy = root.join("crates").join(folder).join(name);
                let text = std::fs::read(&copy).unwrap();
                assert!(text == licence, "{} differs", copy.display());
            }
        }
    }

    /// A file deeper in the package does not count for one at its top.
    #[test]
    fn a_missing_file_is_found() {
        let list = "x-0.1.0/Cargo.toml\nx-0.1.0/data/README.md\nx-0.1.0/LICENSE-MIT\n\
                    x-0.1.0/LICENSE-APACHE\n";
        assert_eq!(missing(list, "x-0.1.0").collect::<Vec<_>>(), ["README.md"]);
    }
}
