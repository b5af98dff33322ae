// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two things the manifest cannot say.
//!
//! The linker, GNU's. Rust's own, lld, takes the functions that unwind tables name for used,
//! even those of other code, and with the standard library's comes its panic machinery: 300 KB for
//! a library of 15. (Cargo hands the argument on to shared libraries that use this crate,
//! libturbolane.so too, which is why no name for the dynamic linker is set here.)
//!
//! `cfg(x86_64_abi)`: use what only the x86-64 ELF ABI has (src/thread_local.rs, src/cpu.rs).
//! `TURBOLANE_PORTABLE=1` in the environment leaves it out, so that the portable paths can be
//! tested on any machine.

use std::env::var;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=TURBOLANE_PORTABLE");
    println!("cargo::rustc-cdylib-link-arg=-fuse-ld=bfd");
    println!("cargo::rustc-check-cfg=cfg(x86_64_abi)");
    let is = |name, value: &str| var(name).is_ok_and(|is| is == value);
    if is("CARGO_CFG_TARGET_ARCH", "x86_64")
        && is("CARGO_CFG_TARGET_POINTER_WIDTH", "64")
        && !is("TURBOLANE_PORTABLE", "1")
    {
        println!("cargo::rustc-cfg=x86_64_abi");
    }
}
