// SPDX-License-Identifier: MIT OR Apache-2.0
//! The recorder's programs in the kernel: load, attach, set the tasks to follow.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::slice;

use cpumodel::CpuSet;
use libbpf_rs::btf::{self, Btf};
use libbpf_rs::libbpf_sys;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, MapType, OpenObject, ProgramMut, UprobeOpts};
use report::problem::Problem;

use super::bpf::{OpenTraceSkel, TraceSkel, TraceSkelBuilder, types};
use super::clock;
use super::log::{Counters, Logs, Slots};
use super::tasks::{Task, descendants, read_tasks};
use super::{BUFFER_BYTES, BUFFERS_BYTES_MAX, Options, Whom};
use crate::error::{Error, Result};
use crate::levels;
use crate::marks::ResolvedMark;
use crate::scx::test_run;

/// Smallest buffer, bytes, and shortest ring: a page.
const BUFFER_BYTES_MIN: usize = 4096;
const RING_BYTES_MIN: usize = 4096;

/// What may be recorded in addition to what the user requests.
#[derive(Clone, Copy)]
struct Wanted {
    /// Changes of affinities.
    affinities: bool,
    /// Licence levels.
    levels: bool,
}

/// The programs.
pub(super) struct Programs {
    skel: TraceSkel<'static>,
    links: Vec<Link>,
    /// In the skeleton's mapping, one for each CPU.
    counters: NonNull<Counters>,
    nr_cpus: usize,
}

impl Programs {
    /// Loads them, without effect yet, and makes what they write to. `lane` are the scheduler's
    /// tasks, `counters` those of licence levels.
    pub(super) fn load(
        options: &Options,
        nr_cpus: usize,
        lane: Option<&MapHandle>,
        counters: Option<levels::Opened>,
    ) -> Result<(Self, Logs, Vec<MapHandle>)> {
        // Some kernels know the function whose exit reports affinities, and let no one watch it
        // (seen: -EPERM on a 6.18 without direct ftrace calls). Then affinities are those of the
        // begin.
        let wanted = |affinities| Wanted { affinities, levels: counters.is_some() };
        let room = Room::of(options, nr_cpus);
        let slots = room.make_slots()?;
        let load = |affinities| load(options, &room, &slots, lane, wanted(affinities));
        let mut skel = match quietly(|| load(true)) {
            Err(_) => load(false)?,
            Ok(skel) => skel,
        };
        if let Some(counters) = counters {
            levels::put(&skel.maps.level_counters, counters)?;
        }
        let rings = room.make_rings(&skel)?;
        let slots = Slots::map(slots.as_fd(), nr_cpus, room.slots_shift);
        let slots = slots.map_err(|e| Error::failed("cannot map the recorder's logs", e))?;
        let bss = skel.maps.bss_data.as_deref_mut().expect("the skeleton maps .bss");
        assert!(nr_cpus <= bss.logs.len(), "a log for each CPU");
        let counters = NonNull::from(&mut bss.logs).cast();
        let programs = Programs { skel, links: Vec::new(), counters, nr_cpus };
        Ok((programs, Logs::new(slots, nr_cpus), rings))
    }

    /// Changes of affinities are recorded.
    pub(super) fn sees_affinities(&self) -> bool {
        self.skel.progs.tl_trace_affinity.autoload()
    }

