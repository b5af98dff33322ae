// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading ahead: lengths against iced-x86, and paths that lead to heavy code or do not.

use std::path::Path;

use decodetests::{Guarded, length, level_ahead};
use iced_x86::{Code, Decoder, DecoderOptions, Instruction};
use object::{Object, ObjectSection, SectionKind};
use proptest::prelude::*;

const AVX512: u64 = 7 << 5;
/// With AVX and AMX.
const ALL: u64 = AVX512 | 1 << 2 | 3 << 17;

/// The instruction at the start of 64-bit code, if iced-x86 knows one.
fn valid(bytes: &[u8]) -> Option<Instruction> {
    let mut decoder = Decoder::new(64, bytes, DecoderOptions::NONE);
    let instruction = decoder.decode();
    (!instruction.is_invalid()).then_some(instruction)
}

/// Our length is iced-x86's, or none, and never more than there are bytes. Returns whether there
/// was one to compare.
fn same_length(bytes: &[u8]) -> bool {
    let ours = length(bytes);
    assert!(ours <= bytes.len().min(15), "{ours} of {bytes:02x?}");
    match valid(bytes) {
        Some(instruction) if ours > 0 => {
            assert_eq!(ours, instruction.len(), "{bytes:02x?} is {:?}", instruction.code());
            true
        }
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200_000, failure_persistence: None, ..ProptestConfig::default()
    })]

    /// Nothing is measured wrongly, and no byte is read behind the last.
    #[test]
    fn random_bytes(mut bytes in prop::collection::vec(any::<u8>(), 0..20), prefix in 0..8_usize) {
        thread_local! {
            static PAGE: std::cell::RefCell<Guarded> = std::cell::RefCell::new(Guarded::new());
        }
        if let Some(&prefix) = [0x66_u8, 0x67, 0xf2, 0xf3, 0x48, 0x0f].get(prefix) {
            bytes.insert(0, prefix);
        }
        PAGE.with_borrow_mut(|page| {
            let code = page.place(&bytes);
            same_length(code);
            assert!(level_ahead(code, ALL) <= 3);
        });
    }
}

