// SPDX-License-Identifier: MIT OR Apache-2.0
//! The BPF scheduler as an object: load, attach, change, count, detach.
//!
//! The scheduler lives as long as its struct_ops link. The link is a file descriptor of this
//! process, so any end of the process, kill -9 included, gives the machine back to the kernel's
//! own scheduler.

mod away;
mod call;
mod code;
mod ended;
mod follow;
mod hint_maps;
mod open;
mod probes;
mod rules;

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr;

use cpumodel::Topology;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, OpenObject};
use policy::NR_PARTIES;
use report::lane::LaneTasks;

use crate::bound::{self, BoundTask};
use crate::bpf::{MainSkel, MainSkelBuilder, types};
use crate::clock::monotonic_ns;
use crate::config::{Components, Config, Mark, Unclassified};
use crate::error::{Error, Result};
use crate::groups::Support;
use crate::layout;
use crate::levels;
use crate::marks::ResolvedMark;
use crate::scores;
use crate::tasks;

use away::Left;
pub use away::WhileAway;
use call::{errno_text, run};
use hint_maps::freeze;
use open::{choose_programs, fill_constants};
use probes::Probes;
use rules::Rules;

pub(crate) use call::test_run;
pub use ended::Ended;
pub use hint_maps::{HintMaps, SlotSetter};
pub use open::Fault;
pub use probes::MarkChange;

/// Counters of one CPU; see bpf/lane.h for the meaning of each field.
pub type CpuCounters = types::tl_cpu;

/// A loaded scheduler.
pub struct Scheduler {
    skel: MainSkel<'static>,
    // Links detach when dropped; the scheduler itself last.
    probes: Probes,
    rules: Rules,
    syscall_links: Vec<Link>,
    has_sections: bool,
    trap_link: Option<Link>,
    bell_link: Option<Link>,
    score_links: Vec<Link>,
    scheduler_link: Option<Link>,
    /// It is away (away.rs).
    left: Option<Left>,
    /// What happened meanwhile, the last time.
    was_away: WhileAway,
    hotplug_seq: u64,
}

impl Scheduler {
    /// Load the programs and set everything up, without taking over yet. `hints` are the
    /// maps of a scheduler that this one replaces: applications have board and areas mapped.
    pub fn load(
        topology: &Topology,
        config: &Config,
        hints: Option<&HintMaps>,
        fault: Fault,
    ) -> Result<Self> {
        let object = Box::leak(Box::new(MaybeUninit::<OpenObject>::uninit()));
        let mut open = MainSkelBuilder::default()
            .open(object)
            .map_err(|e| Error::failed("cannot open the BPF object", e))?;
        fill_constants(&mut open, topology, fault);
        let counters = scores::counters(config, layout::nr_cpus(topology))?;
        choose_programs(&mut open, counters.is_some(), fault)?;
        levels::make_room(&mut open.maps.level_counters, layout::nr_cpus(topology))?;
        if let Some(hints) = hints {
            let failed = |e| Error::failed("cannot keep the memory for hints", e);
            open.maps.hint_board.reuse_fd(hints.board.as_fd()).map_err(failed)?;
            open.maps.hint_areas.reuse_fd(hints.areas.as_fd()).map_err(failed)?;
        }
        let ops = open.struct_ops.lane_ops_mut();
        let hotplug_seq = hw::sched_ext::hotplug_seq();
        ops.hotplug_seq = hotplug_seq;
        Support::of_this_kernel().fit(ops);
        let skel = open.load().map_err(load_error)?;
        if hints.is_none() {
            // From now on only the programs write it; see bpf/hint_page.h.
            let failed = |e| Error::failed("cannot make the hint board read-only", e);
            freeze(skel.maps.hint_board.as_fd()).map_err(failed)?;
        }
        let mut scheduler = Scheduler {
            skel,
            probes: Probes::default(),
            rules: Rules::default(),
            syscall_links: Vec::new(),
            has_sections: false,
            trap_link: None,
            bell_link: None,
            score_links: Vec::new(),
            scheduler_link: None,
            left: None,
            was_away: WhileAway::default(),
            hotplug_seq,
        };
        if let Some(counters) = counters {
            levels::put(&scheduler.skel.maps.level_counters, counters)?;
        }
        scheduler.store_settings(config);
        Ok(scheduler)
    }

