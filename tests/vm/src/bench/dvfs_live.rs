// SPDX-License-Identifier: MIT OR Apache-2.0
//! DIM's policies on a live kernel: what they win on a dim-silicon machine, whose clock software
//! can raise, beside what the replays of `crates/dvfs` predict for the same periods.
//!
//! | load | what runs on one CPU |
//! |---|---|
//! | `nginx` | the modelled web server of DIM 6.2.2, its calls into OpenSSL wide: its periods, executed |
//! | `bursts` | 40,000 heavy instructions and a million scalar ones in turn |
//! | `turns` | the same as two processes that hand over to each other (`silicon_turns.rs`) |
//!
//! | policy | live | replay |
//! |---|---|---|
//! | `hints` | an ioctl where the timeline has a moment: the level falls now | `Spec::Hints` |
//! | `delay` | the register holds levels for the break-even time | `Spec::Fixed` of it |
//! | `average`, `share` | the same learner writes its next delay when wide code ends | `Spec::Average`, `Spec::Share` |
//! | `switches` | the kernel module, by power scores at each context switch | `Spec::Switches` |
//!
//! A gain is throughput against the hardware's own timeout, %. Time is virtual, so one run is
//! exact; what the replays leave out are system calls, switches and ticks of the kernel. For each
//! load, what its best policy lacks of the optimum in hindsight (`Spec::Oracle`) is reported too.

use std::time::Duration;

use ::dvfs::policy::{Average, Gap, Learner, Share};
use ::dvfs::{Core, Model, Moment, Spec, Timeline, Work, break_even_ns};
use anyhow::{Context, Result, ensure};
use cpumodel::{CpuModel, Platform};

use crate::guest::{set_affinity, tsc};
use crate::measure::{Figure, publish};
use crate::silicon::{Class, RELAX_NS, TSC_KHZ, ask_for_full_clock, scalar, wide};
use crate::silicon_license::Dim;
use crate::silicon_probe::CPU as MODEL;
use crate::silicon_turns::{self, SCALAR_INSNS, WIDE_INSNS};

/// Where all of it runs; CPU 0 has the kernel's work.
const CPU: usize = 1;
/// Of the learner that draws.
const SEED: u64 = 1;
/// Level of heavy 512-bit code.
const WIDE: u8 = 2;
/// Requests of the web server: 5 ms each. A few, to be played several times.
const REQUESTS: usize = 40;
/// Turns of the other loads: 0.5 ms each.
const TURNS: u32 = 200;

/// Measure and publish.
pub fn run() -> Result<()> {
    set_affinity(0, &[CPU])?;
    ask_for_full_clock(CPU)?;
    let model = CpuModel::built_in(MODEL).context("no such CPU")??;
    let platform = Platform::new(&model);
    let core = Core::new(&platform, platform.nr_cores);
    let (mut gains, mut gaps) = (Vec::new(), Vec::new());
    for (load, timeline) in [("nginx", nginx(&platform)?), ("bursts", bursts())] {
        let own = Spec::Fixed(RELAX_NS as u64).run(&core, &[&timeline], 0)?.time_ns as f64;
        let best = Spec::Oracle.run(&core, &[&timeline], 0)?.time_ns as f64;
        let best_pct = (own / best - 1.0) * 100.0;
        let of_load = of_a_program(load, &core, &timeline)?;
        let live_pct = of_load.iter().map(|gain| gain.live).fold(f64::MIN, f64::max);
        println!("{load}: {best_pct:.2} % in hindsight, {live_pct:.2} % by the best live policy");
        gaps.push(best_pct - live_pct);
        gains.extend(of_load);
    }
    gains.push(of_two_processes(&core)?);
    let figures = gains.iter().map(Gain::figure).collect::<Result<Vec<_>>>()?;
    let errors: Vec<f64> = gains.iter().map(|gain| (gain.live - gain.replayed).abs()).collect();
    let worst = [("dvfs.live_gain_points", &errors), ("dvfs.live_oracle_gap_points", &gaps)];
    let worst = worst.map(|(name, points)| -> Result<Figure> {
        let figure = Figure::of(name, "points", "lower", points)?;
        Ok(Figure { value: figure.max, ..figure })
    });
    publish("dvfs-live", &figures.into_iter().map(Ok).chain(worst).collect::<Result<Vec<_>>>()?)
}

