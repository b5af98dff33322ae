// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hint page has one layout: what a C compiler makes of bpf/hint_page.h is what the Rust twin
//! has.

use std::fmt::Write;
use std::mem::{offset_of, size_of};
use std::path::Path;
use std::process::Command;
use turbolane_hint::page::{self, Area, Board, Header, Slot};

/// Every constant and every field: as an expression in C, and its value in Rust.
fn facts() -> Vec<(String, u64)> {
    let mut facts: Vec<(String, u64)> = [
        ("TL_HINT_MAGIC", u64::from(page::MAGIC)),
        ("TL_HINT_ABI", u64::from(page::ABI)),
        ("TL_HINT_CPUS", page::CPUS as u64),
        ("TL_HINT_AREAS", page::AREAS as u64),
        ("TL_HINT_AREA_SLOTS", page::AREA_SLOTS as u64),
        ("TL_HINT_MODE_SCX", u64::from(page::MODE_SCX)),
        ("TL_HINT_MODE_AFFINITY", u64::from(page::MODE_AFFINITY)),
        ("TL_HINT_CPU_LEVEL", u64::from(page::CPU_LEVEL)),
        ("TL_HINT_CPU_SCALAR_LEAVES", u64::from(page::CPU_SCALAR_LEAVES)),
        ("TL_HINT_SILENT", u64::from(page::SILENT)),
        ("sizeof(struct tl_hint_header)", size_of::<Header>() as u64),
        ("sizeof(struct tl_hint_slot)", size_of::<Slot>() as u64),
        ("sizeof(struct tl_hint_board)", size_of::<Board>() as u64),
        ("sizeof(struct tl_hint_area)", size_of::<Area>() as u64),
        ("sizeof(((struct tl_hint_area *)0)->slot[0].want)", 4),
        ("sizeof(((struct tl_hint_board *)0)->header.generation)", 8),
    ]
    .map(|(expression, value)| (expression.to_owned(), value))
    .into();
    macro_rules! offsets {
        ($c:literal, $rust:ty: $($field:ident)*) => {$(
            let expression = format!("offsetof(struct {}, {})", $c, stringify!($field));
            facts.push((expression, offset_of!($rust, $field) as u64));
        )*};
    }
    offsets!(
        "tl_hint_header",
        Header: magic abi active mode nr_cpus nr_slots generation rest_below_ns takes_targets
            standing_by alive_ns lacks_q10
    );
    offsets!(
        "tl_hint_slot",
        Slot: tid want seq rest_seq narrowed rest_until_ns target_q10 reserved
    );
    offsets!("tl_hint_board", Board: header reserved0 cpu reserved1);
    offsets!("tl_hint_area", Area: slot);
    facts
}

#[test]
fn c_and_rust_agree() {
    let folder = tempfile::tempdir().unwrap();
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bpf/hint_page.h");
    let facts = facts();
    let mut program = String::from(
        "#include <stddef.h>\n#include <stdint.h>\n#include <stdio.h>\n\
         typedef uint8_t u8; typedef uint16_t u16; typedef uint32_t u32; typedef uint64_t u64;\n",
    );
    writeln!(program, "#include {:?}\nint main(void) {{", header).unwrap();
    for (expression, _) in &facts {
        writeln!(program, "\tprintf(\"%llu\\n\", (unsigned long long)({expression}));").unwrap();
    }
    program.push_str("\treturn 0;\n}\n");
    let source = folder.path().join("layout.c");
    let binary = folder.path().join("layout");
    std::fs::write(&source, program).unwrap();
    let compiled = Command::new("cc").args(["-std=gnu11", "-o"]).args([&binary, &source]).status();
    assert!(compiled.unwrap().success());
    let output = Command::new(&binary).output().unwrap();
    let values: Vec<u64> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| line.parse().unwrap())
        .collect();
    assert_eq!(values.len(), facts.len());
    for ((expression, rust), c) in facts.iter().zip(values) {
        assert_eq!(*rust, c, "{expression}: in Rust {rust}, in C {c}");
    }
}
