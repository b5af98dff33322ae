// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stops another process and resumes it, so that it never stays stopped.
//!
//! **Method.** SIGSTOP and SIGCONT, which reach all threads at once and need only the right to
//! signal. The cgroup freezer would be quieter (a parent is notified of SIGSTOP, a shell shows the
//! job as stopped), but it freezes complete groups: the process is in one with others, and to move
//! it would change its limits.
//!
//! **Problem.** The program that stops it may be killed, or be stopped as well (Ctrl-Z), before it
//! resumes it.
//!
//! **Idea.** A second process waits, with a counter in memory shared with the first:
//!
//! ```text
//!   first    | 1 stop ..... go on 2 | 3 stop ..... X killed           the counter is odd: it is stopped
//!   second   | waits for the pipe's end .............| 3 is odd: goes on
//! ```
//!
//! - The pipe's end is the first one's end, however it ends.
//! - A counter that is odd and the same for [`LONGEST`] and more: the first one does not run any
//!   more.
//!
//! The process is known by a descriptor (pidfd_open, since 5.3), not by its number, which may be
//! another process's by then. The second process is a session of its own and blocks all signals, so
//! that a Ctrl-C or a hang-up does not reach it. Whoever kills both at once (a cgroup's `kill`)
//! leaves the process stopped: `kill -CONT PID`.
//!
//! Source: pidfd_open(2), pidfd_send_signal(2), signal(7).

use std::fs::File;
use std::io::{self, Error};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// No one stops a process for longer. The second process looks as often.
pub const LONGEST: Duration = Duration::from_secs(1);

/// A process that can be stopped. Dropped, it runs.
pub struct Pausable {
    process: OwnedFd,
    counter: &'static AtomicU64,
    /// Its end is what the second process waits for.
    pipe: Option<File>,
    second: libc::pid_t,
}

impl Pausable {
    /// Makes ready to stop a process; nothing has happened to it yet. An error if there is none of
    /// that number.
    pub fn new(pid: u32) -> io::Result<Self> {
        let pid = libc::pid_t::try_from(pid).map_err(|_| Error::from_raw_os_error(libc::ESRCH))?;
        // SAFETY: no memory involved; a new descriptor, no one else's.
        let process = unsafe { owned(libc::syscall(libc::SYS_pidfd_open, pid, 0)) }?;
        // Whether we may: no signal is sent.
        signal(process.as_raw_fd(), 0)?;
        let mut ends = [0; 2];
        // SAFETY: the kernel writes two descriptors, which no one else has.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
            return Err(Error::last_os_error());
        }
        // SAFETY: as above.
        let [read, write] = ends.map(|end| unsafe { File::from_raw_fd(end) });
        let counter = shared_counter()?;
        // SAFETY: a plain fork without an exit signal and without fork handlers: the child runs
        // `watch` alone, which is async-signal-safe and does not return.
        let second = unsafe { libc::syscall(libc::SYS_clone, 0u64, 0u64, 0u64, 0u64, 0u64) };
        match second {
            -1 => Err(Error::last_os_error()),
            0 => watch(process.as_raw_fd(), counter, read.as_raw_fd(), write.as_raw_fd()),
            _ => {
                let second = second as libc::pid_t;
                Ok(Pausable { process, counter, pipe: Some(write), second })
            }
        }
    }

    /// Stops it. Its threads stop as soon as they return to user code.
    pub fn stop(&self) -> io::Result<()> {
        // First the note: to let go on who runs does no harm.
        self.counter.fetch_or(1, Ordering::SeqCst);
        signal(self.process.as_raw_fd(), libc::SIGSTOP)
    }

    /// Lets it go on, if it was stopped here.
    pub fn go_on(&self) -> io::Result<()> {
        if self.counter.load(Ordering::SeqCst) & 1 == 0 {
            return Ok(());
        }
        let sent = signal(self.process.as_raw_fd(), libc::SIGCONT);
        self.counter.fetch_add(1, Ordering::SeqCst);
        sent
    }
}

impl Drop for Pausable {
    fn drop(&mut self) {
        // One that has ended needs nothing.
        _ = self.go_on();
        self.pipe = None;
        // SAFETY: our own child, which was made without an exit signal.
        unsafe { libc::waitpid(self.second, ptr::null_mut(), libc::__WALL) };
        // SAFETY: mapped in `shared_counter`, and no one uses it after this.
        unsafe { libc::munmap(ptr::from_ref(self.counter).cast_mut().cast(), size_of::<u64>()) };
    }
}

