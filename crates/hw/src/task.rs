// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads of other processes: what they are called here, whether they live, where they may run.
//!
//! A thread has a number in each PID namespace it is in, and knows only its own; the daemon, the
//! kernel's scheduler and `sched_setaffinity` need the number that counts *here*. Numbers are used
//! again, so a thread is named for good by its number together with its start time.
//!
//! Everything but [`set_affinity`] only reads. Errors are the kernel's; a thread that ended is
//! `ESRCH` or "not found".

use std::fs;
use std::io::{self, Error, ErrorKind};

use cpumodel::CpuSet;

/// Threads of a process that are looked at, at most: as many as can be registered in all.
const THREADS_MAX: usize = 16384;

/// What /proc says about a thread's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    state: char,
    flags: u64,
    /// CPU time, user and system.
    pub(crate) run_ticks: u64,
    pub(crate) start_ticks: u64,
    pub(crate) last_cpu: usize,
}

/// PF_KTHREAD (linux/sched.h).
const KERNEL_THREAD: u64 = 0x0020_0000;

impl Stat {
    fn is_alive(self) -> bool {
        !matches!(self.state, 'Z' | 'X' | 'x')
    }
}

/// What a first look for a thread came to.
pub enum Lookup {
    /// The thread's number here.
    Found(u32),
    /// The process is in another PID namespace: its threads have to be looked at.
    Search(Search),
}

/// A search in steps, for those who serve others meanwhile: a look costs about 20 us, and a process
/// may have thousands of threads.
pub struct Search {
    tgid: u32,
    ns_tid: u32,
    names: std::iter::Take<fs::ReadDir>,
}

/// Looks for the thread of process `tgid` (its number here) that its own PID namespace calls
/// `ns_tid`: one look, or the begin of a search.
pub fn look_up(tgid: u32, ns_tid: u32) -> io::Result<Lookup> {
    // Without containers, both numbers are the same: one look instead of a search.
    if innermost_tid(tgid, ns_tid).is_ok_and(|found| found == ns_tid) {
        return Ok(Lookup::Found(ns_tid));
    }
    let status = fs::read_to_string(format!("/proc/{tgid}/status"))?;
    if nr_numbers(&status) == 1 {
        // Nor has any other thread of the process a second number.
        return Err(Error::from_raw_os_error(libc::ESRCH));
    }
    Search::new(tgid, ns_tid).map(Lookup::Search)
}

impl Search {
    /// Begins with the process's first thread.
    pub fn new(tgid: u32, ns_tid: u32) -> io::Result<Search> {
        let names = fs::read_dir(format!("/proc/{tgid}/task"))?.take(THREADS_MAX);
        Ok(Search { tgid, ns_tid, names })
    }

    /// Looks at the next threads, at most so many: the one that was searched, or `None` to go on;
    /// `ESRCH` after the last.
    pub fn step(&mut self, looks: usize) -> io::Result<Option<u32>> {
        for _ in 0..looks {
            let name = self.names.next().ok_or_else(|| Error::from_raw_os_error(libc::ESRCH))??;
            let Some(tid) = name.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            if innermost_tid(self.tgid, tid).is_ok_and(|found| found == self.ns_tid) {
                return Ok(Some(tid));
            }
        }
        Ok(None)
    }
}

/// The threads of a process, in no order; not more than 16384 of them.
pub fn threads(tgid: u32) -> io::Result<Vec<u32>> {
    let names = fs::read_dir(format!("/proc/{tgid}/task"))?.take(THREADS_MAX);
    Ok(names.filter_map(|name| name.ok()?.file_name().to_str()?.parse().ok()).collect())
}

/// When the thread started, in clock ticks since boot: with the number, a name that is never used
/// again.
pub fn start_ticks(tid: u32) -> io::Result<u64> {
    stat(tid).map(|stat| stat.start_ticks)
}

/// The calling thread's number.
pub fn own_tid() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::gettid() }.unsigned_abs()
}

/// The threads of a process that run or wait for a CPU, each with the CPU on which it does.
pub fn running(tgid: u32) -> io::Result<Vec<(u32, usize)>> {
    let running = |tid: u32| {
        // One that has ended meanwhile does not run.
        let stat = stat(tid).ok().filter(|stat| stat.state == 'R')?;
        Some((tid, stat.last_cpu))
    };
    Ok(threads(tgid)?.into_iter().filter_map(running).collect())
}

/// True for a thread that a signal or a debugger has stopped.
pub fn task_stopped(tid: u32) -> io::Result<bool> {
    stat(tid).map(|stat| matches!(stat.state, 'T' | 't'))
}

/// True for a thread of the kernel.
pub fn is_kernel_thread(tid: u32) -> io::Result<bool> {
    stat(tid).map(|stat| stat.flags & KERNEL_THREAD != 0)
}

