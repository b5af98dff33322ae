// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernels' code.
//!
//! In assembly, because a compiler may widen, narrow, fuse or drop what it is given: what is
//! measured must be the instruction that the table names. Each function runs so many rounds of one
//! loop and loads its operands itself, since the compiler owns the registers between two calls.
//! Loops write vector registers 0 to 13, so that none waits for another's result.
//!
//! Limits: `dec; jnz` adds one fused operation to each round (1 in 15 when dense), and the loads of
//! the operands two instructions to each call (some hundreds of rounds).

use std::arch::asm;

use crate::kernel::Kernel;

/// Runs so many rounds of a loop.
pub(crate) type Loop = unsafe fn(u64);

/// What the loops read and write: a line per register.
#[repr(C, align(64))]
struct Data {
    /// 1.0000001, no power of two: multipliers switch bits.
    value: [f64; 8],
    /// Indices of a scatter: one element in each line of `target`.
    index: [u64; 8],
    /// What scatter writes.
    target: [u64; 64],
}

thread_local! {
    static DATA: std::cell::UnsafeCell<Data> = const {
        std::cell::UnsafeCell::new(Data {
            value: [1.000_000_1; 8],
            index: [0, 8, 16, 24, 32, 40, 48, 56],
            target: [0; 64],
        })
    };
}

/// A loop: what is done once, and the body of a round.
macro_rules! rounds {
    ($name:ident, [$($setup:expr),*], [$($body:expr),+]) => {
        /// # Safety
        /// The CPU must have the instructions; see `Need`.
        unsafe fn $name(loops: u64) {
            let data: *mut Data = DATA.with(|data| data.get());
            // SAFETY: reads and writes this thread's `Data` and nothing else in memory (offsets are
            // those of its fields, 64 bytes each before `target`); every register that is written
            // is named.
            unsafe {
                asm!(
                    $($setup,)*
                    ".p2align 6",
                    "2:",
                    $($body,)+
                    "dec r9",
                    "jnz 2b",
                    inout("r9") loops.max(1) => _,
                    in("rsi") data,
                    in("r8") 0u64,
                    out("rax") _, out("rcx") _, out("rdx") _, out("rdi") _,
                    out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                    out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
                    out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                    out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
                    out("k1") _,
                    options(nostack),
                );
            }
        }
    };
}

/// A kernel of one three-operand instruction: dense, and one in 4, 16 and 80.
macro_rules! vector {
    ($dense:ident, $in4:ident, $in16:ident, $in80:ident, $insn:literal, $reg:literal) => {
        rounds!(
            $dense,
            [
                concat!("vbroadcastsd ", $reg, "14,[rsi]"),
                concat!("vbroadcastsd ", $reg, "15,[rsi]")
            ],
            [
                ".irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13",
                concat!($insn, " ", $reg, "\\i,", $reg, "14,", $reg, "15"),
                ".endr"
            ]
        );
        sparse!(
            $in4,
            $in16,
            $in80,
            [
                concat!("vbroadcastsd ", $reg, "14,[rsi]"),
                concat!("vbroadcastsd ", $reg, "15,[rsi]")
            ],
            [concat!($insn, " ", $reg, "0,", $reg, "14,", $reg, "15")]
        );
    };
}

/// One round of something with 3, 15 and 79 scalar additions after it.
macro_rules! sparse {
    ($in4:ident, $in16:ident, $in80:ident, $setup:tt, [$($one:expr),+]) => {
        rounds!($in4, $setup, [$($one,)+ "add rax,r8", "add rcx,r8", "add rdx,r8"]);
        rounds!(
            $in16, $setup,
            [$($one,)+ ".rept 5", "add rax,r8", "add rcx,r8", "add rdx,r8", ".endr"]
        );
        rounds!(
            $in80, $setup,
            [
                $($one,)+
                ".rept 19", "add rax,r8", "add rcx,r8", "add rdx,r8", "add rdi,r8", ".endr",
                "add rax,r8", "add rcx,r8", "add rdx,r8"
            ]
        );
    };
}

