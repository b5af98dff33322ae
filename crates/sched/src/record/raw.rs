// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records of the kernel's side (bpf/trace.h) as events.

use std::collections::BTreeMap;

use machine::{CpuSet, MAX_CPUS};
use trace::{Event, Lane, Name, What, Why};

/// `struct tl_trace_event`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub at_ns: u64,
    pub tid: u32,
    pub cpu: u16,
    pub kind: u8,
    pub flags: u8,
    pub arg: u64,
}

/// `enum tl_trace_kind`; a test compares the two.
pub(super) mod kind {
    pub(in crate::record) const SWITCH: u8 = 1;
    pub(in crate::record) const WAKE: u8 = 2;
    pub(in crate::record) const MIGRATE: u8 = 3;
    pub(in crate::record) const FORK: u8 = 4;
    pub(in crate::record) const EXIT: u8 = 5;
    pub(in crate::record) const SYSCALL: u8 = 6;
    pub(in crate::record) const SYSRET: u8 = 7;
    pub(in crate::record) const MARK: u8 = 8;
    pub(in crate::record) const MARK_RETURN: u8 = 9;
    pub(in crate::record) const TRAP: u8 = 10;
    pub(in crate::record) const NAME: u8 = 11;
    pub(in crate::record) const AFFINITY: u8 = 12;
    pub(in crate::record) const STALL: u8 = 16;
    pub(in crate::record) const LEVEL: u8 = 17;
    pub(in crate::record) const WAKING: u8 = 18;
}

impl Record {
    /// The first bytes of a record of any length, and the others.
    pub(super) fn of_bytes(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (head, rest) = bytes.split_at_checked(size_of::<Record>())?;
        let record = Record {
            at_ns: u64_at(head, 0)?,
            tid: u32::from_ne_bytes(head[8..12].try_into().ok()?),
            cpu: u16::from_ne_bytes(head[12..14].try_into().ok()?),
            kind: head[14],
            flags: head[15],
            arg: u64_at(head, 16)?,
        };
        Some((record, rest))
    }
}

/// The event of a record that is longer.
pub(super) fn long_event(record: &Record, rest: &[u8]) -> Option<Event> {
    let what = match record.kind {
        kind::NAME => {
            let name = Name::new(rest.get(..Name::MAX)?);
            What::Name { tgid: record.arg as u32, name }
        }
        kind::AFFINITY => What::Affinity { cpus: Box::new(cpus_of(rest, record.arg)) },
        _ => return None,
    };
    Some(Event { at_ns: record.at_ns, cpu: record.cpu, tid: record.tid, what })
}

/// When somebody asked for a task to be woken, and who.
#[derive(Clone, Copy, Debug)]
struct Asked {
    at_ns: u64,
    waker: u32,
}

/// Makes events of records. What the waker has done and what has come of it are two records, maybe of two
/// CPUs, and one event.
#[derive(Default)]
pub(super) struct Events {
    /// The last one, with its task: most are woken next, by the same CPU.
    last: Option<(u32, Asked)>,
    /// The others whose wake-up is still to come, by task: a few.
    asked: BTreeMap<u32, Asked>,
}

impl Events {
    /// What the next record in order of time tells; `None` for one that tells nothing by itself.
    pub(super) fn what(&mut self, record: &Record) -> Option<What> {
        let Record { tid, flags, arg, .. } = *record;
        let (low, high) = (arg as u32, (arg >> 32) as u32);
        Some(match record.kind {
            kind::SWITCH => switch(low, high, flags),
            kind::WAKING => {
                // One that is still there was for a wake-up that is lost.
                self.take_asked(tid);
                let asked = Asked { at_ns: record.at_ns, waker: low };
                self.asked.extend(self.last.replace((tid, asked)));
                return None;
            }
            kind::WAKE if flags & NEW != 0 => What::Wake { waker: low, delay_ns: 0, new: true },
            kind::WAKE => self.wake(record),
            kind::MIGRATE => What::Migrate { from: high as u16, to: low as u16 },
            kind::FORK => What::Fork { parent: low, tgid: high },
            kind::EXIT => {
                self.take_asked(tid);
                What::Exit
            }
            kind::SYSCALL => What::Syscall { number: low },
            kind::SYSRET => What::SyscallReturn { value: arg as i64 },
            kind::MARK => What::Mark { mark: low },
            kind::MARK_RETURN => What::MarkReturn { mark: low },
            kind::TRAP => What::Trap { level: flags, ip: arg },
            kind::STALL => What::Stall { ns: arg },
            kind::LEVEL => What::LevelCycles { license_level: flags, cycles: arg },
            _ => return None,
        })
    }

    fn take_asked(&mut self, tid: u32) -> Option<Asked> {
        match self.last.take_if(|(last, _)| *last == tid) {
            Some((_, asked)) => Some(asked),
            None => self.asked.remove(&tid),
        }
    }

