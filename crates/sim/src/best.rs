// SPDX-License-Identifier: MIT OR Apache-2.0
//! How far the lane with its defaults is from the best that could have been chosen for a load on a
//! machine, and whether it is ever worse than nothing. Asked by tests and by `./x bench best`.
//!
//! Speed of a group of tasks is its completions per second; of a load whose tasks end, until they
//! end. Speed of a load is the geometric mean over its groups.
//!
//! | compared with | what it is |
//! |---|---|
//! | nothing | the kernel's fair scheduling |
//! | standing by | the lane without wide CPUs: the same queues, all CPUs take everything |
//! | best | the fastest of both, of fixed sizes, of every heuristic, and of the code without AVX-512 |
//!
//! The two first differ where more is wanted than there is: the lane's queues are fairer between
//! tasks than per-CPU queues that are balanced now and then, so that one group gains what another
//! loses. That says nothing about wide code; both are reported.
//!
//! **Chance.** Where more tasks want to run than there are CPUs, the fair scheduler stays for
//! seconds with whichever arrangement it came upon, and seeds differ by several percent. Verdicts
//! are of means over several seeds, and say beside that how far the fair scheduler is from itself
//! with other ones.
//!
//! **Held out.** No constant of the policy may be chosen by what comes out for these, [`HELD_OUT`]
//! and [`cpumodel::HELD_OUT_CPUS`]: a third of each.

use cpumodel::{CPU_FILES, CpuModel, HELD_OUT_CPUS, Platform};

use crate::compare::CompareError;
use crate::engine::{Options, Outcome};
use crate::policy_spec::simulate;
use crate::program::{Step, Workload};
use crate::scenario::{SCENARIO_FILES, Scenario};

/// Scenarios that no constant was chosen on.
pub const HELD_OUT: [&str; 5] =
    ["systor-nginx", "nginx-x265", "dim-x265-apache", "dim-x265-swaptions", "thesis-nginx-low"];

/// How wide code is noticed: name, settings of `lane`, whether heuristics end what it begins.
pub const DETECTIONS: [(&str, bool); 4] =
    [("hint", true), ("mark", true), ("trap", true), ("score", false)];

/// The first look is after a second; it, an attempt and its judgement take 1.3 s
/// (policy/standby.h). Where the first finds nothing, the second is over by then; the third and all
/// later ones, a quarter of a second in 4 to 64, are not measured.
const WARMUP_NS: u64 = 4_000_000_000;
const MEASURED_NS: u64 = 1_000_000_000;
/// Runs of which a verdict's speeds are means, each with a seed of its own.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=3;
/// Of the same kind; compared with those they say what chance does.
const OTHER_SEEDS: std::ops::RangeInclusive<u64> = 4..=6;
/// The variant without the code that the licence is about.
const NONE: &str = "none";

/// The lane as `turbolane run` has it.
fn defaults(detection: &str) -> String {
    format!("lane:detect={detection},first-look={}ms", policy::FIRST_LOOK_NS / 1_000_000)
}

/// A load on a machine.
pub struct Place {
    /// The load.
    pub scenario: Scenario,
    /// Id of the machine.
    pub cpu: &'static str,
    platform: Platform,
}

/// Speeds under one scheduler.
#[derive(Clone, Debug)]
pub struct Speeds {
    /// Completions per second by group; `None` of those that complete nothing by themselves.
    pub by_group: Vec<Option<f64>>,
    /// Migrations per second.
    pub migrations_per_s: f64,
}

/// What the defaults come to.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// How wide code was noticed.
    pub detection: &'static str,
    /// The slowest group against nothing, percent; below 0 it is slower.
    pub against_nothing_pct: f64,
    /// The slowest group of nothing against nothing with other seeds, or the other way round: what
    /// chance does, percent, at most 0.
    pub chance_pct: f64,
    /// The same against standing by.
    pub against_standing_by_pct: f64,
    /// How far below the best the load is, percent.
    pub gap_to_best_pct: f64,
    /// What was the best.
    pub best: String,
    /// Migrations per second that neither nothing nor standing by has, where nothing is to be won:
    /// no lane is faster than either by 1 %.
    pub migrations_for_nothing_per_s: Option<f64>,
}

