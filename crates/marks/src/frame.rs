// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a call of a marked function has on its stack: the stub lays it out, the code around the
//! call reads it.

use core::cell::Cell;
use core::mem::MaybeUninit;

use turbolane_hint::inside::Rest;

/// What takes system calls.
#[derive(Clone, Copy)]
pub(crate) enum Work {
    /// The function is known now.
    LookUp,
    /// A section's begin or end goes on.
    Hint(Rest),
    /// Sections without a return end, and this one begins.
    TidyAndBegin,
    /// Sections without a return end, and this one.
    TidyAndEnd,
}

/// What a call has on its stack, lowest address first. The caller's stack arguments follow.
#[repr(C)]
pub(crate) struct Frame {
    /// What is left to do: `finish`.
    pub work: Cell<MaybeUninit<Work>>,
    /// What is called.
    function: usize,
    unused: u64,
    /// What XSAVE saved.
    mask: u64,
    /// What `sections` said of the call: flags, and bytes of stack arguments.
    pub flags: usize,
    /// The stub's address.
    pub stub: usize,
    /// Integer arguments, the last one first: r9, r8, rcx, rdx, rsi, rdi.
    pub arguments: [u64; 6],
    /// Number of vector registers, for functions with variable arguments (rax).
    vectors: u64,
    /// The static chain pointer (r10).
    chain: u64,
    callers_frame: u64,
    return_address: u64,
}

const _: () = assert!(size_of::<Frame>() == 128 && size_of::<Work>() <= 8);

impl Frame {
    pub(crate) fn address(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// Leaves work to `finish`.
    pub(crate) fn leave(&self, work: Work) {
        self.work.set(MaybeUninit::new(work));
    }
}
