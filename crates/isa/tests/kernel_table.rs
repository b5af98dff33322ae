// SPDX-License-Identifier: MIT OR Apache-2.0
//! kmod/isa_table.h is what data/isa/classes.toml says, by opcode. `UPDATE=1`
//! makes it so.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use iced_x86::{Code, EncodingKind, MandatoryPrefix, OpCodeInfo, OpCodeTableKind};
use isa::Weight;

const HEAD: &str = "/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What each VEX, EVEX and XOP opcode is. Generated from data/isa/classes.toml
 * and the opcodes that iced-x86 knows: do not edit, but run
 *
 *   UPDATE=1 cargo test -p isa --test kernel_table
 */
#ifndef TLT_ISA_TABLE_H
#define TLT_ISA_TABLE_H

#include \"decode.h\"

enum tlt_encoding {
	TLT_ENC_VEX,
	TLT_ENC_EVEX,
	TLT_ENC_XOP
};

enum tlt_isa_class {
	TLT_CLASS_UNKNOWN, /* no CPU that we know has it */
	TLT_CLASS_LIGHT,
	TLT_CLASS_HEAVY,
	TLT_CLASS_SCALAR,  /* one element, whatever the length says */
	TLT_CLASS_GENERAL, /* needs no component: BMI and the like */
	TLT_CLASS_OPMASK,
	TLT_CLASS_TILE,
};

#define TLT_ISA_MAPS 11

/* clang-format off */
";

const TAIL: &str = "};

/* clang-format on */

static inline u8 tlt_isa_class(u8 encoding, u8 map, u8 pp, u8 opcode)
{
	const u8 *classes = map < TLT_ISA_MAPS ? tlt_isa[encoding][map][pp] : 0;

	return classes ? classes[opcode] : (u8)TLT_CLASS_UNKNOWN;
}

#endif
";

