// SPDX-License-Identifier: MIT OR Apache-2.0
//! This CPU.
//!
//! The probe's thread is bound to one CPU, so that its counter and clock are one core's; partners
//! on other CPUs spin on scalar code to make their cores active. All bindings are this process's
//! own and end with it.
//!
//! Limits: the partners' cores are not the only active ones of the package; whether two CPUs share
//! a core is as the kernel says, which in a virtual machine may be wrong.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use cpumodel::CpuSet;
use hw::Source;
use hw::cpu::{Cpu, read_cpu};
use report::probe::raw::{Cores, Header, Layout, Skipped, Trace, Witness};

use crate::calibration::{Calibration, tsc};
use crate::chain::{METER_ROUND, meter};
use crate::kernel::{KERNELS, Kernel, Need};
use crate::payload::{Loop, code, finish, permit_amx, prepare};
use crate::rig::{Machine, Order, Pace, ProbeError};
use crate::witness::witnesses;

/// Scalar code before each repetition, ns, on top of the time watched after the one before: what is
/// left of its effects goes.
const SETTLE_NS: f64 = 1_000_000.0;
/// The same after the number of active CPUs changed: power control looks every 500 us (THESIS 2.2).
const ACTIVE_SETTLE_NS: f64 = 5_000_000.0;
/// How long a kernel runs before its pace is taken, ns: longer than AMX needs to settle.
const WARM_NS: f64 = 400_000.0;

/// The CPU that runs us.
pub struct Live {
    cpu: usize,
    tid: u32,
    /// To be restored.
    affinity: CpuSet,
    about: Cpu,
    cores: Cores,
    calibration: Calibration,
    witnesses: Vec<Witness>,
    unknown: Vec<String>,
    amx_refused: Option<String>,
    paces: BTreeMap<(String, u32), Pace>,
    partners: Partners,
}

impl Live {
    /// Binds the calling thread to a CPU (the last of those it may use, which other programs' first
    /// choice is not) until the value is dropped, and calibrates the meter.
    pub fn new(source: &dyn Source) -> Result<Live, ProbeError> {
        if !hw::cpu::has_invariant_tsc(source) {
            return Err(ProbeError::NoInvariantTsc);
        }
        let tid = hw::task::own_tid();
        let failed = |what: &str| {
            let what = what.to_string();
            move |source| ProbeError::System { what, source }
        };
        let affinity = hw::task::get_affinity(tid).map_err(failed("cannot read the affinity"))?;
        let cpus: Vec<usize> = affinity.iter().collect();
        let cpu = *cpus.last().ok_or_else(|| ProbeError::CpusChanged("it is empty".into()))?;
        hw::task::set_affinity(tid, &[cpu].into_iter().collect())
            .map_err(failed("cannot bind the thread to a CPU"))?;
        let about = read_cpu(source);
        let amx_refused =
            if about.features.amx_tile { permit_amx().err().map(|e| e.to_string()) } else { None };
        let others: Vec<usize> = cpus.into_iter().filter(|other| *other != cpu).collect();
        let unknown = unknown(source, &about, others.len() + 1);
        let partners = Partners::start(&others);
        let mut live = Live {
            cpu,
            tid,
            affinity,
            about,
            cores: cores(source),
            calibration: Calibration {
                tsc_khz: 0.0,
                overhead_ticks: 0.0,
                cycles_per_ns: 0.0,
                chains: Vec::new(),
            },
            witnesses: Vec::new(),
            unknown,
            amx_refused,
            paces: BTreeMap::new(),
            partners,
        };
        live.calibration = Calibration::measure()?;
        live.witnesses = witnesses(&live.calibration, cpu);
        Ok(live)
    }

    /// The meter.
    pub fn calibration(&self) -> &Calibration {
        &self.calibration
    }

    /// Why a kernel cannot run; `None` if it can.
    fn unmet(&self, kernel: &Kernel) -> Option<String> {
        let refused = || {
            let why = self.amx_refused.as_ref().filter(|_| kernel.need == Need::Amx)?;
            Some(format!("the kernel does not permit it: {why}"))
        };
        kernel.need.unmet(&self.about.features).map(str::to_string).or_else(refused)
    }