impl Place {
    /// All loads on all machines that are large enough for them.
    pub fn all() -> Result<Vec<Place>, CompareError> {
        let mut all = Vec::new();
        for (scenario, _) in SCENARIO_FILES {
            for (cpu, _) in CPU_FILES {
                all.extend(Place::new(scenario, cpu)?);
            }
        }
        Ok(all)
    }

    /// A built-in load on a built-in machine; `None` if it does not fit.
    pub fn new(scenario: &str, cpu: &'static str) -> Result<Option<Place>, CompareError> {
        let unknown = |name: &str| CompareError::Unknown(name.into());
        let scenario = Scenario::built_in(scenario).ok_or_else(|| unknown(scenario))??;
        let model = CpuModel::built_in(cpu).ok_or_else(|| unknown(cpu))??;
        let platform = Platform::new(&model);
        let fits = scenario.check_fits(&platform, scenario.packages).is_ok();
        Ok(fits.then_some(Place { scenario, cpu, platform }))
    }

    /// Whether no constant was chosen on it.
    pub fn is_held_out(&self) -> bool {
        HELD_OUT.contains(&self.scenario.name.as_str()) || HELD_OUT_CPUS.contains(&self.cpu)
    }

    /// Speeds under a scheduler, with the usual seed.
    pub fn speeds(&self, variant: Option<&str>, policy: &str) -> Result<Speeds, CompareError> {
        self.run(variant, policy, Options::default().seed)
    }

    /// Mean speeds over these seeds.
    fn means(
        &self,
        variant: Option<&str>,
        policy: &str,
        seeds: std::ops::RangeInclusive<u64>,
    ) -> Result<Speeds, CompareError> {
        let runs: Result<Vec<_>, _> = seeds.map(|seed| self.run(variant, policy, seed)).collect();
        Ok(Speeds::mean_of(&runs?))
    }

    fn run(&self, variant: Option<&str>, policy: &str, seed: u64) -> Result<Speeds, CompareError> {
        let workload = self.scenario.workload(variant);
        let workload = workload.ok_or_else(|| CompareError::Unknown(self.scenario.name.clone()))?;
        let ends = ends(workload);
        let warmup_ns = if ends { 0 } else { WARMUP_NS };
        let duration_ns = if ends { self.scenario.duration_ns } else { WARMUP_NS + MEASURED_NS };
        let options = Options { duration_ns, warmup_ns, seed, ..Default::default() };
        let (spec, packages) = (policy.parse()?, self.scenario.packages);
        let out = simulate(&self.platform, packages, workload.clone(), &spec, options, None)?;
        Ok(Speeds::of(&out.outcome))
    }

    /// Fixed numbers of wide cores that are tried: one, an eighth, a quarter, half.
    fn sizes(&self) -> Vec<usize> {
        let nr_cores = self.platform.nr_cores * self.scenario.packages;
        let mut sizes: Vec<usize> = [8, 4, 2].iter().map(|part| (nr_cores / part).max(1)).collect();
        sizes.insert(0, 1);
        sizes.dedup();
        sizes
    }

