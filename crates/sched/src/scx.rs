// SPDX-License-Identifier: MIT OR Apache-2.0
//! The BPF scheduler as an object: load, attach, change, count, and why it ended.
//!
//! The scheduler lives as long as its struct_ops link. The link is a file descriptor of this
//! process, so any end of the process, kill -9 included, gives the machine back to the kernel's
//! own scheduler.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd};
use std::ptr;

use libbpf_rs::btf::{self, Btf};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, OpenObject, ProgramMut, UprobeMultiOpts, UprobeOpts, libbpf_sys as sys};
use machine::Topology;
use report::lane::LaneTasks;

use crate::bpf::{MainSkel, MainSkelBuilder, OpenMainSkel, types};
use crate::clock::monotonic_ns;
use crate::config::{Components, Config, Unclassified};
use crate::error::{Error, Result};
use crate::groups::Support;
use crate::hints::Area;
use crate::layout;
use crate::levels;
use crate::marks::ResolvedMark;
use crate::scores;
use crate::tasks;

/// Counters of one CPU; see bpf/lane.h for the meaning of each field.
pub type CpuCounters = types::tl_cpu;

/// What tests make the scheduler do wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// Report an impossible state after some ticks.
    Error,
    /// Serve no queue, so that the kernel's watchdog must step in.
    Stall,
    /// Do without uprobe sessions, as a kernel before 6.13 must.
    NoSessions,
}

/// Why the scheduler is not there any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The kernel's `enum scx_exit_kind`; 64..1023 are orderly, 1024 and above errors.
    pub kind: u32,
    /// Exit code given with it.
    pub code: i64,
    /// The kernel's words for the kind.
    pub reason: String,
    /// Details.
    pub message: String,
}

/// The kernel's functions that run uprobe programs.
const UPROBE_DONE: [&str; 3] = ["uprobe_notify_resume", "__x64_sys_uretprobe", "__x64_sys_uprobe"];

/// `SCX_ECODE_ACT_RESTART`: the kernel asks for the scheduler to be loaded again.
const EXIT_CODE_RESTART: i64 = 1 << 48;
const EXIT_KIND_ERROR: u32 = 1024;

impl Ended {
    /// CPUs came or went: load again with the new topology.
    pub fn wants_restart(&self) -> bool {
        self.code & EXIT_CODE_RESTART != 0
    }

    /// The scheduler was thrown out for an error.
    pub fn is_error(&self) -> bool {
        self.kind >= EXIT_KIND_ERROR
    }
}

