// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which instructions raise the licence level, and to what.
//!
//! Problem: the trap module decides by it whether a task has to move, the
//! scanner whether a function is worth a mark. Two lists would differ.
//!
//! Idea: `data/isa/classes.toml` says it once, by mnemonic, with sources. This
//! crate looks it up for instructions decoded by iced-x86; the module's table
//! (`kmod/isa_table.h`) is generated from it by opcode, and `tests/decode`
//! compares the two.
//!
//! Limits: legacy SSE has no class, because 128-bit code raises no level. What
//! one instruction asks for is not yet a change of the frequency: heavy code
//! needs a density (SYSTOR 2.1).

mod pattern;
mod table;

use std::sync::LazyLock;

use iced_x86::{Code, Instruction, Mnemonic};

pub use table::{Class, Level, Table, Weight};

static BUILT_IN: LazyLock<Table> =
    LazyLock::new(|| Table::parse(include_str!("../../../data/isa/classes.toml")));

/// By `Code`, so that a scanner pays one look-up per instruction.
static BY_CODE: LazyLock<Vec<Option<Demand>>> = LazyLock::new(|| Code::values().map(of).collect());

/// What one instruction asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    /// Its class in the table.
    pub class: &'static Class,
    /// Length of its vectors: 128, 256 or 512; 0 if it has none.
    pub width_bits: u16,
    /// The licence level it asks for.
    pub license_level: u8,
}

/// The whole table.
#[must_use]
pub fn table() -> &'static Table {
    &BUILT_IN
}

/// A mnemonic as the table spells it.
#[must_use]
pub fn name(mnemonic: Mnemonic) -> String {
    format!("{mnemonic:?}").to_lowercase()
}

/// What an instruction asks for; `None` if it is of no class: it has no vector
/// and no tile, or is legacy SSE, or is no instruction at all.
#[must_use]
pub fn demand(instruction: &Instruction) -> Option<Demand> {
    BY_CODE[instruction.code() as usize]
}

fn of(code: Code) -> Option<Demand> {
    let class = BUILT_IN.class_of(&name(code.mnemonic()))?;
    let width_bits = width_bits(&format!("{code:?}"));
    Some(Demand { class, width_bits, license_level: BUILT_IN.level(class.weight, width_bits) })
}

/// The longest vector among the operands that iced-x86 spells out in the name
/// of the code: `EVEX_Vcvtpd2ps_ymm_k1z_zmmm512b64_er`. The registers alone do
/// not decide it: here the 512 bits may come from memory. A scalar instruction
/// names 128-bit registers. The prefetches of gathers exist in 512 bits only,
/// and may name half of them as indices.
fn width_bits(code: &str) -> u16 {
    let spelt: [(u16, &[&str]); 3] = [
        (512, &["zmm", "vm32z", "vm64z", "gatherpf", "scatterpf"]),
        (256, &["ymm", "vm32y", "vm64y"]),
        (128, &["xmm"]),
    ];
    let longest = spelt.iter().find(|(_, parts)| parts.iter().any(|part| code.contains(part)));
    longest.map_or(0, |(bits, _)| *bits)
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions};

    use super::*;

    fn of_bytes(bytes: &[u8]) -> Option<(&'static str, u16, u8)> {
        let instruction = Decoder::new(64, bytes, DecoderOptions::NONE).decode();
        let demand = demand(&instruction)?;
        Some((&demand.class.name, demand.width_bits, demand.license_level))
    }

    /// Weight and length give the level of THESIS table 2.1.
    #[test]
    fn one_of_each_level() {
        for (bytes, want) in [
            (&[0xc5, 0xfc, 0x28, 0xc1][..], ("move", 256, 0)), // vmovaps ymm0, ymm1
            (&[0xc5, 0xf4, 0x58, 0xc2], ("fp", 256, 1)),       // vaddps ymm0, ymm1, ymm2
            (&[0xc5, 0xf2, 0x58, 0xc2], ("fp", 128, 0)),       // vaddss xmm0, xmm1, xmm2
            (&[0x62, 0xf1, 0x7c, 0x48, 0x28, 0xc1], ("move", 512, 1)), // vmovaps zmm0, zmm1
            // vfmadd231ps zmm0, zmm1, zmm2
            (&[0x62, 0xf2, 0x75, 0x48, 0xb8, 0xc2], ("fma", 512, 2)),
            (&[0xc4, 0xe2, 0x6b, 0x5e, 0xc1], ("tile", 0, 3)), // tdpbssd tmm0, tmm1, tmm2
            (&[0xc5, 0xfd, 0x5a, 0x01], ("fp", 256, 1)),       // vcvtpd2ps xmm0, ymmword [rcx]
        ] {
            assert_eq!(of_bytes(bytes), Some(want), "{bytes:02x?}");
        }
    }

    #[test]
    fn others_ask_for_nothing() {
        for bytes in [&[0x90][..], &[0x0f, 0x58, 0xc1], &[0xc4, 0xe2, 0xfb, 0xf6, 0xc1], &[0x06]] {
            assert_eq!(of_bytes(bytes), None, "{bytes:02x?}");
        }
    }
}
