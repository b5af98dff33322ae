// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table against iced-x86: every opcode, prefix, ModRM and SIB.

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};

use super::*;
use crate::facts;
use crate::traits::{Traits, Width, kind};

/// What the scanner makes of the instruction that begins the window: by the quick path or else by
/// the other one, which has to say the same where both know it.
fn decode(window: &[u8; WINDOW]) -> Step {
    let opcode = opcode(window);
    let step = opcode.step();
    if let Some((length, is_sse)) = opcode.simple() {
        let kind = if is_sse { Kind::Sse } else { Kind::Plain };
        assert_eq!(step, Step { length, kind, target: 0 }, "{window:02x?}");
    }
    step
}

/// What iced-x86 says the kind is.
fn expected(instruction: &Instruction) -> Kind {
    let traits = facts::all()[instruction.code() as usize].traits(instruction);
    match instruction.flow_control() {
        FlowControl::ConditionalBranch => Kind::Branch,
        FlowControl::UnconditionalBranch => Kind::Jump,
        FlowControl::IndirectBranch => Kind::IndirectJump,
        FlowControl::Call => Kind::Call,
        FlowControl::Return => Kind::Return,
        FlowControl::Exception => Kind::Trap,
        FlowControl::Interrupt if instruction.mnemonic() == Mnemonic::Int3 => Kind::Trap,
        FlowControl::Next | FlowControl::IndirectCall => match traits {
            traits if traits.has(kind::SSE) => Kind::Sse,
            traits if traits.has(kind::CPUID) => Kind::Cpuid,
            Traits::NONE
                if instruction.mnemonic() == Mnemonic::Lea
                    && instruction.is_ip_rel_memory_operand() =>
            {
                Kind::Address
            }
            Traits::NONE => Kind::Plain,
            _ => Kind::Slow,
        },
        _ => Kind::Slow,
    }
}

fn target(instruction: &Instruction) -> u64 {
    match instruction.op0_kind() {
        OpKind::NearBranch64 => instruction.near_branch_target(),
        _ => instruction.ip_rel_memory_address(),
    }
}

fn check(window: &[u8; WINDOW]) -> bool {
    let step = decode(window);
    if step.kind == Kind::Slow {
        return false;
    }
    let instruction = Decoder::with_ip(64, window, 0, DecoderOptions::NONE).decode();
    assert_ne!(instruction.code(), Code::INVALID, "{window:02x?}");
    assert_eq!(step.length, instruction.len(), "{window:02x?} {:?}", instruction.code());
    assert_eq!(step.kind, expected(&instruction), "{window:02x?} {:?}", instruction.code());
    if step.kind == Kind::Sse {
        let traits = facts::all()[instruction.code() as usize].traits(&instruction);
        assert_eq!(traits, Traits::of_kind(kind::SSE, Width::Xmm), "{window:02x?}");
    }
    if matches!(step.kind, Kind::Branch | Kind::Jump | Kind::Call | Kind::Address) {
        let ours = (step.length as u64).wrapping_add_signed(step.target.into());
        assert_eq!(ours, target(&instruction), "{window:02x?}");
    }
    true
}

/// Every combination of prefix, REX, opcode, ModRM and SIB base gives iced-x86's length, kind and
/// target, or is left to it.
#[test]
fn agrees_with_iced() {
    let mut known = 0;
    let prefixes: [&[u8]; 5] = [&[], &[0x66], &[0xf3], &[0xf2], &[0x66, 0x66]];
    let rexes: [&[u8]; 7] = [&[], &[0x40], &[0x41], &[0x44], &[0x48], &[0x4f], &[0x48, 0x48]];
    for prefix in prefixes {
        for rex in rexes {
            for map in [&[][..], &[0x0f], &[0x0f, 0x38], &[0x0f, 0x3a]] {
                for opcode in 0..=255u8 {
                    known += check_opcode(&[prefix, rex, map, &[opcode]].concat());
                }
            }
        }
    }
    assert!(known > 1_000_000, "the table is nearly empty: {known}");
}

fn check_opcode(start: &[u8]) -> u32 {
    let mut window = [0x91; WINDOW];
    window[..start.len()].copy_from_slice(start);
    let mut known = 0;
    for modrm in 0..=255u8 {
        window[start.len()] = modrm;
        let sibs: &[u8] = if modrm & 7 == 4 { &[0x00, 0x25, 0xe5, 0xa4] } else { &[0x91] };
        for &sib in sibs {
            window[start.len() + 1] = sib;
            known += u32::from(check(&window));
        }
    }
    known
}

/// Orders of prefixes that make a REX void, or an opcode of another map, are left alone.
#[test]
fn odd_orders_are_left_to_iced() {
    for start in [
        &[0x48, 0x66, 0x05][..],
        &[0xf3, 0x66, 0x0f, 0x6f],
        &[0x66, 0xf3, 0x0f, 0x6f],
        &[0xf0, 0x48, 0x01],
        &[0x67, 0x8d],
        &[0x2e, 0xe8],
        &[0xc5, 0xf8, 0x77],
        &[0xc4, 0xe2, 0x7d],
        &[0x62, 0xf1, 0x7c],
        &[0x8f, 0xe9],
        &[0x0f, 0x01, 0xd0],
        &[0xf3, 0x0f, 0x38, 0x00],
        &[0x0f, 0x0f, 0x00],
    ] {
        let mut window = [0; WINDOW];
        window[..start.len()].copy_from_slice(start);
        assert_eq!(decode(&window).kind, Kind::Slow, "{start:02x?}");
    }
}
