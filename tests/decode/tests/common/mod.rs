// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the module's decoder must say, worked out from iced-x86 and the
//! project's class table.

use decodetests::{Insn, Kind, Truncated, decode};
use iced_x86::{
    Code, CpuidFeature, Decoder, DecoderError, DecoderOptions, EncodingKind, Instruction, Mnemonic,
};
use isa::Weight;

pub const AVX: u64 = 1 << 2;
pub const AVX512: u64 = 7 << 5;
pub const AMX: u64 = 3 << 17;
const SSE: u64 = 1 << 1;

/// All that the module can withhold.
pub const ALL: u64 = AVX | AVX512 | AMX;

/// What it does withhold, by its settings.
#[allow(dead_code, reason = "not every test goes through them")]
pub const SETTINGS: [u64; 4] = [ALL, AVX512, AVX | AVX512, AMX];

/// What iced-x86 makes of some bytes.
pub enum Truth {
    /// An instruction, and what our decoder must say.
    Valid(Box<Instruction>, Insn),
    /// It goes on behind the last byte.
    Truncated,
    /// There is no such instruction.
    Invalid,
}

pub fn truth(bytes: &[u8], withheld: u64, long_mode: bool) -> Truth {
    let bits = if long_mode { 64 } else { 32 };
    let mut decoder = Decoder::new(bits, bytes, DecoderOptions::NONE);
    let instruction = decoder.decode();
    match decoder.last_error() {
        DecoderError::NoMoreBytes => Truth::Truncated,
        DecoderError::None => {
            let expected = expected(&instruction, withheld);
            Truth::Valid(Box::new(instruction), expected)
        }
        _ => Truth::Invalid,
    }
}

fn expected(instruction: &Instruction, withheld: u64) -> Insn {
    let length = u8::try_from(instruction.len()).unwrap();
    let mut insn =
        Insn { kind: Kind::NotWithheld, length: 0, license_level: 0, width_bits: 0, needs_xcr0: 0 };
    let state = match instruction.mnemonic() {
        Mnemonic::Xsave | Mnemonic::Xsave64 | Mnemonic::Xsaveopt | Mnemonic::Xsaveopt64 => {
            Some(Kind::Xsave)
        }
        Mnemonic::Xsavec | Mnemonic::Xsavec64 | Mnemonic::Xsaves | Mnemonic::Xsaves64 => {
            Some(Kind::Xsave)
        }
        Mnemonic::Xrstor | Mnemonic::Xrstor64 | Mnemonic::Xrstors | Mnemonic::Xrstors64 => {
            Some(Kind::Xrstor)
        }
        Mnemonic::Xgetbv => Some(Kind::Xgetbv),
        _ => None,
    };
    if let Some(kind) = state {
        return Insn { kind, length, ..insn };
    }
    let encoding = instruction.code().op_code().encoding();
    if !matches!(encoding, EncodingKind::VEX | EncodingKind::EVEX | EncodingKind::XOP) {
        return insn;
    }
    insn.length = length;
    let Some(demand) = isa::demand(instruction) else {
        return insn; // general registers only
    };
    let evex = encoding == EncodingKind::EVEX || demand.class.name == "mask";
    insn.needs_xcr0 = match demand.class.weight {
        Weight::Tile => AMX,
        _ if evex => SSE | AVX | AVX512,
        _ => SSE | AVX,
    };
    insn.width_bits = match demand.class.name.as_str() {
        "mask" | "tile" => 0,
        // Neither has a vector register to name: VZEROUPPER, VLDMXCSR.
        _ if demand.width_bits == 0 => 128 << instruction.code().op_code().l(),
        _ => demand.width_bits,
    };
    if insn.needs_xcr0 & withheld != 0 {
        insn.license_level = demand.license_level;
        insn.kind = match demand.class.weight {
            Weight::Light => Kind::Light,
            // One element raises no level, so its weight is not asked.
            Weight::Heavy if instruction.code().op_code().is_lig() => Kind::Light,
            Weight::Heavy | Weight::Tile => Kind::Heavy,
        };
    }
    insn
}

/// Compares the two on one instruction, and says what iced-x86 made of it. On
/// what iced-x86 does not know ours may say what it likes, but must end.
pub fn compare(bytes: &[u8], withheld: u64, long_mode: bool) -> Truth {
    let ours = decode(bytes, withheld, long_mode);
    let truth = truth(bytes, withheld, long_mode);
    match &truth {
        Truth::Valid(instruction, expected) => assert_eq!(
            ours,
            Ok(*expected),
            "{bytes:02x?} long mode {long_mode} withheld {withheld:#x}: {:?}",
            instruction.code()
        ),
        Truth::Truncated => assert!(
            // Of a form that nobody knows, nobody knows the end.
            matches!(ours, Err(Truncated) | Ok(Insn { length: 0, .. })),
            "{bytes:02x?} long mode {long_mode}: {ours:?} of half an instruction"
        ),
        Truth::Invalid => {}
    }
    truth
}

/// Whether the decoder is to know this instruction; Xeon Phi's first
/// generation had other instructions at the same opcodes.
#[allow(dead_code, reason = "only the exhaustive test asks")]
pub fn is_ours(code: Code) -> bool {
    let info = code.op_code();
    matches!(info.encoding(), EncodingKind::VEX | EncodingKind::EVEX | EncodingKind::XOP)
        && !code.cpuid_features().contains(&CpuidFeature::KNC)
        && !format!("{code:?}").contains("KNC")
}