/// The table that an opcode stands in: encoding, map, prefix.
type Place = (&'static str, u8, u8);

/// Class and mnemonics by opcode.
type Opcodes = BTreeMap<u8, (&'static str, Vec<String>)>;

/// Xeon Phi's first generation used the same opcodes for something else.
fn is_relevant(code: Code) -> bool {
    let encoding = code.op_code().encoding();
    matches!(encoding, EncodingKind::VEX | EncodingKind::EVEX | EncodingKind::XOP)
        && !format!("{code:?}").contains("KNC")
}

fn place(info: &OpCodeInfo) -> Place {
    let encoding = match info.encoding() {
        EncodingKind::VEX => "vex",
        EncodingKind::EVEX => "evex",
        _ => "xop",
    };
    let map = match info.table() {
        OpCodeTableKind::T0F => 1,
        OpCodeTableKind::T0F38 => 2,
        OpCodeTableKind::T0F3A => 3,
        OpCodeTableKind::MAP5 => 5,
        OpCodeTableKind::MAP6 => 6,
        OpCodeTableKind::MAP8 => 8,
        OpCodeTableKind::MAP9 => 9,
        OpCodeTableKind::MAP10 => 10,
        other => panic!("the decoder must learn map {other:?}"),
    };
    let prefix = match info.mandatory_prefix() {
        MandatoryPrefix::None | MandatoryPrefix::PNP => 0,
        MandatoryPrefix::P66 => 1,
        MandatoryPrefix::PF3 => 2,
        MandatoryPrefix::PF2 => 3,
    };
    (encoding, map, prefix)
}

fn class(code: Code) -> &'static str {
    let Some(class) = isa::table().class_of(&isa::name(code.mnemonic())) else {
        return "GENERAL";
    };
    match class.weight {
        Weight::Tile => "TILE",
        _ if class.name == "mask" => "OPMASK",
        _ if code.op_code().is_lig() => "SCALAR",
        Weight::Heavy => "HEAVY",
        Weight::Light => "LIGHT",
    }
}

/// All opcodes; where two instructions share one, they must share its class.
fn tables() -> BTreeMap<Place, Opcodes> {
    let mut tables: BTreeMap<Place, Opcodes> = BTreeMap::new();
    for code in Code::values().filter(|&code| is_relevant(code)) {
        let info = code.op_code();
        // TILERELEASE counts its ModRM as part of the opcode.
        let opcode = info.op_code() >> (8 * (info.op_code_len() - 1));
        let opcode = u8::try_from(opcode).unwrap();
        let table = tables.entry(place(info)).or_default();
        let (known, names) = table.entry(opcode).or_insert((class(code), Vec::new()));
        assert_eq!(*known, class(code), "{code:?} and {names:?} share an opcode");
        let name = isa::name(code.mnemonic());
        if !names.contains(&name) {
            names.push(name);
        }
    }
    tables
}

fn variable((encoding, map, prefix): Place) -> String {
    let prefix = ["np", "66", "f3", "f2"][usize::from(prefix)];
    format!("tlt_{encoding}_map{map}_{prefix}")
}

fn rows(opcodes: &Opcodes) -> String {
    let mut text = String::new();
    let mut all = opcodes.iter().peekable();
    while let Some((&first, (class, names))) = all.next() {
        let (mut last, mut names) = (first, names.clone());
        while let Some((&next, (_, more))) =
            all.next_if(|(next, (other, _))| **next == last + 1 && other == class)
        {
            last = next;
            names.extend(more.iter().cloned());
        }
        let at = if last == first {
            format!("{first:#04x}")
        } else {
            format!("{first:#04x} ... {last:#04x}")
        };
        let names = match &names[..] {
            [a, .., b] if names.len() > 3 => format!("{a} .. {b}"),
            few => few.join(" "),
        };
        writeln!(text, "\t[{at}] = TLT_CLASS_{class}, /* {names} */").unwrap();
    }
    text
}

fn header() -> String {
    let mut text = HEAD.to_owned();
    let tables = tables();
    for (&place, opcodes) in &tables {
        let name = variable(place);
        write!(text, "static const u8 {name}[256] = {{\n{}}};\n\n", rows(opcodes)).unwrap();
    }
    text += "/* By encoding, map, prefix (none, 66, F3, F2). */\n\
             static const u8 *const tlt_isa[3][TLT_ISA_MAPS][4] = {\n";
    for &place in tables.keys() {
        let (encoding, map, prefix) = place;
        let encoding = encoding.to_uppercase();
        writeln!(text, "\t[TLT_ENC_{encoding}][{map}][{prefix}] = {},", variable(place)).unwrap();
    }
    text + TAIL
}

#[test]
fn the_modules_table_is_the_projects() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kmod/isa_table.h");
    let made = header();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == made,
        "kmod/isa_table.h is stale. Run: UPDATE=1 cargo test -p isa --test kernel_table"
    );
}

/// Each mnemonic is of exactly one class if it has vectors, opmasks or tiles,
/// and of none otherwise; each pattern of the table is of use.
#[test]
fn the_table_says_one_thing_about_each_instruction() {
    let mut complaints = Vec::new();
    let mut of_use = BTreeSet::new();
    for code in Code::values().filter(|&code| is_relevant(code)) {
        let name = isa::name(code.mnemonic());
        let mut classes = Vec::new();
        for class in isa::table().classes() {
            for pattern in class.fitting(&name) {
                classes.push(class.name.as_str());
                of_use.insert(pattern);
            }
        }
        let spelt = format!("{code:?}");
        let has_registers =
            ["xmm", "ymm", "zmm", "tmm", "vm32", "vm64", "_k", "mxcsr", "Vzero", "tilecfg", "Tile"]
                .iter()
                .any(|part| spelt.contains(part));
        if classes.len() != usize::from(has_registers) {
            complaints.push(format!("{name} ({spelt}): {classes:?}"));
        }
    }
    for pattern in isa::table().classes().iter().flat_map(isa::Class::patterns) {
        if !of_use.contains(pattern.as_str()) {
            complaints.push(format!("{pattern} fits nothing"));
        }
    }
    complaints.dedup();
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}
