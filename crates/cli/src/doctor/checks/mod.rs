// SPDX-License-Identifier: MIT OR Apache-2.0
//! The checks of `turbolane doctor`, by section.

mod cpu;
pub(crate) mod effects;
mod groups;
mod kernel;
mod machine_file;
mod measure;
mod process;
mod throttle;
mod verdict;

use hw::Facts;
use hw::plr::{Absent, Plr};
use report::doctor::{Check, Section, Status};

/// All checks of a machine.
pub(super) fn sections(facts: &Facts) -> Vec<Section> {
    let section = |title: &str, checks| Section { title: title.into(), checks };
    vec![
        section("CPU", cpu::checks(facts)),
        section("Kernel", kernel::checks(facts)),
        section("Counters and frequency", measure::checks(facts)),
        section("What works here", verdict::checks(facts)),
    ]
}

/// Adds the check of throttle reasons after that of licence counters.
pub(super) fn add_throttle_reasons(
    sections: &mut [Section],
    facts: &Facts,
    plr: &Result<Plr, Absent>,
) {
    let Some(check) = throttle::check(facts, plr) else { return };
    for section in sections {
        let counters = section.checks.iter().position(|check| check.id == "license-counters");
        if let Some(at) = counters {
            section.checks.insert(at + 1, check);
            return;
        }
    }
}

/// What this process may use of this machine.
pub(super) fn here(facts: &Facts) -> Section {
    let allowed = hw::task::get_affinity(0).unwrap_or_else(|_| facts.topology.online());
    let checks = process::checks(facts, &allowed, hw::limits::cpu_quota(&hw::Live));
    Section { title: "This process".into(), checks }
}

/// Which settings of this machine's control groups the scheduler would honour.
pub(super) fn control_groups() -> Section {
    let support = sched::groups::Support::of_this_kernel();
    let checks = groups::checks(support, hw::cgroups::in_force());
    Section { title: "Control groups".into(), checks }
}

/// What a probe measured.
pub(super) fn measured(report: &report::probe::ProbeReport) -> Section {
    Section { title: "Measured on this CPU".into(), checks: effects::checks(report) }
}

/// What a CPU file says of this machine's CPU.
pub(super) fn of_file(model: &cpumodel::CpuModel, facts: &Facts) -> Section {
    let title = "From the machine file".into();
    Section { title, checks: machine_file::checks(model, facts) }
}

/// A check that came out as `status` and saw `seen`.
struct Seen {
    status: Status,
    seen: String,
    next: &'static str,
}

fn ok(seen: impl Into<String>) -> Seen {
    Seen { status: Status::Ok, seen: seen.into(), next: "" }
}

fn warn(seen: impl Into<String>, next: &'static str) -> Seen {
    Seen { status: Status::Warn, seen: seen.into(), next }
}

fn no(seen: impl Into<String>, next: &'static str) -> Seen {
    Seen { status: Status::No, seen: seen.into(), next }
}

fn unknown(seen: impl Into<String>, next: &'static str) -> Seen {
    Seen { status: Status::Unknown, seen: seen.into(), next }
}

impl Seen {
    /// Names the check and says why it matters.
    fn check(self, id: &str, title: &str, why: &str) -> Check {
        Check {
            id: id.into(),
            title: title.into(),
            status: self.status,
            seen: self.seen,
            why: why.into(),
            next: self.next.into(),
        }
    }
}
