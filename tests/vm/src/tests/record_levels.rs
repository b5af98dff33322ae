// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recordings of licence levels, on the test PMU: a load writes down when it executes which level's
//! instructions, and the recording must agree, cycles exactly and times to the recorder's
//! resolution.

use std::fs::File;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use trace::{Name, Reader, What};

use crate::fake_pmu::{CYCLES_PER_NS, FakePmu, Unit};
use crate::guest::{Child, monotonic_ns, set_affinity, spin};
use crate::lane::{TURBOLANE, turbolane};

const ASKS: &str = "asks";
const ASKS_NOTHING: &str = "asks-nothing";
const CPU: usize = 2;

/// Long beside the turns that CPUs take in an emulator, which executes one at a time.
pub(super) const RELAX: Duration = Duration::from_millis(20);
pub(super) const GRANT: Duration = Duration::from_micros(50);
const PHASE: Duration = Duration::from_millis(100);

/// The recorder looks every millisecond; its timer waits for this CPU's turn, up to a tick.
const RESOLUTION: Duration = Duration::from_millis(1 + 4);

/// What the load does: level and duration. A single instruction is the last; in between it
/// computes.
const PHASES: [(usize, Duration); 3] = [(2, PHASE), (1, PHASE), (2, Duration::ZERO)];

/// What `vmtests levels-load` does: a thread that asks for nothing, then one that asks for levels
/// and writes down when: a line "LEVEL BEGIN END" for each phase, in ns.
pub fn load() -> Result<()> {
    let on_cpu = |name: &str, work: fn() -> Result<()>| {
        let pinned = move || set_affinity(0, &[CPU]).and_then(|()| work());
        let thread = thread::Builder::new().name(name.into()).spawn(pinned)?;
        thread.join().map_err(|_| anyhow::anyhow!("a worker panicked"))?
    };
    on_cpu(ASKS_NOTHING, || {
        spin(PHASE);
        Ok(())
    })?;
    on_cpu(ASKS, || {
        let unit = Unit::open()?;
        for (level, time) in PHASES {
            let begin_ns = monotonic_ns();
            unit.execute(level)?;
            unit.execute_for(level, time)?;
            println!("{level} {begin_ns} {}", monotonic_ns());
            spin(2 * RELAX);
        }
        Ok(())
    })
}

/// A phase of the load, as it wrote it down.
pub(super) struct Phase {
    level: usize,
    begin_ns: u64,
    end_ns: u64,
}

/// What the load wrote.
pub(super) fn phases(text: &str) -> Result<Vec<Phase>> {
    let phase = |line: &str| {
        let words: Vec<u64> = line.split(' ').map_while(|word| word.parse().ok()).collect();
        let &[level, begin_ns, end_ns] = &words[..] else { return None };
        Some(Phase { level: level as usize, begin_ns, end_ns })
    };
    let phases: Option<Vec<Phase>> = text.lines().map(phase).collect();
    phases.filter(|phases| phases.len() == PHASES.len()).with_context(|| format!("load: {text}"))
}

/// Records the load; what the load wrote, and the summary.
fn record(file: &str) -> Result<(Vec<Phase>, Value)> {
    let mut command = Command::new(TURBOLANE);
    command.args(["record", "-o", file, "--", "vmtests", "levels-load"]).stdin(Stdio::null());
    let done = command.stderr(Stdio::inherit()).output()?;
    ensure!(done.status.success(), "turbolane record ended with {}", done.status);
    let phases = phases(&String::from_utf8_lossy(&done.stdout))?;
    Ok((phases, summary(file)?))
}

pub(super) fn summary(file: &str) -> Result<Value> {
    Ok(serde_json::from_str(&turbolane(&["trace", file, "--json"])?)?)
}

/// Everything that recordings say of levels.
pub fn everything() -> Result<()> {
    no_pmu_is_told_fail()?;
    let pmu = FakePmu::load(GRANT, RELAX)?;
    let file = "/tmp/levels.trace";
    let (phases, summary) = record(file)?;
    let about = summary["license_counters"].as_str().unwrap_or_default();
    ensure!(about.contains("read at every switch"), "{summary}");
    ensure!(summary["lost_events"] == 0 && summary["complete"] == true, "{summary}");
    cycles_agree(&phases, &summary, RESOLUTION).with_context(|| summary.to_string())?;
    whole_time_agrees(&summary)?;
    times_agree(&phases, file, RESOLUTION)?;
    demand_agrees(&phases, &summary, file)?;
    let text = turbolane(&["trace", file])?;
    ensure!(text.contains("LEVEL 2 %"), "{text}");
    shows_in_perfetto(file)?;
    the_whole_machine()?;
    pmu.unload()
}