    /// Take over from the kernel's scheduler. `classes` has one entry per CPU.
    pub fn attach(&mut self, classes: &[u8]) -> Result<()> {
        self.take_over(classes)?;
        if self.skel.progs.tl_target_bell.autoload() {
            // A kernel that cannot attach to its functions is no reason to do without a scheduler:
            // there are ticks.
            self.bell_link = self.skel.progs.tl_target_bell.attach().ok();
        }
        if self.skel.progs.tl_feed_score.autoload() {
            let link = self.skel.progs.tl_feed_score.attach();
            let link = link.map_err(|e| Error::failed("cannot watch switches for scores", e))?;
            let exec = self.skel.progs.tl_new_program.attach();
            let exec = exec.map_err(|e| Error::failed("cannot watch exec for scores", e))?;
            self.score_links = vec![link, exec];
        }
        if hw::sched_ext::has_trap_module() {
            let link = self.skel.progs.tl_trap.attach();
            self.trap_link =
                Some(link.map_err(|e| Error::failed("cannot use the trap module's event", e))?);
        }
        Ok(())
    }

    fn take_over(&mut self, classes: &[u8]) -> Result<()> {
        self.store_classes(classes);
        let link = self.skel.maps.lane_ops.attach_struct_ops().map_err(|e| {
            Error::failed("cannot attach the scheduler", format!("{e:#}{}", self.ended_note()))
        })?;
        self.scheduler_link = Some(link);
        Ok(())
    }

    /// Make `classes` the classes of the CPUs; tasks that are now on the wrong class move.
    pub fn set_classes(&mut self, classes: &[u8]) -> Result<()> {
        self.store_classes(classes);
        let err = run(&self.skel.progs.tl_apply_classes, &mut [])?;
        if err != 0 {
            return Err(Error::failed("cannot change the CPU classes", errno_text(err)));
        }
        // A task that was being queued while the classes changed may have been queued by the
        // old ones after the first pass; the second comes when every such call has ended.
        run(&self.skel.progs.tl_requeue_all, &mut [])?;
        std::thread::sleep(std::time::Duration::from_millis(2));
        run(&self.skel.progs.tl_requeue_all, &mut [])?;
        Ok(())
    }

    /// Put the settings into force that are plain values, and the programs that the
    /// re-migration heuristics need.
    pub fn set_settings(&mut self, config: &Config) -> Result<()> {
        self.store_settings(config);
        self.watch_syscalls(config)
    }

    /// Whether tasks have sections for which CPUs are there. Only then are their last system calls
    /// looked for, since what watches system calls costs every task.
    pub fn set_sections(&mut self, config: &Config, has_sections: bool) -> Result<()> {
        self.has_sections = has_sections;
        self.watch_syscalls(config)
    }

    /// While the scheduler is away nothing is watched; [`Scheduler::come_back`] asks again.
    fn watch_syscalls(&mut self, config: &Config) -> Result<()> {
        if self.is_away() {
            return Ok(());
        }
        let remigrate = config.remigrate;
        let ends = remigrate.syscall_entry || remigrate.syscall_return;
        let looks = remigrate.last_syscall && self.has_sections;
        let progs = &self.skel.progs;
        let watch = match (ends || looks, config.trap) {
            (true, _) => vec![&progs.tl_syscall_enter, &progs.tl_syscall_exit],
            // where a stay may end (policy/stay.h)
            (false, trap) if trap != Components::None => vec![&progs.tl_syscall_enter],
            _ => Vec::new(),
        };
        if self.syscall_links.len() != watch.len() {
            self.syscall_links.clear();
            for program in watch {
                let link =
                    program.attach().map_err(|e| Error::failed("cannot watch system calls", e))?;
                self.syscall_links.push(link);
            }
        }
        Ok(())
    }

