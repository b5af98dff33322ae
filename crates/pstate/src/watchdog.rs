// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process that puts the settings back when the program cannot.
//!
//! Problem: SIGKILL, abort, a crash, `_exit`: a program can end without running a line of ours.
//!
//! Idea: when frequency control is opened, the process splits off a copy of itself that does
//! nothing but wait for its end, and then restores what the shared journal says was changed
//! (`journal.rs`). It notices the end by two descriptors:
//!
//! - a *pidfd* of the program becomes readable when its last thread is gone, whatever the cause;
//! - a *socket* whose other end the program holds, close-on-exec: when the program replaces itself
//!   by another one (execve), no process is left that knows the settings. The socket alone is not
//!   enough: a child that the program forked holds it too and may outlive it.
//!
//! Before that, the program requests over the same socket that it saves the value of a setting
//! ([`Notary`]): it restores only values and places that it has read itself.
//!
//! Isolation: it is a session of its own, so that a signal to the program's process
//! group or terminal does not reach it, blocks all signals, and has closed every descriptor but
//! those three. Its end raises no SIGCHLD and no `wait` of the program sees it (it is cloned
//! without an exit signal). It keeps the program's rights of that moment, so a program may open
//! frequency control as root and then become another user.
//!
//! Limits: whoever kills every process at once (a cgroup's `kill`, the end of a PID namespace,
//! power) kills it too. It shares the program's memory copy-on-write: open frequency control before
//! filling gigabytes. Before kernel 5.3 (no pidfd_open; also under valgrind 3.19) there is the
//! socket alone: a child that was forked and outlives the program then delays restoring until its
//! end. Without the watchdog nothing is changed.

use std::mem::{MaybeUninit, zeroed};

use crate::error::Error;
use crate::journal::Journal;
use crate::notary::{DISMISSED, MESSAGE_MAX, NOTE, Notary, READY, REFUSED, receive};
use crate::raw::{self, Fd};

/// Descriptors that are closed one by one on kernels before 5.9 (close_range); more than that are
/// left open there.
const CLOSED_ONE_BY_ONE: i32 = 65_536;

/// The waiting process.
#[derive(Debug)]
pub(crate) struct Watchdog {
    pid: i32,
    socket: Fd,
}

impl Watchdog {
    /// Splits it off.
    pub fn start(journal: &Journal) -> Result<Self, Error> {
        let own = open_pidfd()?;
        let (listen, socket) = open_socket()?;
        let _quiet = BlockSignals::new();
        // SAFETY: a plain fork, but without an exit signal and without fork handlers: the child
        // runs `watch` only, which is async-signal-safe and does not return.
        let pid = unsafe { libc::syscall(libc::SYS_clone, 0u64, 0u64, 0u64, 0u64, 0u64) };
        match pid {
            -1 => Err(Error::Watchdog(raw::errno())),
            0 => watch(journal, own.as_ref().map_or(-1, |own| own.0), listen.0),
            pid => {
                drop(listen);
                let watchdog = Watchdog { pid: pid as i32, socket };
                // It has left our process group: before that, what kills the group kills it too.
                receive(watchdog.socket.0)?;
                let own = raw::duplicate(watchdog.socket.0).map_err(Error::Watchdog)?;
                journal.noted_by(Notary::new(own));
                Ok(watchdog)
            }
        }
    }

    /// Ends it; everything is restored.
    pub fn dismiss(self) {
        // It may have been killed: then there is no one to report to.
        let message = [DISMISSED];
        // SAFETY: a byte of ours; MSG_NOSIGNAL, since no one may be listening.
        unsafe {
            libc::send(self.socket.0, message.as_ptr().cast(), 1, libc::MSG_NOSIGNAL);
        }
        let mut status = 0;
        // SAFETY: our own child; interrupted waits are repeated.
        while unsafe { libc::waitpid(self.pid, &mut status, libc::__WCLONE) } == -1
            && raw::errno() == libc::EINTR
        {}
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// In a forked child of the program: forgets the watchdog, which is the parent's.
    pub fn disown(self) {}
}

/// `None` where the kernel has no such call.
fn open_pidfd() -> Result<Option<Fd>, Error> {
    // SAFETY: no memory involved.
    match unsafe { libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) } {
        -1 if raw::errno() == libc::ENOSYS => Ok(None),
        -1 => Err(Error::Watchdog(raw::errno())),
        fd => Ok(Some(Fd(fd as i32))),
    }
}