    /// Lets them record.
    pub(super) fn attach(&mut self, options: &Options, online: &CpuSet) -> Result<()> {
        for program in tracing(&self.skel) {
            let what = format!("cannot attach {}", program.name().to_string_lossy());
            self.links.push(program.attach().map_err(|e| Error::failed(what, format!("{e:#}")))?);
        }
        if options.stalls {
            let beat = &self.skel.progs.tl_trace_beat;
            self.links.extend(clock::attach(beat, online, clock::BEAT_NS)?);
        }
        let levels = &self.skel.progs.tl_trace_levels;
        if levels.autoload() {
            self.links.extend(clock::attach(levels, online, clock::LEVELS_NS)?);
        }
        for (number, mark) in options.marks.iter().enumerate() {
            let progs = &self.skel.progs;
            let (enter, ret) = (&progs.tl_trace_mark, &progs.tl_trace_mark_return);
            // The return first: an entry without its return would look endless.
            self.links.push(attach_mark(ret, number, mark, true)?);
            self.links.push(attach_mark(enter, number, mark, false)?);
        }
        for (at, section) in options.sections.iter().enumerate() {
            let (number, progs) = (options.marks.len() + at, &self.skel.progs);
            // What a return is to a function, the entry of another is to a section.
            let (begin, end) = (&progs.tl_trace_section, &progs.tl_trace_section_end);
            for place in &section.ends {
                self.links.push(attach_mark(end, number, place, false)?);
            }
            self.links.push(attach_mark(begin, number, &section.begin, false)?);
        }
        Ok(())
    }

    /// Nothing is recorded any more; the rings can be read to their end.
    pub(super) fn detach(&mut self) {
        self.links.clear();
    }

    /// Whether a task is recorded, and what it forks from now on.
    pub(super) fn follow(&self, tid: u32, follow: bool) -> Result<()> {
        let mut args = [tid.to_ne_bytes(), u32::from(follow).to_ne_bytes()].concat();
        let failed = |cause: String| Error::failed(format!("cannot follow task {tid}"), cause);
        match test_run(self.skel.progs.tl_trace_follow.as_fd(), &mut args) {
            Ok(0) => Ok(()),
            Ok(errno) => Err(failed(std::io::Error::from_raw_os_error(-errno).to_string())),
            Err(error) => Err(failed(error.to_string())),
        }
    }

    /// Follows the threads of a process and of its descendants; returns which. A fork in between is
    /// followed by itself if its parent was, and found in another round if not.
    pub(super) fn follow_tree(&self, whom: &Whom) -> Result<HashSet<u32>> {
        let mut followed = HashSet::new();
        let Whom::Process(root) = *whom else { return Ok(followed) };
        loop {
            let tasks = self.tasks()?;
            let family = descendants(&tasks, root);
            let new: Vec<u32> = family.difference(&followed).copied().collect();
            if family.is_empty() {
                let what = format!("cannot record process {root}");
                let next = "give the number of a running process: see pidof, pgrep";
                return Err(Error::BadInput(Problem::new(what, "there is no such process", next)));
            }
            if new.is_empty() {
                return Ok(followed);
            }
            for tid in new {
                // One that has ended meanwhile has nothing to be recorded.
                _ = self.follow(tid, true);
                followed.insert(tid);
            }
        }
    }

    /// All tasks that there are.
    pub(super) fn tasks(&self) -> Result<Vec<Task>> {
        let failed = |e: String| Error::failed("cannot list the machine's tasks", e);
        let link = self.skel.progs.tl_trace_tasks.attach().map_err(|e| failed(e.to_string()))?;
        read_tasks(&link).map_err(|e| failed(e.to_string()))
    }

    /// Of the CPUs' logs.
    pub(super) fn counters(&self) -> &[Counters] {
        // SAFETY: mapped as long as the skeleton is there, and large enough, as `load` has seen;
        // the kernel writes there too, so all of it is atomic.
        unsafe { slice::from_raw_parts(self.counters.as_ptr(), self.nr_cpus) }
    }

    /// Runs of programs that the kernel left out.
    pub(super) fn skipped(&self) -> u64 {
        tracing(&self.skel).into_iter().map(recursion_misses).sum()
    }
}

