// SPDX-License-Identifier: MIT OR Apache-2.0
//! The linker is GNU's, which leaves out more: see the hint's build script.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-fuse-ld=bfd");
}
