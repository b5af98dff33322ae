// SPDX-License-Identifier: MIT OR Apache-2.0
//! A function to mark: as a compiler would begin it, calling back into the test.

use std::arch::global_asm;

global_asm!(
    ".text",
    ".macro wide_section name",
    ".balign 64",
    ".globl \\name",
    ".type \\name, @function",
    "\\name:",
    "push rbp",
    "mov rbp, rsp",
    "call rsi",
    "pop rbp",
    "ret",
    ".size \\name, . - \\name",
    ".endm",
    "wide_section vmtests_wide_section",
    "wide_section vmtests_wide_another",
);

unsafe extern "C" {
    fn vmtests_wide_section(context: *mut u8, body: extern "C" fn(*mut u8), length: u64);
    fn vmtests_wide_another(context: *mut u8, body: extern "C" fn(*mut u8), length: u64);
}

/// Name of the function, for `--mark`.
pub const SYMBOL: &str = "vmtests_wide_section";

/// Name of another one, as long as the first one's.
pub const ANOTHER: &str = "vmtests_wide_another";

/// Run nothing inside the first function, or inside the other one.
pub fn call(another: bool) {
    extern "C" fn nothing(_: *mut u8) {}
    let function = if another { vmtests_wide_another } else { vmtests_wide_section };
    // SAFETY: the functions call their second argument with their first, once.
    unsafe { function(std::ptr::null_mut(), nothing, 0) }
}

/// Run the body inside the marked function.
pub fn marked<F: FnMut()>(body: F) {
    marked_with(0, body);
}

/// The same with a third argument, which the function does not use.
pub fn marked_with<F: FnMut()>(length: u64, mut body: F) {
    extern "C" fn call<F: FnMut()>(context: *mut u8) {
        // SAFETY: context is the closure that `marked` passed, alive until it returns.
        unsafe { (*context.cast::<F>())() }
    }
    // SAFETY: the function calls its second argument with its first, once.
    unsafe { vmtests_wide_section((&raw mut body).cast(), call::<F>, length) }
}

/// `FILE:FUNCTION` of this binary, for `--mark`.
pub fn mark() -> String {
    format!("/proc/self/exe:{SYMBOL}").replace("/proc/self/exe", &exe())
}

fn exe() -> String {
    std::fs::read_link("/proc/self/exe")
        .map_or_else(|_| "/proc/self/exe".into(), |p| p.display().to_string())
}