    /// From now on this is what the time of the parties counts (policy/shares.h).
    pub fn set_counts(&mut self, counts_q10: [u16; NR_PARTIES]) {
        // All CPUs read that line all the time.
        if self.bss().cfg.counts_q10 != counts_q10 {
            // SAFETY: a field of the mapped section; the kernel only reads it, value by value.
            unsafe { ptr::write_volatile(&raw mut self.bss_mut().cfg.counts_q10, counts_q10) };
        }
    }

    /// Count what levels cost other code, or do not (bpf/exposure.bpf.h).
    pub fn watch_exposure(&mut self, watch: bool) {
        // SAFETY: a field of the mapped section; the kernel only reads it.
        unsafe { ptr::write_volatile(&raw mut self.bss_mut().watches, watch.into()) };
    }

    /// Watch a marked function from now on.
    pub fn add_mark(&mut self, mark: &ResolvedMark) -> Result<()> {
        self.probes.add(&self.skel.progs, mark)
    }

    /// Stop watching these marks; returns how many there were.
    pub fn remove_marks(&mut self, marks: &[Mark]) -> usize {
        self.probes.remove(marks)
    }

    /// Where the marks are.
    pub fn sites(&self) -> impl Iterator<Item = &ResolvedMark> {
        self.probes.sites()
    }

    /// Report to the scheduler which slot of the hint page is a thread's.
    pub fn slot_setter(&self) -> Result<SlotSetter> {
        let fd = self.skel.progs.tl_set_slot.as_fd().try_clone_to_owned();
        Ok(SlotSetter(fd.map_err(|e| Error::failed("cannot copy a file descriptor", e))?))
    }

    /// Say that a task is scalar until it proves wide; its children inherit that.
    pub fn classify_scalar(&self, tid: u32) -> Result<()> {
        let err = run(&self.skel.progs.tl_classify_scalar, &mut tid.to_ne_bytes())?;
        if err != 0 {
            return Err(Error::failed(format!("cannot classify task {tid}"), errno_text(err)));
        }
        Ok(())
    }

