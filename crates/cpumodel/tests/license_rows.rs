// SPDX-License-Identifier: MIT OR Apache-2.0
//! The licence model with the built-in CPU files, against what was measured on those parts: the
//! tables row by row, and the transitions by running code on one core.
//!
//! Sources are named as in docs/references.md.

use cpumodel::{CoreLicense, CpuModel, InsnClass, Phase, Platform};

fn platform(id: &str) -> Platform {
    Platform::new(&CpuModel::built_in(id).unwrap().unwrap())
}

/// One core that executes: its clock, its throttling and its halts decide how long work takes.
struct Core<'a> {
    platform: &'a Platform,
    active: usize,
    license: CoreLicense,
    now_ns: u64,
    /// Time spent in halts.
    halted_ns: u64,
    halts: u32,
}

impl<'a> Core<'a> {
    /// One of `active` busy cores.
    fn new(platform: &'a Platform, active: usize) -> Self {
        let license = CoreLicense::default();
        Core { platform, active, license, now_ns: 0, halted_ns: 0, halts: 0 }
    }

    fn khz(&self) -> u32 {
        self.platform.clock_khz(self.license.level(), self.active)
    }

    /// Executes for so long; returns cycles' worth of work done, as time at `reference` kHz.
    fn run_for(&mut self, class: InsnClass, per_cycle: f64, time_ns: u64, reference: u32) -> f64 {
        let level = self.platform.level_of(class, per_cycle);
        let times = self.platform.times;
        self.license.set_demand(level, self.now_ns, &times);
        let end_ns = self.now_ns + time_ns;
        let mut done_ns = 0.0;
        while self.now_ns < end_ns {
            let until_ns = self.license.deadline_ns().min(end_ns);
            let span_ns = (until_ns - self.now_ns) as f64;
            let rate = match self.license.phase() {
                Phase::Halted => 0.0,
                _ if self.license.is_throttled(level) => self.platform.throttle_frac,
                _ => 1.0,
            };
            done_ns += span_ns * rate * f64::from(self.khz()) / f64::from(reference);
            if self.license.phase() == Phase::Halted {
                self.halted_ns += until_ns - self.now_ns;
            }
            self.now_ns = until_ns;
            if self.license.deadline_ns() == until_ns {
                let was = self.license.phase();
                self.license.expire(until_ns, &times);
                self.halts +=
                    u32::from(was != Phase::Halted && self.license.phase() == Phase::Halted);
            }
        }
        done_ns
    }

    /// Time from now until this clock is back, executing scalar code.
    fn time_until(&mut self, khz: u32, step_ns: u64) -> u64 {
        let start_ns = self.now_ns;
        while self.khz() != khz || self.license.phase() == Phase::Halted {
            self.run_for(InsnClass::Scalar, 0.0, step_ns, khz);
            assert!(self.now_ns - start_ns < 10_000_000, "the clock does not come back");
        }
        self.now_ns - start_ns
    }
}

/// Downs 2020, intel/pepc and what the papers quote: clock in MHz by part, level and active cores.
#[test]
fn clocks_are_those_of_the_measured_rows() {
    for (id, level, active, mhz) in [
        // Downs 2020, no turbo.
        ("xeon-w-2104", 0, 4, 3200),
        ("xeon-w-2104", 1, 4, 2800),
        ("xeon-w-2104", 2, 4, 2400),
        // github.com/travisdowns/avx-turbo, issue 3, one core as documented; all cores as SYSTOR's
        // Figure 2 says.
        ("xeon-gold-6130", 0, 1, 3700),
        ("xeon-gold-6130", 1, 1, 3600),
        ("xeon-gold-6130", 2, 1, 3500),
        ("xeon-gold-6130", 0, 16, 2800),
        ("xeon-gold-6130", 1, 16, 2400),
        ("xeon-gold-6130", 2, 16, 1900),
        // SFMA's example; all cores at level 2 as WikiChip has it.
        ("xeon-silver-4116", 2, 12, 1400),
        // Flops #18.
        ("xeon-gold-6140", 0, 18, 3000),
        ("xeon-gold-6140", 1, 18, 2600),
        ("xeon-gold-6140", 2, 18, 2100),
        // github.com/mratsim/laser, issue 25: one core and all.
        ("xeon-gold-6154", 0, 18, 3700),
        ("xeon-gold-6154", 1, 1, 3600),
        ("xeon-gold-6154", 1, 18, 3300),
        ("xeon-gold-6154", 2, 1, 3500),
        ("xeon-gold-6154", 2, 18, 2700),
        // WikiChip, one core and all.
        ("xeon-silver-4210", 0, 1, 3200),
        ("xeon-silver-4210", 0, 10, 2700),
        ("xeon-silver-4210", 1, 1, 3000),
        ("xeon-silver-4210", 1, 10, 2300),
        ("xeon-silver-4210", 2, 1, 2000),
        ("xeon-silver-4210", 2, 10, 1500),
        // intel/pepc: registers.
        ("xeon-platinum-8360y", 0, 12, 3500),
        ("xeon-platinum-8360y", 0, 24, 3400),
        ("xeon-platinum-8360y", 0, 30, 3300),
        ("xeon-platinum-8360y", 0, 36, 3100),
        ("xeon-platinum-8260l", 0, 2, 3900),
        ("xeon-platinum-8260l", 0, 16, 3600),
        ("xeon-platinum-8260l", 0, 24, 3100),
        ("xeon-platinum-8460h", 0, 20, 3800),
        ("xeon-platinum-8460h", 0, 32, 3300),
        ("xeon-platinum-8460h", 0, 40, 3100),
        ("xeon-platinum-8592plus", 0, 32, 3900),
        ("xeon-platinum-8592plus", 0, 50, 3100),
        ("xeon-platinum-8592plus", 0, 64, 2900),
        ("xeon-platinum-8568yplus", 0, 18, 4000),
        ("xeon-platinum-8568yplus", 0, 34, 3100),
        ("xeon-platinum-8568yplus", 0, 48, 3100),
        ("xeon-6980p", 0, 64, 3900),
        ("xeon-6980p", 0, 128, 3200),
        ("xeon-6980p", 1, 100, 3000),
        ("xeon-6980p", 2, 90, 3100),
        ("xeon-6980p", 3, 128, 2400),
        ("xeon-6980p", 4, 64, 3000),
        ("xeon-6980p", 4, 128, 2000),
    ] {
        let clock = platform(id).clock_khz(level, active);
        assert_eq!(clock, mhz * 1_000, "{id}: level {level}, {active} active cores");
    }
}

