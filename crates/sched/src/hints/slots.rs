// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which thread has which slot.
//!
//! Problem: areas are few (4096, of 64 slots each), threads and processes come and go by the
//! million, and their end is not reported. And one user must not be able to take so many that
//! others get none.
//!
//! Idea: a table of our own, which believes nothing that applications can write. A process (under
//! one effective user, see `bpf/hint_page.h`) gets an area with its first thread, and one more when
//! its slots are used up.
//!
//! Shares: a user gets another area as long as it has fewer than are left. So one user gets half of
//! all at most, two a third each, n users 1/(n + 1), and there is always something left for the
//! next one. The last 64 are root's, in case one person controls thousands of user numbers.
//!
//! Ends: when a process has twice as many slots in use as lived at the last look, its threads are
//! looked at, and the slots of those that ended are free; likewise the areas of processes that
//! ended, by the number of areas in use. So each look is paid for by as many registrations. At the
//! limit there is at most one look a second: with all in use by the living, more are refused
//! cheaply.
//!
//! A thread that asks again gets its slot again: after it lost its mapping, after `exec`, and when
//! several copies of the library in one process ask for the same thread.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::time::{Duration, Instant};

use report::take_over::{GivenSlots, ProcessSlots};
use turbolane_hint::page::{AREA_SLOTS, AREAS};

/// Shortest time between two looks at the limit.
const SWEEP_PERIOD: Duration = Duration::from_secs(1);

/// Areas, or slots of a process, in use at which the first look at the living is worth its while.
const FIRST_SWEEP: usize = AREA_SLOTS;

/// Areas for root alone.
const RESERVE: usize = 64;

/// Whose an area is. Numbers are used again, start times with them are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Process {
    pub tgid: u32,
    pub start_ticks: u64,
    /// The effective user.
    pub uid: u32,
}

/// A thread, named for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Thread {
    pub tid: u32,
    pub start_ticks: u64,
}

/// A slot that was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Given {
    pub slot: u32,
    /// False if it was this thread's already.
    pub is_new: bool,
    /// The slot is the first in an area that is new, and has no memory yet.
    pub is_new_area: bool,
}

/// Decides whether a thread or a process (by its first thread) still is what it was.
pub(super) trait Living {
    fn thread(&self, thread: Thread) -> bool;
    fn process(&self, process: Process) -> bool;
}

#[derive(Debug, Default)]
struct Holder {
    areas: Vec<u32>,
    free: Vec<u32>,
    threads: HashMap<u32, (u32, u64)>,
    sweep: Sweep,
}

/// When to look at the living next.
#[derive(Debug)]
struct Sweep {
    at: usize,
    last: Option<Instant>,
}

impl Default for Sweep {
    fn default() -> Self {
        Sweep { at: FIRST_SWEEP, last: None }
    }
}

impl Sweep {
    fn is_due(&self, used: usize) -> bool {
        used >= self.at
    }

    fn may_try_again(&self) -> bool {
        self.last.is_none_or(|last| last.elapsed() >= SWEEP_PERIOD)
    }

    fn done(&mut self, left: usize) {
        *self = Sweep { at: (2 * left).max(FIRST_SWEEP), last: Some(Instant::now()) };
    }
}

/// The table.
#[derive(Debug)]
pub(super) struct Slots {
    holders: HashMap<Process, Holder>,
    /// Areas in use, by user.
    users: HashMap<u32, usize>,
    /// The next one first: those that were given back are given again last.
    free: VecDeque<u32>,
    used: usize,
    capacity: usize,
    reserve: usize,
    sweep: Sweep,
}