/// Negative: without a PMU all else is recorded, and why there are no levels is told.
fn no_pmu_is_told_fail() -> Result<()> {
    let file = "/tmp/no-levels.trace";
    let args = ["record", "-q", "-o", file, "--", "true"];
    turbolane(&args)?;
    let summary = summary(file)?;
    let about = summary["license_counters"].as_str().unwrap_or_default();
    ensure!(about.contains("no licence levels: the kernel has no counters here"), "{summary}");
    ensure!(summary["levels"].is_null() && summary["switches"].as_u64() > Some(0), "{summary}");
    Ok(())
}

/// Cycles at each level, of the task with this name.
fn cycles_of(summary: &Value, name: &str) -> Result<[u64; 3]> {
    let tasks = summary["levels"]["tasks"].as_array().context("no levels")?;
    let task = tasks.iter().find(|task| task["name"] == name);
    let cycles = &task.with_context(|| format!("no levels of {name}"))?["level_cycles"];
    Ok([0, 1, 2].map(|level| cycles[level].as_u64().unwrap_or(0)))
}

fn run_ns(summary: &Value, name: &str) -> Result<u64> {
    let tasks = summary["tasks"].as_array().context("no tasks")?;
    let task = tasks.iter().find(|task| task["name"] == name);
    task.and_then(|task| task["run_ns"].as_u64()).with_context(|| format!("no task {name}"))
}

/// Each level has the cycles of its phases, from grant to relaxation; who asks for nothing has
/// level 0 alone.
pub(super) fn cycles_agree(phases: &[Phase], summary: &Value, resolution: Duration) -> Result<()> {
    let asks = cycles_of(summary, ASKS)?;
    let (grant_ns, relax_ns) = (GRANT.as_nanos() as u64, RELAX.as_nanos() as u64);
    for level in [1, 2] {
        let phases = phases.iter().filter(|phase| phase.level == level);
        // The load knows when it began and ended, not to the instruction.
        let most: u64 = phases.map(|phase| phase.end_ns - phase.begin_ns + relax_ns).sum();
        let count = PHASES.iter().filter(|phase| phase.0 == level).count() as u64;
        let least = most - count * (grant_ns + resolution.as_nanos() as u64);
        let cycles_ns = asks[level] / CYCLES_PER_NS;
        ensure!(
            (least..=most).contains(&cycles_ns),
            "level {level}: {cycles_ns}, not {least}..{most}"
        );
    }
    let nothing = cycles_of(summary, ASKS_NOTHING)?;
    ensure!(nothing[1..] == [0, 0], "levels without a request: {nothing:?}");
    Ok(())
}

/// All levels of a task together have the cycles of its time.
fn whole_time_agrees(summary: &Value) -> Result<()> {
    for name in [ASKS, ASKS_NOTHING] {
        let all = cycles_of(summary, name)?.iter().sum::<u64>() as f64;
        let ratio = all / (run_ns(summary, name)? * CYCLES_PER_NS) as f64;
        ensure!((0.98..1.02).contains(&ratio), "{name}: {ratio} of its time was counted");
    }
    Ok(())
}

/// What was counted at a time is the level of that time, give or take the resolution.
pub(super) fn times_agree(phases: &[Phase], file: &str, resolution: Duration) -> Result<()> {
    let resolution_ns = resolution.as_nanos() as u64;
    let (grant_ns, relax_ns) = (GRANT.as_nanos() as u64, RELAX.as_nanos() as u64);
    let mut tid = None;
    let mut looks = 0;
    for event in Reader::new(File::open(file)?)? {
        let event = event?;
        match event.what {
            What::Name { name, .. } if name == Name::new(ASKS.as_bytes()) => tid = Some(event.tid),
            What::LevelCycles { license_level, cycles } if tid == Some(event.tid) => {
                looks += 1;
                let is_at = |phase: &&Phase| {
                    let until_ns = phase.end_ns + relax_ns + resolution_ns;
                    (phase.begin_ns..until_ns).contains(&event.at_ns)
                };
                // Where nothing else can have been counted since the look before.
                let is_within = |phase: &&Phase| {
                    let from_ns = phase.begin_ns + grant_ns + resolution_ns;
                    (from_ns..phase.end_ns).contains(&event.at_ns)
                };
                let level = usize::from(license_level);
                let expected = phases.iter().filter(is_at).any(|phase| phase.level == level);
                let told = format!("{cycles} cycles at level {level} at {}", event.at_ns);
                ensure!(level == 0 || expected, "{told}: nobody asked for it");
                let within = phases.iter().find(is_within);
                ensure!(
                    within.is_none_or(|phase| phase.level == level),
                    "{told}: it asked for more"
                );
            }
            _ => {}
        }
    }
    // Looks within runs, not only at switches: the phases are longer than a look, many times.
    let least = 2 * PHASE.as_nanos() as u64 / resolution_ns;
    ensure!(looks >= least, "only {looks} looks at levels");
    Ok(())
}

