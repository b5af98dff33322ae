// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the scanner has to know about an instruction, by its iced-x86 code.
//!
//! Class and level come from `data/isa/classes.toml` through the crate `isa`. Added here is what
//! only the scanner asks: the widest register, which objdump would print; whether it leaves a dirty
//! upper half; and the few kinds that are counted by name.
//!
//! The widest register is not the length of the vectors: `vcvtpd2ps xmm0, [mem]` of 256 bits names
//! no ymm register. iced-x86 spells the operands in the name of the code; `ymmm256` means a
//! register or memory, so there are two answers, and an instruction with an operand in memory takes
//! the second.

use std::sync::LazyLock;

use iced_x86::{Code, Mnemonic, OpKind};
use iced_x86::{Instruction, Register};

use crate::traits::{Traits, Width, kind};

/// What is known of one code.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Facts {
    /// If no operand is in memory, and if one is: the widest register is another.
    traits: [Traits; 2],
    /// No program has it: it needs the kernel's rights, or compilers stopped using it decades ago.
    /// What is decoded from data is full of them.
    pub(crate) unlikely: bool,
}

impl Facts {
    /// The traits of `instruction`, which has these facts.
    pub(crate) fn traits(&self, instruction: &Instruction) -> Traits {
        let traits = self.traits[usize::from(has_memory(instruction))];
        if traits.length() >= Width::Ymm && dirties(traits, instruction) {
            traits.dirty()
        } else {
            traits
        }
    }

    /// Whether it is wide, whatever its operands are.
    pub(crate) fn is_wide(&self) -> bool {
        self.traits[0].is_wide()
    }
}

/// Whether it writes an upper half that `vzeroupper` would clear: ymm or zmm 0 to 15. Registers
/// 16 to 31 are no part of it (SDM vol. 1, 15.5; glibc's EVEX functions rely on that).
fn dirties(traits: Traits, instruction: &Instruction) -> bool {
    if traits.has(kind::READS_FIRST) || instruction.op0_kind() != OpKind::Register {
        return false;
    }
    let register = instruction.op0_register();
    (Register::YMM0..=Register::YMM15).contains(&register)
        || (Register::ZMM0..=Register::ZMM15).contains(&register)
}

fn has_memory(instruction: &Instruction) -> bool {
    (0..instruction.op_count()).any(|op| instruction.op_kind(op) == OpKind::Memory)
}

static BY_CODE: LazyLock<Vec<Facts>> = LazyLock::new(|| Code::values().map(of).collect());

/// The facts of all codes, by number.
pub(crate) fn all() -> &'static [Facts] {
    &BY_CODE
}

fn of(code: Code) -> Facts {
    let mut instruction = Instruction::default();
    instruction.set_code(code);
    let spelt = format!("{code:?}");
    let widest = [false, true].map(|in_memory| widest(&spelt, in_memory));
    let mut kinds = special(code.mnemonic());
    let Some(demand) = isa::demand(&instruction) else {
        // Without a class it is legacy code: SSE, if it has an xmm register in either form.
        if widest[0] == Width::Xmm {
            kinds |= kind::SSE;
        }
        let unlikely = is_unlikely(&instruction);
        let legacy = |widest| {
            // A register alone does not matter.
            if kinds == 0 { Traits::NONE } else { Traits::of_kind(kinds, widest) }
        };
        return Facts { traits: widest.map(legacy), unlikely };
    };
    kinds |= by_name(&demand.class.name, &isa::name(code.mnemonic()));
    let length = match demand.width_bits {
        512 => Width::Zmm,
        256 => Width::Ymm,
        128 => Width::Xmm,
        _ => Width::None,
    };
    let (weight, level) = (Some(demand.class.weight), demand.license_level);
    let traits = widest.map(|widest| Traits::new(length, weight, widest, level, kinds));
    Facts { traits, unlikely: false }
}

fn is_unlikely(instruction: &Instruction) -> bool {
    use Mnemonic as M;
    let far = instruction.is_call_far()
        || instruction.is_call_far_indirect()
        || instruction.is_jmp_far()
        || instruction.is_jmp_far_indirect();
    instruction.is_privileged()
        || far
        || matches!(
            instruction.mnemonic(),
            M::In
                | M::Out
                | M::Insb
                | M::Insw
                | M::Insd
                | M::Outsb
                | M::Outsw
                | M::Outsd
                | M::Hlt
                | M::Cli
                | M::Sti
                | M::Iret
                | M::Iretd
                | M::Iretq
                | M::Retf
                | M::Enter
                | M::Xlatb
                | M::Loop
                | M::Loope
                | M::Loopne
                | M::Fbld
                | M::Fbstp
                | M::Into
                | M::Bound
                | M::Les
                | M::Lds
                | M::Arpl
                | M::Daa
                | M::Das
                | M::Aaa
                | M::Aas
                | M::Salc
                | M::Int1
        )
}

fn special(mnemonic: Mnemonic) -> u16 {
    match mnemonic {
        Mnemonic::Cpuid => kind::CPUID,
        Mnemonic::Xgetbv => kind::XGETBV,
        Mnemonic::Vzeroupper | Mnemonic::Vzeroall => kind::VZERO,
        Mnemonic::Vptest | Mnemonic::Vtestps | Mnemonic::Vtestpd => kind::READS_FIRST,
        _ => 0,
    }
}

