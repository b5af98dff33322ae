// SPDX-License-Identifier: MIT OR Apache-2.0
//! P-states that software sets core by core: AMD's Family 15h, on which TURBO 7 to 9 were measured.
//!
//! Problem: what boosting the owner of a lock wins depends on what a change of the P-state takes.
//! TURBO 8 has the figures, of a machine that is fifteen years old.
//!
//! Idea: a P-state file has them, and a core of this machine takes that long. A write to
//! PStateCtl holds the core up; after that its clock goes to the new one in steps of 100 MHz,
//! evenly over the time of the transition, so that its mean is that of the straight line that TURBO
//! 6 draws and `lockmodel` computes with.
//!
//! ```text
//!   clock of 1.4 GHz | stopped      | 1.4 ... 2.7 ... 4.0  | 4.0 GHz
//!                    WRMSR          28 steps of 2.9 us each
//! ```
//!
//! | register | what |
//! |---|---|
//! | E7H, E8H MPERF, APERF | as on other machines |
//! | C001_0015H HWCR | 25 CpbDis: no boost by the hardware; 24: the time stamp counter counts at P-state 0 |
//! | C001_0061H PStateCurLim | 6..4 the highest number, 2..0 the lowest |
//! | C001_0062H PStateCtl | 2..0 the number asked for |
//! | C001_0063H PStateStat | 2..0 the number in force |
//! | C001_0064H to C001_006BH PStateDef | 63 valid, 8..6 DID, 5..0 FID: 100 MHz * (FID + 16) >> DID |
//!
//! The P-states above the base are *boosted*. Firmware leaves them to the hardware or to software
//! (D18F4x15C[NumBoostStates]; setting `boosted`). In software's hands they are the first numbers.
//! In the hardware's hands numbers count from the base, and a core that asks for the base has its
//! turbo while no more than half of the cores are awake.
//!
//! C-states: a CPU that was asleep needs the exit time of the deepest state for which it slept long
//! enough. The hardware chooses it; there is nothing for software to ask for but HLT.
//!
//! Source: BKDG for Family 15h models 00h-0Fh (42301), 2.5.2.1, 2.5.3 and MSRC001_006x.
//!
//! Limits: a change other than the three of TURBO 8 takes what the one of the three that is most
//! like it takes, its transition by the difference of the clocks. The register D18F4x15C itself is
//! not there: software cannot take the boosted P-states, only find that it has them. On hardware
//! the turbo of awake cores also depends on temperature and current.

use cpumodel::{Change, CpuModel, Platform, PstateModel, Times};

use crate::clocks::{BIN_KHZ, Clocks, NEVER, Time};
use crate::registers::{APERF, MPERF};

const HWCR: u32 = 0xc001_0015;
const CUR_LIMIT: u32 = 0xc001_0061;
const CTL: u32 = 0xc001_0062;
const STATUS: u32 = 0xc001_0063;
const DEFINITIONS: u32 = 0xc001_0064;
const DEFINITIONS_END: u32 = DEFINITIONS + 8;

const TSC_AT_P0: u64 = 1 << 24;
const BOOST_DISABLED: u64 = 1 << 25;
const VALID: u64 = 1 << 63;
const NUMBER: u64 = 7;
/// Clock of FID 0, in steps of 100 MHz.
const LEAST_FID: u64 = 16;

/// How often the hardware looks how many cores are awake.
// Assumed: BKDG 2.5.2.1 calls the boost by C-states deterministic and gives no time.
const LOOK_NS: u64 = 10_000;

/// What a CPU's clock did until now.
pub(crate) struct Now {
    /// Time awake.
    pub(crate) awake: Time,
    /// Its cycles.
    pub(crate) cycles: u64,
    /// The ratio that it runs at.
    pub(crate) ratio: u8,
}

