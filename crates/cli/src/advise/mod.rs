// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane advise`: is keeping wide code apart worth it, and what to do.
//!
//! Without a load it looks at the machine: the CPU's clocks (`cpu.rs`), what kernel and user can do
//! (`doctor`), which services map wide code (`services.rs`). With one (`crate::target`) it samples
//! it (`sample`), makes a load of the simulator of it (`load.rs`), predicts the gain
//! (`predict.rs`), says what to run (`remedy.rs`), and whether it is worth it (`verdict.rs`).
//! Nothing is changed; at most a command is started.

mod cpu;
mod load;
mod narrow;
mod predict;
mod remedy;
mod services;
mod verdict;

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use clap::Args;
use hw::kernel::Capability;
use hw::{Facts, Live};
use report::advise::{Advice, Found, Slowed, Verdict, Worth};
use report::doctor::{Check, Status};
use report::json_line;
use report::problem::Problem;
use report::sample::{Offender, SampleReport};
use report::text::duration;
use sched::parse::{ParseError, duration_at_least};

use crate::failure::{Failure, print};
use crate::paint::{self, ColorArgs};
use crate::sample::{self, Plan, Taken, ThrottleArgs};
use crate::target::{self, Target};
use crate::{command, doctor};
use cpu::Judged;
use load::{Load, Stage};
use remedy::{Chains, Remedy};
use verdict::Seen;

/// Report whether core specialisation is worth it on this machine, and how to enable it
///
/// Without a load: reports what is at stake on this CPU, what this kernel and this user can do, and
/// which running services map wide code. Needs no root, but sees other users' processes only as
/// root.
///
/// With a load (--pid, --unit, --cgroup or a command): samples which tasks execute wide code
/// and what runs right after it, simulates what the lane would gain with this CPU's clocks, and
/// prints the command that enables it. Needs root, or kernel.perf_event_paranoid of at most 0.
/// Changes nothing.
#[derive(Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct AdviseArgs {
    /// Sample these processes
    #[arg(long, value_name = "PID", num_args = 1.., group = "load")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pid: Vec<u32>,
    /// Sample a systemd unit
    #[arg(long, value_name = "NAME", group = "load")]
    unit: Option<String>,
    /// Sample a control group and those below it
    #[arg(long, value_name = "PATH", group = "load")]
    cgroup: Option<String>,
    /// Judge samples that turbolane sample --format json has printed, here or elsewhere
    #[arg(long, value_name = "FILE", group = "load")]
    samples: Option<PathBuf>,
    /// How long to sample, 60s at most
    #[arg(long = "for", value_name = "TIME", default_value = "30s", value_parser = sample::time)]
    time: Duration,
    #[command(flatten)]
    throttle: ThrottleArgs,
    /// Repeat the answer until interrupted, and wait this long after each answer
    ///
    /// At least 1s. With --json each answer is a line, as turbolane fleet reads them.
    #[arg(long, value_name = "TIME", value_parser = every)]
    #[arg(conflicts_with_all = ["samples", "command"])]
    every: Option<Duration>,
    /// Judge another machine: a CPU model or file, or a recorded machine
    ///
    /// With an id from the list of turbolane sim, or a file of turbolane probe --machine-file, its
    /// clocks are used. With a folder that turbolane doctor --record wrote, its CPU, kernel and
    /// user are used.
    #[arg(long, value_name = "ID|FILE|DIR")]
    machine: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// A command to start and to sample, with all that it starts
    ///
    /// Its output goes to standard error. If it still runs after --for it is ended by SIGTERM.
    #[arg(value_name = "CMD", last = true, group = "load")]
    command: Vec<OsString>,
    #[command(flatten)]
    color: ColorArgs,
}

const AFTER_HELP: &str = "\
Lines:
  CPU      clocks with all cores active by licence level, and how long a level
           is held after its last instruction
  FOUND    functions that were sampled and whose code lowers the clock
  VICTIMS  other code within 1 ms after it on the same core; where the CPU has
           licence counters, how long the clock was low; where it has throttle
           reasons, which CPUs were limited by what
  PREDICT  the sampled load in the simulator, under the kernel's scheduling and
           under the lane. Samples do not show how long a wide section is: where
           there are no licence counters several lengths are simulated, and the
           gain is a range. Then the same load with narrower code instead of
           its wide code; if that gains more and a setting for it is known, DO
           proposes the setting
