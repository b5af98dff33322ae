// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which method of setting P-states is chosen.
//!
//! | method | where | what it needs |
//! |---|---|---|
//! | `setspeed` | cpufreq's governor `userspace` and `scaling_setspeed` | a driver that offers the governor; root |
//! | `limits` | cpufreq's `scaling_min_freq`, `scaling_max_freq`; the governor stays | a driver; root |
//! | `scheduler` | a sched_ext scheduler that takes targets of threads (`scheduler.rs`); nothing is set | governor `schedutil`, such a scheduler |
//! | `msr` | the CPU's registers through `/dev/cpu/N/msr` or `msr_safe` (`msr/`) | root, or msr-safe's list |
//! | `simulated` | a model of a machine (`simulated.rs`); only if asked for | nothing |
//! | none | | |
//!
//! The first that works is chosen, in this order. The governor `userspace` is preferred, since it
//! sets a frequency within the system call; limits are applied by a worker of the kernel later. A
//! scheduler comes after them, since it takes only requests for threads; it is the method for an
//! unprivileged user. Registers come last, since a cpufreq driver would write the same registers.
//! Without a driver they are the only method, and the one that TURBO used.

use crate::backend::{Found, Machine, TakesTargets, Way};
use crate::setting::Specs;
use crate::{cpufreq, msr, scheduler};

/// Which method was chosen, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The method.
    pub way: Way,
    /// One sentence: what it is, and why those before it were not taken.
    pub why: String,
}

/// Chooses the method: the requested one, or the first that works. Without `scheduler`, requests
/// for threads are not possible.
pub(crate) fn choose(
    machine: &Machine,
    specs: &mut Specs,
    wanted: Option<Way>,
    scheduler: Option<TakesTargets<'_>>,
) -> (Choice, Option<Found>) {
    let ways = [Way::Setspeed, Way::Limits, Way::Scheduler, Way::Msr];
    let is_tried = |way: &Way| match wanted {
        Some(wanted) => wanted == *way,
        None => *way != Way::Scheduler || scheduler.is_some(),
    };
    let mut refused = Vec::new();
    for way in ways.into_iter().filter(is_tried) {
        let mut ours = Specs::default();
        let found = match way {
            Way::Msr => msr::find(machine, &mut ours),
            Way::Scheduler => scheduler::find(machine, scheduler),
            _ => cpufreq::find(machine, &mut ours, way),
        };
        match found {
            Ok(found) => {
                *specs = ours;
                let mut why = format!("{}: {}", way.name(), found.what);
                if !refused.is_empty() {
                    why += &format!("; not {}", refused.join("; not "));
                }
                return (Choice { way, why }, Some(found));
            }
            Err(reason) => refused.push(format!("{}: {reason}", way.name())),
        }
    }
    let why = if refused.is_empty() { "as requested".to_string() } else { refused.join("; ") };
    (Choice { way: Way::None, why: format!("none: {why}") }, None)
}
