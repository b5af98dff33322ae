// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles the trap module's decoder for user space, as strictly as the
//! kernel does.

fn main() {
    cc::Build::new()
        .file("../../kmod/decode.c")
        .file("../../kmod/ahead.c")
        .std("gnu11")
        .flag("-ffreestanding")
        .flag("-Wdeclaration-after-statement")
        .flag("-Wmissing-prototypes")
        .warnings(true)
        .extra_warnings(true)
        .warnings_into_errors(true)
        .compile("tltdecode");
    for file in ["ahead.c", "ahead.h", "decode.c", "decode.h", "isa_table.h"] {
        println!("cargo:rerun-if-changed=../../kmod/{file}");
    }
}