/// Flops #18: floating-point rates of the Gold 6140 at its three levels stand as 1 : 1.24 : 1.43 to
/// the clock of level 2, and Ice Lake loses at most 0.2 GHz to light 512-bit code on all cores.
#[test]
fn gaps_are_those_of_the_measured_rows() {
    let gold = platform("xeon-gold-6140");
    let ratio = |level| f64::from(gold.clock_khz(level, 18)) / f64::from(gold.clock_khz(2, 18));
    assert!((ratio(1) - 1.24).abs() < 0.005, "{}", ratio(1));
    assert!((ratio(0) - 1.43).abs() < 0.005, "{}", ratio(0));
    let ice = platform("xeon-platinum-8360y");
    let light = ice.level_of(InsnClass::Light512, 1.0);
    assert!(ice.clock_khz(0, 36) - ice.clock_khz(light, 36) <= 200_000);
}

/// Downs 2020: a single light 512-bit instruction is a hard trigger; heavy ones ask by density,
/// from one per two cycles (SYSTOR 2); 128-bit code and light 256-bit code ask for nothing.
#[test]
fn triggers_are_hard_for_light_and_soft_for_heavy_code() {
    for id in ["xeon-w-2104", "xeon-gold-6130", "core-i9-7940x", "xeon-gold-6140"] {
        let p = platform(id);
        for (class, per_cycle, level) in [
            (InsnClass::Scalar, 4.0, 0),
            (InsnClass::Light256, 2.0, 0),
            (InsnClass::Heavy256, 0.49, 0),
            (InsnClass::Heavy256, 0.51, 1),
            (InsnClass::Light512, 1e-6, 1),
            (InsnClass::Light512, 2.0, 1),
            (InsnClass::Heavy512, 0.49, 1),
            (InsnClass::Heavy512, 0.51, 2),
        ] {
            assert_eq!(p.level_of(class, per_cycle), level, "{id}: {class:?} at {per_cycle}");
        }
    }
}

/// Downs 2020, order down on the W-2104: about 9 us at a quarter of the rate, about 11 us of
/// standstill, then the low clock; 8-20 us and 8-11 us are the ranges measured.
#[test]
fn the_way_down_takes_its_measured_phases() {
    let p = platform("xeon-w-2104");
    let mut core = Core::new(&p, 4);
    let throttled = core.run_for(InsnClass::Light512, 1.0, 9_000, 3_200_000);
    assert!((throttled / 9_000.0 - 0.25).abs() < 0.01, "IPC 0.25: {throttled}");
    assert_eq!(core.license.phase(), Phase::Halted);
    assert!((8_000..=11_000).contains(&p.times.halt_ns));
    let stood = core.run_for(InsnClass::Light512, 1.0, p.times.halt_ns, 3_200_000);
    assert_eq!((stood, core.khz()), (0.0, 2_800_000));
    let low = core.run_for(InsnClass::Light512, 1.0, 100_000, 3_200_000);
    assert!((low / 100_000.0 - 0.875).abs() < 1e-9, "the clock costs 12.5 %: {low}");
}

/// Downs 2020: scalar operations of a program that executes nothing wide are not throttled while
/// its sibling waits for a licence; they stand still with the core.
#[test]
fn only_wide_code_is_throttled() {
    let p = platform("xeon-gold-6130");
    let mut license = CoreLicense::default();
    license.set_demand(2, 0, &p.times);
    assert!(license.is_throttled(1) && license.is_throttled(2) && !license.is_throttled(0));
}

