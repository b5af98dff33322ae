// SPDX-License-Identifier: MIT OR Apache-2.0
//! What single instructions, loops and returns make of a function.

mod common;

use common::{Built, function, is_listed, listed, scan};
use report::scan::{Confidence, Question, Widest};

/// Name, body, level, lasting level, widest register.
const CASES: &[(&str, &str, u8, u8, Widest)] = &[
    ("ymm_light", "vpaddd %ymm1, %ymm2, %ymm3\nvzeroupper\nret", 0, 0, Widest::Ymm),
    ("ymm_heavy", "vmulps %ymm1, %ymm2, %ymm3\nvzeroupper\nret", 1, 1, Widest::Ymm),
    ("evex_ymm", "vmulps %ymm17, %ymm18, %ymm19\nret", 1, 1, Widest::Ymm),
    ("zmm_light", "vpaddd %zmm1, %zmm2, %zmm3\nvzeroupper\nret", 1, 1, Widest::Zmm),
    ("zmm_heavy", "vmulps %zmm1, %zmm2, %zmm3\nvzeroupper\nret", 2, 2, Widest::Zmm),
    ("masked", "vmulps %zmm1, %zmm2, %zmm3{%k1}{z}\nvzeroupper\nret", 2, 2, Widest::Zmm),
    ("broadcast", "vmulps (%rdi){1to16}, %zmm2, %zmm3\nvzeroupper\nret", 2, 2, Widest::Zmm),
    ("rounding", "vmulps {rz-sae}, %zmm1, %zmm2, %zmm3\nvzeroupper\nret", 2, 2, Widest::Zmm),
    ("scatter", "vpscatterdd %zmm1, (%rdi,%zmm2,4){%k1}\nret", 2, 2, Widest::Zmm),
    ("gather", "vpgatherdd (%rdi,%zmm2,4), %zmm1{%k1}\nvzeroupper\nret", 1, 1, Widest::Zmm),
    ("vnni", "vpdpbusd %zmm1, %zmm2, %zmm3\nvzeroupper\nret", 2, 2, Widest::Zmm),
    ("amx", "tdpbssd %tmm0, %tmm1, %tmm2\nret", 3, 3, Widest::None),
    ("narrowing", "vcvtpd2psy (%rdi), %xmm0\nret", 1, 1, Widest::Ymm),
];

/// One heavy 512-bit instruction in a loop of 2, and of 16.
const LOOPS: &str = "
.text
.globl dense, sparse, nested
.type dense, @function
dense:  vmulps %zmm1, %zmm2, %zmm3
        dec %edi
        jne dense
        vzeroupper
        ret
.size dense, . - dense
.type sparse, @function
sparse: vmulps %zmm1, %zmm2, %zmm3
        .rept 20
        inc %eax
        .endr
        dec %edi
        jne sparse
        vzeroupper
        ret
.size sparse, . - sparse
.type nested, @function
nested: .rept 40
        inc %eax
        .endr
1:      vmulps %zmm1, %zmm2, %zmm3
        dec %edi
        jne 1b
        dec %esi
        jne nested
        vzeroupper
        ret
.size nested, . - nested
";

fn library() -> report::scan::File {
    let cases = CASES.iter().map(|(name, body, ..)| function(name, body)).collect::<String>();
    let others = [
        function("scalar", "vaddss %xmm0, %xmm1, %xmm2\naddps %xmm0, %xmm1\nret"),
        function("asks", "xor %ecx, %ecx\ncpuid\nxgetbv\nret"),
        function("dirty", "vpaddd %ymm1, %ymm2, %ymm3\nret"),
        function("dirty_high", "vpaddd %ymm17, %ymm18, %ymm19\nret"),
        function("store_only", "vmovdqu %ymm1, (%rdi)\nret"),
        function(
            "one_way",
            "test %edi, %edi\nje 1f\nvpaddd %ymm1, %ymm2, %ymm3\nvzeroupper\nret\n\
             1: vpaddd %ymm1, %ymm2, %ymm3\nret",
        ),
        function(
            "mixed",
            "vpaddd %ymm1, %ymm2, %ymm3\naddps %xmm0, %xmm1\nvzeroupper\naddps %xmm0, %xmm1\nret",
        ),
        function(
            "mixed_apart",
            "vpaddd %ymm1, %ymm2, %ymm3\ntest %edi, %edi\nje 1f\naddps %xmm0, %xmm1\n\
             1: vzeroupper\naddps %xmm0, %xmm1\nret",
        ),
        LOOPS.into(),
    ];
    scan(&Built::new().link("classes.so", &(cases + &others.concat())))
}

