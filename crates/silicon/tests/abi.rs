// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine's C interface changes the licence as `cpumodel::CoreLicense` does when it is driven
//! directly, time by time, on random sequences of work and sleep.

use std::ffi::CString;
use std::ptr;

use cpumodel::{CoreLicense, CpuModel, Phase, Platform};
use proptest::prelude::*;
use silicon::*;

/// What a core does next.
#[derive(Debug, Clone)]
enum Step {
    /// So many traces of ten instructions that ask for this level.
    Run(u8, u32),
    /// Sleeps so long.
    Sleep(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0u8..3, 1u32..2000).prop_map(|(level, traces)| Step::Run(level, traces)),
        (1u64..2_000_000).prop_map(Step::Sleep),
    ]
}

/// A licence driven by hand: demand, then time.
struct Reference {
    platform: Platform,
    clocks: Clocks,
    license: CoreLicense,
    at: Time,
}

impl Reference {
    fn new() -> Self {
        let model = CpuModel::built_in("xeon-gold-6130").unwrap().unwrap();
        let platform = Platform::new(&model);
        let clocks = Clocks::new(&platform, Some(2_100_000));
        Reference { platform, clocks, license: CoreLicense::default(), at: 0 }
    }

    /// Lets everything happen that was due, standing still in halts unless asleep.
    fn catch_up(&mut self, is_awake: bool) {
        loop {
            let due_ns = self.license.deadline_ns();
            if due_ns == u64::MAX || self.clocks.at_ns(due_ns) > self.at {
                return;
            }
            self.license.expire(due_ns, &self.platform.times);
            if self.license.phase() == Phase::Halted && is_awake {
                self.at = self.at.max(self.clocks.at_ns(self.license.deadline_ns()));
            }
        }
    }

    fn demand(&mut self, level: u8) {
        if level != self.license.demand() {
            let now_ns = self.clocks.ns_of(self.at);
            self.license.set_demand(level, now_ns, &self.platform.times);
        }
    }

    fn run(&mut self, level: u8) {
        self.catch_up(true);
        self.demand(level);
        let slow = if self.license.is_throttled(level) { 4 } else { 1 };
        self.at += 10 * slow * self.clocks.cycle(self.license.level(), 16, 0);
    }

    /// Sleeps until then, or for no time if a halt that was due before it lasts longer.
    fn sleep(&mut self, until: Time) {
        self.catch_up(true);
        self.demand(0);
        // What is over by then happened asleep; a halt that is not keeps the core for its rest.
        while self.license.deadline_ns() != u64::MAX
            && self.clocks.at_ns(self.license.deadline_ns()) <= until
        {
            self.license.expire(self.license.deadline_ns(), &self.platform.times);
        }
        self.at = self.at.max(until);
        if self.license.phase() == Phase::Halted {
            self.at = self.at.max(self.clocks.at_ns(self.license.deadline_ns()));
        }
        self.catch_up(true);
    }
}

/// A trace that asks for a level whatever came before it: dense heavy code, light code, none.
fn work(machine: *mut Machine, level: u8) -> Work {
    let of = |mnemonic: &str, width_bits| {
        let mnemonic = CString::new(mnemonic).unwrap();
        // SAFETY: the machine is open.
        unsafe { silicon_class(machine, mnemonic.as_ptr(), width_bits) }
    };
    let wide = match level {
        0 => of("vpaddd", 256),
        1 => of("vpaddd", 512),
        _ => of("vfmadd231pd", 512) * 10,
    };
    Work { insns: 10, wide, ..Work::default() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn one_licence(steps in proptest::collection::vec(step(), 1..40)) {
        let settings = CString::new("xeon-gold-6130").unwrap();
        // SAFETY: strings and NULL, as asked for.
        let machine = unsafe { silicon_open(settings.as_ptr(), 1, 1, ptr::null()) };
        prop_assert!(!machine.is_null());
        // SAFETY: the machine is open, has CPU 0, and nothing else uses it.
        let now = || unsafe { *silicon_times(machine) };
        let mut reference = Reference::new();
        for step in steps {
            match step {
                Step::Run(level, traces) => {
                    let work = work(machine, level);
                    for trace in 0..traces {
                        // SAFETY: as above.
                        unsafe { silicon_ran(machine, 0, &work) };
                        // Heavy code is dense from its third trace on.
                        let level = if level == 2 && trace < 3 {
                            // SAFETY: as above.
                            unsafe { &*machine }.license(0).demand()
                        } else {
                            level
                        };
                        reference.run(level);
                        prop_assert_eq!(now(), reference.at);
                    }
                }
                Step::Sleep(time_ns) => {
                    let wake = reference.clocks.ns_of(now()) + time_ns;
                    let wake = reference.clocks.at_ns(wake);
                    // SAFETY: as above.
                    unsafe {
                        silicon_sleep(machine, 0);
                        silicon_wake(machine, 0, wake, false);
                    }
                    reference.sleep(wake);
                    prop_assert_eq!(now(), reference.at);
                }
            }
            // SAFETY: as above.
            let license = unsafe { &*machine }.license(0);
            prop_assert_eq!(license.level(), reference.license.level());
            prop_assert_eq!(license.phase(), reference.license.phase());
            prop_assert_eq!(license.deadline_ns(), reference.license.deadline_ns());
        }
        // SAFETY: as above; not used again.
        unsafe { silicon_close(machine) };
    }
}

/// Bad settings give no machine and no crash.
#[test]
fn bad_settings_fail() {
    for (settings, cpus, threads) in [("pentium", 1, 1), ("xeon-gold-6130", 17, 1)] {
        let settings = CString::new(settings).unwrap();
        // SAFETY: strings and NULL, as asked for.
        let machine = unsafe { silicon_open(settings.as_ptr(), cpus, threads, ptr::null()) };
        assert!(machine.is_null());
    }
}
