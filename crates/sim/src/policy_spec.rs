// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which scheduler, as text: what `--policy` takes and what comparisons are named by.
//!
//! ```text
//!   fair | fair-hrtick | cfs | muqss | core-scheduling | affinity:CORES
//!   lane[:KEY=VALUE[,KEY=VALUE...]]      e.g.  lane:wide=2,detect=trap,remigrate=syscall-return
//! ```
//!
//! | key of `lane` | values | default |
//! |---|---|---|
//! | wide | number of cores, or `auto` | auto |
//! | detect | hint, mark, trap (512-bit code), trap-avx (256-bit code too), score (licence counters) | hint |
//! | remigrate | gap, last-syscall, syscall-entry, syscall-return, context-switch, timeout; several with `+`; or none | none |
//! | timeout | microseconds with `us`, or `ms`; of `remigrate=timeout` and of the fallback | 100ms |
//! | slice | the same; of wide tasks | 5ms |
//! | tiers | yes, no | no |
//! | standby | yes, no: whether `wide=auto` may stand by | yes |
//! | first-look | a time: when it first looks what could be won; `turbolane run` waits for 1000ms | 150ms |
//! | clocks | known, unknown: whether it knows the machine's clocks by level | known |
//!
//! ```text
//!   prototype[:KEY=VALUE[,KEY=VALUE...]]  e.g.  prototype:cpus=2,detect=trap,end=return
//! ```
//!
//! | key of `prototype` | values | default |
//! |---|---|---|
//! | cpus | number of wide CPUs, the most if `alpha` is given | 2 |
//! | alpha | automatic sizing: weight of the last tick, above 0, at most 1 | fixed |
//! | detect | trap (512-bit code), mark (by system calls) | trap |
//! | end | entry, return, switch, never | entry |
//! | timeout | as above: end of wide periods by time | none |
//! | slice | as above | 6ms |
//! | guests | yes, no: whether wide CPUs run scalar tasks | yes |

use std::fmt;
use std::str::FromStr;

use cpumodel::{InsnClass, LevelClocks, Platform, did_you_mean};
use policy::Remigrate;

use crate::engine::{Engine, Options, Outcome, RunError};
use crate::events::{Quiet, Sink};
use crate::program::{Group, Step, Workload};
use crate::record::{Recorder, RunRecord};
use crate::sched::Scheduler;
use crate::sched::adaptive::Adaptive;
use crate::sched::deadline::Deadline;
use crate::sched::fair::{Fair, Slices};
use crate::sched::lane::{Detect, LaneConfig, Wide};
use crate::sched::prototype::{End, Prototype, PrototypeConfig};
use crate::sys::{Layout, Sys};

/// A scheduler with its settings.
#[derive(Clone, Debug, PartialEq)]
pub enum Scheme {
    /// The kernel's fair scheduling, of today or of old.
    Fair(Slices),
    /// MuQSS.
    Muqss,
    /// Core scheduling.
    CoreScheduling,
    /// Fair scheduling; groups with wide code are bound to so many cores, all others to the rest.
    Affinity(usize),
    /// What the papers measured.
    Prototype(PrototypeConfig),
    /// Turbolane.
    Lane(LaneConfig),
}

/// A scheme under the name that was asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicySpec {
    /// As it was written.
    pub name: String,
    /// What it means.
    pub scheme: Scheme,
}

/// Why a text names no scheduler.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("policy \"{text}\": {why}")]
pub struct PolicyError {
    /// The text.
    pub text: String,
    /// What is wrong, and what would be right.
    pub why: String,
}

/// Names before the settings.
const NAMES: [&str; 8] =
    ["fair", "fair-hrtick", "cfs", "muqss", "core-scheduling", "affinity", "lane", "prototype"];

/// What a policy may be, for messages.
const CHOICES: &str = "choose fair, fair-hrtick, cfs, muqss, core-scheduling, affinity:CORES, \
                       lane or prototype (turbolane sim --help)";