/// A loaded scheduler.
pub struct Scheduler {
    skel: MainSkel<'static>,
    // Links detach when dropped; the scheduler itself last.
    mark_links: Vec<(ResolvedMark, Vec<Link>)>,
    uprobe_done: Vec<Link>,
    syscall_links: Vec<Link>,
    has_sections: bool,
    trap_link: Option<Link>,
    bell_link: Option<Link>,
    score_link: Option<Link>,
    scheduler_link: Option<Link>,
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
        ops.hotplug_seq = hw::sched_ext::hotplug_seq();
        Support::of_this_kernel().fit(ops);
        let skel = open.load().map_err(load_error)?;
        if hints.is_none() {
            // From now on only the programs write it; see bpf/hint_page.h.
            let failed = |e| Error::failed("cannot make the hint board read-only", e);
            freeze(skel.maps.hint_board.as_fd()).map_err(failed)?;
        }
        let mut scheduler = Scheduler {
            skel,
            mark_links: Vec::new(),
            uprobe_done: Vec::new(),
            syscall_links: Vec::new(),
            has_sections: false,
            trap_link: None,
            bell_link: None,
            score_link: None,
            scheduler_link: None,
        };
        if let Some(counters) = counters {
            levels::put(&scheduler.skel.maps.level_counters, counters)?;
        }
        scheduler.store_settings(config);
        Ok(scheduler)
    }

    /// Take over from the kernel's scheduler. `classes` has one entry per CPU.
    pub fn attach(&mut self, classes: &[u8]) -> Result<()> {
        self.store_classes(classes);
        let link = self.skel.maps.lane_ops.attach_struct_ops().map_err(|e| {
            Error::failed("cannot attach the scheduler", format!("{e:#}{}", self.ended_note()))
        })?;
        self.scheduler_link = Some(link);
        if self.skel.progs.tl_target_bell.autoload() {
            // A kernel that cannot attach to its functions is no reason to do without a scheduler:
            // there are ticks.
            self.bell_link = self.skel.progs.tl_target_bell.attach().ok();
        }
        if self.skel.progs.tl_feed_score.autoload() {
            let link = self.skel.progs.tl_feed_score.attach();
            let link = link.map_err(|e| Error::failed("cannot watch switches for scores", e))?;
            self.score_link = Some(link);
        }
        if hw::sched_ext::has_trap_module() {
            let link = self.skel.progs.tl_trap.attach();
            self.trap_link =
                Some(link.map_err(|e| Error::failed("cannot use the trap module's event", e))?);
        }
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

    fn watch_syscalls(&mut self, config: &Config) -> Result<()> {
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

    /// Count what levels cost other code, or do not (bpf/exposure.bpf.h).
    pub fn watch_exposure(&mut self, watch: bool) {
        // SAFETY: a field of the mapped section; the kernel only reads it.
        unsafe { ptr::write_volatile(&raw mut self.bss_mut().watches, watch.into()) };
    }

    /// Watch a marked function from now on.
    pub fn add_mark(&mut self, mark: &ResolvedMark) -> Result<()> {
        if self.uprobe_done.is_empty() {
            self.attach_uprobe_done()?;
        }
        let progs = &self.skel.progs;
        let links = if progs.tl_mark_session.autoload() {
            vec![attach_session(&progs.tl_mark_session, mark)?]
        } else {
            let enter = attach_probe(&progs.tl_mark_enter, mark, false)?;
            vec![attach_probe(&progs.tl_mark_return, mark, true)?, enter]
        };
        self.mark_links.push((mark.clone(), links));
        Ok(())
    }

    /// Stop watching the marks for which `matches` holds; returns how many there were.
    pub fn remove_marks(&mut self, matches: impl Fn(&ResolvedMark) -> bool) -> usize {
        let before = self.mark_links.len();
        self.mark_links.retain(|(mark, _)| !matches(mark));
        before - self.mark_links.len()
    }

    /// The marks that are watched.
    pub fn marks(&self) -> impl Iterator<Item = &ResolvedMark> {
        self.mark_links.iter().map(|(mark, _)| mark)
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
    pub fn publish(&self, rest_below_ns: u64, nr_cpus: u32) -> Result<()> {
        let mut args = [0u8; 16];
        args[..8].copy_from_slice(&rest_below_ns.to_ne_bytes());
        args[8..12].copy_from_slice(&nr_cpus.to_ne_bytes());
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

    /// How it ended, if it has.
    pub fn ended(&self) -> Option<Ended> {
        // SAFETY: a field of the mapped section; written once, by the kernel, kind last.
        let exit = unsafe { ptr::read_volatile(&raw const self.bss().exited) };
        (exit.kind != 0).then(|| Ended {
            kind: exit.kind,
            code: exit.code,
            reason: c_text(&exit.reason),
            message: c_text(&exit.message),
        })
    }

    /// Give the machine back, and say why the scheduler ended.
    pub fn detach(&mut self) -> Option<Ended> {
        self.mark_links.clear();
        self.uprobe_done.clear();
        self.syscall_links.clear();
        self.trap_link = None;
        self.bell_link = None;
        self.score_link = None;
        self.scheduler_link = None;
        self.ended()
    }

    /// How often the kernel has left out a program of ours at a marked function.
    pub fn probes_missed(&self) -> u64 {
        let progs = &self.skel.progs;
        let here = [
            &progs.tl_mark_session,
            &progs.tl_mark_enter,
            &progs.tl_mark_return,
            &progs.tl_uprobe_over,
            &progs.tl_look_bell,
            &progs.tl_uprobe_done,
            &progs.tl_uretprobe_syscall_done,
            &progs.tl_uprobe_syscall_done,
        ];
        here.iter()
            .filter(|program| program.autoload())
            .map(|program| missed(program.as_fd()))
            .sum()
    }

    fn bss(&self) -> &types::bss {
        self.skel.maps.bss_data.as_deref().expect("the skeleton maps .bss")
    }

    fn bss_mut(&mut self) -> &mut types::bss {
        self.skel.maps.bss_data.as_deref_mut().expect("the skeleton maps .bss")
    }

    fn store_settings(&mut self, config: &Config) {
        let cfg = settings_of(config);
        // SAFETY: a field of the mapped section; the kernel only reads it, value by value.
        unsafe { ptr::write_volatile(&raw mut self.bss_mut().cfg, cfg) };
    }

    fn store_classes(&mut self, classes: &[u8]) {
        let want = &mut self.bss_mut().want_class;
        let n = classes.len().min(want.len());
        want[..n].copy_from_slice(&classes[..n]);
    }

    /// Watch the end of the kernel's uprobe handling; see bpf/leave.bpf.h for the two methods.
    fn attach_uprobe_done(&mut self) -> Result<()> {
        let progs = &self.skel.progs;
        if progs.tl_look_bell.autoload() {
            let done = [
                (&progs.tl_uprobe_done, UPROBE_DONE[0]),
                (&progs.tl_uretprobe_syscall_done, UPROBE_DONE[1]),
                (&progs.tl_uprobe_syscall_done, UPROBE_DONE[2]),
            ];
            let here = done.iter().filter(|(program, _)| program.autoload());
            let functions: Vec<&str> = here.map(|(_, function)| *function).collect();
            let bell = progs.tl_look_bell.attach();
            let over = progs.tl_uprobe_over.attach_kprobe_multi(true, functions);
            if let (Ok(bell), Ok(over)) = (bell, over) {
                self.uprobe_done.extend([over, bell]);
                return Ok(());
            }
        }
        for program in
            [&progs.tl_uprobe_done, &progs.tl_uretprobe_syscall_done, &progs.tl_uprobe_syscall_done]
        {
            if program.autoload() {
                let link = program
                    .attach()
                    .map_err(|e| Error::failed("cannot watch the end of uprobes", e))?;
                self.uprobe_done.push(link);
            }
        }
        Ok(())
    }

    fn ended_note(&self) -> String {
        self.ended().map(|e| format!(" ({}: {})", e.reason, e.message)).unwrap_or_default()
    }
}

/// Assigns slots of the hint page to threads, from the hint server's thread.
pub struct SlotSetter(std::os::fd::OwnedFd);

impl SlotSetter {
    /// The slot `slot` is thread `tid`'s, of process `tgid` (initial PID namespace).
    pub fn set(&self, tid: u32, tgid: u32, slot: u32) -> std::io::Result<()> {
        let mut args = [0u8; 12];
        args[..4].copy_from_slice(&tid.to_ne_bytes());
        args[4..8].copy_from_slice(&tgid.to_ne_bytes());
        args[8..].copy_from_slice(&slot.to_ne_bytes());
        match test_run(self.0.as_fd(), &mut args)? {
            0 => Ok(()),
            err => Err(std::io::Error::from_raw_os_error(-err)),
        }
    }
}

/// What applications have mapped of a scheduler, or will.
pub struct HintMaps {
    /// Frozen.
    pub board: std::os::fd::OwnedFd,
    /// A map of maps.
    areas: std::os::fd::OwnedFd,
}

impl HintMaps {
    /// New areas, which the scheduler finds by their numbers from then on. The kernel waits for
    /// programs that may see the old ones: once for all, from Linux 6.8 on.
    pub fn new_areas(&self, numbers: &[u32]) -> std::io::Result<Vec<Area>> {
        let fds = numbers.iter().map(|_| new_area()).collect::<std::io::Result<Vec<_>>>()?;
        let values: Vec<i32> = fds.iter().map(AsRawFd::as_raw_fd).collect();
        let mut count = numbers.len() as u32;
        // SAFETY: keys and values are four bytes each, as the map has them, and as many as the
        // count says.
        let error = unsafe {
            let (keys, values) = (numbers.as_ptr().cast(), values.as_ptr().cast());
            let (map, no_opts) = (self.areas.as_raw_fd(), std::ptr::null());
            sys::bpf_map_update_batch(map, keys, values, &mut count, no_opts)
        };
        if error != 0 {
            return Err(std::io::Error::from_raw_os_error(-error));
        }
        fds.into_iter().map(Area::from_fd).collect()
    }
}

/// A map that an area is in.
fn new_area() -> std::io::Result<std::os::fd::OwnedFd> {
    let opts = sys::bpf_map_create_opts {
        sz: size_of::<sys::bpf_map_create_opts>() as _,
        map_flags: sys::BPF_F_MMAPABLE,
        ..Default::default()
    };
    let bytes = size_of::<turbolane_hint::page::Area>() as u32;
    // SAFETY: reads the name and the options; a descriptor that comes back is new and ours.
    unsafe {
        let (kind, name) = (sys::BPF_MAP_TYPE_ARRAY, c"hint_area".as_ptr());
        match sys::bpf_map_create(kind, name, 4, bytes, 1, &opts) {
            fd if fd >= 0 => Ok(std::os::fd::OwnedFd::from_raw_fd(fd)),
            error => Err(std::io::Error::from_raw_os_error(-error)),
        }
    }
}

fn freeze(map: BorrowedFd<'_>) -> std::io::Result<()> {
    // SAFETY: no memory of ours.
    match unsafe { sys::bpf_map_freeze(map.as_raw_fd()) } {
        0 => Ok(()),
        error => Err(std::io::Error::from_raw_os_error(-error)),
    }
}

fn fill_constants(open: &mut OpenMainSkel<'_>, topology: &Topology, fault: Fault) {
    let rodata = open.maps.rodata_data.as_deref_mut().expect("the skeleton maps .rodata");
    rodata.nr_cpus = layout::nr_cpus(topology) as u32;
    let places = layout::Places::of(topology);
    rodata.nr_shards = places.shards.len() as u32;
    rodata.nr_scopes = places.scopes.len() as u32;
    rodata.loader_tgid = std::process::id() as i32;
    rodata.fault = match fault {
        Fault::None | Fault::NoSessions => 0,
        Fault::Error => 1,
        Fault::Stall => 2,
    };
    rodata.cpu_at[..places.cpus.len()].copy_from_slice(&places.cpus);
    for (shard, order) in places.order.iter().enumerate() {
        rodata.shard_order[shard][..order.len()].copy_from_slice(order);
    }
    let range = |&(first, nr): &(u16, u16)| types::tl_range { first, nr };
    for (to, shard) in rodata.shard_cpus.iter_mut().zip(&places.shards) {
        *to = range(shard);
    }
    for (to, scope) in rodata.scope_cpus.iter_mut().zip(&places.scopes) {
        *to = range(scope);
    }
    let bss = open.maps.bss_data.as_deref_mut().expect("the skeleton maps .bss");
    for (shard, &(first, nr)) in places.shards.iter().enumerate() {
        for at in usize::from(first)..usize::from(first + nr) {
            let cpu = &mut bss.cpus[usize::from(places.cpus[at])];
            cpu.shard = shard as u32;
            cpu.scope = places.scope_of[at];
            (cpu.number, cpu.core, cpu.sibling) = core_of(topology, places.cpus[at]);
            cpu.running_queue = policy::QUEUE_NONE;
        }
    }
}

/// Of a CPU: itself, the lowest CPU of its core, and the next one there, itself if it is alone.
fn core_of(topology: &Topology, cpu: u16) -> (u16, u16, u16) {
    let core = topology.cores().iter().find(|core| core.cpus.contains(cpu.into()));
    let siblings: Vec<u16> =
        core.map_or(vec![cpu], |core| core.cpus.iter().map(|cpu| cpu as u16).collect());
    let at = siblings.iter().position(|&sibling| sibling == cpu).unwrap_or(0);
    (cpu, siblings[0], siblings[(at + 1) % siblings.len()])
}

/// Leave out the programs whose attach point this kernel does not have.
fn choose_programs(open: &mut OpenMainSkel<'_>, has_scores: bool, fault: Fault) -> Result<()> {
    let btf = Btf::from_vmlinux().map_err(|e| Error::failed("cannot read the kernel's BTF", e))?;
    let has = |name: &str| btf.type_by_name::<btf::types::Func<'_>>(name).is_some();
    let progs = &mut open.progs;
    progs.tl_uprobe_done.set_autoload(has(UPROBE_DONE[0]));
    progs.tl_uretprobe_syscall_done.set_autoload(has(UPROBE_DONE[1]));
    progs.tl_uprobe_syscall_done.set_autoload(has(UPROBE_DONE[2]));
    progs.tl_syscall_enter.set_autoload(true);
    progs.tl_syscall_exit.set_autoload(true);
    // Without the bell targets are seen at ticks; without the function, never.
    let hears = has("scx_bpf_cpuperf_set") && has("__x64_sys_sched_get_priority_min");
    progs.tl_target_bell.set_autoload(hears);
    progs.tl_feed_score.set_autoload(has_scores);
    progs.tl_trap.set_autoload(hw::sched_ext::has_trap_module());
    let has_sessions = has_uprobe_sessions(&btf) && fault != Fault::NoSessions;
    progs.tl_mark_session.set_autoload(has_sessions);
    let rings = has("bpf_get_numa_node_id") && fault != Fault::NoSessions;
    progs.tl_look_bell.set_autoload(rings);
    progs.tl_uprobe_over.set_autoload(rings);
    progs.tl_mark_enter.set_autoload(!has_sessions);
    progs.tl_mark_return.set_autoload(!has_sessions);
    Ok(())
}

/// Whether one program can watch a function's entry and return: Linux 6.13 and later.
fn has_uprobe_sessions(btf: &Btf<'_>) -> bool {
    let kinds = btf.type_by_name::<btf::types::Enum<'_>>("bpf_attach_type");
    let name = "BPF_TRACE_UPROBE_SESSION";
    kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind.name.is_some_and(|n| n == name)))
}

fn settings_of(config: &Config) -> types::tl_cfg {
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
    }
}

