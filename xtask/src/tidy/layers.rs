// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who may use what: the arrows of ARCHITECTURE.md.

use super::tree::{File, Tree};

/// What each of our packages may use of the others. A new crate gets its row
/// here, and ARCHITECTURE.md its two sentences. A published package is named as its folder is,
/// without the project's name.
const MAY_USE: [(&str, &[&str]); 33] = [
    ("dvfs", &["cpumodel", "report"]),
    ("environment", &[]),
    ("hint", &["environment"]),
    ("isa", &[]),
    ("locks", &[]),
    ("loomtests", &[]),
    ("lockmodel", &["cpumodel"]),
    ("cpumodel", &[]),
    ("policy", &[]),
    ("profile", &[]),
    ("hw", &["cpumodel"]),
    ("report", &["cpumodel"]),
    ("scan", &["isa", "report"]),
    ("trace", &["cpumodel", "dvfs", "policy", "report"]),
    ("silicon", &["cpumodel", "isa"]),
    ("sim", &["cpumodel", "policy", "profile", "trace"]),
    ("papers", &["cpumodel", "dvfs", "lockmodel", "policy", "report", "sim", "trace"]),
    ("marks", &["environment", "hint", "preloaded"]),
    ("openssl-hints", &["environment", "hint", "preloaded"]),
    ("preload", &["environment", "locks", "pstate"]),
    ("preloaded", &[]),
    ("probe", &["cpumodel", "dvfs", "hw", "report"]),
    ("pstate", &["cpumodel", "hw", "locks"]),
    ("top", &["cpumodel", "hw", "report"]),
    ("turbolane", &["cpumodel", "hint", "hw", "locks", "pstate"]),
    ("sched", &["cpumodel", "hint", "hw", "isa", "policy", "report", "scan", "trace"]),
    (
        "turbolane-cli",
        &[
            "cpumodel",
            "dvfs",
            "hw",
            "lockmodel",
            "locks",
            "policy",
            "probe",
            "profile",
            "pstate",
            "report",
            "scan",
            "sched",
            "sim",
            "top",
            "trace",
        ],
    ),
    ("turbolane-python", &["cpumodel", "report", "scan", "sim", "trace"]),
    ("decodetests", &[]),
    ("fuzztests", &[]),
    ("testbed", &[]),
    (
        "vmtests",
        &[
            "cpumodel",
            "dvfs",
            "hw",
            "locks",
            "papers",
            "probe",
            "profile",
            "pstate",
            "report",
            "scan",
            "sched",
            "sim",
            "trace",
            "turbolane",
        ],
    ),
    ("xtask", &["report", "silicon", "testbed"]),
];

/// Packages that may turn our types into JSON; the last three do it for their
/// own plumbing.
const SERIALISERS: [&str; 4] = ["report", "testbed", "vmtests", "xtask"];

/// Where the machine is touched, and the crates that do it: `hw` reads it,
/// `pstate` sets its frequency. Test plumbing, outside `crates/`, is free.
const MACHINE_PATHS: [&str; 3] = ["/sys/devices", "/sys/kernel", "/proc/sys"];
const MACHINE_CRATES: [&str; 2] = ["crates/hw/", "crates/pstate/"];

/// Dependencies between our packages follow the table, and the table has no arrow that none
/// follows: it would invite what the architecture does not need.
pub(crate) fn crates_use_what_the_table_says(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    for (file, manifest) in manifests(tree) {
        let name = package(&manifest);
        let Some((_, allowed)) = MAY_USE.iter().find(|(package, _)| *package == name) else {
            complaints.push(file.at(1, &format!("package {name} has no row in the layer table")));
            continue;
        };
        let uses = dependencies(&manifest);
        for unused in allowed.iter().filter(|allowed| !uses.iter().any(|used| used == *allowed)) {
            let what = format!("{name} does not use {unused}: take it out of the layer table");
            complaints.push(file.at(1, &what));
        }
        for used in uses {
            let ours = MAY_USE.iter().any(|(package, _)| *package == used);
            if ours && !allowed.contains(&used.as_str()) {
                complaints.push(file.at(1, &format!("{name} must not use {used}")));
            }
        }
    }
    complaints
}

/// The drawing in ARCHITECTURE.md is the table: a line for each package that uses others.
pub(crate) fn the_architecture_draws_the_table(tree: &Tree) -> Vec<String> {
    const FILE: &str = "ARCHITECTURE.md";
    let Some(file) = tree.files.iter().find(|file| file.path == FILE) else { return Vec::new() };
    let drawing = file.text.split("## What uses what\n\n```text\n").nth(1);
    let drawn: Vec<&str> =
        drawing.and_then(|rest| rest.split("```").next()).unwrap_or("").lines().collect();
    let with_others = MAY_USE.iter().filter(|(_, others)| !others.is_empty());
    let due: Vec<String> =
        with_others.map(|(name, others)| format!("{name} -> {}", others.join(", "))).collect();
    let missing = due.iter().filter(|line| !drawn.contains(&line.as_str()));
    let foreign = drawn.iter().filter(|line| !due.iter().any(|due| due == *line));
    let complaints = missing.map(|line| format!("\"What uses what\" lacks the line {line}"));
    let foreign = foreign.map(|line| format!("\"What uses what\" has {line}, the table has not"));
    complaints.chain(foreign).map(|what| file.at(1, &what)).collect()
}

/// Only `report` knows JSON; all other crates hand it values.
pub(crate) fn only_report_serialises(tree: &Tree) -> Vec<String> {
    manifests(tree)
        .filter(|(_, manifest)| !SERIALISERS.contains(&package(manifest)))
        .filter(|(_, manifest)| dependencies(manifest).iter().any(|used| used == "serde_json"))
        .map(|(file, manifest)| {
            file.at(
                1,
                &format!("{} must not use serde_json; go through report", package(&manifest)),
            )
        })
        .collect()
}