    /// How fast a kernel runs when settled; measured once.
    fn pace(&mut self, kernel: &'static Kernel, one_in: u32, run: Loop) -> Pace {
        let key = (kernel.name.to_string(), one_in);
        if let Some(pace) = self.paces.get(&key) {
            return *pace;
        }
        let per_tick_ns = 1e6 / self.calibration.tsc_khz;
        // SAFETY: `run` asked `unmet` for the kernel before it came here.
        let timed = |loops: u64| unsafe {
            let start = tsc();
            run(loops);
            tsc().wrapping_sub(start) as f64 * per_tick_ns
        };
        // SAFETY: as above.
        unsafe { prepare(kernel) };
        let (mut loops, mut spent_ns) = (16, 0.0);
        let loops_per_ns = loop {
            let ns = timed(loops);
            spent_ns += ns;
            if spent_ns > WARM_NS && ns > WARM_NS / 10.0 {
                break loops as f64 / ns;
            }
            if ns < WARM_NS / 5.0 {
                loops *= 2;
            }
        };
        // SAFETY: as above.
        unsafe { finish(kernel) };
        let pace = Pace {
            loops_per_ns,
            cycles_per_ns: self.calibration.cycles_per_ns,
            cycles_step: METER_ROUND,
            wide_per_loop: kernel.wide_per_loop(one_in),
        };
        self.paces.insert(key, pace);
        pace
    }

    fn settle(&self, ns: f64) {
        meter((ns * self.calibration.cycles_per_ns / f64::from(METER_ROUND)) as u64);
    }

    /// Still where it was put?
    fn check_place(&self) -> Result<(), ProbeError> {
        let now = hw::task::get_affinity(self.tid).map_err(|source| ProbeError::System {
            what: "cannot read the affinity".into(),
            source,
        })?;
        if now.iter().eq([self.cpu]) {
            return Ok(());
        }
        Err(ProbeError::CpusChanged(format!(
            "the thread was bound to CPU {}, now to {now}",
            self.cpu
        )))
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // No one is left to report to if the CPUs are gone meanwhile.
        _ = hw::task::set_affinity(self.tid, &self.affinity);
    }
}

impl Machine for Live {
    fn header(&self, seed: u64) -> Header {
        let skipped = KERNELS.iter().filter_map(|kernel| {
            Some(Skipped { what: kernel.name.into(), why: self.unmet(kernel)? })
        });
        Header {
            schema: report::SCHEMA,
            machine: self.about.name.clone(),
            cores: self.cores,
            tsc_khz: self.calibration.tsc_khz,
            overhead_ticks: self.calibration.overhead_ticks,
            chains: self.calibration.chains.clone(),
            witnesses: self.witnesses.clone(),
            skipped: skipped.collect(),
            unknown: self.unknown.clone(),
            seed,
            partial: None,
        }
    }

    fn cells(&self) -> (Vec<(String, u32)>, u32) {
        let able = KERNELS.iter().filter(|kernel| self.unmet(kernel).is_none());
        let cells = able.flat_map(|kernel| {
            kernel.densities().iter().map(|one_in| (kernel.name.to_string(), *one_in))
        });
        (cells.collect(), self.partners.threads.len() as u32 + 1)
    }

    fn run(&mut self, order: &Order) -> Result<Trace, ProbeError> {
        let (cell, name) = (&order.cell, &order.cell.kernel);
        let known =
            Kernel::named(name).and_then(|kernel| Some((kernel, code(kernel, cell.one_in)?)));
        let Some((kernel, run)) = known.filter(|(kernel, _)| self.unmet(kernel).is_none()) else {
            return Err(ProbeError::NoKernel(format!("{name} 1/{}", cell.one_in)));
        };
        let changed = self.partners.set_busy(cell.active - 1);
        let pace = self.pace(kernel, cell.one_in, run);
        let layout = order.layout(&pace);
        let mut stamps = vec![0u64; layout.slices().count() + 1];
        self.settle(if changed { ACTIVE_SETTLE_NS } else { SETTLE_NS });
        // SAFETY: what the kernel needs is there, see above.
        unsafe { execute(&layout, kernel, run, &mut stamps) };
        self.check_place()?;
        let tick =
            |pair: &[u64]| u32::try_from(pair[1].saturating_sub(pair[0])).unwrap_or(u32::MAX);
        let ticks = stamps.windows(2).map(tick).collect();
        Ok(Trace { cell: cell.clone(), layout, ticks })
    }
}