/// What a policy wins, %.
struct Gain {
    name: String,
    live: f64,
    replayed: f64,
}

impl Gain {
    /// Of times under the policy and under the hardware's own.
    fn new(name: String, own: [f64; 2], policy: [f64; 2]) -> Self {
        let [live, replayed] = [0, 1].map(|k| (own[k] / policy[k] - 1.0) * 100.0);
        println!("{name}: {live:.2} % live, {replayed:.2} % replayed");
        Gain { name, live, replayed }
    }

    fn figure(&self) -> Result<Figure> {
        let figure = Figure::of(&self.name, "%", "higher", &[self.live])?;
        Ok(figure.against("dvfs replay", self.replayed))
    }
}

/// Hints and another delay, for what one process executes.
fn of_a_program(load: &str, core: &Core, timeline: &Timeline) -> Result<Vec<Gain>> {
    let dim = Dim::load(false)?;
    let replayed =
        |spec: Spec| -> Result<f64> { Ok(spec.run(core, &[timeline], SEED)?.time_ns as f64) };
    let pays_ns = break_even_ns(core, WIDE, 0).context("level 2 is slower")? as u32;
    let own = [play(timeline, Steering::No)?, replayed(Spec::Fixed(RELAX_NS as u64))?];
    let hints = [play(timeline, Steering::Hints(&dim))?, replayed(Spec::Hints(RELAX_NS as u64))?];
    dim.delay(Some(pays_ns))?;
    let delay = [play(timeline, Steering::No)?, replayed(Spec::Fixed(pays_ns.into()))?];
    let learners: [(&str, Spec, &mut dyn Learner); 2] = [
        ("average", Spec::Average, &mut Average::new(core)),
        ("share", Spec::Share, &mut Share::new(core, SEED)),
    ];
    let mut learned = Vec::new();
    for (policy, spec, learner) in learners {
        let live = play(timeline, Steering::Learns { dim: &dim, learner, pays_ns })?;
        learned.push((policy, [live, replayed(spec)?]));
    }
    dim.delay(None)?;
    println!("{load}: {own:.0?} ns, break-even {pays_ns} ns");
    let name = |policy: &str| match (load, policy) {
        ("nginx", "hints") => "silicon.dim_hints_gain_pct".to_owned(),
        _ => format!("silicon.dim_gain_pct.{load}.{policy}"),
    };
    let gains = [("hints", hints), ("delay", delay)].into_iter().chain(learned);
    Ok(gains.map(|(policy, times)| Gain::new(name(policy), own, times)).collect())
}

/// Context switches, for two processes that say nothing.
fn of_two_processes(core: &Core) -> Result<Gain> {
    let mut timeline = Timeline::default();
    for _ in 0..TURNS {
        timeline.push(code(WIDE, WIDE_INSNS), &[Moment::Switch(WIDE)]);
        timeline.push(code(0, SCALAR_INSNS), &[Moment::Switch(0)]);
    }
    let replayed =
        |spec: Spec| -> Result<f64> { Ok(spec.run(core, &[&timeline], 0)?.time_ns as f64) };
    let live = || silicon_turns::play(TURNS).map(|time: Duration| time.as_nanos() as f64);
    let own = [live()?, replayed(Spec::Fixed(RELAX_NS as u64))?];
    let dim = Dim::load(true)?;
    let switches = [live()?, replayed(Spec::Switches(RELAX_NS as u64))?];
    println!("turns: {own:.0?} ns, {} changes forced", dim.counted("forced")?);
    Ok(Gain::new("silicon.dim_gain_pct.turns.switches".into(), own, switches))
}