/// Downs 2020: about 680 us from the last wide instruction until the full clock is back, 650 of
/// them at the low clock (W-2104); 670 us in DIM 4 (i9-7940X, Gold 6130). Counted from the last
/// wide instruction, never shorter: a second burst starts the time anew.
#[test]
fn the_way_back_takes_its_measured_time() {
    for (id, active, total_ns) in [
        ("xeon-w-2104", 4, 680_000),
        ("core-i9-7940x", 14, 670_000),
        ("xeon-gold-6130", 16, 670_000),
    ] {
        let p = platform(id);
        let full = p.clock_khz(0, active);
        let mut core = Core::new(&p, active);
        core.run_for(InsnClass::Light512, 1.0, 200_000, full);
        let once_ns = core.time_until(full, 500);
        let off = once_ns as f64 / total_ns as f64 - 1.0;
        assert!(off.abs() < 0.04, "{id}: {once_ns} ns");

        core.run_for(InsnClass::Light512, 1.0, 200_000, full);
        core.run_for(InsnClass::Scalar, 0.0, 500_000, full);
        core.run_for(InsnClass::Light512, 1.0, 1_000, full);
        let again_ns = core.time_until(full, 500);
        assert!(again_ns >= once_ns, "{id}: {again_ns} after a second burst, {once_ns} after one");
    }
}

/// Downs 2020: one wide instruction per 760 us costs two halts each time, less than 3 %, and no
/// attenuation; the rest is the clock.
#[test]
fn a_burst_each_760_us_costs_two_halts() {
    let p = platform("xeon-w-2104");
    let mut core = Core::new(&p, 4);
    let periods = 100;
    for _ in 0..periods {
        core.run_for(InsnClass::Light512, 1.0, 1_000, 3_200_000);
        core.run_for(InsnClass::Scalar, 0.0, 759_000, 3_200_000);
    }
    assert_eq!(core.halts, 2 * periods);
    let share = core.halted_ns as f64 / core.now_ns as f64;
    assert!(share < 0.03 && share > 0.02, "{share}");
}

/// DIM 4.1, Gold 6130: the change from level 0 to 1 costs 17 us of CPU time on average, one
/// upwards about 10 us. Measured as DIM did: the same work with and without the change.
#[test]
fn changes_cost_what_dim_measured() {
    let p = platform("xeon-gold-6130");
    for active in [1, 8, 16] {
        let low = p.clock_khz(1, active);
        let mut core = Core::new(&p, active);
        let span_ns = 300_000;
        let done = core.run_for(InsnClass::Heavy256, 1.0, span_ns, low);
        // What was done before the change ran at the higher clock; that is no cost of the change.
        let gained = p.times.throttle_ns as f64
            * p.throttle_frac
            * (f64::from(p.clock_khz(0, active)) / f64::from(low) - 1.0);
        let down_ns = span_ns as f64 - done + gained;
        assert!((down_ns - 17_000.0).abs() < 1_000.0, "{active} cores: {down_ns} ns down");
        let halts_ns = core.halted_ns;
        core.time_until(p.clock_khz(0, active), 100);
        let up_ns = core.halted_ns - halts_ns;
        assert!(up_ns.abs_diff(10_000) < 1_000, "{active} cores: {up_ns} ns up");
    }
}

/// DIM 4.3, Figure 6: break-even time between levels 0 and 1 is about 1,000 us with fewer than 4
/// active cores and 150-190 us with more than 8, from `p_low t = p_high (t - t_o)`.
#[test]
fn break_even_times_are_dims() {
    let p = platform("xeon-gold-6130");
    let lost_ns =
        p.times.throttle_ns as f64 * (1.0 - p.throttle_frac) + 2.0 * p.times.halt_ns as f64;
    let break_even_ns = |active| {
        let (high, low) = (f64::from(p.clock_khz(0, active)), f64::from(p.clock_khz(1, active)));
        high * lost_ns / (high - low)
    };
    for active in 1..=3 {
        let time_ns = break_even_ns(active);
        assert!((900e3..1_100e3).contains(&time_ns), "{active}: {time_ns}");
    }
    for active in 9..=16 {
        let time_ns = break_even_ns(active);
        assert!((150e3..=190e3).contains(&time_ns), "{active}: {time_ns}");
    }
}

/// Downs 2020: the licence is that of the core, the clock that of the licence and of the active
/// cores: a scalar core keeps its clock beside a core at level 2 (THESIS Table 5.4 counts no
/// level-2 cycle outside the wide core).
#[test]
fn a_level_is_its_cores_own() {
    for id in ["xeon-gold-6130", "core-i9-7940x"] {
        assert!(!platform(id).level_is_package_wide, "{id}");
    }
    let p = platform("xeon-gold-6130");
    let (mut wide, mut scalar) = (Core::new(&p, 16), Core::new(&p, 16));
    wide.run_for(InsnClass::Heavy512, 1.0, 1_000_000, 2_800_000);
    scalar.run_for(InsnClass::Scalar, 0.0, 1_000_000, 2_800_000);
    assert_eq!((wide.khz(), scalar.khz()), (1_900_000, 2_800_000));
}
