// SPDX-License-Identifier: MIT OR Apache-2.0
//! Architectural performance monitoring (SDM vol. 3, 20.2), as far as Linux uses it on a
//! Skylake-SP: four general counters of 48 bits, three fixed ones, overflow interrupts.
//!
//! | event | umask | counts |
//! |---|---|---|
//! | 3CH | 00H | core cycles |
//! | 3CH | 01H | reference cycles, at the rate of the time stamp counter |
//! | C0H | 00H | instructions |
//! | 28H | 07H, 18H, 20H | CORE_POWER.LVL0, LVL1, LVL2_TURBO_LICENSE: core cycles at the level |
//! | 28H | 40H | CORE_POWER.THROTTLE: core cycles of throttled dispatch |
//!
//! Every other event counts nothing. Filters: user and kernel; no thresholds, no edges.

/// General counters.
const GENERAL: usize = 4;
/// Fixed counters: instructions, core cycles, reference cycles.
const FIXED: usize = 3;
/// Width of a counter.
const COUNTER: u64 = (1 << 48) - 1;

/// Bits of an event select.
const USER: u64 = 1 << 16;
const KERNEL: u64 = 1 << 17;
const INTERRUPT: u64 = 1 << 20;
const ENABLE: u64 = 1 << 22;

const PMC0: u32 = 0xc1;
const PERFEVTSEL0: u32 = 0x186;
const FIXED_CTR0: u32 = 0x309;
const FIXED_CTR_CTRL: u32 = 0x38d;
const GLOBAL_STATUS: u32 = 0x38e;
const GLOBAL_CTRL: u32 = 0x38f;
const GLOBAL_STATUS_RESET: u32 = 0x390;
/// Full-width aliases of the general counters.
const A_PMC0: u32 = 0x4c1;

/// What a trace adds to the counters.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counted {
    pub(crate) is_user: bool,
    pub(crate) insns: u64,
    pub(crate) cycles: u64,
    pub(crate) ref_cycles: u64,
    pub(crate) level: u8,
    pub(crate) throttled_cycles: u64,
}

/// The counters of one CPU.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pmu {
    select: [u64; GENERAL],
    count: [u64; GENERAL],
    fixed: [u64; FIXED],
    fixed_ctrl: u64,
    global_ctrl: u64,
    status: u64,
    /// Counters that count in kernel and user mode: bits 0 to 3 the general ones, 4 to 6 the fixed.
    counting: [u8; 2],
}

impl Pmu {
    /// Whether anything counts in that mode: if not, nothing needs to be reported.
    #[inline]
    pub(crate) fn counts(&self, is_user: bool) -> bool {
        self.counting[usize::from(is_user)] != 0
    }

    /// Adds a trace. True if a counter that asks for an interrupt overflowed.
    pub(crate) fn add(&mut self, what: &Counted) -> bool {
        let mut left = self.counting[usize::from(what.is_user)];
        let mut interrupts = false;
        while left != 0 {
            let k = left.trailing_zeros() as usize;
            left &= left - 1;
            interrupts |= match k.checked_sub(GENERAL) {
                Some(k) => self.add_fixed(k, what),
                None => self.add_general(k, what),
            };
        }
        interrupts
    }

    fn add_general(&mut self, k: usize, what: &Counted) -> bool {
        self.count[k] += occurred(self.select[k], what);
        if self.count[k] <= COUNTER {
            return false;
        }
        self.count[k] &= COUNTER;
        self.status |= 1 << k;
        self.select[k] & INTERRUPT != 0
    }

    fn add_fixed(&mut self, k: usize, what: &Counted) -> bool {
        self.fixed[k] += [what.insns, what.cycles, what.ref_cycles][k];
        if self.fixed[k] <= COUNTER {
            return false;
        }
        self.fixed[k] &= COUNTER;
        self.status |= 1 << (32 + k);
        self.fixed_ctrl >> (4 * k) & 8 != 0
    }

    /// What the control registers say about who counts.
    fn switch(&mut self) {
        for (mode, wanted, fixed_wanted) in [(0, KERNEL, 1), (1, USER, 2)] {
            let general = (0..GENERAL).filter(|&k| {
                let select = self.select[k];
                self.global_ctrl >> k & 1 != 0 && select & ENABLE != 0 && select & wanted != 0
            });
            let fixed = (0..FIXED).filter(|&k| {
                let is_on = self.global_ctrl >> (32 + k) & 1 != 0;
                is_on && self.fixed_ctrl >> (4 * k) & fixed_wanted != 0
            });
            let bits = general.chain(fixed.map(|k| GENERAL + k));
            self.counting[mode] = bits.fold(0, |set, bit| set | 1 << bit);
        }
    }

    /// As RDPMC reads: bit 30 selects the fixed counters.
    pub(crate) fn read_counter(&self, index: u32) -> u64 {
        let k = (index & 3) as usize;
        if index >> 30 & 1 != 0 { self.fixed[k.min(FIXED - 1)] } else { self.count[k] }
    }