rounds!(scalar, [], [".rept 14", "add rax,r8", "add rcx,r8", "add rdx,r8", "add rdi,r8", ".endr"]);
// 128 bits: the broadcast has no xmm form.
rounds!(
    int_128,
    ["vmovddup xmm14,[rsi]", "vmovddup xmm15,[rsi]"],
    [".irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13", "vpaddq xmm\\i,xmm14,xmm15", ".endr"]
);
rounds!(
    fma_128,
    ["vmovddup xmm14,[rsi]", "vmovddup xmm15,[rsi]"],
    [".irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13", "vfmadd231pd xmm\\i,xmm14,xmm15", ".endr"]
);
vector!(int_256, int_256_4, int_256_16, int_256_80, "vpaddq", "ymm");
vector!(mul_256, mul_256_4, mul_256_16, mul_256_80, "vpmuludq", "ymm");
vector!(fma_256, fma_256_4, fma_256_16, fma_256_80, "vfmadd231pd", "ymm");
vector!(int_512, int_512_4, int_512_16, int_512_80, "vpaddq", "zmm");
vector!(mul_512, mul_512_4, mul_512_16, mul_512_80, "vpmuludq", "zmm");
vector!(fma_512, fma_512_4, fma_512_16, fma_512_80, "vfmadd231pd", "zmm");
// Legacy encoding: it leaves the upper halves, which `prepare` has made dirty, as they are.
rounds!(
    dirty_upper,
    ["movups xmm14,[rsi]"],
    [".irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13", "paddq xmm\\i,xmm14", ".endr"]
);
rounds!(
    scatter,
    ["vmovdqu64 zmm14,[rsi]", "vmovdqu64 zmm15,[rsi+64]"],
    ["kxnorw k1,k1,k1", "vpscatterqq [rsi+zmm15*8+128]{{k1}},zmm14"]
);
sparse!(
    scatter_4,
    scatter_16,
    scatter_80,
    ["vmovdqu64 zmm14,[rsi]", "vmovdqu64 zmm15,[rsi+64]"],
    ["kxnorw k1,k1,k1", "vpscatterqq [rsi+zmm15*8+128]{{k1}},zmm14"]
);
rounds!(
    amx,
    [],
    [
        "tdpbf16ps tmm0,tmm6,tmm7",
        "tdpbf16ps tmm1,tmm6,tmm7",
        "tdpbf16ps tmm2,tmm6,tmm7",
        "tdpbf16ps tmm3,tmm6,tmm7"
    ]
);
sparse!(amx_4, amx_16, amx_80, [], ["tdpbf16ps tmm0,tmm6,tmm7"]);

/// The loop of a kernel at a density; `None` for a density that it has not.
pub(crate) fn code(kernel: &Kernel, one_in: u32) -> Option<Loop> {
    let by_density = |loops: [Loop; 4]| {
        let at = crate::kernel::DENSITIES.iter().position(|density| *density == one_in)?;
        Some(loops[at])
    };
    let dense = |one: Loop| (one_in == 1).then_some(one);
    match kernel.name {
        "scalar" => dense(scalar),
        "128-int" => dense(int_128),
        "128-fma" => dense(fma_128),
        "256-int" => by_density([int_256, int_256_4, int_256_16, int_256_80]),
        "256-mul" => by_density([mul_256, mul_256_4, mul_256_16, mul_256_80]),
        "256-fma" => by_density([fma_256, fma_256_4, fma_256_16, fma_256_80]),
        "512-int" => by_density([int_512, int_512_4, int_512_16, int_512_80]),
        "dirty-upper" => dense(dirty_upper),
        "512-mul" => by_density([mul_512, mul_512_4, mul_512_16, mul_512_80]),
        "512-fma" => by_density([fma_512, fma_512_4, fma_512_16, fma_512_80]),
        "scatter" => by_density([scatter, scatter_4, scatter_16, scatter_80]),
        "amx" => by_density([amx, amx_4, amx_16, amx_80]),
        _ => None,
    }
}

