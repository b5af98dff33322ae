// SPDX-License-Identifier: MIT OR Apache-2.0
//! DIM's figures about the clock of one core: costs of a change (4.1), break-even times (4.3), the
//! web server's trace under policies (6.2.2), and one change by hand (6.3). Replays take
//! milliseconds, so each figure makes its own.
//!
//! DIM's trace is not published; `data/timelines/dim-nginx.toml` replaces it, as well as a
//! recording of our own (`recorded.rs`). Its i9-7940X ran without turbo.
//!
//! One change by hand: the processor keeps a licence of its own, 3.0 GHz with minimal offsets,
//! below which software asks for 2.4 GHz and takes it back. To the replay that is a core with a
//! third level, whose hold is what software waits. Of its 1,000 runs DIM takes the 5th percentile;
//! a request of software waits up to 500 us, evenly distributed as it seems (5.3.1), so 25 us here.
//!
//! DIM's simulator applies a policy to the trace and then "dilates the time" at the low clock
//! (6.2.2): a timeout of 670 us passes in the trace's time, in which all work runs at the high
//! clock, and takes 670 * 3.1 / 2.4 at the low one. So the 195 us of 6.3 are 670 * (3.1 / 2.4 - 1).
//! Rows that it says are simulated are simulated here by its method; those that it measured, with
//! timeouts in real time.
//!
//! Turbolane's own policy next to the paper's is `share`, which learns and knows nothing of the
//! application.

use crate::comparison::Measure;
use crate::published::Config;
use cpumodel::{CpuModel, Platform};
use dvfs::policy::{Fixed, Policy, Raise, View};
use dvfs::{Core, Model, Outcome, Quiet, Spec, Timeline, break_even_ns, replay};

use super::change::{Change, ClockSetting, Instead};
use super::recorded;

/// DIM 6.2.1: the clock above level 0 with minimal AVX offsets.
const FLAT_KHZ: u32 = 3_000_000;
/// DIM 6.2.2: the shorter timeout.
const SHORT_NS: u64 = 180_000;
/// 5th percentile of the delay of a change by software, see the module.
const MANUAL_DELAY_NS: u64 = 25_000;
/// Seed of the drawn requests: the figures hold for any, to a hundredth of a point.
const SEED: u64 = 1;
/// Long enough for any timeout here, cycles of level 0.
const LONG: u64 = 20_000_000;

impl ClockSetting {
    fn of(instead: Instead) -> ClockSetting {
        let mut setting = ClockSetting { software_extra_ns: 0 };
        for altered in instead.altered() {
            if let Change::Clock(change) = &altered.change {
                change(&mut setting);
            }
        }
        setting
    }
}

/// The figure of a row, in its unit; `None` if it is not one of these.
pub(super) fn figure(id: &str, instead: Instead) -> Option<f64> {
    let setting = ClockSetting::of(instead);
    let scalar = |policy| Some(scalar_ns(policy, &setting)? / 1e3);
    match id {
        "dim-relax" => Some(held_ns(&base("core-i9-7940x")?) / 1e3),
        "dim-down-avx2" => mean(1..=16, |active| down_ns(active, 1)),
        "dim-down-avx512" => mean(1..=16, |active| down_ns(active, 2)),
        "dim-up" => mean(1..=16, up_ns),
        "dim-break-even-few" => mean(1..=3, |active| break_even_ns(&gold(active)?, 1, 0)),
        "dim-break-even-many" => mean(9..=16, |active| break_even_ns(&gold(active)?, 1, 0)),
        // one gap teaches nothing: there is no policy of ours to compare with
        _ if matches!(instead, Instead::Turbolane) => None,
        "dim-one-change-simulated" => Some(scalar("dilated")? - scalar("at-once")?),
        "dim-one-change-flat" => Some(scalar("unmodified")? - scalar("flat")?),
        "dim-one-change-eager" => Some(scalar("unmodified")? - scalar("eager")?),
        "dim-one-change-eager-flat" => Some(scalar("eager")? - scalar("flat")?),
        _ => None,
    }
}

/// A measure of a configuration that is a replay; `None` if it is none.
pub(super) fn measure(config: &Config, measure: Measure, instead: Instead) -> Option<f64> {
    match (config.workload.as_str(), measure) {
        ("nginx-openssl-noht", Measure::CpuTime) => request_ns(&config.machine, &config.variant),
        (workload @ ("nginx-openssl-trace" | "nginx-openssl-recorded"), Measure::Throughput) => {
            let (platform, core) = (platform(&config.machine)?, base(&config.machine)?);
            let spec = match (config.policy.as_str(), instead) {
                ("unmodified", _) => Spec::Fixed(dilated_ns(core.times.relax_ns, &core)),
                // ours knows nothing of the application
                (_, Instead::Turbolane) => Spec::Share,
                ("timeout-180", _) => Spec::Fixed(dilated_ns(SHORT_NS, &core)),
                ("hints", _) => Spec::Hints(u64::MAX),
                _ => return None,
            };
            // DIM's trace takes the whole calls into OpenSSL for wide code
            let out = if workload == "nginx-openssl-recorded" {
                let timeline = recorded::timeline(&core)?;
                spec.run(&core, &[&timeline], SEED).ok()?
            } else {
                server(&platform, &core, "calls", spec)?
            };
            Some(out.requests() as f64 / out.time_ns as f64 * 1e9)
        }
        ("one-change", Measure::LatencyMax) => {
            scalar_ns(&config.policy, &ClockSetting::of(instead))
        }
        _ => None,
    }
}