/// What a timeline takes for asked for is what the load asked for, without the holds.
fn demand_agrees(phases: &[Phase], summary: &Value, file: &str) -> Result<()> {
    let tasks = summary["tasks"].as_array().context("no tasks")?;
    let tid =
        tasks.iter().find(|task| task["name"] == ASKS).context("no such task")?["tid"].to_string();
    let (out, hold) = ("/tmp/levels.jsonl", format!("{}ms", RELAX.as_millis()));
    let of = ["--task", &tid, "--machine", "xeon-gold-6130", "--hold", &hold, "--timeline", out];
    turbolane(&[&["trace", file][..], &of].concat())?;
    let (header, periods) = report::timeline::read(&std::fs::read_to_string(out)?)
        .map_err(|error| anyhow::anyhow!("{out}: {error}"))?;
    for level in [1, 2] {
        let phases = phases.iter().filter(|phase| phase.level == level);
        let count = phases.clone().count() as u64;
        let asked_ns: u64 = phases.map(|phase| phase.end_ns - phase.begin_ns).sum();
        let periods = periods.iter().filter(|period| usize::from(period.level) == level);
        let cycles: u64 = periods.filter_map(|period| period.cycles).sum();
        let slack_ns = count * (GRANT + RESOLUTION).as_nanos() as u64;
        let found_ns = cycles / CYCLES_PER_NS;
        ensure!(
            found_ns.abs_diff(asked_ns) <= slack_ns,
            "level {level} was asked for {asked_ns}, found {found_ns}: {header:?}"
        );
    }
    Ok(())
}

fn shows_in_perfetto(file: &str) -> Result<()> {
    let out = "/tmp/levels.json";
    turbolane(&["trace", file, "--perfetto", out])?;
    let text = std::fs::read_to_string(out)?;
    let name = format!("CPU {CPU} licence level");
    let lines: Vec<&str> = text.lines().filter(|line| line.contains(&name)).collect();
    for level in [2, 1, 0] {
        let value = format!("\"licence level\":{level}}}");
        ensure!(lines.iter().any(|line| line.contains(&value)), "no {value} in {file}'s counters");
    }
    Ok(())
}

/// With all tasks, the CPU where levels are asked for has them, and no other.
fn the_whole_machine() -> Result<()> {
    let load = Child::fork(|| {
        _ = set_affinity(0, &[CPU]);
        _ = Unit::open().and_then(|unit| unit.execute_for(2, Duration::from_secs(3600)));
    })?;
    let file = "/tmp/levels-system.trace";
    turbolane(&["record", "-q", "-o", file, "--system", "--duration", "300ms"])?;
    drop(load);
    let summary = summary(file)?;
    let cpus = summary["levels"]["cpus"].as_array().context("no levels of CPUs")?;
    for cpu in cpus {
        let wide = cpu["level_cycles"][2].as_u64().unwrap_or(0);
        ensure!((wide > 0) == (cpu["cpu"] == CPU), "{cpu}: {summary}");
    }
    ensure!(cpus.iter().any(|cpu| cpu["cpu"] == CPU), "no levels of CPU {CPU}: {summary}");
    let (out, hold) = ("/tmp/levels-cpu.jsonl", format!("{}ms", RELAX.as_millis()));
    let of = ["--cpu", &CPU.to_string(), "--machine", "xeon-gold-6130", "--hold", &hold];
    turbolane(&[&["trace", file][..], &of, &["--timeline", out]].concat())?;
    let replay = turbolane(&["sim", "--replay", out, "--dvfs", "hardware", "--json"])?;
    let replay: Value = serde_json::from_str(&replay)?;
    let demand = &replay["demand"][0];
    let ns = |key: &str| demand[key].as_u64().unwrap_or(0);
    ensure!(demand["from"] == "levels" && ns("raised_ns") > 200_000_000, "{demand}");
    // It asks all the time, so all but the last hold is asked for.
    let (least_ns, most_ns) = (ns("least_ns"), ns("most_ns"));
    ensure!(
        least_ns <= most_ns && least_ns + 2 * RELAX.as_nanos() as u64 > ns("raised_ns"),
        "{demand}"
    );
    Ok(())
}
