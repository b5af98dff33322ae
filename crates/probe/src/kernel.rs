// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernels under test: which instructions, what they need, and how dense they are.
//!
//! Each is a loop that does nothing else: 14 independent instructions on registers when dense, or
//! one of them in so many with independent scalar additions between. Operands are 1.0000001 (or
//! random bits), never denormal. Memory is touched by scatter alone, always in the first-level
//! cache.
//!
//! A kernel is there if CPUID has its features and XCR0 its registers; family and model are never
//! asked (virtual machines falsify them).
//!
//! Limits: power depends on data too (Schoene 2019), and these data are tame; a kernel
//! here is no stress test. What one round is worth per cycle is measured, never assumed.

use cpumodel::InsnClass;
use hw::cpu::Features;

/// What a kernel needs of the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// x86-64.
    Baseline,
    /// AVX2.
    Avx2,
    /// AVX2 and FMA.
    Fma,
    /// AVX-512 foundation.
    Avx512f,
    /// AMX tiles with bfloat16, and the kernel's permission to use them.
    Amx,
}

impl Need {
    /// Why it is not met, `None` if it is.
    pub fn unmet(self, features: &Features) -> Option<&'static str> {
        let (has, why) = match self {
            Need::Baseline => (true, ""),
            Need::Avx2 => (features.avx2, "the CPU has no AVX2, or the kernel keeps it off"),
            Need::Fma => (
                features.avx2 && features.fma,
                "the CPU has no AVX2 with FMA, or the kernel keeps it off",
            ),
            Need::Avx512f => {
                (features.avx512f, "the CPU has no AVX-512, or the kernel keeps it off")
            }
            Need::Amx => (features.amx_tile, "the CPU has no AMX, or the kernel keeps it off"),
        };
        (!has).then_some(why)
    }
}

/// One kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Its name in tables and recordings.
    pub name: &'static str,
    /// Its class in CPU files.
    pub class: InsnClass,
    /// What it needs.
    pub need: Need,
    /// What it executes.
    pub about: &'static str,
    /// Whether its first instruction widens what follows, so that its class is that of a register
    /// state and not of an instruction (it gives no rule for a CPU file).
    pub is_state: bool,
}

/// Densities: one instruction under test in so many. Dense, then about 1.5, 0.4 and 0.08 per cycle
/// on a core that dispatches six: either side of the thresholds that Downs 2020 and our own
/// measurements know (0.5 and 1.4 per cycle).
pub const DENSITIES: [u32; 4] = [1, 4, 16, 80];

/// Instructions under test in a round of the dense loop.
pub const DENSE_PER_LOOP: u32 = 14;

const fn kernel(name: &'static str, class: InsnClass, need: Need, about: &'static str) -> Kernel {
    Kernel { name, class, need, about, is_state: false }
}

/// All, narrowest first.
pub const KERNELS: [Kernel; 12] = [
    kernel("scalar", InsnClass::Scalar, Need::Baseline, "add r64,r64"),
    kernel("128-int", InsnClass::Scalar, Need::Avx2, "vpaddq xmm"),
    kernel("128-fma", InsnClass::Scalar, Need::Fma, "vfmadd231pd xmm"),
    kernel("256-int", InsnClass::Light256, Need::Avx2, "vpaddq ymm"),
    kernel("256-mul", InsnClass::Heavy256, Need::Avx2, "vpmuludq ymm"),
    kernel("256-fma", InsnClass::Heavy256, Need::Fma, "vfmadd231pd ymm"),
    kernel("512-int", InsnClass::Light512, Need::Avx512f, "vpaddq zmm"),
    Kernel {
        name: "dirty-upper",
        class: InsnClass::Light512,
        need: Need::Avx512f,
        about: "paddq xmm over dirty upper halves of zmm0-15",
        is_state: true,
    },
    kernel("512-mul", InsnClass::Heavy512, Need::Avx512f, "vpmuludq zmm"),
    kernel("512-fma", InsnClass::Heavy512, Need::Avx512f, "vfmadd231pd zmm"),
    kernel("scatter", InsnClass::Heavy512, Need::Avx512f, "vpscatterqq zmm"),
    kernel("amx", InsnClass::Amx, Need::Amx, "tdpbf16ps"),
];

impl Kernel {
    /// The kernel of that name.
    pub fn named(name: &str) -> Option<&'static Kernel> {
        KERNELS.iter().find(|kernel| kernel.name == name)
    }

    /// Instructions under test in one round of its loop.
    pub fn wide_per_loop(&self, one_in: u32) -> u32 {
        match (one_in, self.name) {
            (1, "scalar") => 4 * DENSE_PER_LOOP,
            (1, "scatter") => 1,
            (1, "amx") => 4,
            (1, _) => DENSE_PER_LOOP,
            _ => 1,
        }
    }

    /// Densities that make sense for it: scalar code has none.
    pub fn densities(&self) -> &'static [u32] {
        if self.class == InsnClass::Scalar || self.is_state { &DENSITIES[..1] } else { &DENSITIES }
    }
}