/// All opcodes of both maps with every form of ModRM: what compilers use is measured.
#[test]
fn every_opcode() {
    let mut missing = Vec::new();
    for (map, opcode) in [&[][..], &[0x0f], &[0x0f, 0x38], &[0x0f, 0x3a]]
        .into_iter()
        .flat_map(|map| (0..=255_u8).map(move |opcode| (map, opcode)))
    {
        for prefix in [&[][..], &[0x66], &[0xf2], &[0xf3], &[0x48], &[0x66, 0x48], &[0x67]] {
            for modrm in 0..=255_u8 {
                let mut bytes = [prefix, map, &[opcode, modrm]].concat();
                bytes.extend([0x25, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
                if !same_length(&bytes)
                    && let Some(instruction) = valid(&bytes)
                    && !is_rare(&instruction)
                {
                    missing.push(format!("{bytes:02x?} {:?}", instruction.code()));
                }
            }
        }
    }
    missing.dedup_by_key(|text| text.rsplit(' ').next().map(str::to_owned));
    assert!(
        missing.is_empty(),
        "{} not measured: {:#?}",
        missing.len(),
        &missing[..missing.len().min(20)]
    );
}

/// What the reader may stop at: no program for users has it on a way to vector code.
fn is_rare(instruction: &Instruction) -> bool {
    let code = instruction.op_code();
    let bytes = code.op_code();
    instruction.is_privileged()
        || matches!(instruction.code(), Code::Int_imm8 | Code::Rsm)
        || format!("{:?}", instruction.code()).starts_with("VEX_")
        || format!("{:?}", instruction.code()).starts_with("EVEX_")
        || (code.table() == iced_x86::OpCodeTableKind::T0F
            && (matches!(bytes, 0x20..=0x27 | 0x78 | 0x79) || matches!(bytes >> 8, 0xa6 | 0xa7)))
}

/// The code of the C library, every instruction of it but a few.
#[test]
fn the_c_library() {
    let data = std::fs::read(Path::new("/usr/lib/x86_64-linux-gnu/libc.so.6")).unwrap();
    let file = object::File::parse(&*data).unwrap();
    let (mut measured, mut all) = (0_u64, 0_u64);
    for section in file.sections().filter(|section| section.kind() == SectionKind::Text) {
        let code = section.data().unwrap();
        let mut at = 0;
        while at < code.len() {
            let bytes = &code[at..code.len().min(at + 15)];
            let Some(instruction) = valid(bytes) else {
                at += 1;
                continue;
            };
            measured += u64::from(same_length(bytes));
            all += 1;
            at += instruction.len();
        }
    }
    assert!(all > 100_000, "{all} instructions");
    assert!((all - measured) * 1000 < all, "{measured} of {all} measured");
}

const BROADCAST: [u8; 6] = [0x62, 0xf2, 0xfd, 0x48, 0x19, 0x06]; // vbroadcastsd zmm0, [rsi]
const MULTIPLY: [u8; 6] = [0x62, 0xf1, 0xfd, 0x48, 0x59, 0xc0]; // vmulpd zmm0, zmm0, zmm0
const MULTIPLY_256: [u8; 4] = [0xc5, 0xfd, 0x59, 0xc0]; // vmulpd ymm0, ymm0, ymm0
const ADD: [u8; 4] = [0x48, 0x83, 0xc0, 0x01]; // add rax, 1

/// Heavy code is found behind scalar code, calls, untaken branches and jumps forward.
#[test]
fn ways_that_lead_there() {
    let ways: [(&str, &[u8]); 6] = [
        ("at once", &[]),
        ("behind scalar code", &ADD),
        ("behind a call", &[0xe8, 1, 2, 3, 4]),
        ("behind a branch", &[0x0f, 0x84, 1, 2, 3, 4, 0x75, 0xf0]),
        ("behind a short jump over rubbish", &[0xeb, 0x03, 0xff, 0xff, 0xff]),
        ("behind a long jump", &[0xe9, 0x02, 0, 0, 0, 0x06, 0x06]),
    ];
    for (name, way) in ways {
        let code = [&BROADCAST, way, &MULTIPLY].concat();
        assert_eq!(level_ahead(&code, AVX512), 2, "{name}");
    }
    // Light code alone asks for level 1; AVX2 is not withheld here.
    assert_eq!(level_ahead(&BROADCAST, AVX512), 1);
    assert_eq!(level_ahead(&[&BROADCAST[..], &MULTIPLY_256].concat(), AVX512), 1);
    assert_eq!(level_ahead(&[&ADD[..], &MULTIPLY_256].concat(), ALL), 1);
}

/// What is behind the end of the way is not looked at.
#[test]
fn ways_that_end() {
    let ends: [(&str, &[u8]); 7] = [
        ("return", &[0xc3]),
        ("return that pops", &[0xc2, 8, 0]),
        ("jump back", &[0xeb, 0xf0]),
        ("jump far ahead", &[0xe9, 0, 1, 0, 0]),
        ("jump by a register", &[0xff, 0xe0]),
        ("UD2", &[0x0f, 0x0b]),
        ("illegal opcode", &[0x06]),
    ];
    for (name, end) in ends {
        let code = [&BROADCAST, end, &MULTIPLY].concat();
        assert_eq!(level_ahead(&code, AVX512), 1, "{name}");
    }
    let far = [&BROADCAST[..], &ADD.repeat(63), &MULTIPLY].concat();
    assert_eq!(level_ahead(&far, AVX512), 1, "further than is worth reading");
    assert_eq!(level_ahead(&[], AVX512), 0);
    for cut in 0..MULTIPLY.len() {
        let code = [&ADD[..], &MULTIPLY[..cut]].concat();
        assert_eq!(level_ahead(&code, AVX512), 0, "cut off");
    }
}