    /// A register; `None` if it is none of these.
    pub(crate) fn read(&self, register: u32) -> Option<u64> {
        Some(match register {
            GLOBAL_CTRL => self.global_ctrl,
            GLOBAL_STATUS => self.status,
            GLOBAL_STATUS_RESET => 0,
            FIXED_CTR_CTRL => self.fixed_ctrl,
            _ => match place(register)? {
                Place::Select(k) => self.select[k],
                Place::Count { index, .. } => self.count[index],
                Place::Fixed(k) => self.fixed[k],
            },
        })
    }

    /// False if there is no such register, or it cannot be written.
    pub(crate) fn write(&mut self, register: u32, value: u64) -> bool {
        match register {
            GLOBAL_CTRL => self.global_ctrl = value,
            GLOBAL_STATUS_RESET => self.status &= !value,
            FIXED_CTR_CTRL => self.fixed_ctrl = value,
            _ => match place(register) {
                Some(Place::Select(k)) => self.select[k] = value,
                Some(Place::Fixed(k)) => self.fixed[k] = value & COUNTER,
                // The old registers take 32 bits and extend their sign.
                Some(Place::Count { index, is_full: false }) => {
                    self.count[index] = i64::from(value as u32 as i32) as u64 & COUNTER;
                }
                Some(Place::Count { index, is_full: true }) => self.count[index] = value & COUNTER,
                None => return false,
            },
        }
        self.switch();
        true
    }
}

enum Place {
    Select(usize),
    Count { index: usize, is_full: bool },
    Fixed(usize),
}

fn place(register: u32) -> Option<Place> {
    let within = |first: u32, count: usize| {
        let index = register.checked_sub(first)? as usize;
        (index < count).then_some(index)
    };
    None.or_else(|| within(PERFEVTSEL0, GENERAL).map(Place::Select))
        .or_else(|| within(PMC0, GENERAL).map(|index| Place::Count { index, is_full: false }))
        .or_else(|| within(A_PMC0, GENERAL).map(|index| Place::Count { index, is_full: true }))
        .or_else(|| within(FIXED_CTR0, FIXED).map(Place::Fixed))
}

/// How often the selected event occurred.
fn occurred(select: u64, what: &Counted) -> u64 {
    let at_level = |level| if what.level == level { what.cycles } else { 0 };
    match select & 0xffff {
        0x003c => what.cycles,
        0x013c => what.ref_cycles,
        0x00c0 => what.insns,
        0x0728 => at_level(0),
        0x1828 => at_level(1),
        0x2028 => at_level(2),
        0x4028 => what.throttled_cycles,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LVL2: u64 = 0x2028;

    fn user(cycles: u64, level: u8) -> Counted {
        Counted { is_user: true, insns: 10, cycles, level, ..Counted::default() }
    }

    /// A counter counts what it selects, while it is on, in its mode.
    #[test]
    fn events_are_selected() {
        let mut pmu = Pmu::default();
        assert!(pmu.write(PERFEVTSEL0, LVL2 | ENABLE | USER));
        pmu.add(&user(5, 2));
        assert_eq!(pmu.read(PMC0), Some(0), "the global control is off");
        assert!(pmu.write(GLOBAL_CTRL, 1));
        pmu.add(&user(5, 2));
        pmu.add(&user(7, 1));
        pmu.add(&Counted { is_user: false, ..user(9, 2) });
        assert_eq!((pmu.read(PMC0), pmu.read(A_PMC0)), (Some(5), Some(5)));
        assert_eq!(pmu.read_counter(0), 5);
    }

    /// An overflow sets its bit and asks for an interrupt only if it is set up to.
    #[test]
    fn overflows_interrupt() {
        let mut pmu = Pmu::default();
        pmu.write(GLOBAL_CTRL, 1 | 1 << 33);
        pmu.write(PERFEVTSEL0, 0x3c | ENABLE | USER);
        pmu.write(PMC0, u64::from((-8i32) as u32));
        assert_eq!(pmu.read(PMC0), Some(COUNTER - 7), "the sign is extended");
        assert!(pmu.counts(true) && !pmu.counts(false));
        assert!(!pmu.add(&user(20, 0)));
        assert_eq!((pmu.read(PMC0), pmu.read(GLOBAL_STATUS)), (Some(12), Some(1)));
        pmu.write(GLOBAL_STATUS_RESET, 1);
        assert_eq!(pmu.read(GLOBAL_STATUS), Some(0));
        pmu.write(FIXED_CTR_CTRL, (2 | 8) << 4);
        pmu.write(FIXED_CTR0 + 1, COUNTER);
        assert!(pmu.add(&user(1, 0)));
        assert_eq!(pmu.read(GLOBAL_STATUS), Some(1 << 33));
        assert_eq!(pmu.read_counter(1 << 30 | 1), 0);
    }

    #[test]
    fn other_registers_fail() {
        let mut pmu = Pmu::default();
        for register in [0xc5, 0x18a, 0x30c, 0x38e, 0x4c5, 0x10] {
            assert!(!pmu.write(register, 1), "{register:#x}");
        }
        assert_eq!(pmu.read(0xc5), None);
    }
}
