// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles policy/ natively, as strictly as it must be for its other build.

fn main() {
    cc::Build::new()
        .file("c/native.c")
        .include("../../policy")
        .std("c11")
        .flag("-ffreestanding")
        .flag("-Wno-unknown-pragmas")
        .warnings(true)
        .extra_warnings(true)
        .warnings_into_errors(true)
        .compile("tlpolicy");
    println!("cargo:rerun-if-changed=../../policy");
    println!("cargo:rerun-if-changed=c");
}
