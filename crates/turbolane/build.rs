// SPDX-License-Identifier: MIT OR Apache-2.0
//! The shared library's name in the dynamic linker, which the manifest cannot say. (Which symbols
//! it exports is rustc's doing: a cdylib exports the `#[no_mangle]` functions, those of the hint
//! too, and nothing else; tests/capi.rs checks.)

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libturbolane.so.0");
}