/// The process that the thread belongs to.
pub fn process_of(tid: u32) -> io::Result<u32> {
    status_number(tid, "Tgid:")
}

/// The process that started this one, or that has taken it over since; 0 for the first.
pub fn parent(pid: u32) -> io::Result<u32> {
    status_number(pid, "PPid:")
}

/// The number after this label in /proc/TID/status.
fn status_number(tid: u32, label: &str) -> io::Result<u32> {
    let status = fs::read_to_string(format!("/proc/{tid}/status"))?;
    let text = status.lines().find_map(|line| line.strip_prefix(label));
    text.and_then(|text| text.trim().parse().ok()).ok_or_else(|| ErrorKind::InvalidData.into())
}

/// The thread's name, as the kernel keeps it.
pub fn name(tid: u32) -> io::Result<String> {
    let name = fs::read(format!("/proc/{tid}/comm"))?;
    Ok(String::from_utf8_lossy(name.trim_ascii_end()).into_owned())
}

/// The CPU that the thread runs on, or ran on last.
pub fn last_cpu(tid: u32) -> io::Result<usize> {
    stat(tid).map(|stat| stat.last_cpu)
}

/// True while the number belongs to the process or thread that started then, even if it has ended
/// and no one has asked for its exit status: a process whose first thread has ended may have
/// others.
pub fn exists_since(tid: u32, start_ticks: u64) -> bool {
    stat(tid).is_ok_and(|stat| stat.start_ticks == start_ticks)
}

/// True while the thread lives; false for a zombie, which runs no more.
pub fn task_alive(tid: u32) -> bool {
    stat(tid).is_ok_and(|stat| stat.is_alive())
}

/// True while the thread that started then lives: its number may be someone else's by now.
pub fn lives_since(tid: u32, start_ticks: u64) -> bool {
    stat(tid).is_ok_and(|stat| stat.is_alive() && stat.start_ticks == start_ticks)
}

/// The CPUs the thread may run on.
pub fn get_affinity(tid: u32) -> io::Result<CpuSet> {
    let mut words = [0u64; cpumodel::MAX_CPUS / 64];
    let bytes = size_of_val(&words);
    // SAFETY: writes at most the given number of bytes to the local array.
    let result = unsafe { libc::sched_getaffinity(pid(tid)?, bytes, words.as_mut_ptr().cast()) };
    if result != 0 {
        return Err(Error::last_os_error());
    }
    Ok(CpuSet::of_words(words))
}

/// Lets the thread run on these CPUs only. Changes the machine.
pub fn set_affinity(tid: u32, cpus: &CpuSet) -> io::Result<()> {
    let words = cpus.words();
    // SAFETY: reads the given number of bytes of the set.
    let result =
        unsafe { libc::sched_setaffinity(pid(tid)?, size_of_val(words), words.as_ptr().cast()) };
    if result != 0 {
        return Err(Error::last_os_error());
    }
    Ok(())
}

/// 0 would mean the calling thread.
fn pid(tid: u32) -> io::Result<libc::pid_t> {
    match libc::pid_t::try_from(tid) {
        Ok(pid) if pid > 0 => Ok(pid),
        _ => Err(Error::from_raw_os_error(libc::ESRCH)),
    }
}

fn innermost_tid(tgid: u32, tid: u32) -> io::Result<u32> {
    let status = fs::read_to_string(format!("/proc/{tgid}/task/{tid}/status"))?;
    innermost_of(&status).ok_or_else(|| ErrorKind::InvalidData.into())
}

/// In how many PID namespaces, from this one on, the thread has a number.
fn nr_numbers(status: &str) -> usize {
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    line.map_or(0, |line| line.split_ascii_whitespace().count())
}

/// `NSpid:` lists the thread's numbers from this namespace (as /proc was mounted) to its own.
fn innermost_of(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_ascii_whitespace().next_back()?.parse().ok()
}

fn stat(tid: u32) -> io::Result<Stat> {
    let text = fs::read(format!("/proc/{tid}/stat"))?;
    stat_of(&text).ok_or_else(|| ErrorKind::InvalidData.into())
}