/// What a timeout of the trace's time takes at the clock of level 2, as DIM's simulator has it.
fn dilated_ns(timeout_ns: u64, core: &Core) -> u64 {
    (timeout_ns as f64 * core.cycles_per_ns(0) / core.cycles_per_ns(2)) as u64
}

fn platform(id: &str) -> Option<Platform> {
    Some(Platform::new(&CpuModel::built_in(id)?.ok()?))
}

/// Without turbo.
fn base(id: &str) -> Option<Core> {
    let model = CpuModel::built_in(id)?.ok()?;
    Core::at_base(&Platform::new(&model), &model)
}

fn gold(active: usize) -> Option<Core> {
    Some(Core::new(&platform("xeon-gold-6130")?, active))
}

/// Mean over numbers of active cores, us.
fn mean(active: std::ops::RangeInclusive<usize>, of: impl Fn(usize) -> Option<f64>) -> Option<f64> {
    let values = active.map(of).collect::<Option<Vec<f64>>>()?;
    Some(values.iter().sum::<f64>() / values.len() as f64 / 1e3)
}

fn server(platform: &Platform, core: &Core, variant: &str, spec: Spec) -> Option<Outcome> {
    let timeline = Model::built_in("dim-nginx")?.ok()?.timeline(platform, Some(variant), SEED)?;
    spec.run(core, &[&timeline], SEED).ok()
}

/// CPU time of a request to the server of DIM 2, without hyperthreading, with turbo and all cores
/// active.
pub(super) fn request_ns(machine: &str, variant: &str) -> Option<f64> {
    let platform = platform(machine)?;
    let core = Core::new(&platform, platform.nr_cores);
    let out = server(&platform, &core, variant, Spec::Fixed(core.times.relax_ns))?;
    Some(out.cpus[0].busy_ns as f64 / out.requests() as f64)
}

/// Wide code of a level, long enough for its licence, then scalar code.
fn burst(level: u8, scalar_cycles: u64) -> Timeline {
    let mut timeline = Timeline::default();
    timeline.push_code(level, LONG);
    timeline.push_code(0, scalar_cycles);
    timeline
}

fn under(core: &Core, timeline: &Timeline, policy: &mut dyn Policy) -> Outcome {
    replay(core, &[timeline], policy, &mut Quiet)
}

/// How long the clock stays low after wide code.
fn held_ns(core: &Core) -> f64 {
    let mut policy = Fixed { timeout_ns: core.times.relax_ns };
    let mut at_2_ns = |scalar| under(core, &burst(2, scalar), &mut policy).level_ns[2] as f64;
    at_2_ns(LONG) - at_2_ns(0)
}

/// CPU time that wide code loses because it begins at level 0 (DIM 4.1).
fn down_ns(active: usize, level: u8) -> Option<f64> {
    let core = gold(active)?;
    Some(under(&core, &burst(level, 0), &mut Fixed { timeout_ns: u64::MAX }).lost_ns())
}

/// CPU time that scalar code loses because the clock is raised in it.
fn up_ns(active: usize) -> Option<f64> {
    let core = gold(active)?;
    let lost_ns = |scalar| under(&core, &burst(1, scalar), &mut Fixed { timeout_ns: 0 }).lost_ns();
    Some(lost_ns(LONG) - lost_ns(0))
}

/// Time of scalar code after wide code in the experiment of DIM 6.3.
fn scalar_ns(policy: &str, setting: &ClockSetting) -> Option<f64> {
    let mut core = base("core-i9-7940x")?;
    let mut hardware = Fixed { timeout_ns: core.times.relax_ns };
    let mut dilated = Fixed { timeout_ns: dilated_ns(core.times.relax_ns, &core) };
    let mut at_once = Fixed { timeout_ns: 0 };
    let mut manual = Manual { delay_ns: MANUAL_DELAY_NS, hardware };
    let (policy, extra_ns): (&mut dyn Policy, u64) = match policy {
        "unmodified" => (&mut hardware, 0),
        "dilated" => (&mut dilated, 0),
        "at-once" => (&mut at_once, 0),
        "flat" => {
            core.clock_khz[1..].fill(FLAT_KHZ);
            (&mut hardware, 0)
        }
        "eager" => {
            core.clock_khz[1] = FLAT_KHZ;
            (&mut manual, setting.software_extra_ns)
        }
        _ => return None,
    };
    let mut time_ns = |scalar| under(&core, &burst(2, scalar), policy).time_ns;
    let (with, without) = (time_ns(LONG), time_ns(0));
    Some((with - without + extra_ns) as f64)
}

/// The hardware holds level 1, and software level 2.
struct Manual {
    delay_ns: u64,
    hardware: Fixed,
}

impl Policy for Manual {
    fn wait(&mut self, view: &View<'_>) -> Option<Raise> {
        if view.license.level() < 2 {
            return self.hardware.wait(view);
        }
        let at_ns = view.license.last_ns(2) + self.delay_ns;
        Some(Raise { at_ns, to: 1 })
    }
}
