// SPDX-License-Identifier: MIT OR Apache-2.0
//! Notices about the licence: before code asks for a level, and when it has not for a while.
//!
//! Problem: an operating system that withholds AVX-512 goes by instruction set, because today's
//! CPUs say nothing of what needs a lower clock. SYSTOR 5 asks for "power consumption exceptions
//! which are triggered when code requiring a specific operating frequency is executed", triggered
//! "before the frequency is reduced", and for "an interrupt when only less power-intensive code
//! was executed for a software-specified duration".
//!
//! Idea: each CPU has a register that software arms for one notice of each kind. The emulator asks
//! [`Notice::warns`] before it executes a trace with wide code; the trace is then executed after
//! the interrupt. When code has asked for no more than the level for so long, [`Notice::due`] has
//! come. Both are delivered by the entry of the performance counters in the local APIC's vector
//! table, and mask it as an overflow does.
//!
//! ```text
//!   40000084H LICENSE_NOTICE  63..32    31..18  17     16      15..10  9     8     7..0
//!                             duration    -     ended  warned    -     ends  warns level
//! ```
//!
//! - `warns`, `ends`: armed; cleared by the notice that is given, whose `warned` or `ended` is set
//!   until the next write.
//! - `duration`: nanoseconds for `ends`.
//!
//! Limits: an interrupt, not an exception of its own, which no kernel has a handler for. It comes
//! before the first instruction of the trace that would ask, not before the very instruction: up
//! to 31 scalar instructions earlier, and also if a branch before it leaves the wide code
//! out. What a sibling executes gives this CPU no notice.

use cpumodel::MAX_LEVELS;

use crate::clocks::{Clocks, NEVER, Time};

const NOTICE: u32 = 0x4000_0084;

const WARNS: u64 = 1 << 8;
const ENDS: u64 = 1 << 9;
const WARNED: u64 = 1 << 16;
const ENDED: u64 = 1 << 17;
const DURATION: u32 = 32;

/// The register of one CPU.
#[derive(Debug, Clone)]
pub(crate) struct Notice {
    value: u64,
    /// When code has asked for no more than the level for the duration; `NEVER` if not armed.
    pub(crate) due: Time,
}

impl Default for Notice {
    fn default() -> Self {
        Notice { value: 0, due: NEVER }
    }
}

impl Notice {
    fn level(&self) -> u8 {
        self.value as u8
    }

    /// As RDMSR; `None` if it is another register.
    pub(crate) fn read(&self, register: u32) -> Option<u64> {
        (register == NOTICE).then_some(self.value)
    }

    /// As WRMSR, now, on a CPU that asks for `demand`; `None` if it is another register, false if
    /// the write raises #GP.
    pub(crate) fn write(
        &mut self,
        register: u32,
        value: u64,
        demand: u8,
        now: Time,
        clocks: &Clocks,
    ) -> Option<bool> {
        if register != NOTICE {
            return None;
        }
        let level = value & 0xff;
        let known = u64::from(u32::MAX) << DURATION | WARNS | ENDS | 0xff;
        if value & !known != 0 || level >= MAX_LEVELS as u64 {
            return Some(false);
        }
        self.value = value;
        self.follow(demand, now, clocks);
        Some(true)
    }

    /// The CPU asks for this level from now on.
    pub(crate) fn follow(&mut self, demand: u8, now: Time, clocks: &Clocks) {
        let waits = self.value & ENDS != 0 && demand <= self.level();
        self.due =
            if waits { clocks.at_ns(clocks.ns_of(now) + (self.value >> DURATION)) } else { NEVER };
    }

    /// Whether code that asks for this level is not to be executed before a notice; gives it.
    pub(crate) fn warns(&mut self, demand: impl FnOnce() -> u8) -> bool {
        let given = self.value & WARNS != 0 && demand() > self.level();
        if given {
            self.value = self.value & !WARNS | WARNED;
        }
        given
    }

    /// Whether the end of wide code is due at this time; gives notice of it.
    #[inline]
    pub(crate) fn ends(&mut self, now: Time) -> bool {
        let given = now >= self.due;
        if given {
            self.value = self.value & !ENDS | ENDED;
            self.due = NEVER;
        }
        given
    }
}

#[cfg(test)]
mod tests {
    use cpumodel::{CpuModel, Platform};

    use super::*;

    fn clocks() -> Clocks {
        let model = CpuModel::built_in("xeon-gold-6130").unwrap().unwrap();
        Clocks::new(&Platform::new(&model), Some(2_100_000))
    }

    fn armed(value: u64) -> Notice {
        let mut notice = Notice::default();
        assert_eq!(notice.write(NOTICE, value, 0, 0, &clocks()), Some(true));
        notice
    }

    /// One warning, for code above the level, and none for other code or when not armed.
    #[test]
    fn a_warning_is_given_once() {
        let mut notice = armed(WARNS | 1);
        assert!(!notice.warns(|| 1));
        assert!(notice.warns(|| 2));
        assert_eq!(notice.read(NOTICE), Some(WARNED | 1));
        assert!(!notice.warns(|| 2));
        assert!(!armed(ENDS).warns(|| 2));
    }

    /// The end is due when nothing above the level was asked for during the duration.
    #[test]
    fn an_end_waits_for_quiet() {
        let clocks = clocks();
        let mut notice = armed(ENDS | 100_000 << DURATION);
        notice.follow(2, clocks.at_ns(50_000), &clocks);
        assert_eq!(notice.due, NEVER);
        notice.follow(0, clocks.at_ns(60_000), &clocks);
        assert!(!notice.ends(clocks.at_ns(159_999)));
        assert!(notice.ends(clocks.at_ns(160_000)));
        assert_eq!(notice.read(NOTICE).map(|value| value & 0xffff_ffff), Some(ENDED));
        assert!(!notice.ends(NEVER - 1));
    }

    #[test]
    fn bad_writes_fail() {
        let mut notice = Notice::default();
        for value in [WARNED, ENDED, 1 << 10, 8, 0xff] {
            assert_eq!(notice.write(NOTICE, value, 0, 0, &clocks()), Some(false), "{value:#x}");
        }
        assert_eq!(notice.write(0x199, 0, 0, 0, &clocks()), None);
        assert_eq!(notice.read(0x199), None);
    }
}
