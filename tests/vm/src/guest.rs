// SPDX-License-Identifier: MIT OR Apache-2.0
//! Small things every test needs: clocks, CPU numbers, affinity, waiting, forks.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// Time in ns, comparable between processes, without a system call: in an emulated machine the
/// kernel's clock is not the time stamp counter, so clock_gettime would be one, and end wide
/// sections that end with system calls.
pub fn now_ns() -> u64 {
    (tsc() as f64 * *NS_PER_TICK) as u64
}

static NS_PER_TICK: LazyLock<f64> = LazyLock::new(|| {
    let start = moment();
    while start.0.elapsed() < Duration::from_millis(100) {}
    let end = moment();
    (end.0 - start.0).as_nanos() as f64 / (end.1 - start.1) as f64
});

/// Both clocks at the same moment. A virtual CPU may stand still between two readings, for as long
/// as its emulator runs other CPUs: of many pairs the one counts whose readings are closest
/// together.
fn moment() -> (Instant, u64) {
    let pair = || {
        let before = tsc();
        let clock = Instant::now();
        let after = tsc();
        (after - before, (clock, before + (after - before) / 2))
    };
    let pairs = (0..100).map(|_| pair());
    pairs.min_by_key(|&(apart, _)| apart).expect("there are a hundred").1
}

/// Measure the clock: once, in the first process, so that all its children agree.
pub fn calibrate() {
    LazyLock::force(&NS_PER_TICK);
}

/// The CPU this thread runs on.
pub fn cpu() -> usize {
    // SAFETY: no arguments.
    unsafe { libc::sched_getcpu() as usize }
}

/// Time stamp counter; in a counting guest, the instructions of all CPUs.
pub fn tsc() -> u64 {
    // SAFETY: every x86-64 CPU has it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// CPU time of this thread.
pub fn thread_time() -> Duration {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CLOCK_MONOTONIC, as recordings have it.
pub fn monotonic_ns() -> u64 {
    clock(libc::CLOCK_MONOTONIC).as_nanos() as u64
}

fn clock(which: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills the local.
    unsafe { libc::clock_gettime(which, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Online CPUs.
pub fn nr_cpus() -> usize {
    // SAFETY: no memory involved.
    unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) as usize }
}

/// Spin for about this long. It checks the clock rarely enough to be mostly computation.
pub fn spin(time: Duration) {
    let end_ns = now_ns() + time.as_nanos() as u64;
    while now_ns() < end_ns {
        work(200);
    }
}

/// A fixed amount of scalar computation.
pub fn work(rounds: u64) -> u64 {
    let mut x = rounds | 1;
    for _ in 0..rounds {
        x = std::hint::black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
    x
}

/// The top of the control groups (v2), with the controller of CPU time switched on below it.
pub fn control_groups() -> Result<PathBuf> {
    let top = PathBuf::from("/sys/fs/cgroup");
    if !top.join("cgroup.controllers").exists() {
        fs::create_dir_all(&top)?;
        let mounted = Command::new("mount").args(["-t", "cgroup2", "none"]).arg(&top).status()?;
        ensure!(mounted.success(), "cgroup2 cannot be mounted");
    }
    fs::write(top.join("cgroup.subtree_control"), "+cpu").context("the CPU controller")?;
    Ok(top)
}

/// Puts a task (0 = this thread) ahead of all that is not real-time work, and out of any sched_ext
/// scheduler's reach.
pub fn set_real_time(tid: i32, priority: i32) -> Result<()> {
    let priority = libc::sched_param { sched_priority: priority };
    // SAFETY: reads a structure that lives.
    let set = unsafe { libc::sched_setscheduler(tid, libc::SCHED_FIFO, &raw const priority) };
    ensure!(set == 0, "no real-time class: {}", std::io::Error::last_os_error());
    Ok(())
}

/// Restrict a task (0 = this thread) to these CPUs.
pub fn set_affinity(tid: i32, cpus: &[usize]) -> Result<()> {
    // SAFETY: an all-zero cpu_set_t is an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for &cpu in cpus {
        // SAFETY: cpu numbers here are far below the set's size.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    // SAFETY: the set is valid for its size.
    if unsafe { libc::sched_setaffinity(tid, size_of_val(&set), &set) } != 0 {
        return Err(std::io::Error::last_os_error())
            .context(format!("sched_setaffinity to {cpus:?}"));
    }
    Ok(())
}

/// Switches of this thread so far, voluntary and not.
pub fn context_switches() -> u64 {
    // SAFETY: an all-zero rusage is valid, the kernel fills it.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut usage) };
    (usage.ru_nvcsw + usage.ru_nivcsw) as u64
}

/// Migrations of this thread so far.
pub fn migrations() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/sched").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("se.nr_migrations"));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok())
        .expect("the kernel counts migrations in /proc/thread-self/sched")
}

/// Put a program where it can be executed.
pub fn install(path: &str, program: &[u8]) -> Result<()> {
    fs::write(path, program).with_context(|| format!("cannot write {path}"))?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}

/// Load a module of the guest's kernel, if it is not there.
pub fn modprobe(module: &str) -> Result<()> {
    let done = Command::new("modprobe").arg(module).status().context("modprobe")?;
    ensure!(done.success(), "modprobe {module}: {done}");
    Ok(())
}

/// Wait until a condition holds.
pub fn wait_for(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) -> Result<()> {
    let start = Instant::now();
    while !holds() {
        if start.elapsed() > limit {
            bail!("{what}: not within {limit:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// State of sched_ext: `enabled` or `disabled`.
pub fn scx_state() -> String {
    fs::read_to_string("/sys/kernel/sched_ext/state").unwrap_or_default().trim().to_owned()
}

/// A forked child running a closure; killed when dropped.
pub struct Child {
    /// Its process id.
    pub pid: i32,
}

impl Child {
    /// Fork; the child exits 0 when the closure returns.
    pub fn fork(body: impl FnOnce()) -> Result<Self> {
        // SAFETY: the harness is single-threaded when it forks.
        match unsafe { libc::fork() } {
            -1 => Err(std::io::Error::last_os_error()).context("fork"),
            0 => {
                body();
                // SAFETY: ends the child without running the parent's destructors.
                unsafe { libc::_exit(0) }
            }
            pid => Ok(Child { pid }),
        }
    }

    /// End it; it is waited for elsewhere.
    pub fn kill(&self) {
        if self.pid > 0 {
            // SAFETY: our own child, not yet waited for.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
        }
    }

    /// Whether it has ended; it is still to be waited for.
    pub fn has_ended(&self) -> bool {
        let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        // SAFETY: fills in a local structure, which is zero if the child runs on.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let id = self.pid as libc::id_t;
            libc::waitid(libc::P_PID, id, &mut info, options) != 0 || info.si_pid() != 0
        }
    }

    /// Wait for its end; its exit status, or 128 + signal.
    pub fn wait(&mut self) -> Result<i32> {
        let mut status = 0;
        // SAFETY: our own child.
        while unsafe { libc::waitpid(self.pid, &mut status, 0) } != self.pid {
            let error = std::io::Error::last_os_error();
            ensure!(error.kind() == ErrorKind::Interrupted, "child {} is gone: {error}", self.pid);
        }
        self.pid = 0;
        Ok(if libc::WIFEXITED(status) {
            libc::WEXITSTATUS(status)
        } else {
            128 + libc::WTERMSIG(status)
        })
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.pid > 0 {
            self.kill();
            // SAFETY: our own child, not yet waited for.
            unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), 0) };
        }
    }
}
