// SPDX-License-Identifier: MIT OR Apache-2.0
//! A CPU whose parameters are known: the licence of `cpumodel`, with noise, as an implementation of
//! the probe's trait.
//!
//! Problem: on a real machine it is unknown what the probe should have found. So its accuracy
//! cannot be checked there.
//!
//! Idea: the same slices are executed by [`cpumodel::CoreLicense`] on the platform of a CPU model.
//! A payload slice asks for the level that the model's rules give its kernel; work is done at the
//! clock of the granted level, at a fraction of the rate while throttled, not at all while halted.
//! Then noise as it was seen on a shared machine (own measurements): jitter of the readings,
//! interrupts, neighbours that take the clock down for tens of milliseconds, rare long gaps.
//!
//! Limits: no frequency below the turbo table but by neighbours; rates per cycle of the kernels are
//! round numbers; a slice's jitter is bounded.

use cpumodel::{CoreLicense, CpuModel, Phase as LicensePhase, Platform};
use fastrand::Rng;
use report::probe::raw::{Cell, Cores, Header, Layout, Phase, Trace, Work};

use crate::kernel::{KERNELS, Kernel};
use crate::rig::{Machine, Order, Pace, ProbeError};

/// Its counter runs at 2 GHz, like that of the machine of our own measurements.
const TSC_KHZ: f64 = 2_000_000.0;
/// Reading the counter after a fence, ticks.
const OVERHEAD_TICKS: f64 = 30.0;
/// Scalar additions that fit into a cycle with a wide instruction.
const SCALAR_PER_CYCLE: f64 = 4.0;
/// Time between two repetitions, in which the settled clock of before is forgotten, ns.
const SETTLE_NS: f64 = 5_000_000.0;

/// Noise of a shared machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Noise {
    /// Largest error of a reading of the counter, ns.
    pub jitter_ns: f64,
    /// Steps in which the counter advances, ns; 0 if it is as fine as its ticks.
    pub counter_step_ns: f64,
    /// Interrupts per ms.
    pub interrupts_per_ms: f64,
    /// Longest interrupt, ns; the shortest takes a third of it.
    pub interrupt_ns: f64,
    /// Share of the time in which neighbours take the clock down.
    pub busy_frac: f64,
    /// By how much, kHz.
    pub busy_drop_khz: u32,
    /// How long such a time lasts on the mean, ns.
    pub busy_ns: f64,
    /// Chance of a repetition to be interrupted for milliseconds (steal).
    pub steal_frac: f64,
    /// How much later scalar code begins after wide code, ns.
    pub late_ns: f64,
    /// How long a block's code is not in the caches and takes a third longer, ns.
    pub cold_ns: f64,
}

impl Noise {
    /// No noise at all.
    pub const NONE: Noise = Noise {
        jitter_ns: 0.0,
        counter_step_ns: 0.0,
        interrupts_per_ms: 0.0,
        interrupt_ns: 0.0,
        busy_frac: 0.0,
        busy_drop_khz: 0,
        busy_ns: 1e9,
        steal_frac: 0.0,
        late_ns: 0.0,
        cold_ns: 0.0,
    };
    /// A shared machine with a neighbour that works a third of the time.
    pub const SHARED: Noise = Noise {
        jitter_ns: 3.0,
        counter_step_ns: 0.0,
        interrupts_per_ms: 1.0,
        interrupt_ns: 6_000.0,
        busy_frac: 0.33,
        busy_drop_khz: 200_000,
        busy_ns: 30e6,
        steal_frac: 0.02,
        late_ns: 10.0,
        cold_ns: 0.0,
    };
}

/// A simulated CPU. The clock of the simulation goes on from repetition to repetition.
pub struct Simulated {
    platform: Platform,
    name: String,
    /// As far as the model knows them; the platform assumes the rest.
    cores: Cores,
    noise: Noise,
    random: Rng,
    license: CoreLicense,
    now_ns: f64,
    /// Until when neighbours keep the clock as it is, and whether they work.
    regime: (f64, bool),
    next_interrupt_ns: f64,
}

