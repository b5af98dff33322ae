// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks of the contents of a CPU file, such as `turbolane probe` writes: which effects this CPU
//! has, and so which tools can gain something on it.
//!
//! What the file does not contain was not seen by the probe or not published, and is reported as
//! unknown. What follows from several numbers (the break-even time) is reported only if none of
//! them is assumed.

use cpumodel::{CpuModel, Known, Ns, Platform};
use hw::Facts;
use report::doctor::Check;
use report::dvfs::Step;
use report::text::duration;

use super::effects::{CLOCK_WHY, FALL_KHZ, RELAX_WHY, START_WHY};
use super::{Seen, no, ok, unknown, warn};

/// The next step if the file has no number.
const MEASURE: &str = "run turbolane probe on a quiet machine, which may find it";

pub(super) fn checks(model: &CpuModel, facts: &Facts) -> Vec<Check> {
    let platform = Platform::new(model);
    // With all cores active, as a loaded machine has them and as advise judges. A file with the
    // clocks of one active core only is taken to have them for all.
    let lowest = lowest(&platform);
    let step = dvfs::steps(&platform).into_iter().find(|step| {
        step.active_to == platform.nr_cores
            && Some(step.low_level) == lowest
            && step.high_level == 0
    });
    vec![
        whose(model, facts),
        fall(model, step.as_ref()),
        start(model),
        relax(model),
        pays(model, step.as_ref()),
        tools(model, step.as_ref()),
    ]
}

/// The level with the lowest clock, if it is one that is worth looking at.
fn lowest(platform: &Platform) -> Option<u8> {
    let khz = |level: u8| platform.clock_khz(level, platform.nr_cores);
    let below = |level: u8| khz(0).saturating_sub(khz(level));
    let worst = (1..platform.nr_levels() as u8).max_by_key(|level| below(*level))?;
    (f64::from(below(worst)) >= FALL_KHZ).then_some(worst)
}

fn whose(model: &CpuModel, facts: &Facts) -> Check {
    let (of, here) = (&model.name, &facts.cpu.name);
    let seen = if !here.is_empty() && of.starts_with(here.as_str()) {
        ok(of)
    } else {
        warn(format!("{of}, but this machine is {here}"), "measure this machine: turbolane probe")
    };
    seen.check(
        "file-cpu",
        "measured CPU",
        "these effects differ even between CPUs of one generation",
    )
}

fn fall(model: &CpuModel, step: Option<&Step>) -> Check {
    let seen = match step {
        Some(step) => {
            let level = &model.levels[usize::from(step.low_level)].name;
            let [low, high] = [step.low_khz, step.high_khz].map(|khz| khz / 1000);
            ok(format!("{level} runs at {low} MHz, scalar code at {high}, with all cores active"))
        }
        None => no(
            "no level has a clock half a bin below scalar code's",
            "core specialisation has nothing to gain on this CPU, even with all cores active",
        ),
    };
    seen.check("file-clock", "clock falls", CLOCK_WHY)
}

fn start(model: &CpuModel) -> Check {
    let times =
        [("throttled", &model.transition.throttle_ns), ("halted", &model.transition.halt_ns)];
    let known: Vec<String> =
        times.iter().filter_map(|(name, time)| Some(format!("{name} for {}", ns(time)?))).collect();
    let seen = match known.is_empty() {
        true => unknown("the file has neither throttle nor halt", MEASURE),
        false => ok(known.join(", ")),
    };
    seen.check("file-start", "slow start", START_WHY)
}

fn relax(model: &CpuModel) -> Check {
    let seen = match ns(&model.transition.relax_ns) {
        Some(time) => ok(format!("the clock recovers {time} after the last wide instruction")),
        None => unknown("the file has no relax time", MEASURE),
    };
    seen.check("file-relax", "slow recovery", RELAX_WHY)
}

fn ns(time: &Known<Ns>) -> Option<String> {
    time.as_ref().map(|time| duration(time.value.0))
}

/// The break-even time, if nothing of it is assumed.
fn break_even_ns(model: &CpuModel, step: Option<&Step>) -> Option<f64> {
    let times = &model.transition;
    let is_known =
        times.throttle_ns.is_some() && times.throttle_frac.is_some() && times.halt_ns.is_some();
    step?.break_even_ns.filter(|_| is_known)
}