/// Only `hw` reads and writes the machine's own files.
pub(crate) fn only_hw_touches_the_machine(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    let sources = tree.below("crates").filter(|file| file.extension() == "rs");
    let is_free = |file: &&File| MACHINE_CRATES.iter().any(|free| file.path.starts_with(free));
    for file in sources.filter(|file| !is_free(file)) {
        for (number, line) in file.lines() {
            if let Some(path) = MACHINE_PATHS.iter().find(|path| opens(line, path)) {
                let what = format!("{path}: only {} go there", MACHINE_CRATES.join(" and "));
                complaints.push(file.at(number, &what));
            }
        }
    }
    complaints
}

/// Whether a string in the line is such a path. One with blanks is a message
/// that mentions it, and that is fine.
fn opens(line: &str, path: &str) -> bool {
    let quoted = format!("\"{path}");
    !line.trim_start().starts_with("//")
        && line.match_indices(&quoted).any(|(start, _)| {
            let rest = &line[start + 1..];
            !rest[..rest.find('"').unwrap_or(rest.len())].contains(' ')
        })
}

fn manifests(tree: &Tree) -> impl Iterator<Item = (&File, toml::Table)> {
    tree.files
        .iter()
        .filter(|file| file.path.ends_with("/Cargo.toml"))
        .filter_map(|file| Some((file, file.text.parse::<toml::Table>().ok()?)))
        .filter(|(_, manifest)| manifest.contains_key("package"))
}

/// The package's name in the table.
fn package(manifest: &toml::Table) -> &str {
    row(manifest["package"].get("name").and_then(toml::Value::as_str).unwrap_or("unnamed"))
}

fn row(name: &str) -> &str {
    let is_row = |short: &&str| MAY_USE.iter().any(|(package, _)| package == short);
    name.strip_prefix("turbolane-").filter(is_row).unwrap_or(name)
}

/// What the package is built from. Dependencies of its tests are free.
fn dependencies(manifest: &toml::Table) -> Vec<String> {
    ["dependencies", "build-dependencies"]
        .iter()
        .filter_map(|section| manifest.get(*section)?.as_table())
        .flat_map(toml::Table::keys)
        .map(|used| row(used).to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(name: &str, uses: &[&str]) -> String {
        let uses: String = uses.iter().map(|used| format!("{used}.workspace = true\n")).collect();
        format!("[package]\nname = \"{name}\"\n[dependencies]\n{uses}")
    }

    #[test]
    fn a_drawing_that_differs_from_the_table_is_found() {
        let head = "## What uses what\n\n```text\n";
        let lines: String = MAY_USE
            .iter()
            .filter(|(_, others)| !others.is_empty())
            .map(|(name, others)| format!("{name} -> {}\n", others.join(", ")))
            .collect();
        let complaints = |lines: &str| {
            let text = format!("{head}{lines}```\n");
            the_architecture_draws_the_table(&Tree::of(&[("ARCHITECTURE.md", &text)]))
        };
        assert_eq!(complaints(&lines), [""; 0]);
        let changed = complaints(&lines.replace("hint -> environment", "hint -> report"));
        assert_eq!(changed.len(), 2, "{changed:?}");
    }

    #[test]
    fn arrows_that_differ_from_the_table_are_found() {
        let (bad, good) =
            (manifest("policy", &["hw"]), manifest("preload", &["environment", "locks", "pstate"]));
        let published = manifest("turbolane-environment", &["turbolane-hint"]);
        let (unknown, less) = (manifest("newcomer", &["hw"]), manifest("scan", &["isa"]));
        let tree = Tree::of(&[
            ("crates/policy/Cargo.toml", &bad),
            ("crates/preload/Cargo.toml", &good),
            ("crates/newcomer/Cargo.toml", &unknown),
            ("crates/scan/Cargo.toml", &less),
            ("crates/environment/Cargo.toml", &published),
        ]);
        let complaints = crates_use_what_the_table_says(&tree);
        assert_eq!(complaints.len(), 4, "{complaints:?}");
        assert!(complaints[0].contains("policy must not use hw"));
        assert!(complaints[1].contains("newcomer has no row"));
        assert!(complaints[2].contains("scan does not use report"));
        assert!(complaints[3].contains("environment must not use hint"));
    }

    #[test]
    fn json_outside_report_is_found_except_in_tests() {
        let bad = manifest("sched", &["serde_json"]);
        let good = manifest("report", &["serde_json"]);
        let tests = "[package]\nname = \"cli\"\n[dev-dependencies]\nserde_json = \"1\"\n";
        let tree = Tree::of(&[
            ("crates/sched/Cargo.toml", &bad),
            ("crates/report/Cargo.toml", &good),
            ("crates/cli/Cargo.toml", tests),
        ]);
        assert_eq!(only_report_serialises(&tree).len(), 1);
    }

    #[test]
    fn a_look_at_the_machine_outside_hw_is_found() {
        let code = "// reads \"/sys/devices\"\nlet a = \"/sys/devices/system/cpu\";\n\
                    say(\"/sys/kernel/btf is missing\");\n";
        let tree = Tree::of(&[
            ("crates/sched/src/a.rs", code),
            ("crates/hw/src/a.rs", code),
            ("testbed/src/a.rs", code),
        ]);
        let complaints = only_hw_touches_the_machine(&tree);
        assert_eq!(complaints.len(), 1, "{complaints:?}");
        assert!(complaints[0].starts_with("crates/sched/src/a.rs:2:"));
    }
}