impl Simulated {
    /// A CPU of this model.
    pub fn new(model: &CpuModel, noise: Noise, seed: u64) -> Simulated {
        Simulated {
            platform: Platform::new(model),
            name: model.id.clone(),
            cores: Cores {
                per_package: model.nr_cores.as_ref().map(|known| known.value),
                threads_per_core: model.smt.threads_per_core.as_ref().map(|known| known.value),
            },
            noise,
            random: Rng::with_seed(seed),
            license: CoreLicense::default(),
            now_ns: 0.0,
            regime: (0.0, true),
            next_interrupt_ns: 0.0,
        }
    }

    /// What is true of it.
    pub fn platform(&self) -> &Platform {
        &self.platform
    }

    /// Instructions under test per cycle of a kernel at a density.
    pub fn per_cycle(one_in: u32) -> f64 {
        (SCALAR_PER_CYCLE / f64::from(one_in)).min(1.0)
    }

    /// The level that a kernel asks for.
    pub fn level(&self, kernel: &Kernel, one_in: u32) -> u8 {
        // What a dirty upper half widens is light.
        self.platform.level_of(kernel.class, Simulated::per_cycle(one_in))
    }

    fn clock_ghz(&mut self, active: u32) -> f64 {
        while self.now_ns >= self.regime.0 {
            let busy = self.random.f64() < self.noise.busy_frac;
            self.regime = (self.now_ns + self.noise.busy_ns * 2.0 * self.random.f64() + 1.0, busy);
        }
        let khz = self.platform.clock_khz(self.license.level(), active as usize);
        let drop = if self.regime.1 { self.noise.busy_drop_khz } else { 0 };
        f64::from(khz.saturating_sub(drop)) / 1e6
    }

    /// Does work of so many cycles at full rate; `level` is what its code asks for.
    fn work(&mut self, cycles: f64, level: u8, active: u32) {
        let times = self.platform.times;
        self.license.set_demand(level, self.now_ns as u64, &times);
        let mut left = cycles;
        while left > 0.0 {
            let per_ns = self.clock_ghz(active)
                * match () {
                    () if self.license.phase() == LicensePhase::Halted => 0.0,
                    () if self.license.is_throttled(level) => self.platform.throttle_frac,
                    () => 1.0,
                };
            let end_ns = if per_ns > 0.0 { self.now_ns + left / per_ns } else { f64::INFINITY };
            let due_ns = self.license.deadline_ns();
            let due_ns = if due_ns == u64::MAX { f64::INFINITY } else { due_ns as f64 };
            let next_ns = end_ns.min(due_ns).min(self.regime.0);
            left -= (next_ns - self.now_ns).max(0.0) * per_ns;
            self.now_ns = self.now_ns.max(next_ns);
            if next_ns >= due_ns {
                self.license.expire(self.now_ns.ceil() as u64, &times);
            }
            if end_ns <= next_ns {
                break;
            }
        }
    }

    /// Time that something else takes from the core now.
    fn interrupts(&mut self) {
        if self.noise.interrupts_per_ms <= 0.0 || self.now_ns < self.next_interrupt_ns {
            return;
        }
        if self.next_interrupt_ns > 0.0 {
            self.now_ns += self.noise.interrupt_ns * (1.0 + 2.0 * self.random.f64()) / 3.0;
        }
        let mean_ns = 1e6 / self.noise.interrupts_per_ms;
        self.next_interrupt_ns = self.now_ns - mean_ns * (1.0 - self.random.f64()).ln();
    }

    /// What a loop of the kernel takes, in cycles.
    fn loop_cycles(kernel: &Kernel, one_in: u32) -> f64 {
        f64::from(kernel.wide_per_loop(one_in)) / Simulated::per_cycle(one_in)
    }

