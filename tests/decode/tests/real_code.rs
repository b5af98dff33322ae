// SPDX-License-Identifier: MIT OR Apache-2.0
//! The decoder against iced-x86 on the code of this machine's libraries.

mod common;

use std::path::Path;

use common::{ALL, Truth, compare};
use decodetests::Kind;
use object::{Object, ObjectSection, SectionKind};

const FOLDER: &str = "/usr/lib/x86_64-linux-gnu";

/// Libraries with much vector code; what is not installed is passed over.
/// `TURBOLANE_CODE=FILE:FILE` names others.
const LIBRARIES: [&str; 6] = [
    "libc.so.6",
    "libm.so.6",
    "libcrypto.so.3",
    "libx265.so.199",
    "libopenblas.so.0",
    "libstdc++.so.6",
];

/// Code of one library that a plain run looks at.
const BYTES_MAX: usize = 6 << 20;

#[derive(Default, Debug)]
struct Seen {
    instructions: u64,
    light: u64,
    heavy: u64,
}

/// Goes through all code sections instruction by instruction, as iced-x86 sees
/// them; steps over what is none.
fn walk(path: &Path, limit: usize, seen: &mut Seen) {
    let data = std::fs::read(path).unwrap();
    let file = object::File::parse(&*data).unwrap();
    for section in file.sections().filter(|section| section.kind() == SectionKind::Text) {
        let code = section.data().unwrap();
        let end = code.len().min(limit);
        let mut at = 0;
        while at < end {
            let bytes = &code[at..code.len().min(at + 15)];
            let Truth::Valid(instruction, expected) = compare(bytes, ALL, true) else {
                at += 1;
                continue;
            };
            at += instruction.len();
            seen.instructions += 1;
            seen.light += u64::from(expected.kind == Kind::Light);
            seen.heavy += u64::from(expected.kind == Kind::Heavy);
        }
    }
}

#[test]
fn libraries_of_this_machine() {
    let given = std::env::var("TURBOLANE_CODE").ok();
    let paths: Vec<_> = match &given {
        Some(list) => list.split(':').map(|path| Path::new(path).to_owned()).collect(),
        None => LIBRARIES.iter().map(|name| Path::new(FOLDER).join(name)).collect(),
    };
    let limit = if given.is_some() { usize::MAX } else { BYTES_MAX };
    let mut seen = Seen::default();
    for path in paths.iter().filter(|path| path.exists()) {
        walk(path, limit, &mut seen);
    }
    println!("{seen:?}");
    // libc alone has both.
    assert!(seen.light > 1000 && seen.heavy > 0, "{seen:?}");
}
