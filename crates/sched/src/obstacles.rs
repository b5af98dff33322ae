// SPDX-License-Identifier: MIT OR Apache-2.0
//! What prevents a scheduler from running on this machine. `doctor` reports it, `run` and
//! [`Lane::start`](crate::lane::Lane::start) refuse by it: one place, so that they cannot disagree.

use cpumodel::TopologyError;
use hw::kernel::{Kernel, Release, Rights};
use hw::{Facts, xcr0};
use report::problem::Problem;

use crate::config::{Components, Mode};
use crate::error::{Error, Result};

/// The first kernel with sched_ext.
const FIRST_RELEASE: (u32, u32) = (6, 12);

/// The series on whose kernels the scheduler's tests run (testbed/versions.toml); sched_ext's
/// interface to BPF differs between others, and what `bpf/compat.bpf.h` does about that is tried
/// out nowhere.
const TESTED_SERIES: &[(u32, u32)] = &[(7, 3)];

/// The kernel's word for the state without a scheduler.
const DISABLED: &str = "disabled";

/// The name of our scheduler (bpf/main.bpf.c).
const OURS: &str = "turbolane";

/// Whether the scheduler is tested on kernels of this series.
pub fn is_tested(release: &Release) -> bool {
    TESTED_SERIES.contains(&(release.major, release.minor))
}

/// Something that keeps a scheduler from running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// What, why, what next.
    pub problem: Problem,
    /// The affinity mode would work all the same.
    pub affinity_helps: bool,
    /// The user can remove it at once; else the machine or the rights must change.
    pub mendable: bool,
}

impl From<Obstacle> for Error {
    fn from(obstacle: Obstacle) -> Self {
        if obstacle.mendable {
            Error::BadInput(obstacle.problem)
        } else {
            Error::Unsupported(obstacle.problem)
        }
    }
}

/// A mode that can run here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// `Scx` or `Affinity`.
    pub mode: Mode,
    /// Why it is not the scheduler although the user left the choice to us.
    pub instead_of_scx: Option<Obstacle>,
}

/// The mode to run in, or why none is possible here.
pub fn choose_mode(asked: Mode, kernel: &Kernel, rights: &Rights) -> Result<Choice> {
    if let Some(obstacle) = of_rights(rights) {
        return Err(obstacle.into());
    }
    match (asked, of_scx(kernel)) {
        (Mode::Affinity, _) => Ok(Choice { mode: Mode::Affinity, instead_of_scx: None }),
        (_, None) => Ok(Choice { mode: Mode::Scx, instead_of_scx: None }),
        (Mode::Auto, Some(obstacle)) if obstacle.affinity_helps => {
            Ok(Choice { mode: Mode::Affinity, instead_of_scx: Some(obstacle) })
        }
        (_, Some(obstacle)) => Err(obstacle.into()),
    }
}

/// The kernel as it will be when a scheduler of ours has gone, if there is one: what a run that
/// takes over from it finds.
pub fn without_ours(mut kernel: Kernel) -> Kernel {
    if let Some(sched_ext) = &mut kernel.sched_ext
        && sched_ext.ops.as_deref() == Some(OURS)
    {
        (sched_ext.state, sched_ext.ops) = (DISABLED.into(), None);
    }
    kernel
}

/// What keeps every mode from running: rights.
pub fn of_rights(rights: &Rights) -> Option<Obstacle> {
    if rights.root && rights.can_load_bpf() {
        return None;
    }
    let why = if rights.root {
        "this root has neither CAP_SYS_ADMIN nor CAP_BPF and CAP_PERFMON (a container?)"
    } else {
        "only root may change how a machine schedules"
    };
    let next = if rights.root {
        "run it outside the container, or give the container these capabilities"
    } else {
        "run it with sudo; turbolane doctor needs no root"
    };
    let problem = Problem::new("cannot take over scheduling", why, next);
    Some(Obstacle { problem, affinity_helps: false, mendable: false })
}

