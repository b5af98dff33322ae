// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scheduler goes while it stands by, and comes back; see bpf/away.bpf.h for what stays.

use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

use policy::{KernelUse, NR_PARTIES};

use super::Scheduler;
use super::call::{run, visit_tasks};
use super::ended::Ended;
use crate::bpf::types;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::marks::MarkRules;

/// `enum tl_away` of bpf/lane.h.
const AT_WORK: u32 = 0;
const AWAY: u32 = 1;

/// A scheduler that is away.
pub(super) struct Left {
    since: Instant,
    /// CPU time of the machine then, clock ticks; `None` if the kernel does not say.
    busy_ticks: Option<u64>,
    /// How it ended when it left.
    pub(super) ended: Option<Ended>,
}

/// What happened while a scheduler was away.
#[derive(Clone, Copy, Debug, Default)]
pub struct WhileAway {
    /// For how long it was.
    pub ns: u64,
    /// CPU time that all used, ns; 0 if that is not known.
    pub run_ns: u64,
    /// By party, of the tasks that were there all the time.
    pub parties: [KernelUse; NR_PARTIES],
}

/// CPU time of the machine since boot, clock ticks.
fn busy_ticks() -> Option<u64> {
    let cpus = hw::activity::cpus(&hw::Live).ok()?;
    Some(cpus.iter().map(|cpu| cpu.busy_ticks).sum())
}

impl Scheduler {
    /// Whether the kernel's own scheduler is at work meanwhile.
    pub fn is_away(&self) -> bool {
        self.left.is_some()
    }

    /// Have each task go back to the CPU that it was taken from, before [`Scheduler::leave`].
    pub fn send_home(&mut self) -> Result<()> {
        let start = Instant::now();
        run(&self.skel.progs.tl_send_home, &mut [])?;
        loop {
            // Once more when all have chosen: what they sent away is on its CPU by then.
            let chosen = self.all_have_chosen();
            let left =
                Duration::from_nanos(policy::GOING_HOME_MAX_NS).saturating_sub(start.elapsed());
            thread::sleep(left.min(Duration::from_nanos(policy::GOING_HOME_NS)));
            if chosen || left.is_zero() {
                return Ok(());
            }
        }
    }

    /// Whether each CPU has chosen a task since the scheduler was told to send them home.
    fn all_have_chosen(&self) -> bool {
        let cpus = &raw const self.bss().cpus;
        // SAFETY: in bounds of the mapped array; the kernel writes it concurrently.
        let chooses = |cpu: usize| unsafe { ptr::read_volatile(&raw const (*cpus)[cpu].to_choose) };
        (0..policy::CPUS_MAX).all(|cpu| chooses(cpu) == 0)
    }

    /// Leave the machine to the kernel's own scheduler, with everything else in place, or all but
    /// the probes of marks. Nothing must be armed. How it has ended, if that was not our doing.
    pub fn leave(&mut self, keeps_marks: bool) -> Option<Ended> {
        self.store_away(AWAY);
        self.syscall_links.clear();
        if !keeps_marks {
            self.probes.lift();
        }
        self.scheduler_link = None;
        let ended = self.ended();
        if ended.as_ref().is_some_and(|ended| ended.is_error() || ended.wants_restart()) {
            return ended;
        }
        // SAFETY: a field of the mapped section, which the kernel has written and writes again
        // when the next one ends.
        unsafe { ptr::write_volatile(&raw mut self.bss_mut().exited, types::tl_exit::default()) };
        self.left = Some(Left { since: Instant::now(), busy_ticks: busy_ticks(), ended });
        None
    }

    /// What the tasks did while it was away; by party as known now.
    pub fn kernel_use(&mut self) -> Result<WhileAway> {
        let failed = |e| Error::failed("cannot look through the machine's tasks", e);
        let sums = &raw mut self.bss_mut().kernel_use;
        // SAFETY: a field of the mapped section, written by the program that runs below only.
        unsafe { ptr::write_volatile(sums, Default::default()) };
        visit_tasks(&self.skel.progs.tl_sum_kernel_use).map_err(failed)?;
        // SAFETY: as above.
        let sums = unsafe { ptr::read_volatile(&raw const self.bss().kernel_use) };
        let of = |sum: types::tl_kernel_use| KernelUse {
            run_ns: sum.run_ns,
            wait_ns: sum.wait_ns,
            moves: sum.moves,
        };
        Ok(WhileAway { parties: sums.map(of), ..self.was_away })
    }

    /// Take over again. `classes` has one entry per CPU.
    pub fn come_back(&mut self, config: &Config, classes: &[u8], rules: MarkRules) -> Result<()> {
        self.take_over(classes)?;
        if let Some(left) = self.left.take() {
            let ticks = busy_ticks().zip(left.busy_ticks).map(|(now, old)| now.saturating_sub(old));
            let tick_ns = 1_000_000_000 / hw::activity::ticks_per_second();
            self.was_away = WhileAway {
                ns: left.since.elapsed().as_nanos() as u64,
                run_ns: ticks.unwrap_or(0) * tick_ns,
                ..WhileAway::default()
            };
        }
        self.store_away(AT_WORK);
        self.probes.set(&self.skel.progs, rules)?;
        self.watch_syscalls(config)
    }

    /// Threads that were given a slot of the hint page; wraps.
    pub fn slots_given(&self) -> u32 {
        // SAFETY: a field of the mapped section, which the kernel writes.
        unsafe { ptr::read_volatile(&raw const self.bss().slots_given) }
    }

    /// To be called once a second or so while it is away: applications see that somebody is there.
    pub fn give_sign(&self) -> Result<()> {
        run(&self.skel.progs.tl_give_sign, &mut []).map(drop)
    }

    /// Whether CPUs have come or gone since it was loaded: it cannot come back then.
    pub fn is_outdated(&self) -> bool {
        hw::sched_ext::hotplug_seq() != self.hotplug_seq
    }

    fn store_away(&mut self, away: u32) {
        // SAFETY: a field of the mapped section, a word.
        unsafe { ptr::write_volatile(&raw mut self.bss_mut().away, away) };
    }
}