/// A pair of connected sockets, as a pipe would raise SIGPIPE: the watchdog's end, ours.
fn open_socket() -> Result<(Fd, Fd), Error> {
    let mut ends = [0; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: room for two descriptors.
    if unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) } != 0 {
        return Err(Error::Watchdog(raw::errno()));
    }
    Ok((Fd(ends[0]), Fd(ends[1])))
}

/// All signals are blocked while this lives: the program's handlers must not run in the copy.
struct BlockSignals(libc::sigset_t);

impl BlockSignals {
    fn new() -> Self {
        let mut before = MaybeUninit::uninit();
        // SAFETY: both sets are ours; the second is filled by the call, which cannot fail for
        // SIG_SETMASK with valid sets.
        unsafe {
            let mut all = zeroed();
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, before.as_mut_ptr());
            BlockSignals(before.assume_init())
        }
    }
}

impl Drop for BlockSignals {
    fn drop(&mut self) {
        // SAFETY: the set came from `new`.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
    }
}

/// The copy's whole life.
fn watch(journal: &Journal, program: i32, socket: i32) -> ! {
    // SAFETY: system calls without memory of ours, and constant strings.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, c"tl-watchdog".as_ptr());
        // The folder that the program was started in may be unmounted.
        libc::chdir(c"/".as_ptr());
    }
    close_all_but([journal.root(), program, socket]);
    say(socket, READY);
    if ended_badly(journal, program, socket) {
        journal.restore_all();
    }
    // SAFETY: ends the process; nothing of the program's is flushed or run.
    unsafe { libc::_exit(0) }
}

/// Makes notes until the program ends, or says that all is well. `poll` passes over descriptor -1.
fn ended_badly(journal: &Journal, program: i32, socket: i32) -> bool {
    let wait = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    loop {
        let mut both = [wait(program), wait(socket)];
        // SAFETY: two entries, valid for the call.
        while unsafe { libc::poll(both.as_mut_ptr(), 2, -1) } <= 0 {}
        let has_ended = both[0].revents != 0;
        let mut message = [0; MESSAGE_MAX];
        // SAFETY: bytes of ours.
        let got = unsafe {
            libc::recv(socket, message.as_mut_ptr().cast(), MESSAGE_MAX, libc::MSG_DONTWAIT)
        };
        match (got, message) {
            (1, [DISMISSED, ..]) => return false,
            // A child that the program has left does not keep us busy.
            (5, [NOTE, a, b, c, d]) if !has_ended => {
                let is_noted = journal.note(u32::from_le_bytes([a, b, c, d]));
                say(socket, if is_noted { READY } else { REFUSED });
            }
            _ => return true,
        }
    }
}

fn say(socket: i32, word: u8) {
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: a byte of ours.
    unsafe { libc::send(socket, [word].as_ptr().cast(), 1, flags) };
}

fn close_all_but(mut kept: [i32; 3]) {
    kept.sort_unstable();
    let mut from = 0;
    for fd in kept.into_iter().filter(|fd| *fd >= 0) {
        close_range(from, fd - 1);
        from = fd + 1;
    }
    close_range(from, i32::MAX);
}

fn close_range(first: i32, last: i32) {
    if first > last {
        return;
    }
    // SAFETY: closes descriptors of this process, in which no one else runs.
    if unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } != 0 {
        for fd in first..=last.min(CLOSED_ONE_BY_ONE) {
            // SAFETY: as above.
            unsafe { libc::close(fd) };
        }
    }
}
