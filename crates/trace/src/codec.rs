// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events as bytes: the payload of a block of events.
//!
//! A block begins with the time of its first event. Each event is a byte of kind and flags, the
//! time since the event before, its CPU if that is another than before, and what its kind needs.
//! Numbers are [`varint`](crate::varint)s; a task's number is stored as the difference from the
//! previous one.
//!
//! A switch is most of a recording, and most of it is known: the task that stops is the one that
//! started last on that CPU. So it is 5 to 7 bytes: kind, time, CPU, next task.
//!
//! Nothing is carried from block to block but the table of names, so a reader needs the blocks
//! before, but no more of them than their names.

use cpumodel::{CpuSet, MAX_CPUS};

use crate::event::{Event, Lane, Name, What, Why};
use crate::varint::{Bytes, put, put_bytes, put_signed};

/// Names that the table keeps: bounds the memory of a reader to 16 MiB. Later ones are written out
/// each time.
const NAMES_MAX: usize = 1 << 20;

// First byte of an event: kind in bits 4..0, then these.
const KIND: u8 = 0x1f;
/// The CPU is given.
const OTHER_CPU: u8 = 0x20;
/// A switch: the outgoing task is recorded, since no one is known to have run there. Others: a flag
/// of their own.
const FLAG_A: u8 = 0x40;
/// A switch: the lane is recorded. Others: a second flag.
const FLAG_B: u8 = 0x80;

// Kinds; docs/trace-format.md has the table.
const SWITCH: u8 = 1;
const WAKE: u8 = 2;
const MIGRATE: u8 = 3;
const FORK: u8 = 4;
const EXIT: u8 = 5;
const SYSCALL: u8 = 6;
const SYSCALL_RETURN: u8 = 7;
const MARK: u8 = 8;
const MARK_RETURN: u8 = 9;
const TRAP: u8 = 10;
const NAME: u8 = 11;
const AFFINITY: u8 = 12;
const TASK: u8 = 13;
const CLASS: u8 = 14;
const LOST: u8 = 15;
const STALL: u8 = 16;
const LEVEL_CYCLES: u8 = 17;

// How a name is recorded; see `Names`.
const NAME_ONCE: u64 = 0;
const NAME_NEW: u64 = 1;
const NAME_KNOWN: u64 = 2;

/// What both sides know of the events before, within a block.
struct Before {
    at_ns: u64,
    cpu: u16,
    tid: u32,
    /// Who runs on each CPU.
    running: Vec<Option<u32>>,
}

impl Before {
    fn new(at_ns: u64) -> Self {
        Before { at_ns, cpu: 0, tid: 0, running: Vec::new() }
    }

    fn running(&self, cpu: u16) -> Option<u32> {
        self.running.get(usize::from(cpu)).copied().flatten()
    }

    fn runs(&mut self, cpu: u16, tid: u32) {
        let cpu = usize::from(cpu);
        if cpu >= self.running.len() {
            self.running.resize(cpu + 1, None);
        }
        self.running[cpu] = Some(tid);
    }
}

/// Makes blocks.
pub(crate) struct Encoder {
    out: Vec<u8>,
    before: Before,
    names: std::collections::HashMap<Name, u64>,
}

impl Encoder {
    pub(crate) fn new() -> Self {
        Encoder { out: Vec::new(), before: Before::new(0), names: Default::default() }
    }

    /// Bytes of the block so far.
    pub(crate) fn len(&self) -> usize {
        self.out.len()
    }

