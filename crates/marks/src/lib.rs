// SPDX-License-Identifier: MIT OR Apache-2.0
//! Marks without breakpoints: `LD_PRELOAD=libturbolane_marks.so TURBOLANE_MARKS=MARKS CMD`.
//!
//! Problem: a mark of `turbolane run --mark` is a breakpoint at the function's entry and another
//! one at its return: a microsecond at each call, whether the task has to move or not. A hint costs
//! a few stores, but it has to be written into the program.
//!
//! Idea: calls from one object to another go through addresses that the dynamic linker writes into
//! the caller's global offset table. This library replaces those of marked functions by small
//! pieces of code of its own, which open a wide section ([`turbolane_hint::wide_begin`]), call the
//! function and close the section.
//!
//! ```text
//!   nginx -> libssl: call *entry -> stub: begin -> EVP_CipherUpdate of libcrypto -> end
//! ```
//!
//! MARKS are marks in the syntax of `--mark`, separated by `;` or line ends, or the path of a file
//! of them, as `turbolane scan --marks` writes it. With `report` among them, the library says at
//! exit how many callers of each it has found.
//!
//! Limits: calls inside of one object are not reached, nor calls through addresses that a program
//! has looked up itself (dlsym(3)) or keeps in its data; marks by offset are refused. Objects that
//! are loaded later are examined at the program's next dlopen(3) or dlsym(3). A function may have
//! arguments of up to [`STACK_BYTES`] on the stack. Only glibc on x86-64. A program that compares
//! a marked function's address with one that the function's own library knows sees a difference.
//!
//! What the library calls itself opens no section: the end of that would call it again.
//!
//! Without `TURBOLANE_MARKS`, with marks that make no sense (which is said on stderr, once), and in
//! programs with more rights than their user has, nothing is replaced.
//!
//! `config` is the syntax of marks, `objects` walks through what is loaded and decides whose
//! entries are replaced, `write` replaces one, `slots` knows what each stub is for, `lookup`
//! learns it from a first call. `stub` is the code that is called instead, `frame` what it has on
//! its stack, `sections` what happens before and after the call, `thread` the sections that are
//! open. `interpose` is how the library is switched on, and hears of objects that come later.
//!
//! As libturbolane_openssl.so, the library carries the hint with it, exports its functions, and has
//! no allocation, no formatting and no path that panics (`./x test size`).

#![no_std]

// For the panic handler that a shared object has to have, and for tests.
extern crate std;

mod config;
mod frame;
mod interpose;
mod lookup;
mod objects;
mod sections;
mod slots;
mod stub;
mod thread;
mod write;

pub use config::{Invalid, MARKS_MAX, Mark, Marks, Rule, parse};
pub use sections::STACK_BYTES;

/// Pages of x86-64, bytes.
const PAGE_BYTES: usize = 4096;

/// Whether a byte is in a text: `contains` of a slice would bring the standard library's panic
/// machinery along.
fn has(text: &[u8], byte: u8) -> bool {
    text.splitn(2, |other| *other == byte).count() == 2
}
