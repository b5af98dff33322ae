// SPDX-License-Identifier: MIT OR Apache-2.0
//! P-states by a scheduler that passes each thread's request to the frequency governor: the lane's,
//! under sched_ext (policy/target.h, bpf/target.bpf.h).
//!
//! Problem: setting P-states takes root, is a system call, and belongs to CPUs, while it is threads
//! that are in a hurry and are moved from CPU to CPU.
//!
//! Idea: a thread has a *target*, a share of a CPU's capacity, in memory that it shares with the
//! scheduler, which passes it to the governor of whichever CPU the thread runs on. No setting of
//! the machine changes, so nothing has to be restored: a target ends with its thread, and all of
//! them with the scheduler.
//!
//! This file decides whether the machine supports it, and converts targets and frequencies. The
//! crate `turbolane` communicates with the scheduler; a request for a CPU is refused
//! ([`Error::ByThread`]).
//!
//! Only the governor `schedutil` is suitable: under others the kernel stores targets but does not
//! use them.
//!
//! ```text
//!   schedutil:  frequency = 1.25 * target / 1024 * fastest, then the next P-state above
//!   hence:      target    = 1024 * 0.8 * frequency / fastest, rounded down
//! ```
//!
//! (kernel/sched/cpufreq_schedutil.c: `sugov_effective_cpu_perf` adds the quarter, `get_next_freq`
//! scales by `cpuinfo.max_freq`.) The slowest and the fastest are asked for as 1 and 1024.
//!
//! Limits: where the kernel does not know a CPU's fastest clock (no APERF and MPERF, as in most
//! virtual machines, or a CPU whose turbo it cannot read), schedutil scales by the present clock:
//! then there are only the slowest and the fastest, with the border at 655 of 1024, reached by one
//! step per tick. A thread that migrates to a CPU with another fastest clock takes the share along,
//! not the frequency.

use crate::backend::{Backend, Found, Machine, TakesTargets, Unit};
use crate::cpufreq::{cpus, driver, file, policies, speeds};
use crate::error::Error;
use crate::journal::Journal;
use crate::speeds::Speeds;

/// The whole capacity of a CPU.
const ONE: u32 = 1024;

/// The governor that listens.
const LISTENS: &str = "schedutil";

/// Looks whether the governor listens on all CPUs and a scheduler speaks; else why not.
pub(crate) fn find(
    machine: &Machine,
    scheduler: Option<TakesTargets<'_>>,
) -> Result<Found, String> {
    let names = policies(machine)?;
    let driver = driver(machine, &names);
    let mut units = Vec::new();
    for name in &names {
        let cpus = cpus(machine, &file(name, "affected_cpus"));
        if cpus.is_empty() {
            continue; // all its CPUs are offline
        }
        let governor = machine.text(&file(name, "scaling_governor")).unwrap_or_default();
        if governor != LISTENS {
            return Err(format!(
                "{name} has governor {governor}, and only {LISTENS} listens to a scheduler (root can set it: cpupower \
                 frequency-set -g {LISTENS}; intel_pstate and amd-pstate need their passive mode for it)"
            ));
        }
        let speeds = speeds_up_to_fastest(machine, name)
            .ok_or_else(|| format!("{name} names no frequencies"))?;
        units.push(Unit { cpus, speeds });
    }
    if units.is_empty() {
        return Err(format!("no policy of {driver} has an online CPU"));
    }
    match scheduler {
        Some(takes_targets) => takes_targets()?,
        None => return Err("it takes requests for threads only, through a session".into()),
    }
    let what = format!(
        "targets of threads, by the lane's scheduler and governor {LISTENS}, cpufreq driver {driver}, {} policies",
        units.len()
    );
    Ok(Found { backend: Box::new(ByThread), units, what })
}

/// A policy's frequencies, up to the one that schedutil scales by: that may be above acpi-cpufreq's
/// table.
fn speeds_up_to_fastest(machine: &Machine, policy: &str) -> Option<Speeds> {
    let speeds = speeds(machine, |name| file(policy, name))?;
    let fastest = machine.number(&file(policy, "cpuinfo_max_freq"));
    let Some(fastest_khz) = fastest.filter(|khz| *khz > speeds.turbo_khz) else {
        return Some(speeds);
    };
    let Speeds { slow_khz, base_khz, mut table_khz, .. } = speeds;
    if table_khz.is_empty() {
        return Speeds::of_range(slow_khz, fastest_khz, Some(base_khz));
    }
    table_khz.push(fastest_khz);
    Speeds::of_table(table_khz, Some(base_khz))
}

/// What to ask for to have this frequency.
pub(crate) fn target_q10(speeds: &Speeds, khz: u32) -> u32 {
    if khz >= speeds.turbo_khz {
        return ONE;
    }
    if khz <= speeds.slow_khz {
        return 1;
    }
    let share_q10 = u64::from(khz) * u64::from(ONE) * 4 / 5 / u64::from(speeds.turbo_khz);
    (share_q10 as u32).max(1)
}

/// Sets nothing: requests for CPUs do not concern it.
struct ByThread;

impl Backend for ByThread {
    fn prepare(&self, _journal: &Journal, _unit: usize) -> Result<(), Error> {
        Err(Error::ByThread)
    }

    fn set(&self, _: &Journal, _unit: usize, _khz: u32, _surely: bool) -> Result<(), Error> {
        Err(Error::ByThread)
    }

    fn rest(&self, _journal: &Journal, _unit: usize) -> Result<(), Error> {
        Ok(())
    }

    fn release(&self, _journal: &Journal, _unit: usize) -> Result<(), Error> {
        Ok(())
    }

    fn turbo(&self, _journal: &Journal, _on: Option<bool>) -> Result<bool, Error> {
        Err(Error::NoTurboSwitch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// schedutil's choice, as the head of this file has it.
    fn schedutil_khz(speeds: &Speeds, target_q10: u32) -> u32 {
        let perf = (target_q10 + target_q10 / 4).min(ONE);
        let raw_khz = u64::from(speeds.turbo_khz) * u64::from(perf) / u64::from(ONE);
        let above = speeds.table_khz.iter().find(|khz| u64::from(**khz) >= raw_khz);
        *above.unwrap_or(&speeds.turbo_khz)
    }

    /// What is asked for each P-state of two machines is what makes schedutil choose it.
    #[test]
    fn schedutil_understands() {
        let fx_8120 = [4_000, 3_400, 3_100, 2_800, 2_300, 1_900, 1_400];
        let i7_4770 = [3_900, 3_401, 3_400, 2_800, 2_100, 1_500, 800];
        for mhz in [fx_8120, i7_4770] {
            let table = mhz.map(|mhz| mhz * 1_000).to_vec();
            let speeds = Speeds::of_table(table, None).unwrap();
            // 3,401 and 3,400 MHz are one step of 1024 apart at most
            for khz in speeds.table_khz.iter().filter(|khz| **khz != 3_401_000) {
                let target_q10 = target_q10(&speeds, *khz);
                assert_eq!(schedutil_khz(&speeds, target_q10), *khz, "{target_q10}");
            }
        }
    }

    /// The ends are asked for as such, whatever lies between.
    #[test]
    fn the_ends_are_ends() {
        let range = Speeds::of_range(800_000, 3_700_000, None).unwrap();
        assert_eq!((target_q10(&range, 800_000), target_q10(&range, 3_700_000)), (1, ONE));
        assert_eq!(target_q10(&range, 1_850_000), 409);
    }
}
