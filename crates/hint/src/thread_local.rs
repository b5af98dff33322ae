// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a thread's state lies: at a fixed distance from the thread pointer.
//!
//! Problem: in a shared library, `thread_local!` finds its data by a call of `__tls_get_addr`,
//! 4 to 5 ns each (measured: 13 ns for a begin and an end, against 3 ns in an executable). Rust
//! cannot choose another TLS model for one variable.
//!
//! Idea: declare the variable in assembly and use the *initial-exec* model: its distance from the
//! thread pointer is a constant that the dynamic linker puts into the GOT at load time. Two
//! instructions, no call; in an executable the linker turns them into a constant.
//!
//! Limits: a library with initial-exec variables, if it is loaded by `dlopen`, takes its TLS
//! segment from glibc's static reserve (1664 bytes by default, tunable
//! glibc.rtld.optional_static_tls); ours needs less than a kilobyte (crates/turbolane/tests/capi.rs
//! does that). Elsewhere than on x86-64: `thread_local!`.
//!
//! The state starts as zero bytes, as all of `.tbss` does, and has no destructor: it can be used
//! from the thread's first instruction to its last.

use crate::state::{Masks, State, Thread};

/// What sections need of the calling thread.
#[inline(always)]
pub(crate) fn this_thread() -> &'static Thread {
    &state().thread
}

/// The calling thread's masks.
pub(crate) fn these_masks() -> &'static Masks {
    &state().masks
}

#[cfg(x86_64_abi)]
#[inline(always)]
fn state() -> &'static State {
    let state: *const State;
    // SAFETY: the first word of the thread control block is the block's address; adding the
    // variable's distance gives its address in the calling thread. Both are constants of the
    // thread, hence `pure`. Zero bytes are a valid `State` (asserted where it is defined). The
    // memory lives as long as the thread; `State` is neither `Send` nor `Sync`, so the reference,
    // 'static or not, stays in its thread.
    unsafe {
        core::arch::asm!(
            "mov {state}, qword ptr fs:[0]",
            "add {state}, qword ptr [rip + turbolane_thread_state@GOTTPOFF]",
            state = out(reg) state,
            options(pure, nomem, nostack),
        );
        &*state
    }
}

#[cfg(x86_64_abi)]
core::arch::global_asm!(
    ".pushsection .tbss.turbolane_thread_state, \"awT\", @nobits",
    ".hidden turbolane_thread_state",
    ".globl turbolane_thread_state",
    ".type turbolane_thread_state, @object",
    ".size turbolane_thread_state, {bytes}",
    ".balign 64",
    "turbolane_thread_state:",
    ".zero {bytes}",
    ".popsection",
    bytes = const size_of::<State>(),
);

#[cfg(not(x86_64_abi))]
#[inline]
fn state() -> &'static State {
    std::thread_local! {
        static STATE: State = const { State::new() };
    }
    let state = STATE.with(core::ptr::from_ref);
    // SAFETY: without a destructor the state is valid until its thread has ended; `State` is
    // neither `Send` nor `Sync`, so the reference stays in its thread.
    unsafe { &*state }
}
