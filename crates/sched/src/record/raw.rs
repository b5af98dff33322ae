// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records of the kernel's side (bpf/trace.h) as events.

use machine::{CpuSet, MAX_CPUS};
use trace::{Event, Lane, Name, What, Why};

/// Bytes of `struct tl_trace_event`, which most records consist of.
const HEAD_BYTES: usize = 24;

/// `enum tl_trace_kind`; a test compares the two.
mod kind {
    pub(super) const SWITCH: u8 = 1;
    pub(super) const WAKE: u8 = 2;
    pub(super) const MIGRATE: u8 = 3;
    pub(super) const FORK: u8 = 4;
    pub(super) const EXIT: u8 = 5;
    pub(super) const SYSCALL: u8 = 6;
    pub(super) const SYSRET: u8 = 7;
    pub(super) const MARK: u8 = 8;
    pub(super) const MARK_RETURN: u8 = 9;
    pub(super) const TRAP: u8 = 10;
    pub(super) const NAME: u8 = 11;
    pub(super) const AFFINITY: u8 = 12;
    pub(super) const STALL: u8 = 16;
    pub(super) const LEVEL: u8 = 17;
}

/// The event of a record; `None` for one that this version does not know, which cannot be: both sides
/// are built together.
pub(super) fn event_of(record: &[u8]) -> Option<Event> {
    let (head, rest) = record.split_at_checked(HEAD_BYTES)?;
    let (at_ns, arg) = (u64_at(head, 0)?, u64_at(head, 16)?);
    let tid = u32::from_ne_bytes(head[8..12].try_into().ok()?);
    let cpu = u16::from_ne_bytes(head[12..14].try_into().ok()?);
    let flags = head[15];
    let (low, high) = (arg as u32, (arg >> 32) as u32);
    let what = match head[14] {
        kind::SWITCH => switch(low, high, flags),
        kind::WAKE => What::Wake { waker: low, delay_ns: high, new: flags & 1 != 0 },
        kind::MIGRATE => What::Migrate { from: high as u16, to: low as u16 },
        kind::FORK => What::Fork { parent: low, tgid: high },
        kind::EXIT => What::Exit,
        kind::SYSCALL => What::Syscall { number: low },
        kind::SYSRET => What::SyscallReturn { value: arg as i64 },
        kind::MARK => What::Mark { mark: low },
        kind::MARK_RETURN => What::MarkReturn { mark: low },
        kind::TRAP => What::Trap { level: flags, ip: arg },
        kind::NAME => What::Name { tgid: low, name: Name::new(rest.get(..Name::MAX)?) },
        kind::AFFINITY => What::Affinity { cpus: Box::new(cpus_of(rest, arg)) },
        kind::STALL => What::Stall { ns: arg },
        kind::LEVEL => What::LevelCycles { license_level: flags, cycles: arg },
        _ => return None,
    };
    Some(Event { at_ns, cpu, tid, what })
}

fn switch(next: u32, lanes: u32, flags: u8) -> What {
    What::Switch {
        next,
        why: Why::of_code(flags),
        bound: flags & 4 != 0,
        lane: Lane::of_code(lanes as u8),
        next_lane: Lane::of_code((lanes >> 8) as u8),
    }
}

/// The CPUs of so many words; more than there can be are left out.
pub(super) fn cpus_of(words: &[u8], nr_words: u64) -> CpuSet {
    let nr_words = (nr_words as usize).min(MAX_CPUS / 64);
    CpuSet::of_words((0..nr_words).map_while(|at| u64_at(words, 8 * at)))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, flags: u8, arg: u64, rest: &[u8]) -> Vec<u8> {
        let mut bytes = 7u64.to_ne_bytes().to_vec();
        bytes.extend(12u32.to_ne_bytes());
        bytes.extend(3u16.to_ne_bytes());
        bytes.extend([kind, flags]);
        bytes.extend(arg.to_ne_bytes());
        bytes.extend(rest);
        bytes
    }

    /// The fields lie where bpf/trace.h says.
    #[test]
    fn records_are_understood() {
        let lanes = (0x80 | 2 << 4 | 2) << 32 | 0x81 << 40;
        let event = event_of(&record(kind::SWITCH, 1 | 4, 99 | lanes, &[])).unwrap();
        let what = What::Switch {
            next: 99,
            why: Why::Sleeps,
            bound: true,
            lane: Some(Lane { task_type: 2, level: 2 }),
            next_lane: Some(Lane { task_type: 1, level: 0 }),
        };
        assert_eq!(event, Event { at_ns: 7, cpu: 3, tid: 12, what });
        let named = event_of(&record(kind::NAME, 0, 5, b"worker\0\0\0\0\0\0\0\0\0\0"));
        assert_eq!(named.unwrap().what, What::Name { tgid: 5, name: Name::new(b"worker") });
        let words = 0b101u64.to_ne_bytes();
        let moved = event_of(&record(kind::AFFINITY, 0, 1, &words)).unwrap();
        assert_eq!(moved.what, What::Affinity { cpus: Box::new("0,2".parse().unwrap()) });
    }

    /// The numbers are those of the kernel's side, which has no others.
    #[test]
    fn kinds_are_those_of_the_header() {
        let header = include_str!("../../../../bpf/trace.h");
        let this = include_str!("raw.rs");
        let body = header.split("enum tl_trace_kind {").nth(1).unwrap().split('}').next().unwrap();
        let kinds: Vec<&str> = body.lines().filter_map(|line| line.split(',').next()).collect();
        let kinds = kinds.iter().filter_map(|line| line.trim().strip_prefix("TL_TRACE_"));
        let kinds: Vec<(&str, &str)> = kinds.filter_map(|line| line.split_once(" = ")).collect();
        assert_eq!(kinds.len(), 14);
        for (name, number) in kinds {
            let ours = format!("const {name}: u8 = {number};");
            assert!(this.contains(&ours), "{ours}");
        }
    }

    /// What is no record is no event.
    #[test]
    fn rubbish_fails() {
        assert_eq!(event_of(&[0; 10]), None);
        assert_eq!(event_of(&record(200, 0, 0, &[])), None);
        assert_eq!(event_of(&record(kind::NAME, 0, 0, b"cut")), None);
    }
}