fn attach_session(program: &ProgramMut<'_>, mark: &ResolvedMark) -> Result<Link> {
    let opts = UprobeMultiOpts {
        offsets: vec![mark.offset as usize],
        cookies: vec![mark.rule().0],
        session: true,
        ..Default::default()
    };
    let placed = program.attach_uprobe_multi_with_opts(-1, &mark.path, "", opts);
    placed.map_err(|e| not_placed(mark, &e))
}

fn attach_probe(program: &ProgramMut<'_>, mark: &ResolvedMark, retprobe: bool) -> Result<Link> {
    let opts = UprobeOpts { cookie: mark.rule().0, retprobe, ..Default::default() };
    let placed = program.attach_uprobe_with_opts(-1, &mark.path, mark.offset as usize, opts);
    placed.map_err(|e| not_placed(mark, &e))
}

fn not_placed(mark: &ResolvedMark, error: &libbpf_rs::Error) -> Error {
    let place = format!("{}+{:#x}", mark.path.display(), mark.offset);
    let name = mark.symbol.as_deref().unwrap_or("no symbol");
    Error::failed(format!("cannot place a probe at {place} ({name})"), format!("{error:#}"))
}

fn run(program: &ProgramMut<'_>, args: &mut [u8]) -> Result<i32> {
    test_run(program.as_fd(), args)
        .map_err(|e| Error::failed("cannot run a program of the scheduler", e))
}

