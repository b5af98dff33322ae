// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a thread's state lies: one cache line at a fixed distance from the thread pointer.
//!
//! Problem: in a shared library, `thread_local!` finds its data by a call of `__tls_get_addr`,
//! 4 to 5 ns each (measured: 13 ns for a begin and an end, against 3 ns in an executable). Rust
//! cannot choose another TLS model for one variable.
//!
//! Idea: declare the variable in assembly and use the *initial-exec* model: its distance from the
//! thread pointer is a constant that the dynamic linker puts into the GOT at load time. Two
//! instructions, no call; in an executable the linker turns them into a constant.
//!
//! Limits: a library with initial-exec variables, if it comes by `dlopen`, takes its TLS segment
//! from glibc's static reserve (1664 bytes by default, tunable glibc.rtld.optional_static_tls);
//! ours needs less than a kilobyte (tests/capi.rs does that). Elsewhere than on x86-64:
//! `thread_local!`.
//!
//! The state starts as zero bytes, as all of `.tbss` does, and has no destructor: it can be used
//! from the thread's first instruction to its last.

use crate::thread::Thread;

/// The calling thread's state.
#[cfg(x86_64_abi)]
#[inline(always)]
pub(crate) fn this_thread() -> &'static Thread {
    let thread: *const Thread;
    // SAFETY: the first word of the thread control block is the block's address; adding the
    // variable's distance gives its address in the calling thread. Both are constants of the
    // thread, hence `pure`. Zero bytes are a valid `Thread` (asserted where it is defined). The
    // memory lives as long as the thread; `Thread` is neither `Send` nor `Sync`, so the reference,
    // 'static or not, stays in its thread.
    unsafe {
        std::arch::asm!(
            "mov {thread}, qword ptr fs:[0]",
            "add {thread}, qword ptr [rip + turbolane_thread_state@GOTTPOFF]",
            thread = out(reg) thread,
            options(pure, nomem, nostack),
        );
        &*thread
    }
}

#[cfg(x86_64_abi)]
std::arch::global_asm!(
    ".pushsection .tbss.turbolane_thread_state, \"awT\", @nobits",
    ".hidden turbolane_thread_state",
    ".globl turbolane_thread_state",
    ".type turbolane_thread_state, @object",
    ".size turbolane_thread_state, {bytes}",
    ".balign 64",
    "turbolane_thread_state:",
    ".zero {bytes}",
    ".popsection",
    bytes = const size_of::<Thread>(),
);

/// The calling thread's state.
#[cfg(not(x86_64_abi))]
#[inline]
pub(crate) fn this_thread() -> &'static Thread {
    thread_local! {
        static THREAD: Thread = const { Thread::new() };
    }
    let thread = THREAD.with(std::ptr::from_ref);
    // SAFETY: without a destructor the state is valid until its thread has ended; `Thread` is
    // neither `Send` nor `Sync`, so the reference stays in its thread.
    unsafe { &*thread }
}

const _: () = assert!(size_of::<Thread>() <= 64, "one cache line");
const _: () = assert!(!std::mem::needs_drop::<Thread>());