fn pays(model: &CpuModel, step: Option<&Step>) -> Check {
    let seen = match break_even_ns(model, step) {
        Some(ns) => {
            ok(format!("a higher clock has paid for its changes after {}", duration(ns as u64)))
        }
        None if step.is_none() => no("no level lowers the clock", ""),
        None => unknown("the file lacks a number that it is computed from", MEASURE),
    };
    seen.check(
        "file-break-even",
        "break-even time",
        "scalar code that runs for less time between wide sections gains nothing from a higher clock (DIM 4.3)",
    )
}

fn tools(model: &CpuModel, step: Option<&Step>) -> Check {
    const NEXT: &str = "turbolane sim --machine predicts the gain, turbolane verify measures it";
    let relax_ns = model.transition.relax_ns.as_ref().map(|time| time.value.0 as f64);
    let apart =
        "turbolane run and tl_delegate separate wide code, so that other code keeps its clock";
    let seen: Seen = match (step, break_even_ns(model, step), relax_ns) {
        (None, ..) => no("none: wide code lowers no clock", "look at programs on other CPUs"),
        (_, Some(pays_ns), Some(relax_ns)) if relax_ns > pays_ns => {
            let times = relax_ns / pays_ns;
            let held = format!(
                "the clock is held low for {times:.1} times the break-even time: other timeouts and hints gain \
                 too (sim --replay)"
            );
            ok(format!("{apart}; {held}. {NEXT}"))
        }
        (_, Some(_), Some(_)) => {
            let held = "the hold time is not longer than the break-even time: the timeout needs no other policy";
            ok(format!("{apart}; {held}. {NEXT}"))
        }
        _ => ok(format!("{apart}. {NEXT}")),
    };
    seen.check("file-tools", "what applies", "a tool with nothing to gain still has its cost")
}

#[cfg(test)]
mod tests {
    use hw::Recorded;
    use report::doctor::Status;

    use super::*;

    fn facts() -> Facts {
        let machines = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/machines");
        let some = std::fs::read_dir(machines).unwrap().filter_map(Result::ok);
        let mut folders: Vec<_> =
            some.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
        folders.sort();
        Facts::read(&Recorded::open(&folders[0]).unwrap()).unwrap()
    }

    fn statuses(model: &CpuModel) -> Vec<Status> {
        checks(model, &facts()).iter().map(|check| check.status).collect()
    }

    /// A published CPU shows all effects, with its own figures, and is reported to be another than
    /// this one.
    #[test]
    fn a_published_cpu_shows_all_effects() {
        let model = CpuModel::built_in("xeon-gold-6130").unwrap().unwrap();
        let found = checks(&model, &facts());
        let (warn, ok) = (Status::Warn, Status::Ok);
        assert_eq!(statuses(&model), [warn, ok, ok, ok, ok, ok], "{found:?}");
        // SYSTOR 2: 2.8 GHz and 1.9 GHz with all cores; with one, 3.7 and 3.5.
        let all_cores = "runs at 1900 MHz, scalar code at 2800, with all cores active";
        assert!(found[1].seen.ends_with(all_cores), "{}", found[1].seen);
        assert!(found[3].seen.contains("670us"), "{}", found[3].seen);
    }

    /// A level that costs nothing with one active core, and half a GHz with all of them, falls.
    #[test]
    fn a_clock_that_falls_with_all_cores_only_falls() {
        let mut model = CpuModel::built_in("xeon-gold-6130").unwrap().unwrap();
        let one_core_khz = model.levels[0].turbo.as_ref().unwrap().value[0].clock;
        for level in &mut model.levels {
            level.turbo.as_mut().unwrap().value[0].clock = one_core_khz;
        }
        let platform = Platform::new(&model);
        assert_eq!(platform.clock_khz(2, 1), platform.clock_khz(0, 1));
        let found = statuses(&model);
        assert_eq!((found[1], found[4], found[5]), (Status::Ok, Status::Ok, Status::Ok));
    }

    /// What a file leaves out is unknown, not assumed: without a throttle there is no break-even
    /// time.
    #[test]
    fn what_a_file_leaves_out_is_unknown() {
        let mut model = CpuModel::built_in("xeon-gold-6130").unwrap().unwrap();
        model.transition = cpumodel::Transition::default();
        let unknown = Status::Unknown;
        assert_eq!(statuses(&model)[1..], [Status::Ok, unknown, unknown, unknown, Status::Ok]);
    }

    /// Where wide code lowers no clock, no tool applies.
    #[test]
    fn a_cpu_without_effects_needs_no_tool() {
        let mut model = CpuModel::built_in("xeon-gold-6130").unwrap().unwrap();
        model.levels.truncate(1);
        model.rules = None;
        let found = statuses(&model);
        assert_eq!((found[1], found[4], found[5]), (Status::No, Status::No, Status::No));
    }
}