/// What is the same for all cores.
#[derive(Debug, Clone)]
pub(crate) struct Pstates {
    model: PstateModel,
    /// In steps of 100 MHz by number of the hardware, fastest first.
    ratios: Vec<u8>,
    /// Of these so many are the hardware's own.
    boosted: usize,
    base: u8,
    /// Time of a cycle at the base clock.
    base_cycle: Time,
    /// Since when a CPU must have slept to be in a state, and the exit from it; shallow ones first.
    exits: Vec<(Time, Time)>,
}

/// What a CPU asks for, and where its clock is.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// As PStateCtl has it.
    number: u8,
    /// The hardware is not to boost it.
    is_plain: bool,
    from: u8,
    at: u8,
    to: u8,
    begun: Time,
    length: Time,
}

impl Pstates {
    /// Those of a machine that can be emulated: it has a table of P-states, and software may change
    /// those of single cores.
    pub(crate) fn new(model: PstateModel, is_boosted_by_hardware: bool, clocks: &Clocks) -> Self {
        let ratio = |khz: u64| (khz / u64::from(BIN_KHZ)) as u8;
        let ratios: Vec<u8> =
            model.table.iter().flat_map(|table| &table.khz).map(|&khz| ratio(khz)).collect();
        let base = ratio(model.base_khz.value);
        let above = ratios.iter().take_while(|&&ratio| ratio > base).count();
        let exits = model
            .idle
            .iter()
            .map(|idle| (clocks.at_ns(idle.residency_ns.value), clocks.at_ns(idle.exit_ns.value)));
        Pstates {
            boosted: if is_boosted_by_hardware { above } else { 0 },
            base,
            base_cycle: clocks.cycle_at(base),
            exits: exits.collect(),
            ratios,
            model,
        }
    }

    /// What a core asks for at reset: the base.
    pub(crate) fn at_reset(&self) -> Request {
        let number = self.ratios.iter().position(|&ratio| ratio == self.base).unwrap_or(0);
        let number = (number - self.boosted) as u8;
        let base = self.base;
        Request { number, is_plain: false, from: base, at: base, to: base, begun: 0, length: 0 }
    }

    /// The ceiling of a core's clock; 0 if there is none: the hardware boosts it.
    pub(crate) fn ceiling(&self, request: &Request) -> u8 {
        let is_boosted = self.boosted > 0 && !request.is_plain && request.at == self.base;
        if is_boosted { 0 } else { request.at }
    }

    /// The exit from the state that a CPU reached which slept so long.
    pub(crate) fn exit(&self, slept: Time) -> Time {
        self.exits.iter().rfind(|(least, _)| *least <= slept).map_or(0, |&(_, exit)| exit)
    }

    /// A register of a CPU that was awake for so long; `None` if it is none of these.
    pub(crate) fn read(&self, register: u32, request: &Request, now: &Now) -> Option<u64> {
        let highest = (self.ratios.len() - 1 - self.boosted) as u64;
        Some(match register {
            MPERF => now.awake / self.base_cycle,
            APERF => now.cycles,
            HWCR => TSC_AT_P0 | if request.is_plain { BOOST_DISABLED } else { 0 },
            CUR_LIMIT => highest << 4,
            CTL => u64::from(request.number),
            STATUS => {
                let slower = self.ratios.iter().rposition(|&ratio| ratio >= now.ratio);
                (slower.unwrap_or(0) as u64).saturating_sub(self.boosted as u64)
            }
            DEFINITIONS..DEFINITIONS_END => {
                let number = (register - DEFINITIONS) as usize;
                self.ratios.get(number).map_or(0, |&ratio| definition(ratio.into()))
            }
            _ => return None,
        })
    }