impl FromStr for PolicySpec {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        let scheme = match (kind, rest) {
            ("fair", "") => Ok(Scheme::Fair(Slices::Fixed)),
            ("fair-hrtick", "") => Ok(Scheme::Fair(Slices::Exact)),
            ("cfs", "") => Ok(Scheme::Fair(Slices::Latency)),
            ("muqss", "") => Ok(Scheme::Muqss),
            ("core-scheduling", "") => Ok(Scheme::CoreScheduling),
            ("affinity", cores) => cores
                .parse()
                .map(Scheme::Affinity)
                .map_err(|_| "wants a number of cores, as affinity:2".into()),
            ("lane", rest) => settings(rest, set_lane).map(Scheme::Lane),
            ("prototype", rest) => settings(rest, set_prototype).map(Scheme::Prototype),
            ("fair" | "fair-hrtick" | "cfs" | "muqss" | "core-scheduling", _) => {
                Err(format!("{kind} has no settings"))
            }
            _ => Err(did_you_mean(kind, NAMES.into_iter()) + CHOICES),
        };
        match scheme {
            Ok(scheme) => Ok(PolicySpec { name: text.into(), scheme }),
            Err(why) => Err(PolicyError { text: text.into(), why }),
        }
    }
}

impl fmt::Display for PolicySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// The defaults changed by `KEY=VALUE,...`.
fn settings<C: Default>(
    text: &str,
    set: fn(&mut C, &str, &str) -> Result<(), String>,
) -> Result<C, String> {
    let mut config = C::default();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once('=').ok_or(format!("\"{part}\" is not KEY=VALUE"))?;
        set(&mut config, key, value)?;
    }
    Ok(config)
}

fn set_prototype(config: &mut PrototypeConfig, key: &str, value: &str) -> Result<(), String> {
    let bad = |right: &str| format!("{key}={value}: {right}");
    let time = || duration_ns(value).ok_or_else(|| bad(TIME));
    match (key, value) {
        ("cpus", n) => config.cpus = n.parse().map_err(|_| bad("a number of CPUs"))?,
        ("alpha", x) => {
            let alpha = x.parse().ok().filter(|x: &f64| *x > 0.0 && *x <= 1.0);
            config.alpha = Some(alpha.ok_or_else(|| bad("a number above 0, at most 1"))?);
        }
        ("detect", "mark") => (config.trap_ns, config.end) = (None, End::Never),
        ("detect", "trap") => config.trap_ns = PrototypeConfig::default().trap_ns,
        ("detect", _) => return Err(bad("choose trap or mark")),
        ("end", "entry") => config.end = End::Entry,
        ("end", "return") => config.end = End::Return,
        ("end", "switch") => config.end = End::Switch,
        ("end", "never") => config.end = End::Never,
        ("end", _) => return Err(bad("choose entry, return, switch or never")),
        ("timeout", _) => config.timeout_ns = time()?,
        ("slice", _) => config.slice_wide_ns = time()?,
        ("guests", "yes") => config.guests = true,
        ("guests", "no") => config.guests = false,
        ("guests", _) => return Err(bad("choose yes or no")),
        _ => return Err(format!("{key} is not a setting; see the table in the manual")),
    }
    Ok(())
}

/// What a time looks like.
const TIME: &str = "a time as 2ms or 500us";

fn set_lane(config: &mut LaneConfig, key: &str, value: &str) -> Result<(), String> {
    let bad = |right: &str| format!("{key}={value}: {right}");
    match (key, value) {
        ("wide", "auto") => config.wide = Wide::Auto,
        ("wide", cores) => {
            let cores = cores.parse().map_err(|_| bad("a number of cores, or auto"))?;
            config.wide = Wide::Cores(cores);
        }
        ("detect", "hint") => config.detect = Detect::Hint,
        ("detect", "mark") => config.detect = Detect::Mark,
        ("detect", "trap") => config.detect = Detect::Trap(InsnClass::Light512),
        ("detect", "trap-avx") => config.detect = Detect::Trap(InsnClass::Light256),
        ("detect", "score") => config.detect = Detect::Score,
        ("detect", _) => return Err(bad("choose hint, mark, trap, trap-avx or score")),
        ("remigrate", list) => config.cfg.remigrate = remigrate(list).ok_or_else(|| {
            bad("choose gap, last-syscall, syscall-entry, syscall-return, context-switch, timeout, joined by +")
        })?,
        ("timeout", time) => {
            let ns = duration_ns(time).ok_or_else(|| bad(TIME))?;
            (config.cfg.wide_timeout_ns, config.cfg.remigrate_timeout_ns) = (ns, ns);
        }
        ("slice", time) => {
            let ns = duration_ns(time).ok_or_else(|| bad(TIME))?;
            config.cfg.slice_wide_ns = ns;
        }
        ("tiers", "yes") => config.tiers = true,
        ("tiers", "no") => config.tiers = false,
        ("standby", "yes") => config.stands_by = true,
        ("standby", "no") => config.stands_by = false,
        ("first-look", time) => {
            config.first_look_ns = duration_ns(time).ok_or_else(|| bad(TIME))?;
        }
        ("clocks", "known") => config.clocks = None,
        ("clocks", "unknown") => config.clocks = Some(LevelClocks::default()),
        ("clocks", _) => return Err(bad("choose known or unknown")),
        ("tiers" | "standby", _) => return Err(bad("choose yes or no")),
        _ => return Err(format!("{key} is not a setting; see the table in the manual")),
    }
    Ok(())
}

