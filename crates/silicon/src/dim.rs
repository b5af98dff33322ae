// SPDX-License-Identifier: MIT OR Apache-2.0
//! The registers that DIM 7.1 asks hardware for: how long a level is held, and give it up now.
//!
//! Problem: DIM's policies need a delay that software sets and a change that it can force, "yet
//! current CPUs" have neither (DIM 5.3.1), so the paper simulates them. What they win on a real
//! kernel cannot be measured without hardware that has them.
//!
//! Idea: this machine has them, as model-specific registers of each core; siblings share them as
//! they share the licence. What a write does is `cpumodel::CoreLicense`'s business, the same state
//! machine as in simulations and replays. `docs/silicon-registers.md` is the manual for software.
//!
//! ```text
//!   40000080H LICENSE_INFO    R    63..32  31..16  15..8    7..0
//!                                  hold     -      levels   version
//!   40000081H LICENSE_DELAY   R/W  63      62..32  31..0
//!                                  in force  -     hold
//!   40000082H LICENSE_FORCE   W    63..8   7..0
//!                                   -      level
//!   40000083H LICENSE_STATUS  R    63..26  25..24  23..16   15..8   7..0
//!                                   -      phase   demand   target  granted
//! ```
//!
//! - Holds are nanoseconds; [`FOR_EVER`] is one. INFO has the hardware's own, which is in force
//!   after a reset and whenever bit 63 of DELAY is 0.
//! - FORCE: the level falls to this one, not below the demand, at once or as soon as it can.
//! - STATUS is what DIM 5.2 misses: "more accurate statistics would be possible if the processor
//!   provided the operating system with information about whether the conditions for each
//!   frequency level were fulfilled". Phases: 0 steady, 1 throttled, 2 halted.
//! - A write with a reserved bit set, to a level that the CPU does not have, or to a register that
//!   is only read raises #GP.
//!
//! The numbers are ours. Intel promises that no CPU will ever have a register from 40000000H to
//! 400000FFH (SDM vol. 4, 2.1), so that none is mistaken for one of these. A machine without them
//! raises #GP at RDMSR of INFO, or (stock Bochs) reads 0.

use cpumodel::{CoreLicense, Phase, Times};

const INFO: u32 = 0x4000_0080;
const DELAY: u32 = 0x4000_0081;
const FORCE: u32 = 0x4000_0082;
const STATUS: u32 = 0x4000_0083;

/// Grows when a bit changes its meaning.
const VERSION: u64 = 1;
/// Of DELAY.
const IN_FORCE: u64 = 1 << 63;
/// A hold without end.
const FOR_EVER: u32 = u32::MAX;

/// What a write says to the licence of its core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Hold levels for so long; `u64::MAX`: for ever; `None`: as the hardware does.
    Hold(Option<u64>),
    /// Let the level fall to this one.
    Force(u8),
}

/// A register's content; `None` if it is none of these.
pub(crate) fn read(
    register: u32,
    license: &CoreLicense,
    times: &Times,
    levels: usize,
) -> Option<u64> {
    Some(match register {
        INFO => u64::from(narrow(times.relax_ns)) << 32 | (levels as u64) << 8 | VERSION,
        DELAY => license.delay_ns().map_or(0, |hold_ns| IN_FORCE | u64::from(narrow(hold_ns))),
        FORCE => 0,
        STATUS => {
            let phase = match license.phase() {
                Phase::Steady => 0,
                Phase::Throttled => 1,
                Phase::Halted => 2,
            };
            let levels = [license.level(), license.target(), license.demand(), phase];
            u64::from(u32::from_le_bytes(levels))
        }
        _ => return None,
    })
}

/// What a write orders: `None` if the register is none of these, an error if it raises #GP.
pub(crate) fn order(register: u32, value: u64, levels: usize) -> Option<Result<Order, ()>> {
    let hold_ns = match value as u32 {
        FOR_EVER => u64::MAX,
        hold_ns => u64::from(hold_ns),
    };
    Some(match register {
        DELAY if value & !(IN_FORCE | u64::from(u32::MAX)) == 0 => {
            Ok(Order::Hold((value & IN_FORCE != 0).then_some(hold_ns)))
        }
        FORCE if value < levels as u64 => Ok(Order::Force(value as u8)),
        INFO | DELAY | FORCE | STATUS => Err(()),
        _ => return None,
    })
}

/// A hold as the registers have it.
fn narrow(hold_ns: u64) -> u32 {
    u32::try_from(hold_ns).unwrap_or(FOR_EVER)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: Times = Times { throttle_ns: 9_300, halt_ns: 10_000, relax_ns: 670_000 };

    /// What is written to DELAY is read again, with its two special values.
    #[test]
    fn a_delay_is_read_as_it_was_written() {
        for (value, hold_ns) in [
            (0, None),
            (180_000, None),
            (IN_FORCE, Some(0)),
            (IN_FORCE | 180_000, Some(180_000)),
            (IN_FORCE | u64::from(u32::MAX), Some(u64::MAX)),
        ] {
            assert_eq!(order(DELAY, value, 3), Some(Ok(Order::Hold(hold_ns))));
            let mut license = CoreLicense::default();
            license.set_delay(hold_ns, 0, &TIMES);
            let seen = read(DELAY, &license, &TIMES, 3).unwrap();
            assert_eq!(seen, if hold_ns.is_some() { value } else { 0 });
        }
    }

    /// STATUS follows the licence.
    #[test]
    fn the_status_is_the_licences() {
        let mut license = CoreLicense::default();
        let status = |license: &CoreLicense| read(STATUS, license, &TIMES, 3).unwrap();
        assert_eq!(status(&license), 0);
        license.set_demand(2, 0, &TIMES);
        assert_eq!(status(&license), 0x0102_0200);
        license.expire(9_300, &TIMES);
        assert_eq!(status(&license), 0x0202_0200);
        license.expire(29_300, &TIMES);
        license.set_demand(1, 40_000, &TIMES);
        assert_eq!(status(&license), 0x0001_0202);
    }

    #[test]
    fn the_machine_introduces_itself() {
        let license = CoreLicense::default();
        let info = read(INFO, &license, &TIMES, 3);
        assert_eq!(info, Some(670_000 << 32 | 3 << 8 | 1));
        assert_eq!(read(0x4000_0084, &license, &TIMES, 3), None);
    }

    #[test]
    fn bad_writes_fail() {
        for (register, value) in [
            (INFO, 0),
            (STATUS, 0),
            (DELAY, 1 << 32),
            (DELAY, IN_FORCE | 1 << 62),
            (FORCE, 3),
            (FORCE, 1 << 8),
        ] {
            assert_eq!(order(register, value, 3), Some(Err(())), "{register:#x} {value:#x}");
        }
        assert_eq!(order(FORCE, 2, 3), Some(Ok(Order::Force(2))));
        assert_eq!(order(0x199, 0, 3), None);
    }
}
