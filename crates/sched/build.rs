// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles bpf/ and generates the skeleton that src/bpf.rs includes.

use std::{env, path::PathBuf};

use libbpf_cargo::SkeletonBuilder;

fn main() {
    let out =
        PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("lane.skel.rs");
    let clang = env::var("BPF_CLANG").unwrap_or_else(|_| "clang-19".into());
    SkeletonBuilder::new()
        .source("../../bpf/main.bpf.c")
        .clang(clang)
        .clang_args(["-mcpu=v3", "-Wall", "-Werror", "-Wno-unused-function"])
        .build_and_generate(&out)
        .unwrap_or_else(|e| {
            panic!("bpf/main.bpf.c: {e:#}\nIs clang-19 installed? `./x build` installs it.")
        });
    for dir in ["../../bpf", "../../policy"] {
        println!("cargo:rerun-if-changed={dir}");
    }
    println!("cargo:rerun-if-env-changed=BPF_CLANG");
}