Each line ends with its basis: table, machine file, measured, scanned or
simulated. The PROVE command shows whether a gain is real: with --live after the
DO command, whose lane it pauses for half of the runs; with --run before it, as
it starts a lane of its own.

Exit codes: 0 answered, whatever the answer; 2 failed; 77 this user or kernel
cannot sample.

Examples:
  turbolane advise                               this machine, its services
  sudo turbolane advise --unit nginx
  sudo turbolane advise --pid $(pidof nginx) --for 10s
  sudo turbolane advise -- ./benchmark
  sudo turbolane advise --unit nginx --machine xeon-gold-6130
                                                 if it ran on that CPU
  turbolane advise --json --every 1h             on each machine of a fleet";

/// Reads the time between two answers.
fn every(text: &str) -> Result<Duration, ParseError> {
    duration_at_least(text, Duration::from_secs(1), "an answer takes up to a second")
}

/// Checks of doctor that say what could be done.
const ABILITIES: [&str; 3] = ["sched-ext", "uprobes", "trap"];

impl AdviseArgs {
    /// What is to be sampled; nothing if no load is named.
    fn target(&self) -> Option<Target> {
        if !self.command.is_empty() {
            return Some(Target::Command(self.command.clone()));
        }
        let named = self.unit.as_deref().map(|name| Target::Unit(target::unit(name)));
        let named =
            named.or_else(|| self.cgroup.as_deref().map(|path| Target::Group(target::group(path))));
        named.or_else(|| (!self.pid.is_empty()).then(|| Target::Pids(self.pid.clone())))
    }

    /// The folder of a recorded machine, if one is named.
    fn recording(&self) -> Option<&PathBuf> {
        self.machine.as_ref().filter(|path| path.is_dir())
    }
}

/// Looks, and prints the answer.
pub(crate) fn main(args: &AdviseArgs) -> Result<ExitCode, Failure> {
    loop {
        let advice = answer(args)?;
        let is_read = args.color.show(
            args.json,
            || json_line(&advice),
            |width| advice.text(width),
            &paint::WORTH,
        )?;
        match args.every {
            Some(time) if is_read => std::thread::sleep(time),
            _ => return Ok(ExitCode::SUCCESS),
        }
        if !args.json {
            print("\n")?;
        }
    }
}

fn answer(args: &AdviseArgs) -> Result<Advice, Failure> {
    if args.throttle.clear_throttle_reasons && args.target().is_none() {
        let what = "cannot clear the throttle reasons before sampling";
        let next = "name a load: --unit NAME, --pid PID or -- CMD";
        return Err(Failure::failed(Problem::new(what, "nothing is sampled here", next)));
    }
    let facts = doctor::read_facts(doctor::open(args.recording())?.as_ref())?;
    let named = args.machine.as_ref().filter(|path| !path.is_dir());
    let judged = cpu::judged(named, &facts)?;
    match (args.target(), &args.samples) {
        (Some(target), _) => of_target(args, &target, &judged, &facts),
        (None, Some(path)) => {
            let report = read_samples(path)?;
            let name = format!("{} of {}", duration(report.time_ns), path.display());
            let sampled = Sampled { name, report: &report, chains: None, target: None };
            of_samples(&sampled, &judged, &facts)
        }
        (None, None) => Ok(of_machine(args, &judged, &facts)),
    }
}

/// This machine, without a load.
fn of_machine(args: &AdviseArgs, judged: &Judged, facts: &Facts) -> Advice {
    let verdict = cpu::verdict(judged, facts).unwrap_or_else(|| {
        let why = "it depends on what runs: sample a load";
        let next = "sudo turbolane advise --unit NAME, --pid PID or -- CMD";
        Verdict::new(Worth::Unknown, why, next)
    });
    let mut advice = Advice::new(judged.cpu.clone(), verdict);
    advice.abilities = doctor::selected(facts, &ABILITIES);
    advice.abilities.push(sampling(facts));
    if args.recording().is_none() && advice.verdict.worth != Worth::No {
        let (services, looked_at) = services::services();
        (advice.services, advice.looked_at) = (Some(services), looked_at);
    }
    advice
}

