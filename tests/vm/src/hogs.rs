// SPDX-License-Identifier: MIT OR Apache-2.0
//! Busy tasks of every weight, bound or free, wide or not, each of which notes how long it had to
//! wait for a CPU and how much CPU time it got.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::evidence;
use crate::guest::{Child, now_ns, nr_cpus, set_affinity, thread_time, wait_for, work};
use crate::load;

/// A busy task.
#[derive(Clone, Debug, Default)]
pub struct Hog {
    /// -20 to 19.
    pub nice: i32,
    /// Empty: it may run everywhere.
    pub cpus: Vec<usize>,
    /// Announces a wide section without end.
    pub wide: bool,
    /// Is known to be scalar.
    pub scalar: bool,
    /// Gives up root's rights for this user; 0 keeps them.
    pub uid: u32,
}

/// Hogs that a load may have.
const MOST: usize = 2048;

/// What they note, in memory that they share.
#[repr(C)]
struct Notes {
    ready: AtomicU64,
    /// 1 = they may begin. They sleep on it: a thousand that looked again and again would keep
    /// others from getting ready.
    is_open: AtomicU32,
    longest_ns: [AtomicU64; MOST],
    longest_at_ns: [AtomicU64; MOST],
    used_ns: [AtomicU64; MOST],
    last_ns: [AtomicU64; MOST],
}

impl Notes {
    fn open(&self) {
        self.is_open.store(1, Ordering::Relaxed);
        // SAFETY: wakes who sleeps on a word of our own memory.
        unsafe {
            libc::syscall(libc::SYS_futex, self.is_open.as_ptr(), libc::FUTEX_WAKE, i32::MAX)
        };
    }

    fn wait_until_open(&self) {
        while self.is_open.load(Ordering::Relaxed) == 0 {
            let (word, no_limit) = (self.is_open.as_ptr(), std::ptr::null::<libc::timespec>());
            // SAFETY: sleeps while a word of our own memory is 0.
            unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAIT, 0, no_limit) };
        }
    }
}

/// Hogs at work; they end when this is dropped.
pub struct Hogs {
    notes: &'static Notes,
    kinds: Vec<Hog>,
    children: Vec<Child>,
}

impl Hogs {
    /// Start them, and let them go when all are ready.
    pub fn start(hogs: &[Hog]) -> Result<Self> {
        ensure!(hogs.len() <= MOST, "at most {MOST} hogs");
        // SAFETY: an anonymous mapping is zeroed, and all-zero is a valid value of the type.
        let notes: &'static Notes = unsafe {
            let memory = libc::mmap(
                std::ptr::null_mut(),
                size_of::<Notes>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            ensure!(memory != libc::MAP_FAILED, "no memory");
            &*memory.cast()
        };
        let mut children = Vec::new();
        for (i, hog) in hogs.iter().enumerate() {
            children.push(Child::fork(|| live(hog, notes, i))?);
        }
        let all = hogs.len() as u64;
        wait_for("the hogs are not ready", Duration::from_secs(240), || {
            notes.ready.load(Ordering::Relaxed) == all
        })?;
        notes.open();
        Ok(Hogs { notes, kinds: hogs.to_vec(), children })
    }

    /// So many hogs that begin on these CPUs, for each of the groups, and may run everywhere when
    /// all are there.
    pub fn start_then_free(groups: &[(usize, Vec<usize>)]) -> Result<Self> {
        let group = |(nr, cpus): &(usize, Vec<usize>)| {
            vec![Hog { cpus: cpus.clone(), ..Hog::default() }; *nr]
        };
        let hogs = Self::start(&groups.iter().flat_map(group).collect::<Vec<_>>())?;
        std::thread::sleep(Duration::from_secs(1));
        let everywhere: Vec<usize> = (0..nr_cpus()).collect();
        for child in &hogs.children {
            set_affinity(child.pid, &everywhere)?;
        }
        Ok(hogs)
    }

    /// The longest wait so far, those in progress included.
    pub fn longest(&self) -> Duration {
        (0..self.children.len()).map(|i| self.longest_of(i)).max().unwrap_or_default()
    }

    /// The same of one.
    pub fn longest_of(&self, hog: usize) -> Duration {
        let notes = self.notes;
        let last_ns = notes.last_ns[hog].load(Ordering::Relaxed);
        let open_ns = if last_ns == 0 { 0 } else { now_ns().saturating_sub(last_ns) };
        Duration::from_nanos(notes.longest_ns[hog].load(Ordering::Relaxed).max(open_ns))
    }

    /// Those that waited longest: for how long, when that ended, and what they are, a line each.
    pub fn who_waited_most(&self, nr: usize) -> String {
        let mut hogs: Vec<usize> = (0..self.children.len()).collect();
        // They go on: a wait that was read twice would not be the same.
        hogs.sort_by_cached_key(|&i| std::cmp::Reverse(self.longest_of(i)));
        let line = |&i: &usize| {
            let at_ns = self.notes.longest_at_ns[i].load(Ordering::Relaxed);
            let ago = Duration::from_nanos(now_ns().saturating_sub(at_ns));
            format!(
                "{:?} until {ago:?} ago: {:?}, used {:?}",
                self.longest_of(i),
                self.kinds[i],
                self.used()[i]
            )
        };
        hogs.iter().take(nr).map(line).collect::<Vec<_>>().join("\n")
    }

    /// Who waited longest, and what the kernel says of that hog now: one that has died waits for
    /// ever.
    pub fn who_waited(&self) -> String {
        let Some(i) = (0..self.children.len()).max_by_key(|&i| self.longest_of(i)) else {
            return "there are no hogs".into();
        };
        let evidence = evidence::of_task(self.children[i].pid);
        format!(
            "{:?} waited for {:?}, and ran for {:?}: {evidence}",
            self.kinds[i],
            self.longest_of(i),
            self.used()[i]
        )
    }

    /// CPU time of each so far.
    pub fn used(&self) -> Vec<Duration> {
        let used = self.notes.used_ns.iter().take(self.children.len());
        used.map(|ns| Duration::from_nanos(ns.load(Ordering::Relaxed))).collect()
    }
}

impl Drop for Hogs {
    /// All at once: each has to run to end, and one after the other a thousand would take half an
    /// hour.
    fn drop(&mut self) {
        for child in &self.children {
            child.kill();
        }
    }
}

fn live(hog: &Hog, notes: &Notes, i: usize) {
    if hog.wide || hog.scalar {
        load::connect();
    }
    if !hog.cpus.is_empty() && set_affinity(0, &hog.cpus).is_err() {
        return;
    }
    if hog.scalar {
        load::become_scalar();
    }
    // SAFETY: system calls on this process alone, without memory.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, hog.nice);
        if hog.uid != 0 && libc::setuid(hog.uid) != 0 {
            libc::_exit(1);
        }
    }
    notes.ready.fetch_add(1, Ordering::Relaxed);
    notes.wait_until_open();
    if hog.wide {
        let _ = turbolane::wide_begin(2);
    }
    let mut last_ns = now_ns();
    loop {
        work(2000);
        let now = now_ns();
        if now - last_ns > notes.longest_ns[i].load(Ordering::Relaxed) {
            notes.longest_ns[i].store(now - last_ns, Ordering::Relaxed);
            notes.longest_at_ns[i].store(now, Ordering::Relaxed);
        }
        notes.last_ns[i].store(now, Ordering::Relaxed);
        notes.used_ns[i].store(thread_time().as_nanos() as u64, Ordering::Relaxed);
        last_ns = now;
    }
}
