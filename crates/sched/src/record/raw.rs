// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records of the kernel's side (bpf/trace.h) as events.

use cpumodel::{CpuSet, MAX_CPUS};
use trace::{Event, Lane, Name, What, Why};

use super::wakes::Wakes;

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

/// Makes events of records.
#[derive(Default)]
pub(super) struct Events {
    wakes: Wakes,
}

impl Events {
    /// Passes on what the next record in order of time says, of which task; nothing, or up to three
    /// events at its time and on its CPU.
    pub(super) fn tell<E>(
        &mut self,
        record: &Record,
        mut to: impl FnMut(u32, &What) -> Result<(), E>,
    ) -> Result<(), E> {
        let Record { at_ns, tid, cpu, flags, arg, .. } = *record;
        let (low, high) = (arg as u32, (arg >> 32) as u32);
        let what = match record.kind {
            kind::SWITCH => {
                let why = Why::of_code(flags);
                if let Some(wake) = self.wakes.starts(low, at_ns, cpu) {
                    to(low, &wake)?;
                }
                to(tid, &switch(low, high, flags))?;
                self.wakes.stops(tid, at_ns, why)
            }
            kind::WAKE if flags & NEW == 0 => self.wakes.asked(tid, low, high, flags & OFF != 0),
            _ => plain(record, low, high),
        };
        what.map_or(Ok(()), |what| to(tid, &what))
    }
}

/// What a record says by itself; `None` if this version does not know its kind.
fn plain(record: &Record, low: u32, high: u32) -> Option<What> {
    let Record { flags, arg, .. } = *record;
    Some(match record.kind {
        kind::WAKE => What::Wake { waker: low, delay_ns: 0, new: true },
        kind::MIGRATE => What::Migrate { from: high as u16, to: low as u16 },
        kind::FORK => What::Fork { parent: low, tgid: high },
        kind::EXIT => What::Exit,
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

/// TL_TRACE_NEW, TL_TRACE_OFF.
const NEW: u8 = 1;
const OFF: u8 = 2;

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
    use std::convert::Infallible;

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
        assert_eq!(told(&mut Events::default(), &switch), [(12, what)]);
        let named = long_event(&record(7, kind::NAME, 0, 5), b"worker\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(named.unwrap().what, What::Name { tgid: 5, name: Name::new(b"worker") });
        let words = 0b101u64.to_ne_bytes();
        let moved = long_event(&record(7, kind::AFFINITY, 0, 1), &words).unwrap();
        assert_eq!(moved.what, What::Affinity { cpus: Box::new("0,2".parse().unwrap()) });
    }

    fn told(events: &mut Events, record: &Record) -> Vec<(u32, What)> {
        let mut told = Vec::new();
        let push = |tid, what: &What| -> Result<(), Infallible> {
            told.push((tid, what.clone()));
            Ok(())
        };
        let Ok(()) = events.tell(record, push);
        told
    }

    /// Wake-ups have their flags, waker and CPU; those that come out at a switch are on the right
    /// side of it.
    #[test]
    fn wakes_are_told_in_order() {
        let mut events = Events::default();
        let switch =
            |tid, next, why: Why| Record { tid, ..record(9, kind::SWITCH, why as u8, next) };
        let wake = |flags| record(8, kind::WAKE, flags, 77 | 3 << 32);
        let woken = |delay_ns, new| (12, What::Wake { waker: 77, delay_ns, new });
        assert_eq!(told(&mut events, &wake(NEW)), [woken(0, true)]);
        assert_eq!(told(&mut events, &wake(OFF)), [woken(0, false)]);
        told(&mut events, &switch(0, 12, Why::Preempted));
        assert_eq!(told(&mut events, &wake(OFF)), []);
        let stops = told(&mut events, &switch(12, 0, Why::Sleeps));
        assert_eq!(stops[1..], [woken(0, false)]);
        told(&mut events, &switch(0, 12, Why::Preempted));
        assert_eq!(told(&mut events, &wake(0)), []);
        assert_eq!(told(&mut events, &switch(12, 0, Why::Sleeps)).len(), 1);
        let starts = told(&mut events, &switch(0, 12, Why::Preempted));
        assert_eq!(starts[..1], [woken(0, false)]);
        assert_eq!(starts.len(), 2);
        // On another CPU it has not run.
        let elsewhere = Record { arg: 77 | 4 << 32, ..wake(0) };
        assert_eq!(told(&mut events, &elsewhere), [woken(0, false)]);
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
        assert_eq!(Record::of_bytes(&[0; 10]), None);
        assert_eq!(told(&mut Events::default(), &record(7, 200, 0, 0)), []);
        assert_eq!(long_event(&record(7, kind::NAME, 0, 0), b"cut"), None);
        assert_eq!(long_event(&record(7, kind::SWITCH, 0, 0), &[0; 16]), None);
    }
}