/// Whether this user may sample.
fn sampling(facts: &Facts) -> Check {
    let may =
        facts.rights.has(Capability::Perfmon) || facts.pmu.paranoid.is_some_and(|level| level <= 0);
    let (status, seen, next) = match (facts.pmu.paranoid, may) {
        (None, _) => {
            (Status::No, "the kernel has no perf events", "boot a kernel with CONFIG_PERF_EVENTS")
        }
        (Some(_), true) => (Status::Ok, "this user may sample all CPUs", ""),
        (Some(_), false) => {
            (Status::Warn, "root may sample all CPUs, this user may not", "use sudo")
        }
    };
    Check {
        id: "sampling".into(),
        title: "Sampling (perf)".into(),
        status,
        seen: seen.into(),
        why: "advise samples the CPUs to find the tasks that execute wide code".into(),
        next: next.into(),
    }
}

/// Samples a load and judges it.
fn of_target(
    args: &AdviseArgs,
    target: &Target,
    judged: &Judged,
    facts: &Facts,
) -> Result<Advice, Failure> {
    if let Some(folder) = args.recording() {
        let what = format!("cannot sample a load on {}", folder.display());
        let next = "name a CPU by --machine ID, or give samples: --samples FILE";
        return Err(Failure::failed(Problem::new(what, "it is a recorded machine", next)));
    }
    target.check(&Live)?;
    if let Some(verdict) = cpu::verdict(judged, facts) {
        return Ok(Advice::new(judged.cpu.clone(), verdict));
    }
    let mut started = start(target)?;
    let asked = target.asked(started.as_ref().map(|started| started.0.id()));
    let clear = args.throttle.clear_throttle_reasons;
    let plan = Plan { time: args.time, level: 1, lasting: true, clear };
    let is_over =
        || started.as_mut().is_some_and(|started| !matches!(started.0.try_wait(), Ok(None)));
    let Taken { report, observed, stacks } = sample::take(asked, &plan, is_over)?;
    drop(started);
    let name = format!("{}, {}", target.name(), duration(report.time_ns));
    let chains = Some(Chains { observed: &observed, stacks: &stacks });
    of_samples(&Sampled { name, report: &report, chains, target: Some(target) }, judged, facts)
}

/// The command, ended with all that it has started when it is dropped.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        if !matches!(self.0.try_wait(), Ok(None)) {
            return;
        }
        // Its children first: without it they would have no parent that leads to it.
        for pid in target::descendants(self.0.id()) {
            // SAFETY: kill takes no memory. The command is not yet waited for, so its number is
            // still its own; a descendant's was a moment ago.
            unsafe { libc::kill(pid as libc::pid_t, libc::SIGTERM) };
        }
        // Nothing is left to do about a command that cannot be waited for.
        _ = self.0.wait();
    }
}

fn start(target: &Target) -> Result<Option<Started>, Failure> {
    let Target::Command(words) = target else { return Ok(None) };
    let Some((program, arguments)) = words.split_first() else { return Ok(None) };
    // Standard output is the answer's.
    let mut command = Command::new(program);
    command.args(arguments).stdout(Stdio::from(std::io::stderr()));
    Ok(Some(Started(command::start(&mut command)?)))
}

fn read_samples(path: &PathBuf) -> Result<SampleReport, Failure> {
    let cannot = |why: String| {
        let next = "give a file that turbolane sample --format json has printed";
        Failure::failed(Problem::new(format!("cannot use {}", path.display()), why, next))
    };
    let text = fs::read_to_string(path).map_err(|error| cannot(error.to_string()))?;
    let report = SampleReport::parse(&text).map_err(cannot)?;
    match report.load {
        Some(_) => Ok(report),
        None => Err(cannot(
            "it is of an older version, which did not note how busy the machine was".into(),
        )),
    }
}

/// Samples with what is known of them.
struct Sampled<'a> {
    name: String,
    report: &'a SampleReport,
    chains: Option<Chains<'a>>,
    target: Option<&'a Target>,
}

