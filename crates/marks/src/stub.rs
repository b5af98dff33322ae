// SPDX-License-Identifier: MIT OR Apache-2.0
//! The code that is called in place of a marked function, for functions of any type.
//!
//! ```text
//!   stub i        its address goes to r11
//!   common        rbp = frame    arguments and xmm0-7 are saved, entered(frame) decides:
//!     plain       everything as it was, jump to the function: its caller is the marked call
//!     section     [finish(frame)] the caller's stack arguments are copied, and the function is
//!                 called; rax, rdx, xmm0-1 are saved around left(frame); [finish(frame)] return
//! ```
//!
//! Why a call and a copy, and not another return address in the caller's frame: exceptions unwind
//! through it, stack traces are right, and a shadow stack agrees.
//!
//! entered() and left() call nothing that uses vector registers, and being Rust for any x86-64 they
//! use no more of these than their lower 16 bytes, and keep the rest. finish() makes system calls
//! through the C library, which may use all of them: so registers 0 to 15 are saved in full by
//! XSAVE around it. Registers 16 to 31 and masks are the caller's to save (System V ABI, AMD64,
//! 3.2.1).

use core::arch::global_asm;

use crate::sections::{CALL, REST, entered, finish, left};
use crate::slots::SLOTS;

#[cfg(target_feature = "avx")]
compile_error!("instructions of AVX would clear the upper parts of registers with arguments");

/// SSE, AVX and the upper halves of ZMM0 to 15, in XCR0 (Intel SDM 1, 13.1).
const VECTORS: u32 = 0b100_0110;
/// Bytes that XSAVE may need for [`VECTORS`] in its standard form; `interpose` checks it.
pub(crate) const AREA_BYTES: usize = 2688;
/// Where the header of that area is, which XSAVE wants to be zero.
const HEADER: usize = 512;

global_asm!(
    ".pushsection .text.turbolane_marks, \"ax\", @progbits",
    // finish(frame), and all of vector registers 0 to 15 is kept.
    ".macro turbolane_marks_finish",
    "xor ecx, ecx",
    "xgetbv",
    "and eax, {vectors}",
    "xor edx, edx",
    "mov qword ptr [rbp - 88], rax",
    "lea rsp, [rbp - 240 - {area} - 64]",
    "and rsp, -64",
    ".irp word, 0, 8, 16, 24, 32, 40, 48, 56",
    "mov qword ptr [rsp + {header} + \\word], rdx",
    ".endr",
    "xsave64 [rsp]",
    "lea rdi, [rbp - 112]",
    "call {finish}",
    "mov rax, qword ptr [rbp - 88]",
    "xor edx, edx",
    "xrstor64 [rsp]",
    "lea rsp, [rbp - 240]",
    ".endm",
    // What the arguments were.
    ".macro turbolane_marks_arguments",
    "mov r10, qword ptr [rbp - 8]",
    "mov rax, qword ptr [rbp - 16]",
    "mov rdi, qword ptr [rbp - 24]",
    "mov rsi, qword ptr [rbp - 32]",
    "mov rdx, qword ptr [rbp - 40]",
    "mov rcx, qword ptr [rbp - 48]",
    "mov r8, qword ptr [rbp - 56]",
    "mov r9, qword ptr [rbp - 64]",
    ".endm",
    ".balign 16",
    ".hidden turbolane_marks_stubs",
    ".globl turbolane_marks_stubs",
    ".type turbolane_marks_stubs, @function",
    "turbolane_marks_stubs:",
    ".rept {slots}",
    "endbr64",
    "lea r11, [rip - 11]",
    "jmp turbolane_marks_common",
    ".balign 16",
    ".endr",
    ".size turbolane_marks_stubs, . - turbolane_marks_stubs",
    ".type turbolane_marks_common, @function",
    "turbolane_marks_common:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "push r10",
    "push rax",
    "push rdi",
    "push rsi",
    "push rdx",
    "push rcx",
    "push r8",
    "push r9",
    "push r11",
    "lea rsp, [rbp - 240]",
    ".irp register, 0, 1, 2, 3, 4, 5, 6, 7",
    "movaps xmmword ptr [rbp - 240 + 16 * \\register], xmm\\register",
    ".endr",
    "lea rdi, [rbp - 112]",
    "call {entered}",
    ".irp register, 0, 1, 2, 3, 4, 5, 6, 7",
    "movaps xmm\\register, xmmword ptr [rbp - 240 + 16 * \\register]",
    ".endr",
    "mov r11, rax",
    "test edx, {call}",
    "jnz 2f",
    "turbolane_marks_arguments",
    "leave",
    ".cfi_remember_state",
    ".cfi_def_cfa rsp, 8",
    "jmp r11",
    ".cfi_restore_state",
    "2:",
    "mov qword ptr [rbp - 80], rdx",
    "test edx, {rest}",
    "jz 3f",
    "mov qword ptr [rbp - 104], r11",
    "turbolane_marks_finish",
    "mov r11, qword ptr [rbp - 104]",
    "mov rdx, qword ptr [rbp - 80]",
    "3:",
    "and edx, -16",
    "jz 5f",
    "sub rsp, rdx",
    // from the end, 16 bytes at a time, through a register that no argument is in
    "4:",
    "movups xmm8, xmmword ptr [rbp + rdx]",
    "movaps xmmword ptr [rsp + rdx - 16], xmm8",
    "sub edx, 16",
    "jnz 4b",
    "5:",
    "turbolane_marks_arguments",
    "call r11",
    "lea rsp, [rbp - 240]",
    "mov qword ptr [rbp - 16], rax",
    "mov qword ptr [rbp - 40], rdx",
    "movaps xmmword ptr [rbp - 240], xmm0",
    "movaps xmmword ptr [rbp - 224], xmm1",
    "lea rdi, [rbp - 112]",
    "call {left}",
    "test al, al",
    "jz 6f",
    "turbolane_marks_finish",
    "6:",
    "movaps xmm0, xmmword ptr [rbp - 240]",
    "movaps xmm1, xmmword ptr [rbp - 224]",
    "mov rax, qword ptr [rbp - 16]",
    "mov rdx, qword ptr [rbp - 40]",
    "leave",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    ".size turbolane_marks_common, . - turbolane_marks_common",
    ".purgem turbolane_marks_finish",
    ".purgem turbolane_marks_arguments",
    ".popsection",
    entered = sym entered,
    left = sym left,
    finish = sym finish,
    vectors = const VECTORS,
    area = const AREA_BYTES,
    header = const HEADER,
    slots = const SLOTS,
    call = const CALL,
    rest = const REST,
);