    fn execute(&mut self, layout: &Layout, kernel: &Kernel, cell: &Cell) -> Vec<u32> {
        let level = self.level(kernel, cell.one_in);
        let slices: Vec<_> = layout.slices().collect();
        let steal_at =
            (self.random.f64() < self.noise.steal_frac).then(|| self.random.usize(0..slices.len()));
        let mut ticks = Vec::with_capacity(slices.len());
        let mut warm_at_ns = f64::INFINITY;
        let mut read_before_ns = self.read();
        for (at, (phase, work)) in slices.into_iter().enumerate() {
            let in_block = phase == Phase::Block;
            match work {
                Work::Payload(loops) => {
                    let cycles = f64::from(loops) * Simulated::loop_cycles(kernel, cell.one_in);
                    let begun_ns = self.now_ns;
                    self.work(cycles, level, cell.active);
                    warm_at_ns = warm_at_ns.min(begun_ns + self.noise.cold_ns);
                    if self.now_ns < warm_at_ns {
                        self.now_ns += (self.now_ns - begun_ns) / 3.0;
                    }
                }
                Work::Meter(cycles) => {
                    if in_block {
                        self.now_ns += self.noise.late_ns;
                    }
                    self.work(f64::from(cycles), 0, cell.active);
                }
                Work::Other => {}
            }
            self.interrupts();
            if steal_at == Some(at) {
                self.now_ns += 2e6 * self.random.f64();
            }
            self.now_ns += OVERHEAD_TICKS * 1e6 / TSC_KHZ;
            let read_ns = self.read();
            ticks.push(((read_ns - read_before_ns).max(0.0) * TSC_KHZ / 1e6).round() as u32);
            read_before_ns = read_ns;
        }
        ticks
    }

    fn read(&mut self) -> f64 {
        let read_ns = self.now_ns + self.noise.jitter_ns * (2.0 * self.random.f64() - 1.0);
        match self.noise.counter_step_ns {
            0.0 => read_ns,
            step_ns => (read_ns / step_ns).floor() * step_ns,
        }
    }
}

impl Machine for Simulated {
    fn header(&self, seed: u64) -> Header {
        Header {
            schema: report::SCHEMA,
            machine: self.name.clone(),
            cores: self.cores,
            tsc_khz: TSC_KHZ,
            overhead_ticks: OVERHEAD_TICKS,
            chains: Vec::new(),
            witnesses: Vec::new(),
            skipped: Vec::new(),
            unknown: Vec::new(),
            seed,
            partial: None,
        }
    }

    fn cells(&self) -> (Vec<(String, u32)>, u32) {
        let of = |kernel: &'static Kernel| {
            kernel.densities().iter().map(|one_in| (kernel.name.to_string(), *one_in))
        };
        (KERNELS.iter().flat_map(of).collect(), self.platform.nr_cores as u32)
    }

    fn run(&mut self, order: &Order) -> Result<Trace, ProbeError> {
        let (cell, name) = (&order.cell, &order.cell.kernel);
        let kernel = Kernel::named(name).ok_or_else(|| ProbeError::NoKernel(name.clone()))?;
        let settled_khz =
            self.platform.clock_khz(self.level(kernel, cell.one_in), cell.active as usize);
        let scalar_khz = self.platform.clock_khz(0, cell.active as usize);
        let pace = Pace {
            loops_per_ns: f64::from(settled_khz)
                / 1e6
                / Simulated::loop_cycles(kernel, cell.one_in),
            cycles_per_ns: f64::from(scalar_khz) / 1e6,
            cycles_step: 50,
            wide_per_loop: kernel.wide_per_loop(cell.one_in),
        };
        let layout = order.layout(&pace);
        let scalar_cycles = SETTLE_NS * pace.cycles_per_ns;
        self.work(scalar_cycles, 0, cell.active);
        let ticks = self.execute(&layout, kernel, cell);
        Ok(Trace { cell: cell.clone(), layout, ticks })
    }
}
