// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a section under a contended lock costs in energy (the lower halves of TURBO 7 and 9).
//!
//! Power of a busy core is the square of its voltage times its clock, that of the rest of the
//! package is constant, and a core whose thread sleeps needs none. So for each strategy it is
//! enough to know who is awake at which P-state for how long:
//!
//! ```text
//!             the section    the other threads            besides
//!   spin      base           base                         -
//!   futex     turbo          asleep                       -
//!   owner     turbo          slow, base while they write  -
//!   delegate  turbo          slow, base until they are    the writing core, at base
//!   migrate   turbo          base, except the one that   the boosted core is boosted between sections too
//!                            has moved
//! ```
//!
//! Limits: the ramp counts as turbo already, and what happens between sections as the wait around
//! it; both are small for the sections for which boosting pays. No leakage of sleeping cores. More
//! threads than cores have no energy here, since a thread would have to be descheduled.

use cpumodel::PstateModel;

use crate::Strategy;

/// What one section took, on the mean.
pub(crate) struct Times {
    /// From one release to the next.
    pub period_ns: f64,
    /// The section itself.
    pub section_ns: f64,
    /// CPU time of all threads.
    pub cpu_ns: f64,
    /// Of the time of those who wait slowly: at base, since they are not slow yet.
    pub base_ns: f64,
}

/// Energy of the package per section; `None` where its power is not known.
pub(crate) fn per_section_nj(
    model: &PstateModel,
    strategy: Strategy,
    threads: usize,
    times: &Times,
) -> Option<f64> {
    let power = model.power.as_ref()?;
    let cores = usize::try_from(2 * power.modules.value).ok()?;
    if threads > cores {
        return None;
    }
    let slow_mw = model.core_mw(model.slow_khz.value)?;
    let base_mw = model.core_mw(model.base_khz.value)?;
    let turbo_mw = model.core_mw(model.turbo_khz.value)?;
    let &Times { period_ns, section_ns, cpu_ns, base_ns } = times;
    let all_ns = period_ns * threads as f64;
    let others_ns = all_ns - section_ns;
    let base_ns = base_ns.clamp(0.0, others_ns);
    let slowly_pj = turbo_mw * section_ns + base_mw * base_ns + slow_mw * (others_ns - base_ns);
    let cores_pj = match strategy {
        Strategy::Spin => base_mw * all_ns,
        Strategy::Futex => turbo_mw * cpu_ns,
        Strategy::Owner => slowly_pj,
        Strategy::Delegate => slowly_pj + base_mw * period_ns,
        Strategy::Migrate => turbo_mw * period_ns + base_mw * (all_ns - period_ns),
    };
    let package_pj = power.package_mw.value as f64 * period_ns;
    Some((cores_pj + package_pj) / 1e3)
}