/// What keeps the sched_ext scheduler from running on this kernel and these CPUs, rights aside.
pub fn of_scx(kernel: &Kernel) -> Option<Obstacle> {
    let what = "cannot load the sched_ext scheduler";
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
    if !kernel.isolated.is_empty() {
        // scx_enable() in kernel/sched/ext.c: from 6.12 on it compares the CPUs of HK_TYPE_DOMAIN
        // with the possible ones, newer ones ask for HK_TYPE_DOMAIN_BOOT. Both are what the file
        // shows.
        return lacks(
            format!(
                "CPUs {} are isolated (isolcpus=), and then Linux loads no scheduler",
                kernel.isolated
            ),
            "boot without isolcpus= (a cpuset partition can isolate CPUs instead), or use --mode affinity",
        );
    }
    if sched_ext.state != DISABLED {
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

/// The CPUs cannot be read, or there are too many of them for any mode.
pub fn of_topology(error: &TopologyError) -> Error {
    let TopologyError::TooMany { .. } = error else {
        let next = "is /sys mounted? If it is, report this with turbolane doctor --record";
        return Error::Failed(Problem::new(
            "cannot find out which CPUs there are",
            error.to_string(),
            next,
        ));
    };
    Error::Unsupported(Problem::new(
        "cannot run on so many CPUs",
        format!("{error}; all tables hold {} CPUs", policy::CPUS_MAX),
        format!("boot with nr_cpus={} on the kernel command line", policy::CPUS_MAX),
    ))
}

/// What keeps the recorder from running here; with marks it needs more.
pub fn of_recording(marks: bool, facts: &Facts) -> Option<Problem> {
    let what = "cannot record";
    let (kernel, rights) = (&facts.kernel, &facts.rights);
    if !rights.can_load_bpf() {
        let why = "it needs CAP_SYS_ADMIN, or CAP_BPF and CAP_PERFMON";
        return Some(Problem::new(what, why, "run it with sudo, outside a container"));
    }
    if !kernel.btf {
        let why = format!("Linux {} carries no type information (BTF)", kernel.release);
        return Some(Problem::new(what, why, "boot a kernel built with CONFIG_DEBUG_INFO_BTF"));
    }
    if marks && !kernel.uprobes {
        let why = format!("Linux {} has no uprobes, which marks need", kernel.release);
        return Some(Problem::new(what, why, "record without marks"));
    }
    None
}

/// What keeps the trap module from withholding these components here.
pub fn of_trap(components: Components, facts: &Facts) -> Option<Problem> {
    let what = format!("cannot use --trap {components}");
    let wanted = match components {
        Components::None => return None,
        Components::Avx512 => xcr0::AVX512,
        Components::Avx => xcr0::AVX,
        Components::Amx => xcr0::AMX,
    };
    if facts.cpu.xcr0.unwrap_or(0) & wanted != wanted {
        let why = format!("this CPU, or its kernel, has no {components}");
        return Some(Problem::new(what, why, "there is nothing to trap: leave --trap out"));
    }
    if !facts.cpu.features.xgetbv1 {
        let why = "this CPU cannot report which registers are in use (XGETBV with ECX=1)";
        return Some(Problem::new(what, why, "use hints and marks"));
    }
    let modules = &facts.kernel.modules;
    if !modules.supported || modules.disabled {
        let why = "the kernel loads no modules";
        return Some(Problem::new(what, why, "boot without modules_disabled and nomodule"));
    }
    if modules.realtime {
        let why = "the module turbolane_trap cannot work on a kernel built with PREEMPT_RT";
        return Some(Problem::new(what, why, "use hints and marks, or boot another kernel"));
    }
    if !modules.trap_installed {
        let why =
            format!("the module turbolane_trap is not installed for {}", facts.kernel.release);
        let next = "install it by DKMS, as docs/kernel-module.md describes";
        return Some(Problem::new(what, why, next));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use hw::kernel::Capability;
    use std::path::Path;

    const ROOT: Rights =
        Rights { root: true, capabilities: 1 << Capability::SysAdmin as u32, cpus: None };

    /// A recorded machine, and changes to its kernel.
    fn facts(machine: &str) -> Facts {
        let machines = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/machines");
        Facts::read(&hw::Recorded::open(&machines.join(machine)).unwrap()).unwrap()
    }

    /// The mode chosen, or the exit code of the refusal.
    fn chosen(asked: Mode, facts: &Facts) -> std::result::Result<Mode, u8> {
        let choice = choose_mode(asked, &facts.kernel, &ROOT);
        choice.map(|choice| choice.mode).map_err(|error| error.exit_code())
    }

    /// A mode that the machine cannot do is never chosen; `auto` takes what is left.
    #[test]
    fn chooses_what_the_machine_can_do() {
        use Mode::{Affinity, Auto, Scx};
        let scx = facts("skylake-sp");
        let (old, busy) = (facts("cascade-lake-old-kernel"), facts("epyc-genoa"));
        let isolated = facts("ice-lake-isolated");
        for (asked, facts, expected) in [
            (Auto, &scx, Ok(Scx)),
            (Scx, &scx, Ok(Scx)),
            (Affinity, &scx, Ok(Affinity)),
            (Auto, &old, Ok(Affinity)),
            (Scx, &old, Err(77)),
            (Affinity, &old, Ok(Affinity)),
            (Auto, &busy, Err(2)),
            (Scx, &busy, Err(2)),
            (Affinity, &busy, Ok(Affinity)),
            (Auto, &isolated, Ok(Affinity)),
            (Scx, &isolated, Err(77)),
            (Affinity, &isolated, Ok(Affinity)),
        ] {
            assert_eq!(chosen(asked, facts), expected, "{asked} on {}", facts.kernel.release);
        }
        let why = |facts: &Facts| of_scx(&facts.kernel).unwrap().problem.why;
        assert!(why(&old).contains("has no sched_ext"));
        assert!(why(&isolated).contains("CPUs 2-3 are isolated"), "{}", why(&isolated));
    }

    /// Without root, and for root without capabilities, every mode is refused.
    #[test]
    fn lacking_rights_fail() {
        for rights in [Rights::default(), Rights { root: true, ..Rights::default() }] {
            for asked in [Mode::Auto, Mode::Scx, Mode::Affinity] {
                let facts = facts("skylake-sp");
                let refusal = choose_mode(asked, &facts.kernel, &rights).unwrap_err();
                assert_eq!(refusal.exit_code(), 77);
            }
        }
    }
}