/// `tid (comm) state ... flags ... utime stime ... starttime ...` (proc_pid_stat(5), fields 3, 9,
/// 14, 15, 22 and 39). The name may hold anything, blanks, parentheses and bytes that are no UTF-8
/// included, so the fields are counted from its last parenthesis.
pub(crate) fn stat_of(text: &[u8]) -> Option<Stat> {
    let after_name = text.iter().rposition(|&byte| byte == b')')? + 1;
    let mut fields = std::str::from_utf8(&text[after_name..]).ok()?.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let flags = fields.nth(9 - 4)?.parse().ok()?;
    let user: u64 = fields.nth(14 - 10)?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    let start_ticks = fields.nth(22 - 16)?.parse().ok()?;
    let last_cpu = fields.nth(39 - 23)?.parse().ok()?;
    Some(Stat { state, flags, run_ticks: user + system, start_ticks, last_cpu })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The innermost number counts, whether there is one namespace or three.
    #[test]
    fn innermost_number() {
        assert_eq!(innermost_of("Name:\tx\nNStgid:\t9\nNSpid:\t77\nNSpgid:\t5\n"), Some(77));
        assert_eq!(innermost_of("NSpid:\t4000\t70\t3\n"), Some(3));
        assert_eq!(innermost_of("NSpid:\t\n"), None);
        assert_eq!(innermost_of("Pid:\t3\n"), None);
        assert_eq!([nr_numbers("NSpid:\t7\n"), nr_numbers("NSpid:\t40\t7\n")], [1, 2]);
    }

    /// A name with parentheses and blanks does not shift the fields; a cut line is no answer.
    #[test]
    fn stat_with_a_hostile_name() {
        let fields = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21 22 23 24 25 26 27 \
                      28 29 30 31 32 33 34 35 6 37";
        let text = [b"12 (a) Z 9 \xff(", b") ".as_slice(), fields.as_bytes()].concat();
        let stat =
            Stat { state: 'S', flags: 6, run_ticks: 11 + 12, start_ticks: 4711, last_cpu: 6 };
        assert_eq!(stat_of(&text), Some(stat));
        assert_eq!(stat_of(b"12 (a) S 1 2"), None);
        assert_eq!(stat_of(b"12 a S"), None);
    }

    /// The whole of a look-up.
    fn found(tgid: u32, ns_tid: u32) -> io::Result<u32> {
        let mut search = match look_up(tgid, ns_tid)? {
            Lookup::Found(tid) => return Ok(tid),
            Lookup::Search(search) => search,
        };
        loop {
            if let Some(tid) = search.step(THREADS_MAX)? {
                return Ok(tid);
            }
        }
    }

    /// A child's parent is this process.
    #[test]
    fn parents_are_found() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let found = parent(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found.unwrap(), std::process::id());
        assert!(parent(u32::MAX).is_err());
    }

    /// This process's own threads are found by their own number; others are not.
    #[test]
    fn own_threads_are_found() {
        let tgid = std::process::id();
        let (ask, asked) = std::sync::mpsc::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            tell.send(own_tid()).unwrap();
            asked.recv().unwrap_err();
        });
        let tid = told.recv().unwrap();
        let own_number = innermost_tid(tgid, tid).unwrap();
        assert_eq!(found(tgid, own_number).unwrap(), tid);
        assert!(threads(tgid).unwrap().contains(&tid));
        assert_eq!(process_of(tid).unwrap(), tgid);
        assert!(!task_stopped(tid).unwrap() && !is_kernel_thread(tid).unwrap());
        let runs = |tid| running(tgid).unwrap().iter().any(|(running, _)| *running == tid);
        // It has sent its number, and is about to sleep until it is asked.
        while runs(tid) {
            std::thread::yield_now();
        }
        assert!(runs(own_tid()));
        assert!(task_alive(tid));
        let ticks = start_ticks(tid).unwrap();
        assert!(ticks >= start_ticks(1).unwrap());
        assert!(lives_since(tid, ticks) && !lives_since(tid, ticks + 1));
        drop(ask);
        thread.join().unwrap();
        // No thread of this process is called 1: that is the namespace's init.
        assert_eq!(found(tgid, 1).unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }

    /// A zombie is not alive, though it still has a number.
    #[test]
    fn zombies_are_dead() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        while task_alive(child.id()) {
            std::thread::yield_now();
        }
        let ticks = start_ticks(child.id()).unwrap();
        assert!(!lives_since(child.id(), ticks));
        child.wait().unwrap();
        start_ticks(child.id()).unwrap_err();
    }

    /// A thread's mask can be narrowed and is read back as set; thread 0 does not mean "myself".
    #[test]
    fn affinity_round_trip() {
        std::thread::spawn(|| {
            let tid = own_tid();
            let all = get_affinity(tid).unwrap();
            let one: CpuSet = all.lowest().into_iter().collect();
            set_affinity(tid, &one).unwrap();
            assert_eq!(get_affinity(tid).unwrap(), one);
            set_affinity(tid, &all).unwrap();
            assert_eq!(get_affinity(tid).unwrap(), all);
            set_affinity(tid, &CpuSet::EMPTY).unwrap_err();
        })
        .join()
        .unwrap();
        assert_eq!(get_affinity(0).unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }
}
