// SPDX-License-Identifier: MIT OR Apache-2.0
//! Vector code for the tests: known values in all registers, held over what may lose them.
//!
//! All of it is assembly, so that between loading and storing nothing runs that the compiler
//! chose. Registers are AVX's sixteen: in QEMU that is what is withheld. With AVX-512 the same
//! code runs on zmm0-31 and k1-7.

use std::arch::asm;

/// What sixteen registers of 256 bits hold.
pub type Image = [u64; 64];

/// What thirty-two registers of 512 bits and seven masks hold.
pub type WideImage = [u64; 32 * 8 + 8];

/// Well mixed bits (the finaliser of MurmurHash3).
pub fn mix(x: u64) -> u64 {
    let x = (x ^ x >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    x ^ x >> 33
}

/// An image full of values that depend on `seed`.
pub fn image(seed: u64) -> Image {
    std::array::from_fn(|i| mix(seed.wrapping_add(i as u64)))
}

/// The same for AVX-512. Mask registers hold what the last words say.
pub fn wide_image(seed: u64) -> WideImage {
    std::array::from_fn(|i| mix(seed.wrapping_add(i as u64)))
}

/// An instruction for each of the registers that AVX has; `\\n` is the register's number.
macro_rules! each_ymm {
    ($instruction:literal) => {
        concat!(".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n", $instruction, "\n.endr\n")
    };
}

/// The same for AVX-512.
macro_rules! each_zmm {
    ($instruction:literal) => {
        concat!(
            ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,\
             16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n",
            $instruction,
            "\n.endr\n"
        )
    };
}

/// The system call whose number is in r15, r13 times, then r10 turns of a loop.
macro_rules! calls_and_spins {
    () => {
        "test r13, r13
         jz 3f
         2:
         mov rax, r15
         syscall
         dec r13
         jnz 2b
         3:
         test r10, r10
         jz 5f
         4:
         pause
         dec r10
         jnz 4b
         5:"
    };
}
pub(super) use calls_and_spins;

/// Loads all registers, makes the system call `number` with these arguments `calls` times, spins,
/// and returns what the registers hold then, with the last call's result.
pub fn hold(
    held: &Image,
    number: i64,
    arguments: [i64; 3],
    calls: u64,
    spins: u64,
) -> (Image, i64) {
    let mut after: Image = [0; 64];
    let mut result = 0_i64;
    // SAFETY: reads one image and writes another; the callers' system calls touch no memory of
    // ours. Everything that is clobbered is declared.
    unsafe {
        asm!(
            each_ymm!("vmovdqu ymm\\n, [r12 + 32 * \\n]"),
            calls_and_spins!(),
            each_ymm!("vmovdqu [r14 + 32 * \\n], ymm\\n"),
            "vzeroupper",
            in("r12") held.as_ptr(), in("r14") after.as_mut_ptr(), in("r15") number,
            in("rdi") arguments[0], in("rsi") arguments[1], in("rdx") arguments[2],
            inout("r13") calls => _, inout("r10") spins => _,
            inout("rax") result, out("rcx") _, out("r11") _,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _,
            out("xmm5") _, out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _,
            out("xmm10") _, out("xmm11") _, out("xmm12") _, out("xmm13") _, out("xmm14") _,
            out("xmm15") _,
        );
    }
    (after, result)
}

/// Puts these values into all registers, as a signal handler that uses them does.
pub fn clobber(values: &Image) {
    // SAFETY: reads one image.
    unsafe {
        asm!(
            each_ymm!("vmovdqu ymm\\n, [r12 + 32 * \\n]"),
            in("r12") values.as_ptr(),
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _,
            out("xmm5") _, out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _,
            out("xmm10") _, out("xmm11") _, out("xmm12") _, out("xmm13") _, out("xmm14") _,
            out("xmm15") _,
        );
    }
}

/// A checksum by vectors of four, `rounds` times.
pub fn vector_sum(seed: u64, rounds: u64) -> u64 {
    let mut v = [seed, seed.wrapping_add(1), seed.wrapping_add(2), seed.wrapping_add(3)];
    let c = [1_u64, 3, 5, 7];
    // SAFETY: reads and writes two local arrays.
    unsafe {
        asm!(
            "vmovdqu ymm0, [{v}]",
            "vmovdqu ymm1, [{c}]",
            "2:",
            "vpaddq ymm0, ymm0, ymm1",
            "vpsrlq ymm2, ymm0, 3",
            "vpxor ymm0, ymm0, ymm2",
            "dec {n}",
            "jnz 2b",
            "vmovdqu [{v}], ymm0",
            "vzeroupper",
            v = in(reg) v.as_mut_ptr(), c = in(reg) c.as_ptr(), n = inout(reg) rounds => _,
            out("xmm0") _, out("xmm1") _, out("xmm2") _,
        );
    }
    fold(v)
}

/// The same without vectors.
pub fn scalar_sum(seed: u64, rounds: u64) -> u64 {
    let mut v = [seed, seed.wrapping_add(1), seed.wrapping_add(2), seed.wrapping_add(3)];
    for _ in 0..rounds {
        for (word, step) in v.iter_mut().zip([1_u64, 3, 5, 7]) {
            *word = word.wrapping_add(step);
            *word ^= *word >> 3;
        }
    }
    fold(v)
}

fn fold(v: [u64; 4]) -> u64 {
    v[0] ^ v[1].wrapping_mul(3) ^ v[2].wrapping_mul(5) ^ v[3].wrapping_mul(7)
}

/// Legacy SSE registers and MXCSR over a system call: what putting AVX aside must not touch.
/// Returns whether both were kept.
pub fn sse_is_kept(seed: u64) -> bool {
    let rounding = 0x1f80_u32 | ((seed & 3) as u32) << 13;
    let before = [mix(seed), mix(seed ^ 9)];
    let (mut after, mut got) = ([0_u64; 2], 0_u32);
    let usual = 0x1f80_u32;
    // SAFETY: reads and writes locals; MXCSR is put back to its initial value.
    unsafe {
        asm!(
            "ldmxcsr [r12]",
            "movdqu xmm7, [r13]",
            "mov r8d, 2000",
            "2:",
            "pause",
            "dec r8d",
            "jnz 2b",
            "mov eax, 24", // sched_yield
            "syscall",
            "stmxcsr [r14]",
            "movdqu [r15], xmm7",
            "ldmxcsr [r9]",
            in("r12") &rounding, in("r13") before.as_ptr(), in("r14") &mut got,
            in("r15") after.as_mut_ptr(), in("r9") &usual,
            out("rax") _, out("rcx") _, out("r11") _, out("r8") _, out("xmm7") _,
        );
    }
    got & 0x6000 == rounding & 0x6000 && after == before
}

/// One vector instruction that is light (level 0 or 1): a move. Never inlined, since the module
/// reads what follows it.
#[inline(never)]
pub fn light() {
    // SAFETY: changes one register that it declares.
    unsafe { asm!("vpxor ymm3, ymm3, ymm3", "vzeroupper", out("xmm3") _) };
}

/// The same with 512 bits: [`light`] runs on where AVX-512 alone is withheld.
#[inline(never)]
pub fn light_512() {
    // SAFETY: changes one register that it declares.
    unsafe { asm!("vpxord zmm3, zmm3, zmm3", "vzeroupper", out("xmm3") _) };
}

/// One vector instruction that is heavy for its width: a multiplication.
#[inline(never)]
pub fn heavy() {
    // SAFETY: changes one register that it declares.
    unsafe { asm!("vmulpd ymm3, ymm3, ymm3", "vzeroupper", out("xmm3") _) };
}

/// As [`hold`] for all of AVX-512: zmm0-31 and k1-7.
pub fn hold_wide(held: &WideImage, number: i64, calls: u64, spins: u64) -> (WideImage, i64) {
    let mut after: WideImage = [0; 264];
    after[256] = held[256]; // k0 is not held
    let mut result = 0_i64;
    // SAFETY: as in `hold`; zmm16-31 and k1-7 belong to nobody over a call.
    unsafe {
        asm!(
            each_zmm!("vmovdqu64 zmm\\n, [r12 + 64 * \\n]"),
            ".irp n, 1,2,3,4,5,6,7",
            "kmovq k\\n, [r12 + 2048 + 8 * \\n]",
            ".endr",
            calls_and_spins!(),
            each_zmm!("vmovdqu64 [r14 + 64 * \\n], zmm\\n"),
            ".irp n, 1,2,3,4,5,6,7",
            "kmovq [r14 + 2048 + 8 * \\n], k\\n",
            ".endr",
            "vzeroupper",
            in("r12") held.as_ptr(), in("r14") after.as_mut_ptr(), in("r15") number,
            inout("r13") calls => _, inout("r10") spins => _,
            inout("rax") result, out("rcx") _, out("r11") _, in("rdi") 0, in("rsi") 0,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _,
            out("xmm5") _, out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _,
            out("xmm10") _, out("xmm11") _, out("xmm12") _, out("xmm13") _, out("xmm14") _,
            out("xmm15") _,
        );
    }
    (after, result)
}