/// Registers that a kernel wants to find as it left them: tiles, dirty upper halves.
///
/// # Safety
/// The CPU must have what the kernel needs; for AMX, [`permit_amx`] must have succeeded.
pub(crate) unsafe fn prepare(kernel: &Kernel) {
    match kernel.name {
        // SAFETY: upheld by the caller.
        "amx" => unsafe { load_tiles() },
        "dirty-upper" => {
            let value = 1.000_000_1f64;
            // SAFETY: upheld by the caller; reads one local, writes vector registers that are
            // named.
            unsafe {
                asm!(
                    ".irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
                    "vbroadcastsd zmm\\i,[{value}]",
                    ".endr",
                    value = in(reg) &value,
                    out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                    out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
                    out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                    out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
                    options(nostack, readonly),
                );
            }
        }
        _ => {}
    }
}

/// Leaves no dirty upper half and no tile: both would widen or slow the scalar code after.
///
/// # Safety
/// As [`prepare`].
pub(crate) unsafe fn finish(kernel: &Kernel) {
    match kernel.need {
        crate::kernel::Need::Baseline => {}
        // SAFETY: upheld by the caller; changes tile registers only.
        crate::kernel::Need::Amx => unsafe { asm!("tilerelease", options(nostack, nomem)) },
        // SAFETY: every other kernel needs AVX2 at least. Upper halves are no one's across a call.
        _ => unsafe {
            asm!(
                "vzeroupper",
                out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
                out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
                options(nostack, nomem),
            );
        },
    }
}

/// The configuration that LDTILECFG reads (Intel SDM volume 1, 18.3): palette 1, eight tiles of 16
/// rows of 64 bytes.
#[repr(C, align(64))]
struct TileConfig {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    colsb: [u16; 16],
    rows: [u8; 16],
}
const _: () = assert!(size_of::<TileConfig>() == 64);

unsafe fn load_tiles() {
    let mut config =
        TileConfig { palette: 1, start_row: 0, reserved: [0; 14], colsb: [0; 16], rows: [0; 16] };
    config.colsb[..8].fill(64);
    config.rows[..8].fill(16);
    // bfloat16 1.0 in each element
    let ones = [0x3f80_u16; 512];
    // SAFETY: AMX is there and permitted, as the caller promises; LDTILECFG reads 64 bytes of
    // `config`, TILELOADD 16 rows of 64 bytes of `ones`, which has 1,024 bytes.
    unsafe {
        asm!(
            "ldtilecfg [{config}]",
            "tileloadd tmm6,[{ones}+{stride}*1]",
            "tileloadd tmm7,[{ones}+{stride}*1]",
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            config = in(reg) &config,
            ones = in(reg) ones.as_ptr(),
            stride = in(reg) 64u64,
            options(nostack, readonly),
        );
    }
}

/// Asks the kernel to let this process use tiles (arch_prctl(2), ARCH_REQ_XCOMP_PERM for
/// XTILEDATA).
pub(crate) fn permit_amx() -> std::io::Result<()> {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;
    // SAFETY: changes the permissions of this process, no memory.
    let answer =
        unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) };
    if answer == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use hw::Live;
    use hw::cpu::read_cpu;

    use super::*;
    use crate::kernel::{KERNELS, Need};

    /// Every kernel has code for each of its densities, and what this CPU has runs to its end.
    #[test]
    fn kernels_run() {
        let features = read_cpu(&Live).features;
        let amx = features.amx_tile && permit_amx().is_ok();
        for kernel in &KERNELS {
            for one_in in kernel.densities() {
                let run = code(kernel, *one_in).expect(kernel.name);
                if kernel.need.unmet(&features).is_some() || kernel.need == Need::Amx && !amx {
                    continue;
                }
                // SAFETY: the features were just looked at.
                unsafe {
                    prepare(kernel);
                    run(3);
                    finish(kernel);
                }
            }
            assert!(code(kernel, 3).is_none(), "{} has no such density", kernel.name);
        }
    }

    /// Scatter writes where it should, so the buffer it is given is the one it uses.
    #[test]
    fn scatter_writes_its_buffer() {
        if Need::Avx512f.unmet(&read_cpu(&Live).features).is_some() {
            return;
        }
        // SAFETY: AVX-512 is there; nothing else holds a reference to this thread's data.
        let written = unsafe {
            scatter(1);
            finish(Kernel::named("scatter").unwrap());
            DATA.with(|data| (*data.get()).target)
        };
        let places = written.iter().enumerate().filter(|(_, word)| **word != 0);
        assert!(places.map(|(at, _)| at).eq((0..64).step_by(8)));
    }
}