/// Each class and corner has its level, and the widest register that it names (or that its operand
/// in memory is as wide as).
#[test]
fn levels_of_single_instructions() {
    let file = library();
    for (name, _, level, lasting, widest) in CASES {
        let found = listed(&file, name);
        assert_eq!(
            (found.license_level, found.sustained_level, found.widest, found.confidence),
            (*level, *lasting, *widest, Confidence::High),
            "{name}"
        );
    }
    for (name, count) in
        [("scatter", |c: &report::scan::Counts| c.scatter), ("gather", |c| c.gather)]
            as [(&str, fn(&report::scan::Counts) -> u64); 2]
    {
        assert_eq!(count(&listed(&file, name).counts), 1, "{name}");
    }
    assert_eq!(listed(&file, "vnni").counts.vnni, 1);
    assert_eq!(listed(&file, "amx").counts.tile_multiply, 1);
    assert_eq!(listed(&file, "zmm_heavy").counts.heavy.zmm, 1);
    assert_eq!(listed(&file, "zmm_light").counts.light.zmm, 1);
    assert!(!is_listed(&file, "scalar"));
    assert_eq!((file.license_level, file.widest, file.coverage_pct), (3, Widest::Zmm, Some(100.0)));
    assert_eq!(file.build_id.as_deref(), Some("0123456789abcdef"));
}

/// Heavy code counts for the lasting level where it can be one instruction of eight.
#[test]
fn density_in_loops() {
    let file = library();
    let density = |name| {
        let found = listed(&file, name);
        (found.license_level, found.sustained_level, found.in_loop, found.loops)
    };
    assert_eq!(density("dense"), (2, 2, Some(true), Some(1)));
    assert_eq!(density("sparse"), (2, 0, Some(true), Some(1)));
    assert_eq!(density("nested"), (2, 2, Some(true), Some(2)));
    let share = |name| listed(&file, name).heavy_frac.unwrap();
    assert!((share("dense") - 1.0 / 3.0).abs() < 1e-9);
    assert!((share("sparse") - 1.0 / 23.0).abs() < 1e-9);
    assert!((share("nested") - 1.0 / 3.0).abs() < 1e-9);
}

/// Returns that a dirty upper half reaches on some way; SSE instructions that run with one.
#[test]
fn dirty_upper_halves() {
    let file = library();
    let dirty = |name| (listed(&file, name).dirty_returns, listed(&file, name).dirty_sse);
    assert_eq!(dirty("dirty"), (1, 0));
    assert_eq!(dirty("dirty_high"), (0, 0));
    assert_eq!(dirty("store_only"), (0, 0));
    assert_eq!(dirty("one_way"), (1, 0));
    assert_eq!(dirty("mixed"), (0, 1));
    assert_eq!(dirty("mixed_apart"), (0, 1));
    assert_eq!(dirty("ymm_light"), (0, 0));
}

/// Where it asks what the CPU can do.
#[test]
fn questions_are_found() {
    let file = library();
    let asks: Vec<(Question, &str)> = file
        .checks
        .iter()
        .map(|check| (check.kind, check.function.as_deref().unwrap_or("?")))
        .collect();
    assert_eq!(asks, [(Question::Cpuid, "asks"), (Question::Xgetbv, "asks")]);
    assert_eq!(file.checks[1].address, file.checks[0].address + 2);
}
