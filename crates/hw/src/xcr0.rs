// SPDX-License-Identifier: MIT OR Apache-2.0
//! XCR0: the register states that the kernel has switched on.
//!
//! XGETBV reads the register of the CPU that executes it, and where `turbolane_trap` has armed
//! that CPU, user code finds less there than the kernel switched on: `doctor` would deny a CPU
//! its AVX-512, and `run --trap` refuse to withhold what is withheld already. The kernel's own
//! list of features does not change with the module. It drops `avx`, `avx512f` and `amx_tile`
//! at boot if it does not switch on what they need, so the states they need are added to what
//! XGETBV shows.
//!
//! Bits: Intel SDM volume 1, 13.3.

use std::io::BufRead;

/// SSE and AVX state.
pub const AVX: u64 = 0b110;
/// Opmask, upper halves of zmm0-15, zmm16-31, on top of AVX.
pub const AVX512: u64 = 0b1110_0000 | AVX;
/// Tile configuration and tile data.
pub const AMX: u64 = 0b11 << 17;

/// What the machine's kernel has switched on, seen from a CPU that is armed or not. The caller
/// has made sure of OSXSAVE.
pub(crate) fn of_this_machine() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: XGETBV is legal in user mode where OSXSAVE is set; it reads XCR0 (ECX = 0) and
    // touches no memory.
    unsafe {
        std::arch::asm!("xgetbv", in("ecx") 0u32, out("eax") low, out("edx") high,
            options(nomem, nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low) | needed_by(&kernel_flags())
}

/// The first `flags` line of /proc/cpuinfo; empty where it cannot be read.
fn kernel_flags() -> String {
    let Ok(file) = std::fs::File::open("/proc/cpuinfo") else { return String::new() };
    // The file is made CPU by CPU while it is read: hundreds of them are left unread.
    let lines = std::io::BufReader::new(file).lines().map_while(Result::ok);
    lines.into_iter().find(|line| line.starts_with("flags")).unwrap_or_default()
}

/// The states that the features of a `flags` line need.
fn needed_by(flags: &str) -> u64 {
    flags.split_ascii_whitespace().fold(0, |states, flag| {
        states
            | match flag {
                "avx" => AVX,
                "avx512f" => AVX512,
                "amx_tile" => AMX,
                _ => 0,
            }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each feature stands for the states it needs, and its longer namesakes for none.
    #[test]
    fn flags_name_states() {
        assert_eq!(needed_by("flags\t\t: fpu sse2 avx fsgsbase"), AVX);
        assert_eq!(needed_by("flags\t\t: avx avx2 avx512f avx512vl"), AVX512);
        assert_eq!(needed_by("flags\t\t: avx avx512f amx_bf16 amx_tile"), AVX512 | AMX);
        assert_eq!(needed_by("flags\t\t: sse2 avx2 avx512_vnni"), 0);
        assert_eq!(needed_by(""), 0);
    }
}
