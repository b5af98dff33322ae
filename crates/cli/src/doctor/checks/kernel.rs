// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks of the kernel: whether a scheduler, probes and a module can be loaded.

use hw::Facts;
use report::doctor::Check;
use sched::config::Components;
use sched::obstacles;

use super::{Seen, no, ok, unknown, warn};

pub(super) fn checks(facts: &Facts) -> Vec<Check> {
    vec![
        sched_ext(facts),
        btf(facts),
        uprobes(facts),
        rights(facts),
        modules(facts),
        trap_module(facts),
    ]
}

fn sched_ext(facts: &Facts) -> Check {
    let release = &facts.kernel.release;
    let seen = match &facts.kernel.sched_ext {
        None if !release.at_least(6, 12) => {
            no(format!("Linux {release} is older than sched_ext (6.12)"), "boot a newer kernel")
        }
        None => no(
            format!("Linux {release} was built without CONFIG_SCHED_CLASS_EXT"),
            "boot a kernel that has it",
        ),
        Some(_) if !facts.kernel.isolated.is_empty() => no(
            format!("present, but not usable while CPUs {} are isolated", facts.kernel.isolated),
            "boot without isolcpus=, or use --mode affinity",
        ),
        Some(state) if state.state == "disabled" && !obstacles::is_tested(release) => warn(
            format!("present, no scheduler is loaded; Turbolane is not tested on Linux {release}"),
            "try it on a machine that may crash, or boot Linux 7.3, on which it is tested",
        ),
        Some(state) if state.state == "disabled" => ok("present, no scheduler is loaded"),
        Some(state) => warn(
            format!("the scheduler \"{}\" is loaded", state.ops.as_deref().unwrap_or("unnamed")),
            "stop it before turbolane run: the kernel runs only one scheduler at a time",
        ),
    };
    seen.check("sched-ext", "sched_ext", "the kernel loads Turbolane's scheduler through it")
}

fn btf(facts: &Facts) -> Check {
    let seen = if facts.kernel.btf {
        ok("present")
    } else {
        no("/sys/kernel/btf/vmlinux is missing", "boot a kernel with CONFIG_DEBUG_INFO_BTF")
    };
    seen.check("btf", "Kernel types (BTF)", "BPF programs use them to find the kernel's fields")
}

fn uprobes(facts: &Facts) -> Check {
    let seen = if facts.kernel.uprobes {
        ok("present")
    } else {
        no("the kernel has no uprobes", "boot a kernel with CONFIG_UPROBE_EVENTS, or use hints")
    };
    seen.check(
        "uprobes",
        "Marks (uprobes)",
        "--mark uses uprobes to detect calls of wide functions",
    )
}

fn rights(facts: &Facts) -> Check {
    let seen = if facts.rights.can_load_bpf() {
        ok(if facts.rights.root { "root" } else { "not root, but allowed to load BPF" })
    } else if facts.rights.root {
        warn("root without CAP_SYS_ADMIN or CAP_BPF", "run it outside the container")
    } else {
        warn("not root", "run turbolane run, ctl and stats with sudo")
    };
    seen.check("rights", "Rights", "loading a scheduler requires root; this report does not")
}

fn modules(facts: &Facts) -> Check {
    let modules = &facts.kernel.modules;
    let seen: Seen = if !modules.supported {
        no("the kernel loads no modules", "use hints and marks")
    } else if modules.disabled {
        no("loading is switched off (modules_disabled or nomodule)", "boot without that setting")
    } else {
        match (modules.signatures_enforced, modules.lockdown.as_deref()) {
            (_, Some(mode @ ("integrity" | "confidentiality"))) => warn(
                format!("only signed modules (lockdown: {mode})"),
                "sign the module with a key that the firmware knows",
            ),
            (Some(true), _) => {
                warn("only signed modules", "sign the module with a key that the kernel knows")
            }
            (None, None) => {
                unknown("loadable; the kernel does not report whether unsigned ones are", "try it")
            }
            _ if !modules.build_files => warn(
                "loadable, but the files to build a module for this kernel are missing",
                "install the kernel's headers package",
            ),
            _ => ok("loadable, and the files to build one are installed"),
        }
    };
    seen.check(
        "modules",
        "Kernel modules",
        "a module can catch wide instructions that have neither a hint nor a mark",
    )
}

fn trap_module(facts: &Facts) -> Check {
    let seen: Seen = match (obstacles::of_trap(Components::Avx512, facts), &facts.cpu.hypervisor) {
        (Some(problem), _) => no(problem.why, "use hints and marks; otherwise see run --trap"),
        (None, Some(_)) => warn(
            "installed, but each change of XCR0 goes through the hypervisor",
            "use it on real hardware",
        ),
        // glibc's string functions and memset: docs/kernel-module.md, "Light use".
        (None, None) => warn(
            "installed; glibc's own AVX-512 traps too, in nearly every program",
            "start programs with turbolane run --trap avx512 --plain-glibc -- CMD",
        ),
    };
    seen.check(
        "trap",
        "Trap (AVX-512)",
        "run --trap avx512 finds wide code in programs without hints",
    )
}
