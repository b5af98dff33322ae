// SPDX-License-Identifier: MIT OR Apache-2.0
//! Units in names. One unit per quantity, so that no two numbers of the same
//! kind differ by a factor: time in `_ns`, frequency in `_khz`.

use super::tree::Tree;

/// Endings that name another unit of time or frequency.
const OTHER: [(&str, &str); 8] = [
    ("_ms", "_ns"),
    ("_us", "_ns"),
    ("_usec", "_ns"),
    ("_usecs", "_ns"),
    ("_msec", "_ns"),
    ("_msecs", "_ns"),
    ("_hz", "_khz"),
    ("_mhz", "_khz"),
];

/// The kernel's own names, which we cannot change.
const KERNELS: [&str; 9] = [
    "timeout_ms",
    "scaling_available_frequencies_hz",
    "AVX512_elapsed_ms",
    // of cpu.max and ops.cgroup_set_bandwidth
    "period_us",
    "quota_us",
    "burst_us",
    "bw_period_us",
    "bw_quota_us",
    "bw_burst_us",
];

/// The sources that run in the kernel and those of the pure crates keep to the
/// canonical units. Elsewhere a boundary may speak seconds to people.
const FOLDERS: [&str; 6] =
    ["policy", "bpf", "kmod", "crates/dvfs", "crates/cpumodel", "crates/sim"];

/// Identifiers for times and frequencies end in `_ns` and `_khz`.
pub(crate) fn names_end_in_canonical_units(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in FOLDERS.iter().flat_map(|folder| tree.below(folder)) {
        if !matches!(file.extension(), "c" | "h" | "rs") {
            continue;
        }
        for (number, line) in file.lines() {
            for name in identifiers(without_comment(line)) {
                if let Some((ending, instead)) = other_unit(name) {
                    let what = format!("{name}: use {instead}, not {ending}");
                    complaints.push(file.at(number, &what));
                }
            }
        }
    }
    complaints
}

fn other_unit(name: &str) -> Option<(&'static str, &'static str)> {
    let lower = name.to_ascii_lowercase();
    let found = OTHER.iter().find(|(ending, _)| lower.ends_with(ending))?;
    (!KERNELS.contains(&name)).then_some(*found)
}

/// The line up to a comment; nothing of a line inside a block comment.
fn without_comment(line: &str) -> &str {
    let trimmed = line.trim_start();
    if trimmed.starts_with('*') {
        return "";
    }
    let end = line.find("//").into_iter().chain(line.find("/*")).min();
    &line[..end.unwrap_or(line.len())]
}

fn identifiers(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_units_are_found_in_code_only() {
        let code = "u64 slice_us; /* not slice_ms */\n * hold_ms in prose\nu64 slice_ns;\n\
                    #define TL_RELAX_MS 1\nops.timeout_ms = 30000;\n";
        let tree = Tree::of(&[("policy/task.h", code), ("crates/cli/src/a.rs", "let a_ms = 1;\n")]);
        let complaints = names_end_in_canonical_units(&tree);
        assert_eq!(
            complaints,
            [
                "policy/task.h:1: slice_us: use _ns, not _us",
                "policy/task.h:4: TL_RELAX_MS: use _ns, not _ms",
            ]
        );
    }
}
