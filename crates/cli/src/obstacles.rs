// SPDX-License-Identifier: MIT OR Apache-2.0
//! What stands between this machine and a running scheduler. `doctor` reports it, `run` refuses
//! by it: one place, so that the two cannot disagree.

use hw::Facts;
use report::problem::Problem;
use sched::config::Components;

use crate::failure::Failure;

/// The first kernel with sched_ext.
const FIRST_RELEASE: (u32, u32) = (6, 12);

// XCR0 (SDM volume 1, 13.3): what user code can use only if all these bits are set.
const XCR0_AVX: u64 = 1 << 2;
const XCR0_AVX512: u64 = 7 << 5;
const XCR0_AMX: u64 = 3 << 17;

/// Something that keeps a scheduler from running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Obstacle {
    /// What, why, what next.
    pub problem: Problem,
    /// The affinity mode would work all the same.
    pub affinity_helps: bool,
    /// The user can take it out of the way at once; else the machine or the rights must change.
    pub mendable: bool,
}

impl Obstacle {
    /// The failure of a run that meets it.
    pub(crate) fn into_failure(self) -> Failure {
        if self.mendable {
            Failure::failed(self.problem)
        } else {
            Failure::unsupported(self.problem)
        }
    }
}

/// What keeps every mode from running: rights.
pub(crate) fn rights_obstacle(facts: &Facts) -> Option<Obstacle> {
    let rights = &facts.rights;
    if rights.root && rights.can_load_bpf() {
        return None;
    }
    let why = if rights.root {
        "this root has neither CAP_SYS_ADMIN nor CAP_BPF and CAP_PERFMON (a container?)"
    } else {
        "only root may change how a machine schedules"
    };
    let next = if rights.root {
        "run it outside of the container, or give the container these capabilities"
    } else {
        "run it by sudo; turbolane doctor needs no root"
    };
    let problem = Problem::new("cannot take over scheduling", why, next);
    Some(Obstacle { problem, affinity_helps: false, mendable: false })
}

/// What keeps the sched_ext scheduler from running on this kernel, rights aside.
pub(crate) fn scx_obstacle(facts: &Facts) -> Option<Obstacle> {
    let what = "cannot load the sched_ext scheduler";
    let kernel = &facts.kernel;
    let release = &kernel.release;
    let (major, minor) = FIRST_RELEASE;
    let lacks = |why: String, next: &str| {
        let problem = Problem::new(what, why, next);
        Some(Obstacle { problem, affinity_helps: true, mendable: false })
    };
    if !release.at_least(major, minor) {
        return lacks(
            format!("Linux {release} has no sched_ext, which came with {major}.{minor}"),
            "boot a newer kernel, or use --mode affinity",
        );
    }
    let Some(sched_ext) = &kernel.sched_ext else {
        return lacks(
            format!("Linux {release} was built without CONFIG_SCHED_CLASS_EXT"),
            "boot a kernel that has it (on Debian 13: the one of backports), or use --mode affinity",
        );
    };
    if !kernel.btf {
        return lacks(
            format!("Linux {release} carries no type information (/sys/kernel/btf/vmlinux)"),
            "boot a kernel built with CONFIG_DEBUG_INFO_BTF, or use --mode affinity",
        );
    }
    if sched_ext.state != "disabled" {
        let ops = sched_ext.ops.as_deref().unwrap_or("another one");
        let problem = Problem::new(
            what,
            format!("the scheduler \"{ops}\" is loaded, and the kernel runs one at a time"),
            "stop it first; if it is another turbolane, change it by turbolane ctl",
        );
        return Some(Obstacle { problem, affinity_helps: false, mendable: true });
    }
    None
}

/// What keeps the trap module from withholding these components here.
pub(crate) fn trap_obstacle(components: Components, facts: &Facts) -> Option<Problem> {
    let what = format!("cannot use --trap {components}");
    let wanted = match components {
        Components::None => return None,
        Components::Avx512 => XCR0_AVX512,
        Components::Avx => XCR0_AVX,
        Components::Amx => XCR0_AMX,
    };
    if facts.cpu.xcr0.unwrap_or(0) & wanted != wanted {
        let why = format!("this CPU, or its kernel, has no {components}");
        return Some(Problem::new(what, why, "there is nothing to trap: leave --trap out"));
    }
    if !facts.cpu.features.xgetbv1 {
        let why = "this CPU cannot tell which registers are in use (XGETBV with ECX=1)";
        return Some(Problem::new(what, why, "use hints and marks"));
    }
    let modules = &facts.kernel.modules;
    if !modules.supported || modules.disabled {
        let why = "the kernel loads no modules";
        return Some(Problem::new(what, why, "boot without modules_disabled and nomodule"));
    }
    if !modules.trap_installed {
        let why =
            format!("the module turbolane_trap is not installed for {}", facts.kernel.release);
        let next = "install it by DKMS, as docs/kernel-module.md describes";
        return Some(Problem::new(what, why, next));
    }
    None
}