/// The programs that watch the kernel, as far as they are wanted here; marks' are not among them.
fn tracing<'a>(skel: &'a TraceSkel<'static>) -> Vec<&'a ProgramMut<'static>> {
    let progs = &skel.progs;
    let all = [
        &progs.tl_trace_switch,
        &progs.tl_trace_wake,
        &progs.tl_trace_wake_new,
        &progs.tl_trace_migrate,
        &progs.tl_trace_fork,
        &progs.tl_trace_exit,
        &progs.tl_trace_rename,
        &progs.tl_trace_exec,
        &progs.tl_trace_affinity,
        &progs.tl_trace_syscall,
        &progs.tl_trace_sysret,
        &progs.tl_trace_trap,
    ];
    all.into_iter().filter(|program| program.autoload()).collect()
}

/// Without libbpf's own words about what does not work.
fn quietly<T>(work: impl FnOnce() -> T) -> T {
    let before = libbpf_rs::set_print(None);
    let done = work();
    libbpf_rs::set_print(before);
    done
}

fn load(
    options: &Options,
    room: &Room,
    slots: &MapHandle,
    lane: Option<&MapHandle>,
    wanted: Wanted,
) -> Result<TraceSkel<'static>> {
    let object = Box::leak(Box::new(MaybeUninit::<OpenObject>::uninit()));
    let mut open = TraceSkelBuilder::default()
        .open(object)
        .map_err(|e| Error::failed("cannot open the recorder's BPF object", e))?;
    let rodata = open.maps.rodata_data.as_deref_mut().expect("the skeleton maps .rodata");
    rodata.everybody = u32::from(options.whom == Whom::Everybody);
    rodata.lane_known = u32::from(lane.is_some());
    rodata.stall_ns = clock::STALL_NS;
    rodata.nr_words = room.nr_cpus.div_ceil(64) as u32;
    rodata.slots_shift = room.slots_shift;
    rodata.has_levels = u32::from(wanted.levels);
    rodata.has_rules = u32::from(options.marks.iter().any(|mark| mark.filter.is_some()));
    choose(&mut open, options, wanted)?;
    let prepared = open.maps.rings.set_max_entries(room.nr_cpus as u32);
    let prepared = prepared.and_then(|()| open.maps.slots.reuse_fd(slots.as_fd()));
    prepared.map_err(|e| Error::failed("cannot prepare the recorder's logs", e))?;
    levels::make_room(&mut open.maps.level_counters, room.nr_cpus)?;
    if let Some(lane) = lane {
        let reused = open.maps.tasks.reuse_fd(lane.as_fd());
        reused.map_err(|e| Error::failed("cannot read the scheduler's tasks", e))?;
    }
    open.load().map_err(load_error)
}

/// Leaves out the programs that are not wanted, or whose attach point this kernel does not have.
fn choose(open: &mut OpenTraceSkel<'_>, options: &Options, wanted: Wanted) -> Result<()> {
    let btf = Btf::from_vmlinux().map_err(|e| Error::failed("cannot read the kernel's BTF", e))?;
    let has = |name: &str| btf.type_by_name::<btf::types::Func<'_>>(name).is_some();
    let progs = &mut open.progs;
    progs.tl_trace_affinity.set_autoload(wanted.affinities && has("set_cpus_allowed_common"));
    progs.tl_trace_beat.set_autoload(options.stalls);
    progs.tl_trace_levels.set_autoload(wanted.levels);
    progs.tl_trace_syscall.set_autoload(options.syscalls);
    progs.tl_trace_sysret.set_autoload(options.syscalls);
    progs.tl_trace_trap.set_autoload(hw::sched_ext::has_trap_module());
    Ok(())
}

fn attach_mark(
    program: &ProgramMut<'_>,
    number: usize,
    mark: &ResolvedMark,
    retprobe: bool,
) -> Result<Link> {
    let place = || format!("{}+{:#x}", mark.path.display(), mark.offset);
    let cannot = |why| Error::failed(format!("cannot place a probe at {}", place()), why);
    let number = u16::try_from(number).map_err(|_| cannot("there are 65536 before it".into()))?;
    let cookie = mark.rule().numbered(number).0;
    let opts = UprobeOpts { cookie, retprobe, ..Default::default() };
    let offset = mark.offset as usize;
    let (_open, path) = mark.open().map_err(|e| cannot(e.to_string()))?;
    let placed = program.attach_uprobe_with_opts(-1, path, offset, opts);
    placed.map_err(|e| cannot(format!("{e:#}")))
}

