// SPDX-License-Identifier: MIT OR Apache-2.0
//! The decoder against iced-x86 on every VEX, EVEX and XOP prefix and opcode.

mod common;

use std::collections::HashSet;

use common::{ALL, SETTINGS, Truth, compare, is_ours};
use decodetests::{Guarded, Kind, decode};
use iced_x86::Code;

/// Forms of ModRM with what follows it: registers, every addressing mode, all
/// extensions of the opcode for a register and for memory.
fn operands() -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = Vec::new();
    for reg in 0..8 {
        all.push(vec![0xc0 | reg << 3]);
        // A SIB byte: gathers have nothing else.
        all.push(vec![0x04 | reg << 3, 0x0a]);
    }
    all.push(vec![0xc1]);
    all.push(vec![0x00]);
    all.push(vec![0x05, 1, 2, 3, 4]);
    all.push(vec![0x04, 0x25, 1, 2, 3, 4]);
    all.push(vec![0x44, 0x0a, 1]);
    all.push(vec![0x41, 1]);
    all.push(vec![0x84, 0x0a, 1, 2, 3, 4]);
    all.push(vec![0x82, 1, 2, 3, 4]);
    all
}

/// Longest immediate.
const IMMEDIATE: [u8; 4] = [0x11, 0, 0, 0];

/// Tries one prefix with all opcodes and operands. Long enough bytes for the
/// comparison, then each shorter piece of what was an instruction.
fn sweep(prefix: &[u8], long_mode: bool, operands: &[Vec<u8>], seen: &mut HashSet<Code>) {
    for opcode in 0..=255u8 {
        for operand in operands {
            let mut bytes = prefix.to_vec();
            bytes.push(opcode);
            bytes.extend_from_slice(operand);
            bytes.extend_from_slice(&IMMEDIATE);
            if let Truth::Valid(instruction, _) = compare(&bytes, ALL, long_mode)
                && seen.insert(instruction.code())
            {
                in_depth(&bytes[..instruction.len()], long_mode);
            }
        }
    }
}

/// Once for each instruction: under every setting; cut off anywhere; behind a
/// prefix that is allowed and ones that are not.
fn in_depth(bytes: &[u8], long_mode: bool) {
    let mut page = Guarded::new();
    for withheld in SETTINGS {
        compare(page.place(bytes), withheld, long_mode);
    }
    for end in 0..bytes.len() {
        let cut = page.place(&bytes[..end]);
        assert!(decode(cut, ALL, long_mode).is_err(), "{cut:02x?} of {bytes:02x?}");
    }
    for prefix in [0x2e, 0x64, 0x66, 0xf2, 0xf3, 0xf0, 0x48] {
        let bytes = [&[prefix], bytes].concat();
        compare(page.place(&bytes), ALL, long_mode);
        if !matches!(prefix, 0x2e | 0x64 | 0x48) || (prefix == 0x48 && long_mode) {
            let insn = decode(&bytes, ALL, long_mode).unwrap();
            assert_eq!(insn.kind, Kind::NotWithheld, "{bytes:02x?}");
        }
    }
    // With 0x67 there are other addresses outside of long mode.
    let short = [&[0x67], bytes, &[0; 4]].concat();
    compare(page.place(&short[..short.len().min(15)]), ALL, long_mode);
}

/// C4, C5 and 8F with every map, prefix, W and L; vvvv as most instructions
/// want it and as the others do.
fn sweep_vex(long_mode: bool, seen: &mut HashSet<Code>) {
    let operands = operands();
    for low in 0..8u8 {
        for vvvv in [0x78, 0x50] {
            sweep(&[0xc5, 0x80 | vvvv | low], long_mode, &operands, seen);
            for w in [0, 0x80] {
                for map in (0..32).filter(|&map| map < 16 || long_mode) {
                    sweep(&[0xc4, 0xe0 | map, w | vvvv | low], long_mode, &operands, seen);
                }
                for map in 8..11 {
                    sweep(&[0x8f, 0xe0 | map, w | vvvv | low], long_mode, &operands, seen);
                }
            }
        }
    }
}

/// 62 with every map, prefix, W, L'L and b, with and without a mask.
fn sweep_evex(long_mode: bool, seen: &mut HashSet<Code>) {
    let operands = operands();
    for map in 0..8u8 {
        for pp in 0..4u8 {
            for p1 in [0x7c, 0xfc, 0x54, 0xd4] {
                for high in 0..8u8 {
                    // V' as bit 3, then no mask or k1.
                    for low in [0x08, 0x09] {
                        let prefix = [0x62, 0xf0 | map, p1 | pp, high << 4 | low];
                        sweep(&prefix, long_mode, &operands, seen);
                    }
                }
            }
        }
    }
}

fn missing(seen: &HashSet<Code>, long_mode: bool) -> Vec<Code> {
    Code::values()
        .filter(|&code| is_ours(code) && !seen.contains(&code))
        .filter(|code| if long_mode { code.op_code().mode64() } else { code.op_code().mode32() })
        .collect()
}

/// Every instruction that iced-x86 knows is met and told alike, in 64-bit code.
#[test]
fn every_opcode_in_long_mode() {
    let mut seen = HashSet::new();
    sweep_vex(true, &mut seen);
    sweep_evex(true, &mut seen);
    assert_eq!(missing(&seen, true), []);
}

/// The same in 32-bit code, where the prefixes are also LES, LDS and BOUND.
#[test]
fn every_opcode_in_compatibility_mode() {
    let mut seen = HashSet::new();
    sweep_vex(false, &mut seen);
    sweep_evex(false, &mut seen);
    assert_eq!(missing(&seen, false), []);
}

/// The XSAVE family and XGETBV among all of 0F AE, 0F C7 and 0F 01, with every
/// ModRM and prefix.
#[test]
fn what_moves_components() {
    let mut seen = HashSet::new();
    for long_mode in [true, false] {
        for prefix in [&[][..], &[0x48], &[0x66], &[0xf2], &[0xf3], &[0xf0], &[0x64], &[0x66, 0x48]]
        {
            for opcode in [0xae, 0xc7, 0x01] {
                for modrm in 0..=255u8 {
                    let tail = [0x0a, 1, 2, 3, 4];
                    let bytes = [prefix, &[0x0f, opcode, modrm], &tail].concat();
                    if let Truth::Valid(instruction, expected) = compare(&bytes, ALL, long_mode)
                        && expected.kind != Kind::NotWithheld
                    {
                        seen.insert(instruction.code());
                    }
                }
            }
        }
    }
    // XSAVE, XSAVEC, XSAVEOPT, XSAVES, XRSTOR, XRSTORS in two sizes; XGETBV.
    assert_eq!(seen.len(), 13);
}

/// Prefixes without end are no instruction, and no reason to read on.
#[test]
fn only_prefixes() {
    let mut page = Guarded::new();
    for prefix in [0x66, 0x2e, 0x48, 0x67] {
        let all = page.place(&[prefix; 15]);
        assert_eq!(decode(all, ALL, true).unwrap().kind, Kind::NotWithheld);
        let most = page.place(&[prefix; 14]);
        assert!(decode(most, ALL, true).is_err());
    }
    assert!(decode(&[], ALL, true).is_err());
}