    /// Nobody is known to have asked if that was before the recording, or is lost.
    fn wake(&mut self, record: &Record) -> What {
        let Some(asked) = self.take_asked(record.tid) else {
            return What::Wake { waker: 0, delay_ns: 0, new: false };
        };
        let delay_ns = record.at_ns.saturating_sub(asked.at_ns);
        let delay_ns = u32::try_from(delay_ns).unwrap_or(u32::MAX);
        What::Wake { waker: asked.waker, delay_ns, new: false }
    }
}

/// TL_TRACE_NEW.
const NEW: u8 = 1;

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

    fn record(at_ns: u64, kind: u8, flags: u8, arg: u64) -> Record {
        Record { at_ns, tid: 12, cpu: 3, kind, flags, arg }
    }

    /// The fields lie where bpf/trace.h says.
    #[test]
    fn records_are_understood() {
        let lanes: u64 = (0x80 | 2 << 4 | 2) << 32 | 0x81 << 40;
        let mut bytes = 7u64.to_ne_bytes().to_vec();
        bytes.extend(12u32.to_ne_bytes());
        bytes.extend(3u16.to_ne_bytes());
        bytes.extend([kind::SWITCH, 1 | 4]);
        bytes.extend((99 | lanes).to_ne_bytes());
        bytes.extend(b"rest");
        let (switch, rest) = Record::of_bytes(&bytes).unwrap();
        assert_eq!((switch, rest), (record(7, kind::SWITCH, 1 | 4, 99 | lanes), &b"rest"[..]));
        let what = What::Switch {
            next: 99,
            why: Why::Sleeps,
            bound: true,
            lane: Some(Lane { task_type: 2, level: 2 }),
            next_lane: Some(Lane { task_type: 1, level: 0 }),
        };
        assert_eq!(Events::default().what(&switch), Some(what));
        let named = long_event(&record(7, kind::NAME, 0, 5), b"worker\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(named.unwrap().what, What::Name { tgid: 5, name: Name::new(b"worker") });
        let words = 0b101u64.to_ne_bytes();
        let moved = long_event(&record(7, kind::AFFINITY, 0, 1), &words).unwrap();
        assert_eq!(moved.what, What::Affinity { cpus: Box::new("0,2".parse().unwrap()) });
    }

    /// A wake-up has its own waker and delay, and those only once; one that nobody is known to have asked for
    /// has none; and what an ended task was asked for is forgotten.
    #[test]
    fn wakes_are_joined() {
        let mut events = Events::default();
        let wake = |waker, delay_ns, new| Some(What::Wake { waker, delay_ns, new });
        assert_eq!(events.what(&record(10, kind::WAKING, 0, 77)), None);
        let other = Record { tid: 13, ..record(20, kind::WAKING, 0, 78) };
        assert_eq!(events.what(&other), None);
        let woken = Record { cpu: 9, ..record(35, kind::WAKE, 0, 0) };
        assert_eq!(events.what(&woken), wake(77, 25, false));
        assert_eq!(events.what(&woken), wake(0, 0, false));
        assert_eq!(events.what(&record(40, kind::WAKE, NEW, 5)), wake(5, 0, true));
        assert_eq!(
            events.what(&Record { tid: 13, ..record(41, kind::EXIT, 0, 0) }),
            Some(What::Exit)
        );
        assert_eq!(events.what(&Record { tid: 13, ..woken }), wake(0, 0, false));
        // A wake-up that is lost leaves nothing behind for the one after the next.
        assert_eq!(events.what(&record(10, kind::WAKING, 0, 76)), None);
        assert_eq!(events.what(&record(11, kind::WAKING, 0, 77)), None);
        assert_eq!(events.what(&record(12, kind::WAKE, 0, 0)), wake(77, 1, false));
        assert_eq!(events.what(&record(13, kind::WAKE, 0, 0)), wake(0, 0, false));
        assert_eq!(events.what(&record(10, kind::WAKING, 0, 77)), None);
        let late = record(10 + (1 << 32), kind::WAKE, 0, 0);
        assert_eq!(events.what(&late), wake(77, u32::MAX, false));
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
        assert_eq!(kinds.len(), 15);
        for (name, number) in kinds {
            let ours = format!("const {name}: u8 = {number};");
            assert!(this.contains(&ours), "{ours}");
        }
    }

    /// What is no record is no event.
    #[test]
    fn rubbish_fails() {
        assert_eq!(Record::of_bytes(&[0; 10]), None);
        assert_eq!(Events::default().what(&record(7, 200, 0, 0)), None);
        assert_eq!(long_event(&record(7, kind::NAME, 0, 0), b"cut"), None);
        assert_eq!(long_event(&record(7, kind::SWITCH, 0, 0), &[0; 16]), None);
    }
}
