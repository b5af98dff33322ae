// SPDX-License-Identifier: MIT OR Apache-2.0
//! A sampling from begin to end: CPUs are sampled, files with samples scanned, samples added up.
//!
//! Where the CPU counts cycles at licence levels, these are read before and after: what the samples
//! cannot show is then known, how long cores were slow.

use std::path::Path;
use std::time::{Duration, Instant};

use cpumodel::{CpuSet, Topology};
use hw::levels::{LevelCounters, LevelCycles};
use hw::sampling::Sampler;
use report::problem::Problem;
use report::sample::{SampleReport, SampledLoad};
use report::scan::Function;
use scan::{Options, Sort};

use super::attribute::{Code, Observed, Stacks, Wide};
use super::observe::{Asked, Observer, Sampled};
use super::throttle::Throttle;
use crate::failure::Failure;
use crate::scan::{map, scan_file};

/// Within 10 s of a busy CPU a share of 1 % is known to a tenth of itself (the square root of 100
/// samples).
const PERIOD: Duration = Duration::from_millis(1);
/// Rings have room for half a second.
pub(super) const READ_EVERY: Duration = Duration::from_millis(50);

/// What is sampled for how long.
pub(crate) struct Plan {
    pub time: Duration,
    /// Least licence level of a function that counts.
    pub level: u8,
    /// Functions whose wide code is too sparse to raise the level do not count.
    pub lasting: bool,
    /// Throttle reasons are cleared before.
    pub clear: bool,
}

/// What was sampled.
pub(crate) struct Taken {
    pub report: SampleReport,
    pub observed: Observed,
    pub stacks: Stacks,
}

/// Samples until the time is over, or `is_over` says so.
pub(crate) fn take(
    asked: Asked,
    plan: &Plan,
    mut is_over: impl FnMut() -> bool,
) -> Result<Taken, Failure> {
    let topology =
        hw::topology(&hw::Live).map_err(|error| sched::obstacles::of_topology(&error))?;
    let mut observer = Observer::of(asked);
    let cpus = topology.online();
    let numbers = cpus.iter().map(|cpu| cpu as u32);
    let mut sampler =
        Sampler::start(numbers, PERIOD.as_nanos() as u64).map_err(|error| refused(&error))?;
    let mut levels = Levels::begin(&cpus);
    let throttle = match levels {
        Some(_) if !plan.clear => None,
        _ => Throttle::begin(&hw::Live, plan.clear)?,
    };
    let begun = Instant::now();
    while begun.elapsed() < plan.time && !is_over() {
        std::thread::sleep(READ_EVERY.min(plan.time.saturating_sub(begun.elapsed())));
        sampler.read(|sample| observer.see(&sample));
    }
    let time = begun.elapsed();
    let level_cycles = levels.as_mut().and_then(Levels::end);
    // before files are scanned: that limits the clock, too
    let throttle = throttle.map(|throttle| throttle.end(&hw::Live));
    let lost = sampler.lost();
    drop(sampler);
    let mut unread = observer.unread;
    let files: Vec<Code> = observer.files.into_iter().map(|file| scanned(file, plan)).collect();
    unread.extend(
        files.iter().filter_map(|code| Some(format!("{}: {}", code.path, code.unread.as_ref()?))),
    );
    let observed = Observed {
        seen: observer.seen,
        processes: observer.names,
        files,
        cores: cores(&topology, &cpus),
    };
    let report = observed.judge(SampleReport {
        schema: SampleReport::SCHEMA,
        time_ns: time.as_nanos() as u64,
        period_ns: PERIOD.as_nanos() as u64,
        cpus: cpus.iter().count() as u32,
        lost,
        least_level: plan.level,
        load: Some(SampledLoad {
            cores: topology.cores().len() as u32,
            packages: topology.packages().len() as u32,
            level_cycles: level_cycles.map(Vec::from),
            ..SampledLoad::default()
        }),
        throttle: throttle.map(|throttle| throttle.report(&observed.counts())),
        unread,
        ..SampleReport::default()
    });
    Ok(Taken { report, observed, stacks: observer.stacks })
}

/// The core of each CPU, by the CPU's number.
fn cores(topology: &Topology, cpus: &CpuSet) -> Vec<u32> {
    let core = |cpu| topology.place(cpu).map_or(u32::MAX, |place| place.core as u32);
    (0..=cpus.iter().last().unwrap_or(0)).map(core).collect()
}

/// The counters of licence levels while samples are taken. A CPU without them is no error: then
/// there are none.
struct Levels {
    counters: LevelCounters,
    cpus: Vec<u32>,
    before: LevelCycles,
}

impl Levels {
    fn begin(cpus: &CpuSet) -> Option<Self> {
        let mut counters = LevelCounters::of_this_machine(&hw::Live).ok()?;
        let cpus: Vec<u32> = cpus.iter().map(|cpu| cpu as u32).collect();
        let before = sum(&mut counters, &cpus)?;
        Some(Levels { counters, cpus, before })
    }

    /// Cycles since the begin; none if nothing was counted, as where another program holds the
    /// counters.
    fn end(&mut self) -> Option<LevelCycles> {
        let mut cycles = sum(&mut self.counters, &self.cpus)?;
        for (now, before) in cycles.iter_mut().zip(self.before) {
            *now = now.saturating_sub(before);
        }
        cycles.iter().any(|cycles| *cycles > 0).then_some(cycles)
    }
}

fn sum(counters: &mut LevelCounters, cpus: &[u32]) -> Option<LevelCycles> {
    let mut sums = LevelCycles::default();
    for &cpu in cpus {
        let cycles = counters.read(cpu).ok()?;
        for (sum, cycles) in sums.iter_mut().zip(cycles) {
            *sum += cycles;
        }
    }
    Some(sums)
}

fn refused(error: &std::io::Error) -> Failure {
    let why = match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => "this user may not look at all CPUs".to_owned(),
        Some(libc::EMFILE | libc::ENOMEM) => {
            format!("{error} (it takes a descriptor and 516 KiB per CPU)")
        }
        _ => format!("perf_event_open: {error}"),
    };
    let next = "run it as root, or set kernel.perf_event_paranoid=0; turbolane scan --pid needs no rights for your own processes";
    Failure::unsupported(Problem::new("cannot sample the CPUs", why, next))
}

/// The wide functions of a file.
fn scanned(sampled: Sampled, plan: &Plan) -> Code {
    let Sampled { path, file } = sampled;
    let mapped = file.and_then(|file| map(&file));
    let options = Options { level: plan.level, top: None, sort: Sort::Address };
    let scanned = match &mapped {
        Ok(bytes) => {
            scan_file(Path::new(&path), bytes, &options).map_err(|error| error.to_string())
        }
        Err(error) => Err(error.to_string()),
    };
    let is_wanted = |function: &Function| !plan.lasting || function.sustained_level > 0;
    match scanned {
        Err(why) => Code::unread(path, why),
        Ok(file) => Code::new(
            path,
            file.build_id,
            file.listed.into_iter().filter(is_wanted).filter_map(|function| {
                let wide = Wide {
                    name: function.name,
                    near: function.near,
                    size_bytes: function.size_bytes,
                    license_level: function.license_level,
                    sustained_level: function.sustained_level,
                };
                Some((function.file_offset?, wide))
            }),
        ),
    }
}