/// Run a `SEC("syscall")` program and return what it returned.
pub(crate) fn test_run(program: BorrowedFd<'_>, args: &mut [u8]) -> std::io::Result<i32> {
    let mut opts = libbpf_rs::libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_rs::libbpf_sys::bpf_test_run_opts>() as _,
        ctx_in: if args.is_empty() { ptr::null() } else { args.as_ptr().cast() },
        ctx_size_in: args.len() as u32,
        ..Default::default()
    };
    // SAFETY: the descriptor is a program's, opts outlives the call and names args' bounds.
    let err = unsafe {
        libbpf_rs::libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut opts)
    };
    if err != 0 {
        return Err(std::io::Error::from_raw_os_error(-err));
    }
    Ok(opts.retval as i32)
}

/// How often the kernel has left out this program; 0 where it does not say so.
fn missed(program: BorrowedFd<'_>) -> u64 {
    let mut info = sys::bpf_prog_info::default();
    let mut size = size_of_val(&info) as u32;
    // SAFETY: the descriptor is a program's, and the kernel writes no more than `size` bytes.
    let err =
        unsafe { sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut size) };
    if err == 0 { info.recursion_misses } else { 0 }
}

fn load_error(e: libbpf_rs::Error) -> Error {
    Error::failed("cannot load the scheduler's BPF programs", format!("{e:#}"))
}

fn errno_text(err: i32) -> String {
    std::io::Error::from_raw_os_error(-err).to_string()
}

fn c_text(bytes: &[i8]) -> String {
    let bytes: Vec<u8> = bytes.iter().take_while(|b| **b != 0).map(|b| *b as u8).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