/// What the programs write to.
struct Room {
    nr_cpus: usize,
    /// Of a CPU, in all.
    bytes: usize,
    /// A CPU's log has 2^this slots.
    slots_shift: u32,
    /// A CPU's ring.
    ring_bytes: usize,
}

impl Room {
    fn of(options: &Options, nr_cpus: usize) -> Self {
        let share = (BUFFERS_BYTES_MAX / nr_cpus.max(1)).max(BUFFER_BYTES_MIN);
        // The largest power of two in the share.
        let largest = 1 << share.ilog2();
        let bytes = options.buffer_bytes.unwrap_or_else(|| BUFFER_BYTES.min(largest));
        // Three quarters are for the log, whose records are of 24 bytes.
        let slots_shift = (bytes / 32).ilog2();
        Room { nr_cpus, bytes, slots_shift, ring_bytes: (bytes / 8).max(RING_BYTES_MIN) }
    }

    fn refused(&self, error: libbpf_rs::Error) -> Error {
        let why = format!("{error:#}: {} bytes for each of {} CPUs", self.bytes, self.nr_cpus);
        let next = "make them smaller with --buffer";
        Error::Failed(Problem::new("cannot make the recorder's buffers", why, next))
    }

    fn make_slots(&self) -> Result<MapHandle> {
        // What has no number is too much for any machine: the kernel refuses it.
        let nr_slots = u32::try_from(self.nr_cpus << self.slots_shift).unwrap_or(u32::MAX);
        let opts = map_opts(libbpf_sys::BPF_F_MMAPABLE);
        let (name, bytes) = (Some(OsStr::new("slots")), size_of::<types::tl_trace_event>() as u32);
        let slots = MapHandle::create(MapType::Array, name, 4, bytes, nr_slots, &opts);
        slots.map_err(|e| self.refused(e))
    }

    fn make_rings(&self, skel: &TraceSkel<'_>) -> Result<Vec<MapHandle>> {
        let make = |cpu: usize| {
            let (name, bytes) = (Some(OsStr::new("tl_ring")), self.ring_bytes as u32);
            let ring = MapHandle::create(MapType::RingBuf, name, 0, 0, bytes, &map_opts(0))?;
            let fd = ring.as_fd().as_raw_fd().to_ne_bytes();
            skel.maps.rings.update(&(cpu as u32).to_ne_bytes(), &fd, MapFlags::ANY)?;
            Ok(ring)
        };
        (0..self.nr_cpus).map(|cpu| make(cpu).map_err(|e| self.refused(e))).collect()
    }
}

fn map_opts(flags: u32) -> libbpf_sys::bpf_map_create_opts {
    libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _,
        map_flags: flags,
        ..Default::default()
    }
}

/// How often the kernel left the program out because it ran on the same CPU already.
fn recursion_misses(program: &ProgramMut<'_>) -> u64 {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut length = size_of_val(&info) as u32;
    let fd = program.as_fd().as_raw_fd();
    // SAFETY: writes at most `length` bytes of the local; all pointers in it are null, with lengths
    // of 0.
    let err = unsafe { libbpf_sys::bpf_prog_get_info_by_fd(fd, &mut info, &mut length) };
    if err == 0 { info.recursion_misses } else { 0 }
}

fn load_error(e: libbpf_rs::Error) -> Error {
    let why = format!("{e:#}");
    let what = "cannot load the recorder's BPF programs";
    if e.kind() == libbpf_rs::ErrorKind::PermissionDenied {
        let next = "is the kernel locked down, or is this a container? See turbolane doctor";
        return Error::Unsupported(Problem::new(what, why, next));
    }
    Error::failed(what, why)
}
