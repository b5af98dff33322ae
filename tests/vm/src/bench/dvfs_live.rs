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
//! | `switches` | the kernel module, by power scores at each context switch | `Spec::Switches` |
//!
//! A gain is throughput against the hardware's own timeout, %. Time is virtual, so one run is
//! exact; what the replays leave out are system calls, switches and ticks of the kernel.

use std::time::Duration;

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
    let mut gains = Vec::new();
    for (load, timeline) in [("nginx", nginx(&platform)?), ("bursts", bursts())] {
        gains.extend(of_a_program(load, &core, &timeline)?);
    }
    gains.push(of_two_processes(&core)?);
    let figures = gains.iter().map(Gain::figure).collect::<Result<Vec<_>>>()?;
    let errors: Vec<f64> = gains.iter().map(|gain| (gain.live - gain.replayed).abs()).collect();
    let mut worst = Figure::of("dvfs.live_gain_points", "points", "lower", &errors)?;
    worst.value = worst.max;
    publish("dvfs-live", &[figures, vec![worst]].concat())
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
        |spec: Spec| -> Result<f64> { Ok(spec.run(core, &[timeline], 0)?.time_ns as f64) };
    let pays_ns = break_even_ns(core, WIDE, 0).context("level 2 is slower")? as u32;
    let own = [play(timeline, None)?, replayed(Spec::Fixed(RELAX_NS as u64))?];
    let hints = [play(timeline, Some(&dim))?, replayed(Spec::Hints(RELAX_NS as u64))?];
    dim.delay(Some(pays_ns))?;
    let delay = [play(timeline, None)?, replayed(Spec::Fixed(pays_ns.into()))?];
    dim.delay(None)?;
    println!("{load}: {own:.0?} ns, break-even {pays_ns} ns");
    let name = |policy: &str| match (load, policy) {
        ("nginx", "hints") => "silicon.dim_hints_gain_pct".to_owned(),
        _ => format!("silicon.dim_gain_pct.{load}.{policy}"),
    };
    Ok(vec![Gain::new(name("hints"), own, hints), Gain::new(name("delay"), own, delay)])
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

/// Executes a timeline, an instruction for each cycle, with its moments as hints if there is a
/// module to take them; ns.
fn play(timeline: &Timeline, hints: Option<&Dim>) -> Result<f64> {
    // Whatever ran before, the clock is up.
    std::thread::sleep(Duration::from_millis(3));
    let start = tsc();
    for period in timeline.periods() {
        if let Some(dim) = hints.filter(|_| timeline.moments(period).contains(&Moment::Force)) {
            dim.force(0)?;
        }
        match period.work {
            Work::Code { level: 0, cycles, .. } => drop(scalar(cycles)),
            Work::Code { cycles, .. } => wide(Class::Heavy512, cycles / 10),
            Work::Idle { time_ns } => std::thread::sleep(Duration::from_nanos(time_ns)),
        }
    }
    Ok((tsc() - start) as f64 * 1e6 / TSC_KHZ)
}