impl Slots {
    /// For so many areas.
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.min(AREAS);
        Slots {
            holders: HashMap::new(),
            users: HashMap::new(),
            free: (0..capacity as u32).collect(),
            used: 0,
            capacity,
            reserve: RESERVE.min(capacity / 4),
            sweep: Sweep::default(),
        }
    }

    /// The table of another server, as [`Slots::given`] described it.
    pub fn restore(capacity: usize, given: &GivenSlots) -> Self {
        let mut slots = Slots::new(capacity);
        for process in &given.processes {
            let owner =
                Process { tgid: process.tgid, start_ticks: process.start_ticks, uid: process.uid };
            let mut holder = Holder { areas: process.areas.clone(), ..Holder::default() };
            for &(tid, start_ticks, slot) in &process.threads {
                holder.threads.insert(tid, (slot, start_ticks));
            }
            let taken: HashSet<u32> = holder.threads.values().map(|&(slot, _)| slot).collect();
            let all = process.areas.iter().flat_map(|&area| slots_of(area).rev());
            holder.free.extend(all.filter(|slot| !taken.contains(slot)));
            *slots.users.entry(owner.uid).or_default() += process.areas.len();
            slots.used += process.areas.len();
            slots.holders.insert(owner, holder);
        }
        let taken: HashSet<u32> =
            slots.holders.values().flat_map(|holder| holder.areas.iter().copied()).collect();
        slots.free.retain(|area| !taken.contains(area));
        // One that may have had more descriptors.
        slots.capacity = slots.capacity.max(slots.used);
        slots
    }

    /// Who has which slots.
    pub fn given(&self) -> Vec<ProcessSlots> {
        let processes = self.holders.iter().map(|(process, holder)| ProcessSlots {
            tgid: process.tgid,
            start_ticks: process.start_ticks,
            uid: process.uid,
            areas: holder.areas.clone(),
            threads: holder
                .threads
                .iter()
                .map(|(&tid, &(slot, start))| (tid, start, slot))
                .collect(),
        });
        processes.collect()
    }

    /// A slot for a thread of the process; `None` if the user has had its share.
    pub fn give(
        &mut self,
        process: Process,
        thread: Thread,
        living: &impl Living,
    ) -> Option<Given> {
        let holder = self.holders.entry(process).or_default();
        if let Some(known) = holder.threads.get_mut(&thread.tid) {
            let is_new = std::mem::replace(&mut known.1, thread.start_ticks) != thread.start_ticks;
            return Some(Given { slot: known.0, is_new, is_new_area: false });
        }
        if holder.free.is_empty() && holder.sweep.is_due(holder.threads.len()) {
            holder.free_ended(living);
        }
        let mut is_new_area = false;
        if holder.free.is_empty() {
            is_new_area = self.add_area(process, living);
        }
        let holder = self.holders.get_mut(&process)?;
        if holder.free.is_empty() && holder.sweep.may_try_again() {
            holder.free_ended(living);
        }
        let Some(slot) = holder.free.pop() else {
            if holder.areas.is_empty() {
                self.holders.remove(&process);
            }
            return None;
        };
        holder.threads.insert(thread.tid, (slot, thread.start_ticks));
        Some(Given { slot, is_new: true, is_new_area })
    }

    /// Takes a thread's slot back.
    pub fn release(&mut self, process: Process, tid: u32) {
        if let Some(holder) = self.holders.get_mut(&process)
            && let Some((slot, _)) = holder.threads.remove(&tid)
        {
            holder.free.push(slot);
        }
    }

    /// Takes back the area that was given last, and the slot in it: there is no memory for it.
    pub fn release_area(&mut self, process: Process, area: u32) {
        let Some(holder) = self.holders.get_mut(&process) else { return };
        let is_elsewhere = |slot: u32| slot / AREA_SLOTS as u32 != area;
        holder.areas.retain(|held| *held != area);
        holder.free.retain(|slot| is_elsewhere(*slot));
        holder.threads.retain(|_, (slot, _)| is_elsewhere(*slot));
        let is_empty = holder.areas.is_empty();
        if is_empty {
            self.holders.remove(&process);
        }
        self.take_back(process.uid, &[area]);
    }

    /// The areas that are given next, so many at most.
    pub fn next_areas(&self, nr: usize) -> impl Iterator<Item = u32> {
        self.free.iter().copied().take(nr)
    }

    /// The slots in use, with their owners.
    pub fn iter(&self) -> impl Iterator<Item = (u32, Process, Thread)> {
        self.holders.iter().flat_map(|(process, holder)| {
            let threads = holder.threads.iter();
            threads
                .map(|(&tid, &(slot, start_ticks))| (slot, *process, Thread { tid, start_ticks }))
        })
    }

    fn add_area(&mut self, process: Process, living: &impl Living) -> bool {
        let at_limit = !self.has_share(process.uid) && self.sweep.may_try_again();
        if at_limit || self.sweep.is_due(self.used) {
            self.take_from_the_dead(process, living);
        }
        if !self.has_share(process.uid) {
            return false;
        }
        let (Some(area), Some(holder)) = (self.free.pop_front(), self.holders.get_mut(&process))
        else {
            return false;
        };
        holder.areas.push(area);
        holder.free.extend(slots_of(area).rev());
        *self.users.entry(process.uid).or_default() += 1;
        self.used += 1;
        true
    }

    /// True if the user may have another area.
    fn has_share(&self, uid: u32) -> bool {
        let left = self.capacity - self.used;
        let has = self.users.get(&uid).copied().unwrap_or(0);
        if uid == 0 { left > 0 } else { has < left.saturating_sub(self.reserve) }
    }

    /// Areas of processes that ended are free, but not of the one that asks.
    fn take_from_the_dead(&mut self, asks: Process, living: &impl Living) {
        let is_dead = |process: &&Process| **process != asks && !living.process(**process);
        let dead: Vec<Process> = self.holders.keys().filter(is_dead).copied().collect();
        for process in dead {
            if let Some(holder) = self.holders.remove(&process) {
                self.take_back(process.uid, &holder.areas);
            }
        }
        self.sweep.done(self.used);
    }

    fn take_back(&mut self, uid: u32, areas: &[u32]) {
        self.free.extend(areas);
        self.used -= areas.len();
        if let Some(has) = self.users.get_mut(&uid) {
            *has -= areas.len();
            if *has == 0 {
                self.users.remove(&uid);
            }
        }
    }
}

/// The numbers of the slots in an area.
fn slots_of(area: u32) -> Range<u32> {
    let first = area * AREA_SLOTS as u32;
    first..first + AREA_SLOTS as u32
}

impl Holder {
    fn free_ended(&mut self, living: &impl Living) {
        let free = &mut self.free;
        self.threads.retain(|&tid, &mut (slot, start_ticks)| {
            let lives = living.thread(Thread { tid, start_ticks });
            if !lives {
                free.push(slot);
            }
            lives
        });
        self.sweep.done(self.threads.len());
    }
}

#[cfg(test)]
#[path = "slots_tests.rs"]
mod tests;