/// The web server's first requests.
fn nginx(platform: &Platform) -> Result<Timeline> {
    let model = Model::built_in("dim-nginx").context("it is built in")??;
    let whole = model.timeline(platform, Some("calls"), 1).context("it has the variant")?;
    let mut timeline = Timeline::default();
    let mut requests = 0;
    for period in whole.periods() {
        let moments = whole.moments(period);
        requests += usize::from(moments.contains(&Moment::Request));
        if requests > REQUESTS {
            break;
        }
        timeline.push(period.work, moments);
    }
    ensure!(requests > REQUESTS, "the model has {requests} requests");
    Ok(timeline)
}

fn bursts() -> Timeline {
    let mut timeline = Timeline::default();
    for _ in 0..TURNS {
        timeline.push(code(WIDE, WIDE_INSNS), &[]);
        timeline.push(code(0, SCALAR_INSNS), &[Moment::Force]);
    }
    timeline
}

fn code(level: u8, cycles: u64) -> Work {
    Work::Code { level, cycles, sensitive_frac: 1.0 }
}

/// What a program does about the clock while it executes a timeline.
enum Steering<'a> {
    No,
    /// Its moments are hints.
    Hints(&'a Dim),
    /// When wide code ends, a learner says for which part of the break-even time its level is held.
    Learns {
        dim: &'a Dim,
        learner: &'a mut dyn Learner,
        pays_ns: u32,
    },
}

impl Steering<'_> {
    /// Wide code has ended; returns for how long the level is held, if a learner decides.
    fn wide_ended(&mut self) -> Result<Option<u64>> {
        let Steering::Learns { dim, learner, pays_ns } = self else { return Ok(None) };
        let hold_ns = learner.threshold(WIDE, 0) * f64::from(*pays_ns);
        dim.delay(Some(hold_ns as u32))?;
        Ok(Some(hold_ns as u64))
    }

    /// So long after wide code has ended, the next begins.
    fn wide_begins(&mut self, gap_ns: u64, hold_ns: u64) {
        if let Steering::Learns { learner, .. } = self {
            let held_ns = gap_ns.min(hold_ns);
            learner.ended(&Gap { level: WIDE, demand: 0, held_ns, raised_ns: gap_ns - held_ns });
        }
    }
}

/// Executes a timeline, an instruction for each cycle; ns.
fn play(timeline: &Timeline, mut steering: Steering<'_>) -> Result<f64> {
    // Whatever ran before, the clock is up.
    std::thread::sleep(Duration::from_millis(3));
    let ns_since = |start: u64| (tsc() - start) as f64 * 1e6 / TSC_KHZ;
    let start = tsc();
    let mut gap = None;
    let wide_cycles = |work: Work| match work {
        Work::Code { level: 1.., cycles, .. } => Some(cycles),
        _ => None,
    };
    let mut periods = timeline.periods().iter().peekable();
    while let Some(period) = periods.next() {
        if let Steering::Hints(dim) = &steering
            && timeline.moments(period).contains(&Moment::Force)
        {
            dim.force(0)?;
        }
        match period.work {
            Work::Code { level: 0, cycles, .. } => drop(scalar(cycles)),
            Work::Code { mut cycles, .. } => {
                // Without scalar instructions between periods: a delay of 0 would notice them.
                while let Some(more) = periods.peek().and_then(|next| wide_cycles(next.work)) {
                    cycles += more;
                    periods.next();
                }
                if let Some((begun, hold_ns)) = gap.take() {
                    steering.wide_begins(ns_since(begun) as u64, hold_ns);
                }
                wide(Class::Heavy512, cycles / 10);
                gap = steering.wide_ended()?.map(|hold_ns| (tsc(), hold_ns));
            }
            Work::Idle { time_ns } => std::thread::sleep(Duration::from_nanos(time_ns)),
        }
    }
    Ok(ns_since(start))
}
