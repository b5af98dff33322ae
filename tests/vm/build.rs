// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links the C programs that the tests run: guests have no compiler.

use std::path::Path;
use std::process::Command;

/// A 32-bit program without a C library, and without vector code of the compiler's own.
const FREESTANDING_32: [&str; 8] = [
    "-m32",
    "-static",
    "-nostdlib",
    "-ffreestanding",
    "-fno-pic",
    "-no-pie",
    "-mno-sse",
    "-fno-stack-protector",
];

fn main() {
    let out = std::env::var("OUT_DIR").expect("cargo sets it");
    let programs = [
        ("asks", "c/asks.c", &[][..]),
        ("asks-static", "c/asks.c", &["-static", "-DSTATIC"]),
        ("maps_code", "c/maps_code.c", &[]),
        ("ranks", "c/ranks.c", &["-pthread"]),
        ("sections", "c/sections.c", &[]),
        ("shares", "c/shares.c", &[]),
        ("frames32", "c/frames32.c", &FREESTANDING_32),
    ];
    for (name, source, options) in programs {
        let done = Command::new("cc")
            .args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"])
            .arg(Path::new(&out).join(name))
            .arg(source)
            .args(options)
            .status()
            .expect("cc starts; install the package gcc");
        assert!(done.success(), "cc cannot link {name}");
    }
    println!("cargo:rerun-if-changed=c");
}
