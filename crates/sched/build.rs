// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles bpf/ and generates the skeletons that src/bpf.rs and src/record/bpf.rs include.

use std::{env, path::PathBuf};

use libbpf_cargo::SkeletonBuilder;

fn main() {
    skeleton("main.bpf.c", "lane.skel.rs");
    skeleton("trace.bpf.c", "trace.skel.rs");
    for dir in ["../../bpf", "../../policy"] {
        println!("cargo:rerun-if-changed={dir}");
    }
    println!("cargo:rerun-if-env-changed=BPF_CLANG");
}

fn skeleton(source: &str, skeleton: &str) {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join(skeleton);
    let clang = env::var("BPF_CLANG").unwrap_or_else(|_| "clang-19".into());
    SkeletonBuilder::new()
        .source(format!("../../bpf/{source}"))
        .clang(clang)
        .clang_args(["-mcpu=v3", "-Wall", "-Werror", "-Wno-unused-function"])
        .build_and_generate(&out)
        .unwrap_or_else(|e| {
            panic!("bpf/{source}: {e:#}\nIs clang-19 installed? `./x build` installs it.")
        });
}