fn by_name(class: &str, mnemonic: &str) -> u16 {
    match class {
        "scatter" => kind::SCATTER,
        "gather" if !mnemonic.contains("pf") => kind::GATHER,
        "tile" if ["tdp", "tcmm"].iter().any(|start| mnemonic.starts_with(start)) => {
            kind::TILE | kind::TILE_MULTIPLY
        }
        "tile" => kind::TILE,
        "integer-multiply" if mnemonic.starts_with("vpdp") => kind::VNNI,
        _ => 0,
    }
}

/// The widest register that iced-x86 spells: `EVEX_Vcvtpd2ps_ymm_k1z_zmmm512b64_er` has one of 512
/// bits, and one of 256 if its last operand is in memory. Indices of gathers (`vm32y`) are
/// registers.
fn widest(code: &str, in_memory: bool) -> Width {
    let operands = code.split('_').skip(1);
    operands.map(|operand| operand_width(operand, in_memory)).max().unwrap_or_default()
}

fn operand_width(operand: &str, in_memory: bool) -> Width {
    if let Some(index) = operand.strip_prefix("vm32").or(operand.strip_prefix("vm64")) {
        return match index.as_bytes().first() {
            Some(b'x') => Width::Xmm,
            Some(b'y') => Width::Ymm,
            Some(b'z') => Width::Zmm,
            _ => Width::None,
        };
    }
    let (width, rest) = match operand.as_bytes() {
        [b'x', b'm', b'm', rest @ ..] => (Width::Xmm, rest),
        [b'y', b'm', b'm', rest @ ..] => (Width::Ymm, rest),
        [b'z', b'm', b'm', rest @ ..] => (Width::Zmm, rest),
        _ => return Width::None,
    };
    if in_memory && rest.first() == Some(&b'm') { Width::None } else { width }
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions};

    use super::*;

    fn decode(bytes: &[u8]) -> (Facts, Instruction) {
        let instruction = Decoder::new(64, bytes, DecoderOptions::NONE).decode();
        (all()[instruction.code() as usize], instruction)
    }

    /// The widest register is the one that is named, with operands in registers and in memory.
    #[test]
    fn widest_register_is_the_one_named() {
        for (bytes, want) in [
            (&[0xc5, 0xfd, 0x5a, 0xc1][..], Width::Ymm), // vcvtpd2ps xmm0, ymm1
            (&[0xc5, 0xfd, 0x5a, 0x01], Width::Xmm),     // vcvtpd2ps xmm0, ymmword [rcx]
            (&[0xc5, 0xf4, 0x58, 0x01], Width::Ymm),     // vaddps ymm0, ymm1, [rcx]
            (&[0x62, 0xf1, 0x7c, 0x48, 0x29, 0x01], Width::Zmm), // vmovaps [rcx], zmm0
            (&[0x0f, 0x58, 0xc1], Width::Xmm),           // addps xmm0, xmm1
            (&[0x0f, 0x58, 0x01], Width::Xmm),           // addps xmm0, [rcx]
            (&[0xc5, 0xf8, 0x77], Width::None),          // vzeroupper
            (&[0x48, 0x89, 0xc1], Width::None),          // mov rcx, rax
            // vpscatterdd [rcx+zmm2*4] {k1}, zmm0
            (&[0x62, 0xf2, 0x7d, 0x49, 0xa0, 0x04, 0x91], Width::Zmm),
            // vgatherqps xmm0, [rcx+ymm2*4], xmm1
            (&[0xc4, 0xe2, 0x75, 0x93, 0x04, 0x91], Width::Ymm),
        ] {
            let (facts, instruction) = decode(bytes);
            assert_eq!(facts.traits(&instruction).widest(), want, "{bytes:02x?}");
        }
    }

    /// Upper halves are dirtied by writes of ymm and zmm 0 to 15 only.
    #[test]
    fn what_dirties_upper_halves() {
        for (bytes, want) in [
            (&[0xc5, 0xfc, 0x28, 0xc1][..], true),    // vmovaps ymm0, ymm1
            (&[0xc5, 0xf8, 0x28, 0xc1], false),       // vmovaps xmm0, xmm1
            (&[0xc5, 0xfc, 0x29, 0x01], false),       // vmovaps [rcx], ymm0
            (&[0xc4, 0xe2, 0x7d, 0x17, 0xc1], false), // vptest ymm0, ymm1
            (&[0x62, 0xe1, 0x7c, 0x48, 0x28, 0xc1], false), // vmovaps zmm16, zmm1
            (&[0x62, 0xf1, 0x7c, 0x48, 0x28, 0xc1], true), // vmovaps zmm0, zmm1
            (&[0x62, 0xf1, 0x75, 0x48, 0x76, 0xca], false), // vpcmpeqd k1, zmm1, zmm2
        ] {
            let (facts, instruction) = decode(bytes);
            assert_eq!(facts.traits(&instruction).is_dirty(), want, "{bytes:02x?}");
        }
    }
}