    /// The block's payload; the next event begins another.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        let next = Vec::with_capacity(self.out.len());
        std::mem::replace(&mut self.out, next)
    }

    /// Adds an event, which must not be earlier than the one before.
    pub(crate) fn push(&mut self, at_ns: u64, cpu: u16, tid: u32, what: &What) {
        if self.out.is_empty() {
            put(&mut self.out, at_ns);
            self.before = Before::new(at_ns);
        }
        let head = self.out.len();
        self.out.push(0);
        put(&mut self.out, at_ns.saturating_sub(self.before.at_ns));
        let mut first = 0;
        if cpu != self.before.cpu {
            first |= OTHER_CPU;
            put(&mut self.out, u64::from(cpu));
        }
        self.before.at_ns = self.before.at_ns.max(at_ns);
        self.before.cpu = cpu;
        first |= self.body(cpu, tid, what);
        self.out[head] = first;
    }

    fn tid(&mut self, tid: u32) {
        put_signed(&mut self.out, i64::from(tid) - i64::from(self.before.tid));
        self.before.tid = tid;
    }

    fn name(&mut self, name: &Name) {
        if let Some(&at) = self.names.get(name) {
            put(&mut self.out, NAME_KNOWN + at);
            return;
        }
        let is_new = self.names.len() < NAMES_MAX;
        put(&mut self.out, if is_new { NAME_NEW } else { NAME_ONCE });
        put_bytes(&mut self.out, name.bytes());
        if is_new {
            self.names.insert(*name, self.names.len() as u64);
        }
    }

    /// What the kind needs; returns kind and flags.
    fn body(&mut self, cpu: u16, tid: u32, what: &What) -> u8 {
        if let What::Switch { next, why, bound, lane, next_lane } = *what {
            return self.switch(cpu, (tid, next), (why, bound), (lane, next_lane));
        }
        if !what.is_of_cpu() {
            self.tid(tid);
        }
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        match what {
            What::Switch { .. } => unreachable!("handled above"),
            What::Wake { waker, delay_ns, new } => {
                self.tid(*waker);
                put(&mut self.out, u64::from(*delay_ns));
                WAKE | flag(*new, FLAG_A)
            }
            What::Migrate { from, to } => {
                put(&mut self.out, u64::from(*from));
                put(&mut self.out, u64::from(*to));
                MIGRATE
            }
            What::Fork { parent, tgid } => {
                self.tid(*parent);
                self.tid(*tgid);
                FORK
            }
            What::Exit => EXIT,
            What::Syscall { number } => self.number(SYSCALL, u64::from(*number)),
            What::SyscallReturn { value } => {
                put_signed(&mut self.out, *value);
                SYSCALL_RETURN
            }
            What::Mark { mark } => self.number(MARK, u64::from(*mark)),
            What::MarkReturn { mark } => self.number(MARK_RETURN, u64::from(*mark)),
            What::Trap { level, ip } => {
                self.out.push(*level);
                self.number(TRAP, *ip)
            }
            What::Task { tgid, kernel, running, followed, name } => {
                self.out.push(u8::from(*followed));
                self.tid(*tgid);
                self.name(name);
                TASK | flag(*kernel, FLAG_A) | flag(*running, FLAG_B)
            }
            What::Name { tgid, name } => {
                self.tid(*tgid);
                self.name(name);
                NAME
            }
            What::Affinity { cpus } => {
                let words = cpus.words();
                let used = words.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
                put(&mut self.out, used as u64);
                words[..used].iter().for_each(|word| put(&mut self.out, *word));
                AFFINITY
            }
            What::Class { class } => self.number(CLASS, u64::from(*class)),
            What::Stall { ns } => self.number(STALL, *ns),
            What::LevelCycles { license_level, cycles } => {
                self.out.push(*license_level);
                self.number(LEVEL_CYCLES, *cycles)
            }
            What::Lost { events } => self.number(LOST, *events),
        }
    }

    fn number(&mut self, kind: u8, value: u64) -> u8 {
        put(&mut self.out, value);
        kind
    }

    fn switch(
        &mut self,
        cpu: u16,
        (tid, next): (u32, u32),
        (why, bound): (Why, bool),
        lanes: (Option<Lane>, Option<Lane>),
    ) -> u8 {
        let mut first = SWITCH;
        self.out.push(why.code() | if bound { 4 } else { 0 });
        if self.before.running(cpu) != Some(tid) {
            first |= FLAG_A;
            self.tid(tid);
        }
        self.tid(next);
        if lanes != (None, None) {
            first |= FLAG_B;
            let code = |lane: Option<Lane>| lane.map_or(0, Lane::code);
            self.out.extend([code(lanes.0), code(lanes.1)]);
        }
        self.before.runs(cpu, next);
        first
    }
}

/// The table of names that grows with the blocks read.
#[derive(Default)]
pub(crate) struct Names {
    names: Vec<Name>,
}

impl Names {
    fn read(&mut self, bytes: &mut Bytes<'_>) -> Option<Name> {
        let code = bytes.number()?;
        if let Some(at) = code.checked_sub(NAME_KNOWN) {
            return self.names.get(usize::try_from(at).ok()?).copied();
        }
        let text = bytes.bytes()?;
        if text.len() > Name::MAX {
            return None;
        }
        let name = Name::new(text);
        if code == NAME_NEW {
            if self.names.len() >= NAMES_MAX {
                return None;
            }
            self.names.push(name);
        }
        Some(name)
    }
}