/// Executes the slices and writes the counter before the first and after each.
///
/// # Safety
/// The CPU must have what the kernel needs.
unsafe fn execute(layout: &Layout, kernel: &Kernel, run: Loop, stamps: &mut [u64]) {
    use report::probe::raw::Phase;

    let mut at = 0;
    let mut stamp = || {
        stamps[at] = tsc();
        at += 1;
    };
    stamp();
    let mut in_block = false;
    for part in &layout.runs {
        if in_block && part.phase == Phase::Post {
            // SAFETY: upheld by the caller. Counts as part of the first slice after the block.
            unsafe { finish(kernel) };
            in_block = false;
        }
        for _ in 0..part.n {
            if part.phase == Phase::Prepare {
                // SAFETY: upheld by the caller.
                unsafe { prepare(kernel) };
                in_block = true;
                stamp();
            }
            if part.loops > 0 {
                // SAFETY: upheld by the caller.
                unsafe { run(u64::from(part.loops)) };
                stamp();
            }
            if part.cycles > 0 {
                meter(u64::from(part.cycles / METER_ROUND));
                stamp();
            }
        }
    }
}

/// How many cores and CPUs a machine has, beyond those that this process may use.
fn cores(source: &dyn Source) -> Cores {
    let Ok(topology) = hw::topology(source) else { return Cores::default() };
    let all = topology.cores();
    let of_package = |package: &usize| all.iter().filter(|core| core.package == *package).count();
    let most = |counts: &mut dyn Iterator<Item = usize>| counts.max().map(|count| count as u32);
    Cores {
        per_package: most(&mut topology.packages().iter().map(of_package)),
        threads_per_core: most(&mut all.iter().map(|core| core.cpus.len())),
    }
}

/// What hides from the probe on this machine.
fn unknown(source: &dyn Source, cpu: &Cpu, nr_cpus: usize) -> Vec<String> {
    let mut unknown = Vec::new();
    if let Some(hypervisor) = &cpu.hypervisor {
        unknown.push(format!(
            "a virtual machine ({hypervisor}): family, model {} and topology may be falsified, so which \
             CPUs share a core is not known; other virtual machines on the host change the clock",
            cpu.model
        ));
    }
    unknown.push(
        "active cores of the package beyond this process's own: turbo depends on all of them"
            .into(),
    );
    if let Some(cpus) = hw::limits::cpu_quota(source)
        && cpus < nr_cpus as f64
    {
        unknown.push(format!(
            "a quota of {cpus:.2} CPUs: time taken away by it shows as gaps, and with {nr_cpus} CPUs active \
             as idle ones"
        ));
    }
    unknown
}

/// Threads that keep other CPUs active.
struct Partners {
    busy: Arc<AtomicU32>,
    threads: Vec<JoinHandle<()>>,
}

/// Asks partners to end.
const END: u32 = u32::MAX;
/// How long an idle partner sleeps before it looks again.
const NAP: Duration = Duration::from_micros(500);

impl Partners {
    /// One on each CPU, all idle. A CPU on which none can be started is not used.
    fn start(cpus: &[usize]) -> Partners {
        let busy = Arc::new(AtomicU32::new(0));
        let spawn = |(number, cpu): (u32, &usize)| {
            let (busy, place) = (Arc::clone(&busy), [*cpu].into_iter().collect());
            let spin = move || {
                let tid = hw::task::own_tid();
                if hw::task::set_affinity(tid, &place).is_err() {
                    return;
                }
                loop {
                    match busy.load(Ordering::Relaxed) {
                        END => return,
                        wanted if wanted > number => meter(2_000),
                        _ => thread::sleep(NAP),
                    }
                }
            };
            thread::Builder::new().name("probe-partner".into()).spawn(spin).ok()
        };
        let threads = (0..).zip(cpus).filter_map(spawn).collect();
        Partners { busy, threads }
    }

    /// So many are to spin. True if that is a change.
    fn set_busy(&self, wanted: u32) -> bool {
        self.busy.swap(wanted, Ordering::Relaxed) != wanted
    }
}

impl Drop for Partners {
    fn drop(&mut self) {
        self.busy.store(END, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A partner cannot panic.
            _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use hw::Recorded;

    use super::*;

    /// Cores are counted by package, and all of the machine's are, not only those that this process
    /// may use. Where the kernel shows none, none are guessed.
    #[test]
    fn cores_are_those_of_a_package() {
        let machines = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/machines");
        let of = |name: &str| cores(&Recorded::open(&machines.join(name)).unwrap());
        let found = |per_package: u32, threads: u32| Cores {
            per_package: Some(per_package),
            threads_per_core: Some(threads),
        };
        assert_eq!(of("skylake-sp"), found(16, 2));
        assert_eq!(cores(&Recorded::parse("", "").unwrap()), Cores::default());
    }
}