    /// The maps through which applications send hints.
    pub fn hint_maps(&self) -> Result<HintMaps> {
        let copy = |fd: BorrowedFd<'_>| {
            fd.try_clone_to_owned().map_err(|e| Error::failed("cannot copy a file descriptor", e))
        };
        let maps = &self.skel.maps;
        Ok(HintMaps {
            board: copy(maps.hint_board.as_fd())?,
            areas: copy(maps.hint_areas.as_fd())?,
        })
    }

    /// Shows applications a scheduler at work; they hear of CPU classes by the board too.
    pub fn publish(&self, rest_below_ns: u64, nr_cpus: u32, lacks: [u16; 4]) -> Result<()> {
        let mut args = [0u8; 24];
        args[..8].copy_from_slice(&rest_below_ns.to_ne_bytes());
        args[8..12].copy_from_slice(&nr_cpus.to_ne_bytes());
        for (bytes, lacks_q10) in args[16..].chunks_exact_mut(2).zip(lacks) {
            bytes.copy_from_slice(&lacks_q10.to_ne_bytes());
        }
        match run(&self.skel.progs.tl_publish, &mut args)? {
            0 => Ok(()),
            err => Err(Error::failed("cannot publish the hint board", errno_text(err))),
        }
    }

    /// Counters of every CPU.
    pub fn counters(&self, nr_cpus: usize) -> Vec<CpuCounters> {
        let cpus = &raw const self.bss().cpus;
        (0..nr_cpus.min(policy::CPUS_MAX))
            // SAFETY: in bounds of the mapped array; the kernel writes it concurrently, so each
            // counter is read as it is at that moment.
            .map(|cpu| unsafe { ptr::read_volatile((cpus as *const CpuCounters).add(cpu)) })
            .collect()
    }

    /// What the tasks have done that ran since then, in [`monotonic_ns`]'s time.
    pub fn tasks(&self, since_ns: u64) -> Result<LaneTasks> {
        let failed = |e: String| Error::failed("cannot list the machine's tasks", e);
        let now_ns = monotonic_ns();
        let link = self.skel.progs.tl_list_tasks.attach().map_err(|e| failed(format!("{e:#}")))?;
        tasks::list(&link, since_ns, now_ns).map_err(|e| failed(e.to_string()))
    }

    /// The tasks that may not run everywhere.
    pub fn bound_tasks(&self) -> Result<Vec<BoundTask>> {
        let failed = |e: String| Error::failed("cannot list the machine's bound tasks", e);
        let link = self.skel.progs.tl_list_bound.attach().map_err(|e| failed(format!("{e:#}")))?;
        bound::list(&link).map_err(|e| failed(e.to_string()))
    }

    /// How it ended, if it has.
    pub fn ended(&self) -> Option<Ended> {
        // SAFETY: a field of the mapped section; written once, by the kernel, kind last.
        let exit = unsafe { ptr::read_volatile(&raw const self.bss().exited) };
        Ended::of(&exit)
    }

    /// Give the machine back, and say why the scheduler ended.
    pub fn detach(&mut self) -> Option<Ended> {
        self.probes.clear();
        self.syscall_links.clear();
        self.trap_link = None;
        self.bell_link = None;
        self.score_links.clear();
        self.scheduler_link = None;
        self.withdraw();
        self.ended().or_else(|| self.left.take()?.ended)
    }

    /// A scheduler that was away sees no end of its own, by which it would clear the board.
    fn withdraw(&mut self) {
        if self.is_away() {
            // Without an answer the board is an orphan, which libraries find out.
            _ = run(&self.skel.progs.tl_withdraw, &mut []);
        }
    }

    /// How often the kernel has left out a program of ours at a marked function.
    pub fn probes_missed(&self) -> u64 {
        probes::missed(&self.skel.progs)
    }

    fn bss(&self) -> &types::bss {
        self.skel.maps.bss_data.as_deref().expect("the skeleton maps .bss")
    }

    fn bss_mut(&mut self) -> &mut types::bss {
        self.skel.maps.bss_data.as_deref_mut().expect("the skeleton maps .bss")
    }

    fn store_settings(&mut self, config: &Config) {
        let cfg = settings_of(config, self.bss().cfg.counts_q10);
        // SAFETY: a field of the mapped section; the kernel only reads it, value by value.
        unsafe { ptr::write_volatile(&raw mut self.bss_mut().cfg, cfg) };
    }

    fn store_classes(&mut self, classes: &[u8]) {
        let want = &mut self.bss_mut().want_class;
        let n = classes.len().min(want.len());
        want[..n].copy_from_slice(&classes[..n]);
    }

    fn ended_note(&self) -> String {
        self.ended().map(|e| format!(" ({}: {})", e.reason, e.message)).unwrap_or_default()
    }
}

fn settings_of(config: &Config, counts_q10: [u16; NR_PARTIES]) -> types::tl_cfg {
    let remigrate = config.remigrate;
    types::tl_cfg {
        slice_ns: config.slice_ns,
        slice_wide_ns: config.slice_wide_ns,
        wide_timeout_ns: config.wide_timeout_ns,
        rest_below_ns: config.rest_below_ns,
        remigrate_timeout_ns: remigrate.timeout_ns.unwrap_or(0),
        remigrate: policy::Remigrate {
            syscall_entry: remigrate.syscall_entry,
            syscall_return: remigrate.syscall_return,
            context_switch: remigrate.context_switch,
            timeout: remigrate.timeout_ns.is_some(),
            gap: remigrate.gap,
            last_syscall: remigrate.last_syscall,
        }
        .bits(),
        unclassified: match config.unclassified {
            Unclassified::Default => policy::TYPE_DEFAULT,
            Unclassified::Scalar => policy::TYPE_SCALAR,
        },
        counts_q10,
    }
}

fn load_error(e: libbpf_rs::Error) -> Error {
    Error::failed("cannot load the scheduler's BPF programs", format!("{e:#}"))
}