/// The answer for a load that was sampled.
fn of_samples(sampled: &Sampled<'_>, judged: &Judged, facts: &Facts) -> Result<Advice, Failure> {
    let report = sampled.report;
    let offenders: Vec<&Offender> =
        report.offenders.iter().filter(|offender| offender.sustained_level > 0).collect();
    let cpu_verdict = cpu::verdict(judged, facts);
    let mut advice = Advice::new(judged.cpu.clone(), Verdict::new(Worth::Unknown, "", ""));
    advice.sampled = Some(sampled.name.clone());
    advice.busy_samples = report.busy;
    advice.found = offenders.iter().map(|offender| found(offender, report)).collect();
    advice.victims = report.victims.iter().map(slowed).collect();
    advice.unread = report.unread.clone();
    advice.reduced_pct = reduced_pct(report);
    advice.throttle = report.throttle.clone();
    let (Some(model), None) = (&judged.model, &cpu_verdict) else {
        advice.verdict = cpu_verdict.unwrap_or(advice.verdict);
        return Ok(advice);
    };
    let remedy = remedy::remedy(&offenders, sampled.chains.as_ref(), facts);
    let load = report.load.as_ref().and_then(|sampled_load| {
        let stage = Stage::new(model, report.cpus, sampled_load);
        let mut load = Load::of(report, &stage)?;
        load.is_scalar_at_first = matches!(sampled.target, Some(Target::Command(_)));
        Some((stage, load))
    });
    let has_victims = !report.victims.is_empty();
    if let Some((stage, load)) = &load
        && !verdict::is_all_wide(load, has_victims)
    {
        let alternative = narrow::alternative(&offenders, load.level);
        let (detect, counted) = (remedy.detect, advice.reduced_pct);
        advice.prediction = predict::predict(load, stage, detect, counted, alternative)?;
    }
    advice.verdict = verdict::verdict(&Seen {
        busy: report.busy,
        wide: report.load.as_ref().map_or(0, |load| load.wide),
        has_victims,
        load: load.as_ref().map(|(_, load)| load),
        prediction: advice.prediction.as_ref(),
        can_run: !remedy.is_blocked,
    });
    if advice.verdict.worth != Worth::No && !offenders.is_empty() {
        add_commands(&mut advice, &remedy, sampled.target);
    }
    Ok(advice)
}

fn add_commands(advice: &mut Advice, remedy: &Remedy, target: Option<&Target>) {
    advice.run_note = remedy.note.clone();
    let narrower = advice.prediction.as_ref().and_then(|prediction| prediction.narrower.as_ref());
    let to_be_done =
        narrower.filter(|narrower| narrow::is_to_be_done(narrower, !remedy.is_blocked));
    if let Some(narrower) = to_be_done {
        let commands = remedy::switch_off(&narrower.switch, target);
        let why = match remedy.is_blocked {
            true => format!("{}. Without the lane", remedy.note),
            false => "narrower code gains more than the lane".into(),
        };
        (advice.run, advice.run_note) = (commands.run, format!("{why}: {}", commands.note));
        (advice.prove, advice.undo) = (commands.prove, Some(commands.undo));
        return;
    }
    if remedy.is_blocked {
        return;
    }
    let wide_cores = advice.prediction.as_ref().map_or(1, |prediction| prediction.wide_cores);
    let has_systemd = hw::services::has_systemd(&Live);
    let counts = hw::cycles::ThreadCycles::open().is_ok();
    let [run, prove, undo] = remedy::commands(remedy, wide_cores, target, has_systemd, counts);
    (advice.run, advice.prove, advice.undo) = (Some(run), Some(prove), Some(undo));
}

fn found(offender: &Offender, report: &SampleReport) -> Found {
    Found {
        function: offender.function.clone(),
        file: offender.file.clone(),
        process: offender.process.clone(),
        sustained_level: offender.sustained_level,
        busy_pct: 100.0 * offender.samples as f64 / report.busy.max(1) as f64,
    }
}

fn slowed(victim: &report::sample::Victim) -> Slowed {
    let own_pct = 100.0 * victim.samples as f64 / victim.of.max(1) as f64;
    Slowed { process: victim.process.clone(), own_pct }
}

/// Share of cycles above level 0, where counters say.
fn reduced_pct(report: &SampleReport) -> Option<f64> {
    let cycles = report.load.as_ref()?.level_cycles.as_ref()?;
    let all: u64 = cycles.iter().sum();
    (all > 0).then(|| 100.0 * (all - cycles[0]) as f64 / all as f64)
}
