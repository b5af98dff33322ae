// SPDX-License-Identifier: MIT OR Apache-2.0
//! How kernels differ is known in one place.

use super::tree::Tree;

/// The place, and the recorder's programs, which are another object and use no sched_ext.
const MAY_ASK: [&str; 2] = ["bpf/compat.bpf.h", "bpf/trace.bpf.c"];

/// What a program asks the running kernel with.
const QUESTIONS: [&str; 4] =
    ["bpf_ksym_exists(", "bpf_core_field_exists(", "bpf_core_type_exists(", "LINUX_KERNEL_VERSION"];

/// The scheduler's programs ask what a kernel has in compat.bpf.h alone.
pub(crate) fn only_compat_asks_what_a_kernel_has(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in tree.below("bpf").filter(|file| !MAY_ASK.contains(&file.path.as_str())) {
        for (number, line) in file.lines() {
            if let Some(found) = QUESTIONS.iter().find(|question| line.contains(**question)) {
                let what = format!("{found} belongs in bpf/compat.bpf.h, as a function");
                complaints.push(file.at(number, &what));
            }
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_elsewhere_is_found() {
        let asks = "x\n\tif (bpf_ksym_exists(scx_bpf_kick_cpu))\n";
        let tree = Tree::of(&[
            ("bpf/compat.bpf.h", asks),
            ("bpf/place.bpf.h", asks),
            ("bpf/serve.bpf.h", "tl_scx_reenqueue_local();\n"),
            ("docs/x.md", asks),
        ]);
        let complaints = only_compat_asks_what_a_kernel_has(&tree);
        assert_eq!(complaints.len(), 1, "{complaints:?}");
        assert!(complaints[0].starts_with("bpf/place.bpf.h:2: "), "{complaints:?}");
    }
}