/// # Safety
/// `fd` is a new descriptor, or an error.
unsafe fn owned(fd: libc::c_long) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: the caller's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

fn signal(process: i32, signal: i32) -> io::Result<()> {
    let none = ptr::null::<libc::siginfo_t>();
    // SAFETY: no memory involved.
    let sent = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, process, signal, none, 0) };
    if sent == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

fn shared_counter() -> io::Result<&'static AtomicU64> {
    let (access, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: new memory, of zeros.
    let place = unsafe { libc::mmap(ptr::null_mut(), size_of::<u64>(), access, kind, -1, 0) };
    if place == libc::MAP_FAILED {
        return Err(Error::last_os_error());
    }
    // SAFETY: it is aligned to a page, and is there until `drop`.
    Ok(unsafe { &*place.cast::<AtomicU64>() })
}

/// The second process. Nothing here allocates or takes a lock: it is a copy of one thread.
fn watch(process: i32, counter: &AtomicU64, pipe: i32, other_end: i32) -> ! {
    // SAFETY: own signals, own descriptors, locals.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const all, ptr::null_mut());
        libc::setsid();
        libc::close(other_end);
    }
    close_all_but(process, pipe);
    let mut before = 0;
    loop {
        let mut wait = libc::pollfd { fd: pipe, events: libc::POLLIN, revents: 0 };
        // SAFETY: one local.
        let ready = unsafe { libc::poll(&raw mut wait, 1, LONGEST.as_millis() as i32) };
        let now = counter.load(Ordering::SeqCst);
        let is_late = ready == 0 && now == before;
        if now & 1 == 1 && (ready != 0 || is_late) {
            _ = signal(process, libc::SIGCONT);
        }
        if ready != 0 {
            // SAFETY: ends this process without running anything of the first.
            unsafe { libc::_exit(0) };
        }
        before = now;
    }
}

/// Closes what the first one has open, so that no one waits for us: its files, the pipes of others
/// like us. Kernels before 5.9 leave it open.
fn close_all_but(process: i32, pipe: i32) {
    let (low, high) = (process.min(pipe), process.max(pipe));
    for (from, to) in [(3, low - 1), (low + 1, high - 1), (high + 1, i32::MAX)] {
        if from <= to {
            // SAFETY: our own descriptors, which nothing here uses.
            unsafe { libc::syscall(libc::SYS_close_range, from, to, 0) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::task_stopped;
    use std::process::{Child, Command, Stdio};
    use std::time::Instant;

    fn sleeper() -> Child {
        Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap()
    }

    fn becomes(pid: u32, stopped: bool) -> bool {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(60) {
            if task_stopped(pid).unwrap() == stopped {
                return true;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        false
    }

    /// It stops, goes on, and runs when no one holds it any more.
    #[test]
    fn a_process_is_stopped_and_runs_again() {
        let mut child = sleeper();
        let process = Pausable::new(child.id()).unwrap();
        process.stop().unwrap();
        assert!(becomes(child.id(), true));
        process.go_on().unwrap();
        assert!(becomes(child.id(), false));
        process.stop().unwrap();
        assert!(becomes(child.id(), true));
        drop(process);
        assert!(becomes(child.id(), false));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// A holder that keeps it too long, because it does not run, loses it.
    #[test]
    fn it_goes_on_when_it_is_forgotten() {
        let mut child = sleeper();
        let process = Pausable::new(child.id()).unwrap();
        process.stop().unwrap();
        let mut status = 0;
        // SAFETY: our own child, one local. WCONTINUED is reported only for who was stopped.
        let told = unsafe { libc::waitpid(child.id() as i32, &raw mut status, libc::WCONTINUED) };
        assert_eq!(told, child.id() as i32);
        assert!(libc::WIFCONTINUED(status));
        child.kill().unwrap();
        child.wait().unwrap();
        drop(process);
    }

    /// A number that no one has, and a process that has ended, cannot be stopped.
    #[test]
    fn nobody_fails() {
        for pid in [u32::MAX, 1 << 22] {
            Pausable::new(pid).err().unwrap();
        }
        let mut child = sleeper();
        let process = Pausable::new(child.id()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(process.stop().unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }
}