    /// A write to a register: for how long it holds the core up; `None` if it is another register.
    pub(crate) fn write(
        &self,
        request: &mut Request,
        register: u32,
        value: u64,
        now: Time,
    ) -> Option<Time> {
        if register == HWCR {
            request.is_plain = value & BOOST_DISABLED != 0;
            return Some(0);
        }
        if register != CTL {
            return None;
        }
        let number = (value & NUMBER).min((self.ratios.len() - 1 - self.boosted) as u64) as u8;
        let to = self.ratios[usize::from(number) + self.boosted];
        request.number = number;
        if to == request.to {
            return Some(0);
        }
        let from = request.at;
        let (change, frac) = self.change(from, to);
        let held = change.write_cycles * self.base_cycle;
        let length = (change.transition_cycles as f64 * frac * self.base_cycle as f64) as Time;
        *request = Request { from, at: from, to, begun: now + held, length, ..*request };
        Some(held)
    }

    /// The change of TURBO 8 that one from this ratio to that is most like, and the part of its
    /// transition that it takes.
    fn change(&self, from: u8, to: u8) -> (&Change, f64) {
        let changes = self.model.change.as_ref().expect("Settings took no machine without");
        let [slow, base, turbo] =
            [&self.model.slow_khz, &self.model.base_khz, &self.model.turbo_khz]
                .map(|figure| figure.value as f64 / f64::from(BIN_KHZ));
        let (change, usual) = match (to > from, from > self.base) {
            (true, _) => (&changes.slow_to_turbo, turbo - slow),
            (false, true) => (&changes.turbo_to_base, turbo - base),
            (false, false) => (&changes.base_to_slow, base - slow),
        };
        (change, f64::from(from.abs_diff(to)) / usual)
    }
}

/// A ratio as PStateDef has it: below the clock of FID 0, half of twice as much.
fn definition(ratio: u64) -> u64 {
    let did = u64::from(ratio < LEAST_FID);
    VALID | did << 6 | ((ratio << did) - LEAST_FID)
}

impl Request {
    /// When the clock takes its next step; `NEVER` if it is where it is to be.
    pub(crate) fn due(&self) -> Time {
        let steps = u64::from(self.from.abs_diff(self.to));
        let done = u64::from(self.from.abs_diff(self.at));
        if done == steps {
            return NEVER;
        }
        // In the middle of the line's time at each clock.
        self.begun + self.length * (2 * done + 1) / (2 * steps)
    }

    /// The clock takes a step.
    pub(crate) fn step(&mut self) {
        self.at = if self.to > self.at { self.at + 1 } else { self.at - 1 };
    }
}

/// The CPU without gaps that the rest of the machine computes with: one level, no rules.
pub(crate) fn platform(
    model: &PstateModel,
    threads: u32,
    is_boosted_by_hardware: bool,
) -> Platform {
    let mut platform = Platform::new(&CpuModel { name: model.name.clone(), ..CpuModel::default() });
    let power = model.power.as_ref();
    let cpus = power.map_or(model.threads.value, |power| 2 * power.modules.value);
    let nr_cores = (cpus / u64::from(threads.max(1))) as usize;
    let [base, turbo] = [&model.base_khz, &model.turbo_khz].map(|figure| figure.value as u32);
    let has_turbo = |active: usize| !is_boosted_by_hardware || 2 * active <= nr_cores;
    let clocks = (0..=nr_cores).map(|active| if has_turbo(active) { turbo } else { base });
    platform.nr_cores = nr_cores;
    platform.threads_per_core = 2;
    platform.cores_per_llc = nr_cores;
    platform.clock_khz = vec![clocks.collect()];
    platform.rules = Default::default();
    platform.times = Times { throttle_ns: 0, halt_ns: 0, relax_ns: 0 };
    platform.throttle_frac = 1.0;
    platform.level_is_package_wide = false;
    platform.pcu_period_ns = LOOK_NS;
    platform.smt_frac =
        power.map_or(2.0, |power| 2.0 * power.shared_permille.value as f64 / 1000.0);
    platform.idle_w = power.map_or(0.0, |power| power.package_mw.value as f64 / 1000.0);
    platform.core_w = model.core_mw(model.base_khz.value).unwrap_or(0.0) / 1000.0;
    platform
}
