// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which license a file has, by where it lies.

use super::tree::{File, Tree};

const TAG: &str = "SPDX-License-Identifier: ";

/// A `#!` line or an XML or comment opener may come before the tag.
const WITHIN_LINES: usize = 3;

/// Each source says its license, and says the one its folder has.
pub(crate) fn every_source_names_its_license(tree: &Tree) -> Vec<String> {
    tree.files.iter().filter(|file| is_source(file)).filter_map(complaint).collect()
}

fn complaint(file: &File) -> Option<String> {
    let expected = expected(&file.path);
    let Some((line, stated)) = stated(file) else {
        return Some(file.at(1, &format!("no license; add \"{TAG}{}\"", expected[0])));
    };
    if expected.contains(&stated) {
        return None;
    }
    Some(file.at(line, &format!("license {stated} here must be {}", expected.join(" or "))))
}

/// Folders of data that people write.
const DATA: [&str; 2] = ["data/", "crates/cpumodel/data/"];

fn is_source(file: &File) -> bool {
    let by_name =
        matches!(file.path.rsplit('/').next(), Some("x" | "Makefile" | "Kbuild" | "init"));
    let by_extension = matches!(file.extension(), "rs" | "c" | "cc" | "h" | "S" | "py" | "sh");
    let data =
        file.extension() == "toml" && DATA.iter().any(|folder| file.path.starts_with(folder));
    (by_name || by_extension || data || file.path == ".ci/run") && !file.is_recorded()
}

fn stated(file: &File) -> Option<(usize, &str)> {
    file.lines().take(WITHIN_LINES).find_map(|(number, line)| {
        let (_, license) = line.split_once(TAG)?;
        Some((number, license.trim_end_matches("*/").trim()))
    })
}

/// The kernel takes only GPL-2.0 into itself; the policy and what user space
/// shares with the kernel are open to both sides; the rest is permissive.
fn expected(path: &str) -> &'static [&'static str] {
    const SHARED: &str = "GPL-2.0 OR MIT";
    let in_folder = |folder: &str| path.starts_with(folder);
    if in_folder("kmod/") && path.contains("uapi") {
        &["GPL-2.0 WITH Linux-syscall-note", "(GPL-2.0 WITH Linux-syscall-note) OR MIT", SHARED]
    } else if in_folder("kmod/") {
        &["GPL-2.0"]
    } else if in_folder("bpf/") && path.ends_with(".h") && !path.ends_with(".bpf.h") {
        &[SHARED]
    } else if in_folder("bpf/") {
        &["GPL-2.0"]
    } else if in_folder("policy/") || in_folder("crates/policy/c/") {
        &[SHARED]
    } else {
        &["MIT OR Apache-2.0"]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_and_misplaced_licenses_are_found() {
        let good = "// SPDX-License-Identifier: MIT OR Apache-2.0\n";
        let kernel = "/* SPDX-License-Identifier: GPL-2.0 */\n";
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", good),
            ("crates/b/src/lib.rs", "//! nothing\n"),
            ("kmod/main.c", "// SPDX-License-Identifier: MIT OR Apache-2.0\n"),
            ("bpf/main.bpf.c", kernel),
            ("bpf/shared.h", kernel),
            ("policy/task.h", "/* SPDX-License-Identifier: GPL-2.0 OR MIT */\n"),
            ("x", "#!/bin/bash\n# SPDX-License-Identifier: MIT OR Apache-2.0\n"),
            ("README.md", "no license line needed\n"),
        ]);
        let complaints = every_source_names_its_license(&tree);
        assert_eq!(complaints.len(), 3, "{complaints:?}");
        assert!(complaints[0].starts_with("crates/b/src/lib.rs:1: no license"));
        assert!(complaints[1].starts_with("kmod/main.c:1: license MIT"));
        assert!(complaints[2].contains("bpf/shared.h:1: license GPL-2.0 here must be"));
    }
}
