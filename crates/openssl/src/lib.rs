// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hints for programs that use OpenSSL: `LD_PRELOAD=libturbolane_openssl.so TURBOLANE_OPENSSL=LEVEL
//! CMD`.
//!
//! Problem: OpenSSL's bulk ciphers are the wide code of web servers (SFMA 4, SYSTOR 4.1). A mark at
//! one of its functions (`turbolane run --mark`) costs two breakpoints per call, whether the task
//! has to move or not. A hint costs a few stores, but it has to be written into the program.
//!
//! Idea: the functions through which programs, and libssl, reach the ciphers are few and exported.
//! This library has functions of the same names, which the dynamic linker finds first. Each opens a
//! wide section ([`turbolane_hint::wide_begin`]), calls the real function and closes the section.
//!
//! ```text
//!   nginx -> libssl -> EVP_CipherUpdate (ours): begin -> EVP_CipherUpdate (libcrypto) -> end
//! ```
//!
//! A call without output authenticates a record's header, and the record follows at once: in
//! between the thread rests ([`turbolane_hint::scalar_for`]) instead of leaving its wide CPU and
//! coming back.
//!
//! LEVEL is the licence level of the program's cipher on this CPU; `turbolane scan` says it of
//! libcrypto's functions. `LEVEL,BYTES` leaves calls with fewer bytes alone.
//!
//! Limits: the dynamic linker has to see the call. Calls inside libcrypto and programs that contain
//! OpenSSL (static linking) are not reached, nor are those that look the functions up in a
//! library's handle by dlsym(3).
//!
//! Without `TURBOLANE_OPENSSL`, with a value that makes no sense (which is said on stderr, once),
//! and in programs with more rights than their user has, calls go straight to OpenSSL.
//!
//! `config` is the variable's grammar, `real` finds the function that a caller would have reached
//! without us, in the version that the caller asks for, `interpose` has the functions.
//!
//! The library carries the hint with it and exports its functions: a program that gives hints too,
//! by libturbolane.so, gets those, and both have one state. It is small, since it is preloaded into
//! programs of any kind: no allocation, no formatting, no path that panics (`./x test size`
//! measures that).

#![no_std]

// For the panic handler that a shared object has to have, and for tests.
extern crate std;

mod config;
mod interpose;
mod real;

pub use config::{Config, DEFAULT_BYTES, Invalid, parse};