    /// The lane with its defaults, by each detection.
    pub fn verdicts(&self) -> Result<Vec<Verdict>, CompareError> {
        let nothing = self.means(None, "fair", SEEDS)?;
        let again = self.means(None, "fair", OTHER_SEEDS)?;
        let chance_pct = again.worst_pct(&nothing).min(nothing.worst_pct(&again));
        let standing_by = self.means(None, "lane:wide=0", SEEDS)?;
        let mut common = vec![("nothing".to_string(), nothing.clone())];
        common.push(("standing by".into(), standing_by.clone()));
        let has_none = self.scenario.variants().any(|variant| variant == NONE);
        if has_none {
            common.push(("no AVX-512".into(), self.means(Some(NONE), "fair", SEEDS)?));
        }
        let verdict = |&(detection, ends): &(&'static str, bool)| {
            let lanes = self.lanes(detection, ends)?;
            let lane = self.means(None, &defaults(detection), SEEDS)?;
            Ok(judge((detection, chance_pct), &lane, (&nothing, &standing_by), &common, &lanes))
        };
        DETECTIONS.iter().map(verdict).collect()
    }

    /// Lanes that the user could have asked for instead of the defaults.
    fn lanes(&self, detection: &str, ends: bool) -> Result<Vec<(String, Speeds)>, CompareError> {
        let sizes = self.sizes().into_iter().map(|size| format!("wide={size}"));
        let heuristics = ["syscall-entry", "syscall-return", "context-switch"].into_iter();
        let heuristics =
            heuristics.filter(|_| ends).map(|end| format!("standby=no,remigrate={end}"));
        let settings = sizes.chain(heuristics).chain(["standby=no".into()]);
        let run = |settings: String| {
            let speeds = self.means(None, &format!("lane:detect={detection},{settings}"), SEEDS)?;
            Ok((settings, speeds))
        };
        settings.map(run).collect()
    }
}

/// Whether tasks end that are there from the start.
fn ends(workload: &Workload) -> bool {
    let mut groups = workload.groups.iter().filter(|group| group.tasks > 0);
    groups.any(|group| workload.programs_of(group).any(|steps| steps.contains(&Step::End)))
}

impl Speeds {
    fn of(out: &Outcome) -> Self {
        let speed = |done: u64, ns: u64| done as f64 * 1e9 / ns.max(1) as f64;
        let groups = out.groups.iter().map(|group| {
            let ns = group.ended_ns.filter(|&ns| ns <= out.measured_ns).unwrap_or(out.measured_ns);
            (group.completed > 0).then(|| speed(group.completed, ns))
        });
        Speeds {
            by_group: groups.collect(),
            migrations_per_s: speed(out.migrations, out.measured_ns),
        }
    }

    /// The mean of runs of the same load; what completes nothing in one of them counts as 0 there.
    fn mean_of(runs: &[Speeds]) -> Self {
        let nr = runs.len().max(1) as f64;
        let of_group = |group: usize| {
            let some = runs.iter().filter_map(|run| run.by_group[group]);
            some.reduce(|sum, speed| sum + speed).map(|sum| sum / nr)
        };
        let nr_groups = runs.first().map_or(0, |run| run.by_group.len());
        Speeds {
            by_group: (0..nr_groups).map(of_group).collect(),
            migrations_per_s: runs.iter().map(|run| run.migrations_per_s).sum::<f64>() / nr,
        }
    }

    /// The slowest group against the same of others, percent.
    fn worst_pct(&self, others: &Speeds) -> f64 {
        let pairs = self.by_group.iter().zip(&others.by_group);
        let ratios = pairs.filter_map(|(own, other)| other.map(|other| own.unwrap_or(0.0) / other));
        100.0 * (ratios.fold(f64::INFINITY, f64::min).min(2.0) - 1.0)
    }

    /// The geometric mean over groups; 0 if one that others have completes nothing.
    fn mean(&self, others: &Speeds) -> f64 {
        let pairs = self.by_group.iter().zip(&others.by_group).filter(|(_, other)| other.is_some());
        let logs: Vec<f64> = pairs.map(|(own, _)| own.unwrap_or(0.0).ln()).collect();
        (logs.iter().sum::<f64>() / logs.len().max(1) as f64).exp()
    }
}