fn remigrate(list: &str) -> Option<u32> {
    let mut remigrate = Remigrate::default();
    for one in list.split('+') {
        match one {
            "syscall-entry" => remigrate.syscall_entry = true,
            "syscall-return" => remigrate.syscall_return = true,
            "context-switch" => remigrate.context_switch = true,
            "timeout" => remigrate.timeout = true,
            "gap" => remigrate.gap = true,
            "last-syscall" => remigrate.last_syscall = true,
            "none" => {}
            _ => return None,
        }
    }
    Some(remigrate.bits())
}

fn duration_ns(text: &str) -> Option<u64> {
    let (number, unit) = match text.strip_suffix("us") {
        Some(number) => (number, 1_000),
        None => (text.strip_suffix("ms")?, 1_000_000),
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

/// What a run is to record: from, to (ns), at most so many points.
pub type Window = (u64, u64, usize);

/// A finished run.
#[derive(Clone, Debug)]
pub struct Finished {
    /// What came out.
    pub outcome: Outcome,
    /// Who ran where, if that was asked for.
    pub record: Option<RunRecord>,
    /// Class of each CPU at the end; `None` if the scheduler has none.
    pub classes: Option<Vec<u8>>,
}

/// What is done with a scheduler, whichever it is.
pub trait Simulation {
    /// What comes of it.
    type Output;
    /// The workload that it will run.
    fn workload(&mut self) -> &mut Workload;
    /// Does it.
    fn run<S: Scheduler + Clone>(self, sys: Sys, sched: S) -> Self::Output;
}

impl PolicySpec {
    /// Do something with this scheduler, made for so many packages of a platform.
    pub fn run<R: Simulation>(
        &self,
        platform: &Platform,
        packages: usize,
        mut simulation: R,
    ) -> R::Output {
        let sys = Sys::new(Layout::new(&platform.topology(packages)));
        if let Scheme::Affinity(cores) = self.scheme {
            bind(simulation.workload(), &sys.layout, cores);
        }
        match &self.scheme {
            Scheme::Fair(slices) => {
                let sched = Fair::with_slices(&sys, *slices);
                simulation.run(sys, sched)
            }
            Scheme::Affinity(_) => {
                let sched = Fair::new(&sys);
                simulation.run(sys, sched)
            }
            Scheme::Muqss => {
                let sched = Deadline::muqss(&sys);
                simulation.run(sys, sched)
            }
            Scheme::CoreScheduling => {
                let sched = Deadline::core_scheduling(&sys);
                simulation.run(sys, sched)
            }
            Scheme::Prototype(config) => {
                let sched = Prototype::new(&sys, *config);
                simulation.run(sys, sched)
            }
            Scheme::Lane(config) => {
                let clocks = config.clocks.clone().or_else(|| Some(LevelClocks::of(platform)));
                let sched = Adaptive::new(&sys, LaneConfig { clocks, ..config.clone() });
                simulation.run(sys, sched)
            }
        }
    }
}

/// Simulate a workload on so many packages of a platform.
pub fn simulate(
    platform: &Platform,
    packages: usize,
    workload: Workload,
    spec: &PolicySpec,
    options: Options,
    window: Option<Window>,
) -> Result<Finished, RunError> {
    let platform = platform.clone();
    spec.run(&platform.clone(), packages, Plain { platform, workload, options, window })
}

/// A run, recorded or not.
struct Plain {
    platform: Platform,
    workload: Workload,
    options: Options,
    window: Option<Window>,
}

impl Simulation for Plain {
    type Output = Result<Finished, RunError>;

    fn workload(&mut self) -> &mut Workload {
        &mut self.workload
    }

    fn run<S: Scheduler + Clone>(self, sys: Sys, sched: S) -> Self::Output {
        let Plain { platform, workload, options, window } = self;
        let Some((from_ns, to_ns, limit)) = window else {
            let mut engine = Engine::new(platform, sys, sched, Quiet, workload, options);
            let outcome = engine.run()?;
            return Ok(Finished { outcome, record: None, classes: engine.sched().classes() });
        };
        let core_of = sys.layout.place.iter().map(|place| place.core).collect();
        let names = workload.groups.iter().map(|group| group.name.clone()).collect();
        let recorder = Recorder::new(core_of, from_ns, to_ns, limit);
        let mut engine = Engine::new(platform, sys, sched, recorder, workload, options);
        let outcome = engine.run()?;
        let (classes, group_of) = (engine.sched().classes(), engine.group_of());
        let record = Some(engine.into_sink().finish(names, group_of));
        Ok(Finished { outcome, record, classes })
    }
}

const _: () = assert!(!<Quiet as Sink>::WANTED);

/// Static affinity: groups whose programs announce wide sections get the last cores.
fn bind(workload: &mut Workload, layout: &Layout, cores: usize) {
    let nr_cores = layout.cores.len();
    let first_wide = nr_cores.saturating_sub(cores.clamp(1, nr_cores));
    let cpus = |range: std::ops::Range<usize>| -> Vec<usize> {
        layout.cores[range].iter().flatten().map(|&cpu| cpu as usize).collect()
    };
    let (rest, wide) = (cpus(0..first_wide), cpus(first_wide..nr_cores));
    let begins = |step: &Step| matches!(step, Step::WideBegin { .. });
    let is_wide = |group: &Group| workload.programs_of(group).any(|steps| steps.iter().any(begins));
    let is_wide: Vec<bool> = workload.groups.iter().map(is_wide).collect();
    for (group, is_wide) in workload.groups.iter_mut().zip(is_wide) {
        let mine = if is_wide || rest.is_empty() { &wide } else { &rest };
        let allowed = |cpu: &&usize| group.affinity.as_ref().is_none_or(|a| a.contains(cpu));
        let both: Vec<usize> = mine.iter().filter(allowed).copied().collect();
        if !both.is_empty() {
            group.affinity = Some(both);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every form is read, and keeps the name it was given.
    #[test]
    fn policies_are_read() {
        let text =
            "lane:wide=2,detect=trap,remigrate=syscall-return+timeout,timeout=500us,tiers=yes";
        let spec: PolicySpec = text.parse().unwrap();
        let Scheme::Lane(config) = &spec.scheme else { panic!("{spec:?}") };
        assert_eq!(config.wide, Wide::Cores(2));
        assert_eq!(config.detect, Detect::Trap(InsnClass::Light512));
        assert_eq!((config.cfg.remigrate, config.cfg.remigrate_timeout_ns), (10, 500_000));
        assert!(config.tiers);
        assert_eq!(spec.to_string(), text);
        assert_eq!("affinity:3".parse::<PolicySpec>().unwrap().scheme, Scheme::Affinity(3));
        assert_eq!(
            "lane".parse::<PolicySpec>().unwrap().scheme,
            Scheme::Lane(LaneConfig::default())
        );
    }

    /// So are the prototypes' settings.
    #[test]
    fn prototypes_are_read() {
        let read = |text: &str| match text.parse::<PolicySpec>().unwrap().scheme {
            Scheme::Prototype(config) => config,
            other => panic!("{other:?}"),
        };
        let config =
            read("prototype:cpus=17,end=return,alpha=0.5,slice=100us,guests=no,timeout=2ms");
        assert_eq!((config.cpus, config.end, config.alpha), (17, End::Return, Some(0.5)));
        assert_eq!((config.slice_wide_ns, config.timeout_ns), (100_000, 2_000_000));
        assert!(!config.guests && config.trap_ns.is_some());
        assert_eq!(read("prototype:detect=mark").trap_ns, None);
        assert_eq!(read("prototype"), PrototypeConfig::default());
    }

    /// A mistake is named with what would be right.
    #[test]
    fn mistakes_are_explained() {
        let why = |text: &str| text.parse::<PolicySpec>().unwrap_err().to_string();
        assert!(why("bfs").contains("choose fair, fair-hrtick, cfs"));
        assert!(!why("bfs").contains("did you mean \"lane\""));
        assert!(why("lnae:wide=2").contains("did you mean \"lane\"? If not, choose fair,"));
        assert!(why("cfs:x").contains("has no settings"));
        assert!(why("lane:wide=many").contains("a number of cores, or auto"));
        assert!(why("lane:slice=5").contains("a time as 2ms"));
        assert!(why("lane:colour=red").contains("colour is not a setting"));
        assert!(why("lane:wide").contains("not KEY=VALUE"));
        assert!(why("affinity").contains("affinity:2"));
        assert!(why("prototype:alpha=2").contains("above 0, at most 1"));
        assert!(why("prototype:wide=2").contains("wide is not a setting"));
    }
}