/// Appends the events of a payload; `None`: it makes no sense.
pub(crate) fn decode(payload: &[u8], names: &mut Names, events: &mut Vec<Event>) -> Option<()> {
    let mut bytes = Bytes::new(payload);
    let mut before = Before::new(bytes.number()?);
    while !bytes.is_empty() {
        let first = bytes.byte()?;
        before.at_ns = before.at_ns.checked_add(bytes.number()?)?;
        if first & OTHER_CPU != 0 {
            before.cpu = bytes.small().filter(|cpu| usize::from(*cpu) < MAX_CPUS)?;
        }
        let (tid, what) = body(first, &mut bytes, &mut before, names)?;
        events.push(Event { at_ns: before.at_ns, cpu: before.cpu, tid, what });
    }
    Some(())
}

fn read_tid(bytes: &mut Bytes<'_>, before: &mut Before) -> Option<u32> {
    let tid = i64::from(before.tid).checked_add(bytes.signed()?)?;
    before.tid = u32::try_from(tid).ok()?;
    Some(before.tid)
}

fn body(
    first: u8,
    bytes: &mut Bytes<'_>,
    before: &mut Before,
    names: &mut Names,
) -> Option<(u32, What)> {
    let (a, b) = (first & FLAG_A != 0, first & FLAG_B != 0);
    let kind = first & KIND;
    if kind == SWITCH {
        return switch(a, b, bytes, before);
    }
    let tid = if matches!(kind, CLASS | LOST | STALL) { 0 } else { read_tid(bytes, before)? };
    let what = match kind {
        WAKE => {
            let waker = read_tid(bytes, before)?;
            What::Wake { waker, delay_ns: bytes.small()?, new: a }
        }
        MIGRATE => What::Migrate { from: bytes.small()?, to: bytes.small()? },
        FORK => {
            let parent = read_tid(bytes, before)?;
            What::Fork { parent, tgid: read_tid(bytes, before)? }
        }
        EXIT => What::Exit,
        SYSCALL => What::Syscall { number: bytes.small()? },
        SYSCALL_RETURN => What::SyscallReturn { value: bytes.signed()? },
        MARK => What::Mark { mark: bytes.small()? },
        MARK_RETURN => What::MarkReturn { mark: bytes.small()? },
        TRAP => What::Trap { level: bytes.byte()?, ip: bytes.number()? },
        TASK => {
            let followed = bytes.byte()? & 1 != 0;
            let tgid = read_tid(bytes, before)?;
            What::Task { tgid, kernel: a, running: b, followed, name: names.read(bytes)? }
        }
        NAME => What::Name { tgid: read_tid(bytes, before)?, name: names.read(bytes)? },
        AFFINITY => What::Affinity { cpus: Box::new(cpus(bytes)?) },
        CLASS => What::Class { class: bytes.small()? },
        LOST => What::Lost { events: bytes.number()? },
        STALL => What::Stall { ns: bytes.number()? },
        LEVEL_CYCLES => What::LevelCycles { license_level: bytes.byte()?, cycles: bytes.number()? },
        _ => return None,
    };
    Some((tid, what))
}

fn switch(a: bool, b: bool, bytes: &mut Bytes<'_>, before: &mut Before) -> Option<(u32, What)> {
    let code = bytes.byte()?;
    let tid = if a { read_tid(bytes, before)? } else { before.running(before.cpu)? };
    let next = read_tid(bytes, before)?;
    let (lane, next_lane) =
        if b { (Lane::of_code(bytes.byte()?), Lane::of_code(bytes.byte()?)) } else { (None, None) };
    before.runs(before.cpu, next);
    let (why, bound) = (Why::of_code(code), code & 4 != 0);
    Some((tid, What::Switch { next, why, bound, lane, next_lane }))
}

fn cpus(bytes: &mut Bytes<'_>) -> Option<CpuSet> {
    let words = bytes.small::<usize>().filter(|words| *words <= MAX_CPUS / 64)?;
    let words: Option<Vec<u64>> = (0..words).map(|_| bytes.number()).collect();
    words.map(CpuSet::of_words)
}