/// What became of a lane compared with nothing and standing by, what else there is, and other
/// lanes.
fn judge(
    (detection, chance_pct): (&'static str, f64),
    lane: &Speeds,
    (nothing, standing_by): (&Speeds, &Speeds),
    common: &[(String, Speeds)],
    lanes: &[(String, Speeds)],
) -> Verdict {
    let mean = |speeds: &Speeds| speeds.mean(nothing);
    let fastest = |all: &mut dyn Iterator<Item = &(String, Speeds)>| {
        let all = all.map(|(name, speeds)| (name.clone(), mean(speeds)));
        all.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or_default()
    };
    let own = mean(lane);
    let (best, best_speed) = fastest(&mut common.iter().chain(lanes));
    let fastest_lane = fastest(&mut lanes.iter()).1.max(own);
    let unmoved = mean(nothing).max(mean(standing_by));
    let base_per_s = nothing.migrations_per_s.max(standing_by.migrations_per_s);
    Verdict {
        detection,
        against_nothing_pct: lane.worst_pct(nothing),
        chance_pct,
        against_standing_by_pct: lane.worst_pct(standing_by),
        gap_to_best_pct: 100.0 * (1.0 - own / best_speed.max(own)),
        best: if own >= best_speed { "the defaults".into() } else { best },
        migrations_for_nothing_per_s: (fastest_lane < 1.01 * unmoved)
            .then(|| (lane.migrations_per_s - base_per_s).max(0.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A third of the scenarios and of the machines, and they exist.
    #[test]
    fn a_third_is_held_out() {
        assert_eq!(3 * HELD_OUT.len(), SCENARIO_FILES.len());
        assert!((3 * HELD_OUT_CPUS.len()).abs_diff(CPU_FILES.len()) <= 1);
        let exists = |name: &&str| SCENARIO_FILES.iter().any(|(known, _)| known == name);
        assert!(HELD_OUT.iter().all(exists));
        assert!(HELD_OUT_CPUS.iter().all(|id| CPU_FILES.iter().any(|(known, _)| known == id)));
    }

    fn speeds(by_group: &[f64], migrations_per_s: f64) -> Speeds {
        Speeds { by_group: by_group.iter().copied().map(Some).collect(), migrations_per_s }
    }

    #[test]
    fn means_are_of_all_runs() {
        let none = Speeds { by_group: vec![None, None], migrations_per_s: 0.0 };
        let some = Speeds { by_group: vec![Some(6.0), None], migrations_per_s: 4.0 };
        let mean = Speeds::mean_of(&[some, none]);
        assert_eq!((mean.by_group, mean.migrations_per_s), (vec![Some(3.0), None], 2.0));
    }

    /// Each group counts by itself against nothing, all together against the best; migrations count
    /// where nothing is to be won.
    #[test]
    fn verdicts_say_how_far() {
        let (nothing, lane) = (speeds(&[100.0, 100.0], 5.0), speeds(&[90.0, 110.0], 60.0));
        let common = [("nothing".into(), nothing.clone())];
        let verdict = judge(("hint", 0.0), &lane, (&nothing, &nothing), &common, &[]);
        assert!((verdict.against_nothing_pct + 10.0).abs() < 1e-9);
        assert!((verdict.gap_to_best_pct - 100.0 * (1.0 - 0.99f64.sqrt())).abs() < 1e-9);
        assert_eq!(
            (verdict.best.as_str(), verdict.migrations_for_nothing_per_s),
            ("nothing", Some(55.0))
        );
        let faster = [("wide=1".into(), speeds(&[120.0, 120.0], 900.0))];
        let verdict = judge(("hint", 0.0), &lane, (&nothing, &nothing), &common, &faster);
        assert_eq!((verdict.best.as_str(), verdict.migrations_for_nothing_per_s), ("wide=1", None));
        let starved = speeds(&[0.0, 100.0], 0.0);
        assert_eq!(
            judge(("hint", 0.0), &starved, (&nothing, &nothing), &common, &[]).gap_to_best_pct,
            100.0
        );
    }
}
